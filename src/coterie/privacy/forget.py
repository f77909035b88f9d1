"""Taking one person out: the data without her, and how close a model comes to never having seen her."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.algorithms.interface import History
from coterie.data.interactions import Interactions
from coterie.engine.simulate import State
from coterie.ragged import Ragged


def left_out(data: Interactions, users: Sequence[str]) -> Interactions:
    """The same interactions without these users. Items keep their numbers, so the tables keep their shape."""
    keep = np.array([one not in set(users) for one in data.user_ids])
    if keep.all():
        return data
    lengths = np.diff(data.indptr)
    rows = np.repeat(keep, lengths)
    return Interactions(
        data.name, np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64), data.items[rows],
        data.ratings[rows], None if data.times is None else data.times[rows],
        [one for one, kept in zip(data.user_ids, keep, strict=True) if kept], data.item_ids, data.titles,
        dict(data.notes), data.choices,
    )  # fmt: skip


def table_distance(one: Any, other: Any) -> float | None:
    """How far two servers' shared tables are apart, as a share of the second's norm; None if there is no table."""
    mine, theirs = getattr(one, "table", None), getattr(other, "table", None)
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return None
    return float(np.linalg.norm(mine - theirs) / max(float(np.linalg.norm(theirs)), 1e-30))


def overlap(algorithm: Any, one: State, other: State, history: History, n: int = 10, most: int = 500) -> float:
    """Share of common items in the top `n` lists of the people who are in both, their own items left out."""
    users = np.arange(min(history.n_clients, most))
    tops = []
    for state in (one, other):
        scores = algorithm.score(state.server, state.clients, history, users).astype(np.float64)
        for user in users:
            scores[user, history.items[history.indptr[user] : history.indptr[user + 1]]] = -np.inf
        tops.append(np.argsort(-scores, axis=1, kind="stable")[:, :n])
    return float(np.mean([len(np.intersect1d(a, b)) / n for a, b in zip(*tops, strict=True)]))


def recognised(algorithm: Any, server: Any, items: np.ndarray, n_items: int, seed: int) -> float | None:
    """AUC with which the model, told one half of her items, ranks the other half above the rest.

    What a model has learnt from her it can finish from half of it. It also finishes what others like her have taught
    it, so the number means something only beside that of a model that never saw her.
    """
    if len(items) < 4:
        return None
    mixed = np.random.default_rng(seed).permutation(items)
    told, kept = np.sort(mixed[: len(mixed) // 2]).astype(np.int32), mixed[len(mixed) // 2 :]
    own, ones = Ragged(np.array([0, len(told)]), told), np.ones(len(told), np.float32)
    history = History(own.indptr, told, ones, ones, own, np.array([12345], np.uint64), n_items)
    clients = algorithm.newcomer(server, history, seed)
    scores = np.asarray(algorithm.score(server, clients, history, np.array([0]))[0], np.float64)
    rest = np.setdiff1d(np.arange(n_items), items)
    wins = (scores[kept][:, None] > scores[rest]).mean() + 0.5 * (scores[kept][:, None] == scores[rest]).mean()
    return float(wins)
