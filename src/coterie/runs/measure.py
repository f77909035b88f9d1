"""From a state to its metrics under a protocol, in the shape the record has."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coterie.engine.simulate import State
from coterie.evaluate.metrics import averages, beyond_accuracy, per_user
from coterie.evaluate.ranks import Ranks, Task, rank
from coterie.protocol.prepare import Prepared

PARTS = (("validation", "full"), ("validation", "sampled"), ("test", "full"), ("test", "sampled"))


class Measured(NamedTuple):
    metrics: dict[str, dict[str, dict[str, float]]]  # metrics["test"]["full"]["NDCG@10"]
    users: dict[str, np.ndarray]  # per user: users["test.full.NDCG@10"], and "user"
    ranks: dict[str, Ranks]


def tasks(prepared: Prepared) -> list[Task]:
    """The four rankings: validation and test, among all items and among the sampled candidates."""
    p = prepared
    return [
        Task(p.validation, (p.train,)),
        Task(p.validation, candidates=p.validation_candidates),
        Task(p.test, (p.train, p.validation)),
        Task(p.test, candidates=p.test_candidates),
    ]


def measure(
    algorithm: Any, state: State, prepared: Prepared, threads: int, users: np.ndarray | None = None
) -> Measured:
    """Rank and average for all users with held-out items (or those given)."""

    def score(some: np.ndarray) -> np.ndarray:
        found: np.ndarray = algorithm.score(state.server, state.clients, prepared.history, some)
        return found

    who = prepared.users if users is None else users
    together = getattr(algorithm, "scored_together", 0)
    found = rank(score, who, prepared.data.n_items, tasks(prepared), threads, together)
    popularity = np.bincount(prepared.history.items, minlength=prepared.data.n_items)
    metrics: dict[str, dict[str, dict[str, float]]] = {"validation": {}, "test": {}}
    values: dict[str, np.ndarray] = {"user": who}
    ranks = {}
    for (part, kind), one in zip(PARTS, found, strict=True):
        mine = per_user(one)
        metrics[part][kind] = averages(mine)
        if one.top is not None:
            metrics[part][kind] |= beyond_accuracy(one.top, popularity, prepared.history.n_clients)
        for key, value in mine.items():  # somebody may have test items but none for validation, or the reverse
            aligned = np.full(len(who), np.nan)
            aligned[np.searchsorted(who, one.users)] = value
            values[f"{part}.{kind}.{key}"] = aligned
        ranks[f"{part}.{kind}"] = one
    return Measured(metrics, values, ranks)
