"""Rows of the FedeRank paper's table for any system: settings and epoch chosen on validation, trained again on 80 %.

    Rows(coterie.load("ml-1m"), Path("runs/rows")).row("fcf")     # fcf-ml-1m.json

The paper's Most Popular row (118 items covered and 1 - Gini .00569 on ml-1m) is that of 80 % of each history, so its
figures come from models trained on validation too. A row here has both: `test` trained on the 64 % that are left
beside validation, `refit` with the same settings and number of epochs on the 80 %.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coterie.algorithms import make
from coterie.data.interactions import Interactions
from coterie.engine.simulate import Diverged, Round, State, simulate, start
from coterie.errors import CoterieError
from coterie.evaluate.metrics import averages, beyond_accuracy, per_user
from coterie.evaluate.ranks import Task, rank
from coterie.protocol import Prepared, prepare, resolve
from coterie.ragged import Ragged, from_pairs
from coterie.runs import tensors

METRICS = ("F1@10", "Precision@10", "Recall@10", "Coverage@10", "1-Gini@10")


class Best(NamedTuple):
    """The best evaluated epoch of one training."""

    epoch: int
    validation: dict[str, float]
    state: State
    touched: np.ndarray  # int64[m]: how often each item's row reached the server until the last epoch


def measure(
    algorithm: Any, state: State, prepared: Prepared, task: Task, threads: int
) -> tuple[dict[str, float], np.ndarray]:
    """The metrics of the table under full ranking, and everybody's list."""
    found = rank(
        lambda users: algorithm.score(state.server, state.clients, prepared.history, users),
        prepared.users, prepared.data.n_items, [task], threads,
    )[0]  # fmt: skip
    assert found.top is not None
    popularity = np.bincount(prepared.history.items, minlength=prepared.data.n_items)
    every = averages(per_user(found, (10,)))
    every |= beyond_accuracy(found.top, popularity, prepared.history.n_clients, (10,))
    return {metric: every[metric] for metric in METRICS}, found.top


def best_epoch(
    algorithm: Any, prepared: Prepared, epochs: int, every: int, seed: int, threads: int, say: Callable[[str], None]
) -> Best:
    """Train; of the epochs evaluated (each `every`-th and the last) the one with the best F1@10 on validation."""
    task, best = Task(prepared.validation, (prepared.train,)), None
    touched = np.zeros(prepared.history.n_items, np.int64)
    try:
        for one in _epochs(algorithm, prepared, epochs, seed, threads):
            touched += one.touched if one.touched is not None else 0
            if one.number % every and one.number != epochs:
                continue
            now, _ = measure(algorithm, one.state, prepared, task, threads)
            if best is None or now["F1@10"] > best.validation["F1@10"]:
                best = Best(one.number, now, tensors.copy(one.state), touched)
    except Diverged as problem:
        if best is None:
            raise
        say(str(problem))
    assert best is not None
    return best


def refitted(algorithm: Any, prepared: Prepared, epochs: int, seed: int, threads: int) -> dict[str, float]:
    """Test figures of a model trained for so many epochs on training and validation items."""
    whole, state = with_validation(prepared), None
    for one in _epochs(algorithm, whole, epochs, seed, threads):
        state = one.state
    assert state is not None
    return measure(algorithm, state, whole, Task(whole.test, (whole.train,)), threads)[0]


def _epochs(algorithm: Any, prepared: Prepared, epochs: int, seed: int, threads: int) -> Iterator[Round]:
    history, cohort = prepared.history, getattr(algorithm, "default_cohort", 1.0)
    state = start(algorithm, history, seed)
    return simulate(algorithm, history, state, range(1, epochs + 1), seed, cohort, threads=threads)


def with_validation(prepared: Prepared) -> Prepared:
    """The validation items join the training histories: for figures of papers that trained on both."""
    n = prepared.data.n_users
    parts = (prepared.train, prepared.validation)
    owner = np.concatenate([np.repeat(np.arange(n), part.lengths) for part in parts])
    own = from_pairs(owner, np.concatenate([part.items for part in parts]), n)
    ones = np.ones(len(own.items), np.float32)
    history = prepared.history._replace(
        indptr=own.indptr,
        items=own.items,
        counts=ones,
        ratings=ones,
        forbidden=Ragged(own.indptr, own.items),
        ages=None,
    )
    return prepared._replace(history=history, train=own)


@dataclass(frozen=True)
class Rows:
    data: Interactions
    out: Path
    protocol: str = "paper:federank"
    seed: int = 0
    threads: int = 2
    say: Callable[[str], None] = lambda _: None

    @cached_property
    def prepared(self) -> Prepared:
        return prepare(self.data, resolve(self.protocol, "federank"), self.seed)

    def row(
        self, name: str, grid: Mapping[str, Sequence[Any]] | None = None, epochs: int | None = None, every: int = 1,
        behaviour: str = "coterie",
    ) -> dict[str, Any]:  # fmt: skip
        """Every combination of `grid` on validation; only the best is tested. Kept in `out`, so it can be gone on."""
        grid = grid or {}
        tried, kept = [], None
        for values in itertools.product(*grid.values()):
            settings = dict(zip(grid, values, strict=True))
            algorithm = make(name, behaviour, **settings)
            rounds = epochs or algorithm.default_rounds
            key = [repr(algorithm), self.data.sha256, self.protocol, rounds, every, self.seed]
            place = self.out / "validated" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"
            if not place.exists():
                best = best_epoch(algorithm, self.prepared, rounds, every, self.seed, self.threads, self.say)
                place.parent.mkdir(parents=True, exist_ok=True)
                tensors.write_json(place, {"settings": settings, "epoch": best.epoch, "validation": best.validation})
                if kept is None or best.validation["F1@10"] > kept[1].validation["F1@10"]:
                    kept = (settings, best)
            tried.append(json.loads(place.read_text()))
            self.say(f"{name} {settings}: epoch {tried[-1]['epoch']}, F1 {tried[-1]['validation']['F1@10']:.5f}")
        if not tried:
            raise CoterieError(f"the grid {dict(grid)} has no combination; give each field at least one value")
        first = max(tried, key=lambda one: float(one["validation"]["F1@10"]))
        algorithm = make(name, behaviour, **first["settings"])
        if kept is None or kept[0] != first["settings"]:  # measured earlier: the same numbers again, to that epoch
            again = best_epoch(algorithm, self.prepared, first["epoch"], first["epoch"], self.seed, self.threads, print)
        else:
            again = kept[1]
        excluded = (self.prepared.train, self.prepared.validation)
        test, _ = measure(algorithm, again.state, self.prepared, Task(self.prepared.test, excluded), self.threads)
        found = {
            "algorithm": name, "behaviour": behaviour, "data": self.data.name, "data_sha256": self.data.sha256,
            "protocol": self.protocol, "seed": self.seed, "epochs": epochs or algorithm.default_rounds, "every": every,
            "grid": {field: list(values) for field, values in grid.items()}, "tried": tried,
            "settings": repr(algorithm), "chosen": first, "test": test,
            "refit": refitted(algorithm, self.prepared, first["epoch"], self.seed, self.threads),
            "counts": self.prepared.counts,
        }  # fmt: skip
        tensors.write_json(self.out / f"{name}-{self.data.name}.json", found)
        return found
