"""A run's folder: one writer at a time, a record that grows by lines, checkpoints that appear whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from coterie import __version__
from coterie.errors import CoterieError
from coterie.runs import tensors
from coterie.runs.spec import RunSpec, explain

FORMAT = 1
_IN_MEMORY = 1 << 30  # a best model up to this size waits in memory for the next checkpoint; a larger one is written
_REPAIR = "bring back a whole copy, or do the run again into another folder"


class NoRecord(CoterieError):
    """There is nothing to read: no run folder, or a run that is not finished."""


class Progress(NamedTuple):
    """What a checkpoint holds beside the model."""

    canary: np.ndarray  # int64: draws counted so far
    seconds: np.ndarray  # float64[4]: compile, train, evaluate, total


@final
class RunDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec_file = path / "spec.json"
        self.rounds_file = path / "rounds.jsonl"
        self.summary_file = path / "summary.json"
        self.users_file = path / "users.parquet"
        self.model = path / "model"
        self.checkpoints = path / "checkpoints"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; a second run is refused. The lock dies with the process, however it dies."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CoterieError(
                    f"{self.path}: another run is at work in this folder; wait for it, or choose another --out"
                ) from None
            yield

    def create(self, spec: RunSpec) -> None:
        if self.spec_file.exists():
            raise CoterieError(
                f"{self.path} already holds a run; `coterie resume {self.path}` goes on, or choose another --out"
            )
        tensors.write_json(self.spec_file, {"format": FORMAT, "coterie": __version__, **spec.model_dump(mode="json")})

    def spec(self) -> RunSpec:
        if not self.spec_file.exists():
            raise NoRecord(f"{self.path}: no spec.json, so this is not a run folder; `coterie run --out` makes one")
        raw = _read(self.spec_file)
        if raw.get("format") != FORMAT:
            raise CoterieError(
                f"{self.spec_file}: run format {raw.get('format')}, written by coterie {raw.get('coterie', '?')}; "
                f"this is coterie {__version__}, which reads format {FORMAT}"
            )
        body = {key: value for key, value in raw.items() if key not in ("format", "coterie")}
        return _parsed(self.spec_file, body)

    def check_finished(self) -> None:
        if not self.summary_file.exists():
            raise NoRecord(f"{self.path}: the run is not finished; `coterie resume {self.path}` goes on with it")

    def summary(self) -> dict[str, Any]:
        self.check_finished()
        return _read(self.summary_file)

    def users(self, columns: Sequence[str] | None = None) -> Any:
        """A polars table: one row for each tested user, with her history's length and every metric, or some of it."""
        import polars as pl

        try:
            return pl.read_parquet(self.users_file, columns=None if columns is None else list(columns))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as problem:
            first = (str(problem).splitlines() or [""])[0]
            raise CoterieError(f"{self.users_file}: damaged or not complete ({first}); {_REPAIR}") from None

    def rounds(self) -> list[dict[str, Any]]:
        """The record so far; a line cut off by a crash is left out."""
        if not self.rounds_file.exists():
            return []
        found = []
        for line in self.rounds_file.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                break
        return found

    def append_round(self, record: dict[str, Any]) -> None:
        with self.rounds_file.open("a") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def cut_rounds(self, last: int) -> list[dict[str, Any]]:
        """Forget what was recorded after round `last`: it will be done again."""
        kept = [one for one in self.rounds() if one["round"] <= last]
        part = self.rounds_file.with_suffix(".part")
        part.write_text("".join(json.dumps(one, allow_nan=False) + "\n" for one in kept))
        part.replace(self.rounds_file)
        return kept

    def kept(self) -> dict[int, Path]:
        """The checkpoints that are there, by their rounds, ascending."""
        found = sorted(self.checkpoints.glob("round-*")) if self.checkpoints.exists() else []
        return {int(one.name.removeprefix("round-")): one for one in found}

    def latest_checkpoint(self) -> Path | None:
        return next(reversed(self.kept().values()), None)


def _read(file: Path) -> dict[str, Any]:
    """A JSON object of the record."""
    try:
        found = json.loads(file.read_text())
    except ValueError as problem:
        raise CoterieError(f"{file}: damaged: {problem}; {_REPAIR}") from None
    if not isinstance(found, dict):
        raise CoterieError(f"{file}: damaged: it holds no JSON object; {_REPAIR}")
    return found


def _parsed(path: Path, body: dict[str, Any]) -> RunSpec:
    from pydantic import ValidationError

    try:
        return RunSpec.model_validate(body)
    except ValidationError as problem:
        raise CoterieError(f"{path}: {explain(problem)}") from None


@final
class Keeper:
    """Keeps the last state and the best one: checkpoints while running, the model at the end."""

    def __init__(
        self, directory: RunDirectory, best_round: int = 0, best_path: Path | None = None, history: bool = False
    ) -> None:
        self.directory = directory
        self.history = history  # older checkpoints stay, to replay from
        self.best_round = best_round
        self._best: Any = None  # in memory, until the next checkpoint
        self._former: Any = None  # the best before, whose memory the next one takes
        self._best_path = best_path  # on disk

    def improved(self, state: Any, round_: int, progress: Progress) -> None:
        """This state is the best so far."""
        self.best_round = round_
        self._best_path = None
        if tensors.nbytes(state) <= _IN_MEMORY:
            self._best = self._former = tensors.copy(state, self._former)
        else:
            self._best = None
            self.checkpoint(state, round_, progress)

    def checkpoint(self, state: Any, round_: int, progress: Progress) -> Path:
        """Write `checkpoints/round-N` in one rename; older checkpoints go once it stands, unless history is kept."""
        target = self.directory.checkpoints / f"round-{round_:06d}"
        if target.exists():
            return target
        part = self.directory.checkpoints / f".part-{round_:06d}"
        shutil.rmtree(part, ignore_errors=True)
        try:
            tensors.save(part / "last", state, {"round": round_, "version": __version__})
            if self.best_round == round_ and self._best_path is None:
                link_tree(part / "last", part / "best")
            elif self._best is not None:
                tensors.save(part / "best", self._best, {"round": self.best_round, "version": __version__})
            elif self._best_path is not None:
                link_tree(self._best_path, part / "best")
            tensors.save(part / "progress", progress, {"round": round_, "version": __version__})
        except OSError:
            shutil.rmtree(part, ignore_errors=True)  # half a checkpoint only takes up room
            raise
        part.replace(target)
        if (target / "best").exists():
            self._best, self._best_path = None, target / "best"
        for old in self.directory.checkpoints.glob("round-*"):
            if old != target:
                shutil.rmtree(old / "best" if self.history else old, ignore_errors=self.history)
        return target

    def finish(self, last: Path, keep: str) -> tuple[str, str]:
        """Make `model/` from the best state; returns the hashes of the best and the last model."""
        best = self._best_path or last / "last"
        hashes = tensors.read_manifest(best)["sha256"], tensors.read_manifest(last / "last")["sha256"]
        shutil.rmtree(self.directory.model, ignore_errors=True)
        if keep != "nothing":
            part = self.directory.path / ".model.part"
            shutil.rmtree(part, ignore_errors=True)
            link_tree(best, part)
            part.replace(self.directory.model)
        return hashes

    def tidy(self, keep: str) -> None:
        """After the summary stands: drop what the user did not ask to keep."""
        if keep not in ("all", "history"):
            shutil.rmtree(self.directory.checkpoints, ignore_errors=True)


def link_tree(source: Path, target: Path) -> None:
    """The same files under another name, without a second copy where the file system can."""
    target.mkdir(parents=True)
    for file in source.iterdir():
        try:
            os.link(file, target / file.name)
        except OSError:
            shutil.copy2(file, target / file.name)


def new_directory(out: Path | None, spec: RunSpec) -> Path:
    """The folder asked for, or a fresh one under runs/ whose name says what is in it."""
    if out is not None:
        return out
    source = Path(spec.data.source or "memory")
    if source.name.startswith("interactions."):  # the prepared layout: the folder has the name
        source = source.parent
    name = source.name.split(":")[0].split(".")[0]
    less = "" if spec.exchange == "full" else f"-{spec.exchange}"
    stem = f"{spec.algorithm}{less}-{name}-{spec.protocol.name.replace(':', '-')}-seed{spec.seed}"
    number = 1
    while True:
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1
