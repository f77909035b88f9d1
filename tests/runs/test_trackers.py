"""What TensorBoard and MLflow are told is what the run's record says."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.algorithms import make
from coterie.errors import CoterieError
from coterie.runs.trackers import numbers_of


def _run(folder: Path, **more: Any) -> Any:
    return coterie.run(
        make("fedmf", dim=4), "synthetic:users=30,items=40", rounds=4, evaluate_every=2, out=folder, threads=1, **more
    )


def _events(folder: Path) -> dict[str, dict[int, float]]:
    """Scalars of an event file: length, checksum, message, checksum, again and again."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, dict[int, float]] = {}
    (path,) = folder.glob("events.*")
    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = Event.FromString(data[at + 12 : at + 12 + length])
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, {})[event.step] = value.simple_value
        at += 16 + length
    return found


def test_tensorboard_gets_every_number_of_every_round(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    run = _run(tmp_path / "run", track=["tensorboard"])
    told, rounds = _events(tmp_path / "run" / "tensorboard"), run.rounds
    assert [one["round"] for one in rounds] == [1, 2, 3, 4]
    for one in rounds:
        for name, value in numbers_of(one).items():
            assert told[name][one["round"]] == pytest.approx(value, rel=1e-6), name
    assert set(told["validation/full/NDCG_at_10"]) == {2, 4} and "bytes/up" in told


def test_mlflow_gets_settings_and_rounds_in_the_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = _run(tmp_path / "run", track=["mlflow"])
    from mlflow.tracking import MlflowClient

    client = MlflowClient((tmp_path / "run" / "mlflow").resolve().as_uri())
    experiment = client.get_experiment_by_name("coterie")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED" and found.data.params["algorithm"] == "fedmf"
    assert found.data.params["set/dim"] == "4"
    losses = {one.step: one.value for one in client.get_metric_history(found.info.run_id, "loss")}
    assert losses == {one["round"]: one["loss"] for one in run.rounds}
    assert "test/full/NDCG_at_10" in found.data.metrics


def test_nothing_is_tracked_unless_asked_and_an_unknown_one_is_refused_before_training(tmp_path: Path) -> None:
    _run(tmp_path / "plain")
    assert not (tmp_path / "plain" / "tensorboard").exists() and not (tmp_path / "plain" / "mlflow").exists()
    with pytest.raises(CoterieError, match=r"unknown tracker 'wandb'\. Known: tensorboard, mlflow"):
        _run(tmp_path / "refused", track=["wandb"])
    assert not (tmp_path / "refused" / "rounds.jsonl").exists()
