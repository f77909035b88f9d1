"""FedRAP's variants, curricula, sparse exchange, stores: switches of one implementation."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.algorithms import encoding, make, pool
from coterie.algorithms.curriculum import weight
from coterie.algorithms.fedrap import FedRAP
from coterie.algorithms.rowstore import RowStore
from coterie.engine.simulate import State, cohort, simulate, start
from coterie.errors import CoterieError
from coterie.ragged import ragged
from tests.worlds import history as world
from tests.worlds import random_history

RELEASED = FedRAP.behaviours["as_released"]


def _rounds(algorithm: FedRAP, history, count: int, seed: int = 0, size: float = 1.0) -> State:
    state = start(algorithm, history, seed)
    for one in simulate(algorithm, history, state, range(1, count + 1), seed, size):
        state = one.state
    return state


def test_curricula_by_hand() -> None:
    assert weight("tanh", "published", 10) == math.tanh(1.0) and weight("tanh", "released", 1) == 0.0
    assert weight("sin", "published", 40) == math.sin(4.0) < 0  # goes negative
    assert weight("sin", "released", 1) == 0.5
    assert [weight("square", "published", a) for a in (1, 10, 11, 20, 21)] == [0, 0, 1, 1, 0]
    assert [weight("square", "released", a) for a in (1, 5, 6, 10, 11)] == [1, 1, 0, 0, 1]
    assert weight("frac", "published", 1) == 0.5 and weight("frac", "released", 1) == 1.0
    assert weight("fixed", "published", 77) == 1.0


def test_variants_are_settings_of_one_class() -> None:
    for name in (
        "fedrap-c",
        "fedrap-d",
        "fedrap-no",
        "fedrap-l2",
        "fedrap-fixed",
        "fedrap-sin",
        "fedrap-square",
        "fedrap-frac",
    ):
        assert type(make(name, "as_released")) is FedRAP
    assert make("fedrap-c").private is False and make("fedrap-d").shared is False
    assert make("fedrap-no", "as_released").local(3).sparse == 0.0
    assert make("fedrap-sin", "as_released", curriculum_form="published").local(40).apart == pytest.approx(
        0.1 * math.sin(4)
    )
    with pytest.raises(CoterieError, match="leave no item table at all"):
        make("fedrap-c", shared=False)


def test_soft_threshold_makes_exact_zeros_and_never_a_negative_threshold() -> None:
    history = random_history(6, 30, 8, seed=1)
    settings = {**FedRAP.behaviours["as_published"], "sparse": 3.0, "default_cohort": 1.0, "never_twice_running": False}
    strong = _rounds(FedRAP(**settings), history, 5)
    assert (strong.server.table == 0).mean() > 0.5
    sine = FedRAP(**{**settings, "curriculum": "sin"})
    assert sine.local(40).sparse == 0.0 and sine.local(10).sparse > 0


def test_published_prediction_uses_the_table_the_client_trained_last() -> None:
    history = random_history(8, 20, 6, seed=2)
    algorithm = FedRAP(**FedRAP.behaviours["as_published"])
    state = _rounds(algorithm, history, 3, size=0.5)
    known = np.flatnonzero(state.clients.has_trained)
    assert 4 <= len(known) <= 8
    scores = algorithm.score(state.server, state.clients, history, known[:1])[0]
    table = state.clients.trained[known[0]] + state.clients.own.table(known[0])
    expected = table @ state.clients.user[known[0]] + state.clients.bias[known[0]]
    np.testing.assert_allclose(scores[state.server.met], expected[state.server.met], rtol=2e-4, atol=1e-5)


def test_nobody_takes_part_twice_running() -> None:
    history = random_history(21, 10, 3, seed=0)
    before: set[int] = set()
    for round_ in range(1, 12):
        now = set(cohort(history, 10, 0.0, 3, round_, rests=True).tolist())
        assert len(now) == 10 and not now & before
        before = now
    with pytest.raises(CoterieError, match="at most half"):
        cohort(history, 11, 0.0, 3, 1, rests=True)


@pytest.mark.parametrize("behaviour", ["as_released", "coterie"])
def test_the_row_store_equals_a_dense_table_to_the_bit(behaviour: str) -> None:
    """A store in which every row has been written from the start is a dense table."""
    history = random_history(12, 60, 10, seed=3)
    rates = {"lr_item": 5.0, "lr_own": 5.0} if behaviour == "as_released" else {}  # the world is small
    algorithm = make("fedrap", behaviour, negatives=2, **rates)
    lean, dense = start(algorithm, history, 1), start(algorithm, history, 1)
    store: RowStore = dense.clients.own
    for client in range(12):
        store.slot[client] = np.random.default_rng(client).permutation(60)
        store.pool[client * 60 + store.slot[client]] = store.start
        store.used[client] = 60
    for one, other in zip(
        simulate(algorithm, history, lean, range(1, 6), 1),
        simulate(algorithm, history, dense, range(1, 6), 1),
        strict=True,
    ):
        lean, dense = one.state, other.state
    np.testing.assert_array_equal(lean.server.table, dense.server.table)
    np.testing.assert_array_equal(lean.clients.user, dense.clients.user)
    for client in range(12):
        np.testing.assert_array_equal(lean.clients.own.table(client), dense.clients.own.table(client))
    assert lean.clients.own.used.sum() < dense.clients.own.used.sum()


def test_a_fixed_pool_bounds_the_private_table() -> None:
    history = random_history(10, 200, 8, seed=4)
    state = _rounds(make("fedrap", pool=15, negatives=4), history, 12)
    assert (state.clients.own.used <= history.lengths + 15).all()
    for round_ in (1, 2):
        drawn = pool.draw(history, np.arange(10), 4, 15, 0, round_)
        for client in range(10):
            groups = drawn.of(client).reshape(-1, 4)
            assert all(len(set(group)) == 4 for group in groups.tolist())
            own = set(history.items[history.indptr[client] : history.indptr[client + 1]].tolist())
            assert not own & set(groups.ravel().tolist()) and len(set(groups.ravel().tolist())) <= 15


def test_encoding_by_hand() -> None:
    table = np.array([[0.5, -0.01], [0.001, 0.0], [0.0, 2.0]], np.float32)
    sent = encoding.arrives(table, 0.01, half=False)
    np.testing.assert_array_equal(sent, np.array([[0.5, -0.01], [0, 0], [0, 2]], np.float32))
    assert encoding.cost(sent, "dense", False, 3) == 3 * 2 * 4
    assert encoding.cost(sent, "rows", False, 3) == 2 * (4 + 8)
    assert encoding.cost(sent, "entries", False, 3) == 3 * (4 + 4)
    assert encoding.cost(sent, "entries", True, 3) == 3 * (4 + 2)
    assert encoding.arrives(np.float32([0.1]), 0, half=True)[0] == np.float32(np.float16(0.1))


def test_sparse_exchange_is_simulated_as_sent() -> None:
    history = random_history(9, 40, 8, seed=5)
    base = {**RELEASED, "batch": 64, "epochs": 2}
    plain, sparse = FedRAP(**base), FedRAP(**base, send_above=0.3, send_as="entries")
    state = start(sparse, history, 0)
    down = sparse.download(state.server, np.arange(9), 1)
    assert (np.abs(down.table[down.table != 0]) >= np.float32(0.3)).all()
    assert down.bytes_per_client == np.count_nonzero(down.table) * 8
    upload, _ = sparse.client_step(state.clients, np.arange(9), history, down, 1, 0)
    arrived = upload.values + np.repeat(upload.dense[:, 0], np.diff(upload.indptr))[:, None] * down.table[upload.rows]
    assert ((np.abs(arrived) < 1e-6) | (np.abs(arrived) >= 0.3 - 1e-5)).all()
    first = slice(upload.indptr[0], upload.indptr[1])
    assert upload.bytes_per_client(40)[0] == (np.abs(arrived[first]) >= 0.29).sum() * 8 + 4
    again = start(plain, history, 0)
    dense, _ = plain.client_step(
        again.clients, np.arange(9), history, plain.download(again.server, np.arange(9), 1), 1, 0
    )
    assert not np.array_equal(dense.values, upload.values)
    half = _rounds(replace(plain, send_half=True), history, 2)
    assert np.abs(half.server.table - _rounds(plain, history, 2).server.table).max() < 0.02


def test_a_row_nobody_has_touched_is_recommended_to_nobody() -> None:
    history = world(ragged([[0, 1, 2], [1, 2, 3], [0, 3, 4]]), 50)
    algorithm = make("fedrap", pool=4, negatives=2)  # small pools: most items are met by nobody
    state = _rounds(algorithm, history, 3)
    scores = algorithm.score(state.server, state.clients, history, np.arange(3))
    assert not state.server.met.all() and state.server.met[:5].all()
    assert (scores[:, ~state.server.met] == -np.inf).all() and np.isfinite(scores[:, state.server.met]).all()


def test_fedrap_d_shares_nothing(tmp_path: Path) -> None:
    run = coterie.run(
        make("fedrap-d", "as_released"), coterie.load("synthetic:users=40,items=60"), rounds=3, out=tmp_path / "d"
    )
    assert run.summary["bytes"] == {"up": 0.0, "down": 0.0} and run.state.server.table.size == 0
    with pytest.raises(CoterieError, match="outside training"):
        run.recommend(history=[run.prepared.data.item_ids[0]])
    with pytest.raises(CoterieError, match="no shared item table"):
        run.similar_items(run.prepared.data.item_ids[0])


def test_shares_of_c_are_in_the_record(tmp_path: Path) -> None:
    from coterie.report import figures

    data = coterie.load("synthetic:users=40,items=60")
    run = coterie.run(make("fedrap", "as_released"), data, rounds=4, evaluate_every=2, out=tmp_path / "a")
    shares = run.rounds[-1]["shares"]
    assert list(shares) == [f"1e-0{n}" for n in range(1, 7)] and shares["1e-01"] <= shares["1e-06"] <= 1
    assert figures.sparsity({"L1": run}).numbers["lines"]["L1"]["x"] == [1, 2, 3, 4]


def test_figures_are_numbers_and_pages(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="drawing needs coterie[report]")
    pytest.importorskip("sklearn", reason="t-SNE needs coterie[report]")
    from coterie.report import figures

    data = coterie.load("synthetic:users=40,items=60")
    run = coterie.run(make("fedrap"), data, rounds=4, evaluate_every=2, out=tmp_path / "a")
    made = [
        figures.convergence({"fedrap": run}),
        figures.ablation({"fedrap": [run]}),
        figures.curricula({"tanh": [weight("tanh", "published", a) for a in range(1, 9)]}),
        figures.heat_map(run),
        figures.item_map(run, data.user_ids[0]),
    ]
    assert len(made[3].numbers["maps"]) == 4 and len(made[3].numbers["maps"]["C"]) == 16
    assert set(made[4].numbers["points"]) == {"C", "D", "C + D"}
    assert sum(made[4].numbers["rated"]) == len(run.prepared.train.of(0))
    for figure in made:
        data_file, page = figure.save(tmp_path / "figures")
        assert data_file.stat().st_size > 100 and "plotly" in page.read_text()[:20000].lower()
