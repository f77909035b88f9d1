"""The server's disk: the federation's terms, its catalogue, a line for each round, and a checkpoint after each.

A round's line is written before its model is released, and the checkpoint appears by a rename: a server killed at any
point goes on from the last whole round, asks for the next one again, and gets the same answers.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple, final

from coterie import __version__
from coterie.engine.flower.spec import FederationSpec, Terms
from coterie.errors import CoterieError
from coterie.runs import tensors
from coterie.runs.directory import RunDirectory


class Block(NamedTuple):
    """Which client numbers a node has on the server's side. Nothing else is known of them."""

    first: int
    clients: int


@final
class Ledger:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = RunDirectory(folder)  # its lock and its rounds.jsonl
        self.spec_file = folder / "federation.json"
        self.nodes_file = folder / "nodes.json"
        self.events_file = folder / "events.jsonl"
        self.metrics_file = folder / "metrics.jsonl"
        self.summary_file = folder / "summary.json"
        self.checkpoints = folder / "checkpoints"

    @classmethod
    def create(
        cls, folder: Path, spec: FederationSpec, terms: Terms, items: list[str], titles: list[str] | None
    ) -> Ledger:
        ledger = cls(folder)
        if ledger.spec_file.exists():
            raise CoterieError(
                f"{folder} already holds a federation; go on with it with --resume, or choose another --out"
            )
        folder.mkdir(parents=True, exist_ok=True)
        spec.build()  # what cannot be built is refused here, not on every node
        tensors.write_json(folder / "catalogue.json", {"items": items, "titles": titles})
        about = {"coterie": __version__, "spec": spec.model_dump(mode="json"), "terms": terms.model_dump(mode="json")}
        tensors.write_json(ledger.spec_file, about)
        return ledger

    def read(self) -> tuple[FederationSpec, Terms]:
        if not self.spec_file.exists():
            raise CoterieError(
                f"{self.folder}: no federation.json; `coterie server start --out {self.folder}` makes one"
            )
        said = json.loads(self.spec_file.read_text())
        if said["coterie"] != __version__:
            raise CoterieError(f"{self.spec_file}: written by coterie {said['coterie']}, this is coterie {__version__}")
        return FederationSpec.model_validate(said["spec"]), Terms.model_validate(said["terms"])

    def catalogue(self) -> tuple[list[str], list[str] | None]:
        said = json.loads((self.folder / "catalogue.json").read_text())
        return said["items"], said["titles"]

    # --- rounds -------------------------------------------------------------------------------------------------

    def latest(self) -> Path | None:
        found = sorted(self.checkpoints.glob("round-*")) if self.checkpoints.exists() else []
        return found[-1] if found else None

    def load(self, fresh: Any) -> tuple[int, Any]:
        """(round, server state) to go on from; (0, fresh) at the beginning."""
        found = self.latest()
        done = 0 if found is None else int(tensors.read_manifest(found)["round"])
        if self.directory.rounds_file.exists():
            self.directory.cut_rounds(done)
        return done, fresh if found is None else tensors.load(found, fresh)

    def commit(self, round_: int, server: Any, record: dict[str, Any]) -> str:
        """The round's line, then its model; returns the model's hash."""
        self._append(self.directory.rounds_file, record)
        part = self.checkpoints / f".part-{round_:06d}"
        shutil.rmtree(part, ignore_errors=True)
        found = tensors.save(part, server, {"round": round_, "version": __version__})
        target = self.checkpoints / f"round-{round_:06d}"
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        for old in self.checkpoints.glob("round-*"):
            if old != target:
                shutil.rmtree(old)
        return found

    def model_hash(self) -> str | None:
        found = self.latest()
        return None if found is None else str(tensors.read_manifest(found)["sha256"])

    def rounds(self) -> list[dict[str, Any]]:
        return self.directory.rounds()

    def event(self, what: str, **about: Any) -> None:
        """What happened beside the rounds: who joined, what was refused and why, which attempt was abandoned."""
        self._append(self.events_file, {"at": round(time.time(), 3), "what": what, **about}, sync=False)

    def events(self, what: str | None = None) -> list[dict[str, Any]]:
        return [one for one in _lines(self.events_file) if what is None or one["what"] == what]

    def measured(self, round_: int, metrics: dict[str, Any], users: int) -> None:
        self._append(self.metrics_file, {"round": round_, "users": users, **metrics}, sync=False)

    def metrics(self) -> list[dict[str, Any]]:
        by_round = {one["round"]: one for one in _lines(self.metrics_file)}
        return [by_round[key] for key in sorted(by_round)]

    # --- nodes --------------------------------------------------------------------------------------------------

    def blocks(self) -> dict[str, Block]:
        if not self.nodes_file.exists():
            return {}
        return {name: Block(*two) for name, two in json.loads(self.nodes_file.read_text()).items()}

    def keep_blocks(self, blocks: dict[str, Block]) -> None:
        tensors.write_json(self.nodes_file, blocks)

    def finish(self, summary: dict[str, Any]) -> None:
        tensors.write_json(self.summary_file, summary)

    def _append(self, path: Path, line: dict[str, Any], sync: bool = True) -> None:
        with path.open("a") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")
            file.flush()
            if sync:
                os.fsync(file.fileno())


def _lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a file; one cut off by a crash is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
