"""A run's rounds also go to TensorBoard or MLflow, where somebody asks for it: `--track`, extra `trackers`.

Only what is in the run directory's record anyway is told: settings, loss, metrics, bytes, seconds, epsilon. MLflow
writes into the run directory, or to the server that MLFLOW_TRACKING_URI names; its own telemetry is switched off.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol, final

from coterie.errors import CoterieError, unknown_name
from coterie.runs.spec import RunSpec


class Tracker(Protocol):
    def told(self, round_: int, numbers: dict[str, float]) -> None: ...

    def close(self, finished: bool) -> None: ...


def numbers_of(record: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Every number of a round's record under its path: loss, bytes/up, test/full/NDCG_at_10 (neither takes an @)."""
    found: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            found |= numbers_of(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and key != "round":
            found[(prefix + key).replace("@", "_at_")] = float(value)
    return found


@final
class TensorBoard:
    """Event files in the run directory's `tensorboard`; `tensorboard --logdir runs` shows all runs."""

    module: ClassVar[str] = "tensorboardX"

    def __init__(self, spec: RunSpec, folder: Path) -> None:
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"), write_to_disk=True)
        self.writer.add_text("spec", f"```\n{spec.model_dump_json(indent=1)}\n```")

    def told(self, round_: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, round_)

    def close(self, finished: bool) -> None:
        self.writer.close()


@final
class MLflow:
    """One MLflow run under the experiment "coterie"."""

    module: ClassVar[str] = "mlflow"

    def __init__(self, spec: RunSpec, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("DO_NOT_TRACK", "true")
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        self.metric = Metric
        where = os.environ.get("MLFLOW_TRACKING_URI")
        if where is None:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            where = (folder / "mlflow").resolve().as_uri()
        try:
            self.client = MlflowClient(where)
            known = self.client.get_experiment_by_name("coterie")
            experiment = self.client.create_experiment("coterie") if known is None else known.experiment_id
            self.run = self.client.create_run(experiment, run_name=folder.name).info.run_id
            said = {"algorithm": spec.algorithm, "behaviour": spec.behaviour, "data": spec.data.source,
                    "protocol": spec.protocol.name, "seed": spec.seed, "rounds": spec.rounds,
                    **{f"set/{key}": value for key, value in spec.settings.items()}}  # fmt: skip
            self.client.log_batch(self.run, params=[Param(key, str(value)) for key, value in said.items()])
        except MlflowException as problem:
            raise CoterieError(f"MLflow at {where}: {problem}") from None

    def told(self, round_: int, numbers: dict[str, float]) -> None:
        now = int(time.time() * 1000)
        self.client.log_batch(self.run, [self.metric(name, value, now, round_) for name, value in numbers.items()])

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.run, "FINISHED" if finished else "KILLED")


_KNOWN: dict[str, type[TensorBoard] | type[MLflow]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


def tracked(
    records: Iterator[dict[str, Any]], spec: RunSpec, folder: Path, names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The same records, each told to the trackers as it passes. What cannot work is refused before the first round."""
    for name in names:
        if name not in _KNOWN:
            raise unknown_name("tracker", name, list(_KNOWN))
        if find_spec(_KNOWN[name].module) is None:
            raise CoterieError(
                f"--track {name} needs {_KNOWN[name].module}, which is not installed: pip install 'coterie[trackers]'"
            )
    return _tracked(records, spec, folder, tuple(dict.fromkeys(names))) if names else records


def _tracked(
    records: Iterator[dict[str, Any]], spec: RunSpec, folder: Path, names: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    trackers: list[Tracker] = []
    finished = False
    try:
        for record in records:
            if not trackers:  # by now the run directory is there, and nobody else's
                trackers = [_KNOWN[name](spec, folder) for name in names]
            for one in trackers:
                one.told(int(record["round"]), numbers_of(record))
            yield record
        finished = True
    finally:
        for one in trackers:
            one.close(finished)
