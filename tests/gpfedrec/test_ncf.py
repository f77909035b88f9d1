"""Local training of neural collaborative filtering: kernel, plain NumPy, finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coterie import rng
from coterie.algorithms import mlp, ncf
from coterie.algorithms.interface import History
from coterie.algorithms.negatives import draw
from coterie.ragged import Ragged
from tests.worlds import random_history

SIZES, DIM = (8, 6, 3, 1), 4


def _settings(**changes: Any) -> ncf.Local:
    plain = ncf.Local(
        passes=2, batch=11, mean=True, rate_user=0.3, rate_item=0.9, rate_network=0.2, decay_user=0.01,
        decay_item=0.02, decay_network=0.03, pull=0.4,
    )  # fmt: skip
    return plain._replace(**changes)


def _world() -> tuple[History, Ragged, dict[str, np.ndarray]]:
    history = random_history(5, 20, 8, seed=3)
    history = history._replace(counts=np.where(history.items % 5 == 0, 2, 1).astype(np.float32))  # repeats are kept
    drawn = draw(history, np.arange(5), 3, 7, 2)
    random = np.random.default_rng(0)
    arrays = {
        "table": random.normal(size=(20, DIM)),
        "towards": random.normal(size=(5, 20, DIM)),
        "user": random.normal(size=(5, DIM)),
        "network": np.stack([mlp.start(SIZES, random) for _ in range(5)]),
    }
    return history, drawn, {name: value.astype(np.float32) for name, value in arrays.items()}


def _batches(history: History, drawn: Ragged, client: int, s: ncf.Local) -> list[tuple[np.ndarray, np.ndarray]]:
    """The order in which the kernel goes: her rows, then the drawn ones, shuffled if there are several batches."""
    own = slice(history.indptr[client], history.indptr[client + 1])
    items = np.concatenate([np.repeat(history.items[own], history.counts[own].astype(int)), drawn.of(client)])
    labels = np.arange(len(items)) < len(items) - len(drawn.of(client))
    state, found = np.uint64(rng.stream(7, 2, history.keys[client], rng.SHUFFLE)), []
    for _ in range(s.passes):
        if len(items) > s.batch:
            for e in range(len(items) - 1, 0, -1):
                state = np.uint64(rng.after(state))  # a plain int may count as signed
                other = rng.below(state, e + 1)
                items[[e, other]], labels[[e, other]] = items[[other, e]], labels[[other, e]]
        cuts = range(0, len(items), s.batch)
        found += [(items[a : a + s.batch].copy(), labels[a : a + s.batch].astype(float)) for a in cuts]
    return found


@pytest.mark.parametrize("changes", [{}, {"batch": 1000, "passes": 1}, {"mean": False, "rate_item": 0.05, "pull": 0.0}])
def test_kernel_equals_reference(changes: dict[str, Any]) -> None:
    s = _settings(**changes)
    history, drawn, start = _world()
    ids, sizes = np.arange(5), np.array(SIZES)
    mine = {name: value.copy() for name, value in start.items()}
    own = np.full((5, 20, DIM), np.nan, np.float32)
    towards = mine["towards"] if s.pull else None
    ncf.train(
        ids, history, drawn, mine["table"], towards, mine["user"], mine["network"], ids, own, ids, sizes, s, 2, 7
    )  # fmt: skip
    again = {name: value.copy() for name, value in start.items()}
    moved, report = ncf.train(
        ids, history, drawn, again["table"], towards, again["user"], again["network"], ids, None, ids, sizes, s, 2, 7
    )
    for client in ids:
        q, u, theta = ncf.train_numpy(
            _batches(history, drawn, client, s), start["table"].astype(float), start["towards"][client].astype(float),
            start["user"][client].astype(float), start["network"][client].astype(float), SIZES, s,
        )  # fmt: skip
        np.testing.assert_allclose(own[client], q, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(mine["user"][client], u, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(mine["network"][client], theta, rtol=2e-4, atol=2e-5)
        part = slice(moved.indptr[client], moved.indptr[client + 1])
        rows = moved.rows[part]
        assert set(rows) == set(history.items[history.indptr[client] : history.indptr[client + 1]]) | set(
            drawn.of(client)
        )
        np.testing.assert_allclose(moved.values[part], (own[client] - start["table"])[rows], atol=1e-6)
        assert report.examples[client] == sum(len(items) for items, _ in _batches(history, drawn, client, s)) / s.passes
    scores = ncf.score(ids, own, ids, mine["user"], mine["network"], ids, sizes)
    whole = np.hstack([np.tile(mine["user"][3], (20, 1)), own[3]])
    np.testing.assert_allclose(scores[3], mlp.forward_numpy(mine["network"][3], SIZES, whole)[-1][:, 0], atol=1e-5)


def test_the_step_is_the_gradient() -> None:
    """One step of the reference against finite differences of the loss it claims to descend."""
    s = _settings(decay_user=0.0, decay_item=0.0, decay_network=0.0, rate_user=1.0, rate_item=1.0, rate_network=1.0)
    random = np.random.default_rng(1)
    table, towards = random.normal(size=(6, DIM)), random.normal(size=(6, DIM))
    user, theta = random.normal(size=DIM), mlp.start(SIZES, random).astype(float)
    items, labels = np.array([1, 4, 1, 0]), np.array([1.0, 0.0, 0.0, 1.0])

    def loss(table: np.ndarray, user: np.ndarray, theta: np.ndarray) -> float:
        z = mlp.forward_numpy(theta, SIZES, np.hstack([np.tile(user, (4, 1)), table[items]]))[-1][:, 0]
        return float(np.mean(np.log1p(np.exp(z)) - labels * z) + s.pull / 2 * ((table - towards) ** 2).sum())

    after = ncf.train_numpy([(items, labels)], table, towards, user, theta, SIZES, s)
    for place, (before, then) in enumerate(zip((table, user, theta), after, strict=True)):
        for index in np.ndindex(before.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [table.copy(), user.copy(), theta.copy()]
                moved[place][index] += step
                ends.append(loss(*moved))
            assert before[index] - then[index] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6)
