"""Federated EASE is central EASE: the same counts, the same weights."""

from __future__ import annotations

import os

import numpy as np
import pytest

from coterie.algorithms import make
from coterie.algorithms.central.ease import MOST_ITEMS, binary
from coterie.algorithms.fedease import FedEASE, unfold
from coterie.engine.simulate import simulate, start
from coterie.errors import CoterieError
from coterie.ragged import Ragged
from tests.worlds import random_history


def _run(history, rounds=1, reg=5.0, **how):
    algorithm = FedEASE(reg=reg)
    state = start(algorithm, history, 0)
    for done in simulate(algorithm, history, state, range(1, rounds + 1), 0, **how):
        state = done.state
    return algorithm, state, done


@pytest.mark.parametrize("n_items", [2, 3, 20, 31])
def test_the_sum_is_the_gram_matrix(n_items: int) -> None:
    history = random_history(25, n_items, min(n_items, 9), seed=n_items)
    _, state, _ = _run(history)
    owners = binary(history).toarray()
    np.testing.assert_array_equal(state.server.counts, owners.T @ owners)


@pytest.mark.parametrize(("n_items", "reg"), [(30, 5.0), (41, 5.0), (30, "people"), (41, "people")])
def test_weights_are_those_of_central_ease(n_items: int, reg: float | str) -> None:
    history = random_history(60, n_items, 12, seed=1)
    algorithm, state, _ = _run(history, reg=reg)
    central = make("ease", reg=reg)
    model, _ = central.train(central.init(history, 0), history, 1, 0)
    np.testing.assert_allclose(state.server.weights, model.weights, atol=1e-6, rtol=0)
    everybody = np.arange(60)
    np.testing.assert_allclose(
        algorithm.score(state.server, state.clients, history, everybody),
        central.score(model, (), history, everybody),
        atol=1e-5,
    )


def test_items_nobody_has_weigh_nothing() -> None:
    history = random_history(20, 100, 6, seed=3)._replace(n_items=400)
    _, state, _ = _run(history)
    central = make("ease", reg=5.0)
    model, _ = central.train(central.init(history, 0), history, 1, 0)
    np.testing.assert_allclose(state.server.weights, model.weights, atol=1e-6)
    assert not state.server.weights[100:].any()


def test_each_pair_stands_once_in_the_folded_form() -> None:
    for m in (1, 2, 5, 6):
        width = m // 2 + 1
        whole = unfold(np.arange(1, m * width + 1).reshape(m, width))
        np.testing.assert_array_equal(whole, whole.T)


def test_small_cohorts_reach_everybody_and_nobody_counts_twice() -> None:
    history = random_history(50, 25, 8, seed=4)
    _, state, done = _run(history, rounds=60, size=0.1, dropout=0.3)
    assert state.clients.sent.all()
    owners = binary(history).toarray()
    np.testing.assert_array_equal(state.server.counts, owners.T @ owners)
    assert done.bytes_up == 4, "she sends once, and then that there is nothing new"
    assert state.server.people[0] == 50
    _, early, _ = _run(history, rounds=2, size=0.1)
    sent = owners[early.clients.sent]
    assert 0 < len(sent) < 50
    np.testing.assert_array_equal(early.server.counts, sent.T @ sent)
    assert early.server.people[0] == len(sent)


def test_the_ridge_grows_with_the_people_whose_counts_are_there() -> None:
    """Everybody there twice has the weights of everybody there once; who has nothing does not count."""
    history = random_history(40, 25, 8, seed=6)
    _, once, _ = _run(history, reg="people")
    items = np.concatenate([history.items, history.items])
    ends = history.indptr[1:]
    nobody = np.array([2 * ends[-1]])
    indptr = np.concatenate([history.indptr, ends[-1] + ends, nobody])
    spared = Ragged(indptr, items)
    double = history._replace(
        indptr=indptr, items=items, counts=np.ones(len(items), np.float32), ratings=np.ones(len(items), np.float32),
        forbidden=spared, keys=np.arange(81, dtype=np.uint64),
    )  # fmt: skip
    _, twice, _ = _run(double, reg="people")
    assert twice.server.people[0] == 80
    np.testing.assert_allclose(twice.server.weights, once.server.weights, atol=1e-6, rtol=0)
    central = make("ease")
    model, _ = central.train(central.init(double, 0), double, 1, 0)
    assert central.record(model) == {"reg": 8.0}
    np.testing.assert_allclose(twice.server.weights, model.weights, atol=1e-6, rtol=0)
    _, fixed, _ = _run(double, reg=4.0)
    assert np.abs(fixed.server.weights - once.server.weights).max() > 1e-3  # half the ridge is another model


def test_bytes_are_her_rows_or_the_whole_triangle() -> None:
    history = random_history(10, 20, 5, seed=5)
    _, _, done = _run(history)
    assert done.bytes_up == np.mean(history.lengths * (4 + 4 * 11)) + 4
    assert done.bytes_down == 4 * 20 * 20


def test_too_many_items_are_refused_with_cost_and_cure() -> None:
    with pytest.raises(CoterieError, match=rf"{MOST_ITEMS + 1} items.*Use fedmf"):
        FedEASE().init_server(MOST_ITEMS + 1, 0)


@pytest.mark.slow
def test_equals_ease_on_ml_100k() -> None:
    if "COTERIE_DATA" not in os.environ:
        pytest.skip("COTERIE_DATA is not set: no MovieLens here")
    from coterie.data import load
    from coterie.protocol import prepare, resolve

    history = prepare(load("ml-100k"), resolve("clean"), 0).history
    federated, central = make("fedease"), make("ease")
    model, _ = central.train(central.init(history, 0), history, 1, 0)
    *_, done = simulate(federated, history, start(federated, history, 0), range(1, 2), 0, threads=2)
    assert np.abs(done.state.server.weights - model.weights).max() <= 1e-6
