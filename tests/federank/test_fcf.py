"""FCF: the closed form and the gradients against the textbook, and finite differences of the loss."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.algorithms.fcf import FCF
from coterie.algorithms.server import add, empty_sum, real
from coterie.engine.simulate import simulate, start
from coterie.errors import CoterieError
from tests.federank.federank_reference import solve
from tests.worlds import checkerboard, random_history


def test_solve_and_gradients_are_the_textbooks() -> None:
    a = FCF(dim=5, alpha=3.0, reg=0.7)
    world = random_history(6, 20, 8, seed=1)
    world = world._replace(counts=1.0 + (np.arange(len(world.items)) % 3).astype(np.float32))
    state = start(a, world, 0)
    table = state.server.table.astype(np.float64)
    ids = np.arange(6)
    upload, report = a.client_step(state.clients, ids, world, a.download(state.server, ids, 1), 1, 0)
    assert (np.diff(upload.indptr) == 20).all()
    for i in ids:
        part = slice(world.indptr[i], world.indptr[i + 1])
        own, worth = world.items[part], world.counts[part]
        x = solve(table, own, worth, 3.0, 0.7)
        np.testing.assert_allclose(state.clients.user[i], x, rtol=1e-4, atol=1e-6)
        weight, target = np.ones(20), np.zeros(20)
        weight[own] += 3.0 * worth
        target[own] = 1.0

        def loss(
            some: np.ndarray, x: np.ndarray = x, weight: np.ndarray = weight, target: np.ndarray = target
        ) -> float:
            return float(weight @ (target - some @ x) ** 2)

        assert report.loss[i] == pytest.approx(loss(table) / 20, rel=1e-4)
        sent = upload.values[upload.indptr[i] : upload.indptr[i + 1]]
        for j in (0, 7, int(own[0])):
            for d in range(5):
                up, down = table.copy(), table.copy()
                up[j, d] += 1e-6
                down[j, d] -= 1e-6
                assert -2.0 * sent[j, d] == pytest.approx((loss(up) - loss(down)) / 2e-6, rel=1e-3, abs=1e-5)


def test_the_sum_is_the_gradient_of_all() -> None:
    a = FCF(dim=4)
    world = random_history(9, 15, 6, seed=2)
    state, ids = start(a, world, 0), np.arange(9)
    upload, _ = a.client_step(state.clients, ids, world, a.download(state.server, ids, 1), 1, 0)
    total = empty_sum(15, 4, 0)
    add(total, upload, 9)
    np.testing.assert_allclose(real(total.rows), upload.values.reshape(9, 15, 4).sum(0), atol=1e-5)


def test_it_learns_and_scores_newcomers_like_members() -> None:
    a = FCF(dim=4)
    world, likes = checkerboard()
    state = start(a, world, 0)
    losses = []
    for one in simulate(a, world, state, range(1, a.default_rounds + 1), 0, threads=2):
        state = one.state
        losses.append(one.loss)
    assert losses[-1] < losses[0]
    scores = a.score(state.server, state.clients, world, np.arange(60))
    assert np.mean(scores[likes]) > np.mean(scores[~likes]) + 0.2
    same = a.newcomer(state.server, world, 0)
    np.testing.assert_allclose(same.user @ state.server.table.T, scores, rtol=1e-5, atol=1e-6)
    with pytest.raises(CoterieError, match="reg > 0"):
        FCF(reg=0.0)
