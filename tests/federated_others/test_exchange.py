"""local-only and server-only: the same code with less exchange, for every federated system."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie.algorithms import CATALOGUE, algorithm_class, make
from coterie.algorithms.interface import Federated
from coterie.data import load
from coterie.engine.exchange import LocalOnly, dense_tables, one_of, private_tables, with_exchange
from coterie.engine.simulate import cohort, simulate, start
from coterie.errors import CoterieError
from coterie.report.compare import compare
from coterie.runs.api import resume
from tests.worlds import checkerboard, random_history

FEDERATED = [name for name in CATALOGUE if issubclass(algorithm_class(name), Federated)]


def _alone(algorithm: Any, history: Any, rounds: int, **how: Any) -> list[Any]:
    settings = {"size": 1.0, "dropout": 0.0, "threads": 1, "observe": None, "every": 2} | how
    return list(with_exchange(algorithm, "local-only").simulate(history, range(1, rounds + 1), 0, **settings))


@pytest.mark.parametrize("name", FEDERATED)
def test_alone_is_a_federation_of_one(name: str) -> None:
    algorithm = make(name)
    history = random_history(5, 25, 8, seed=1)
    *_, done = _alone(algorithm, history, 3)
    for i in (0, 3):
        mine = one_of(history, i)
        state = start(algorithm, mine, 0)
        for one in simulate(algorithm, mine, state, range(1, 4), 0):
            state = one.state
        expected = algorithm.score(state.server, state.clients, mine, np.array([0]))[0]
        scores = LocalOnly(algorithm).score(done.state.server, (), history, np.array([i]))[0]
        np.testing.assert_array_equal(scores, expected)
        assert np.isfinite(done.state.server.scores[i]).all()
    assert done.bytes_up == done.bytes_down == 0 and done.participants == 5


@pytest.mark.parametrize("name", FEDERATED)
def test_server_only_uses_no_private_table(name: str) -> None:
    algorithm = make(name)
    try:
        less = with_exchange(algorithm, "server-only")
    except CoterieError as problem:
        assert "no server-only form" in str(problem) and algorithm.server_only
        return
    history = random_history(6, 25, 8, seed=2)
    state, whole = start(less, history, 0), start(algorithm, history, 0)
    if dense_tables(state.clients, history):
        with pytest.raises(CoterieError, match="no server-only form"):
            next(simulate(less, history, state, range(1, 2), 0))
        return
    for one in simulate(less, history, state, range(1, 4), 0):
        state = one.state
    for one in simulate(algorithm, history, whole, range(1, 4), 0):
        whole = one.state
    for table in private_tables(state.clients):
        np.testing.assert_array_equal(table.table(2), table.start)
    scores = less.score(state.server, state.clients, history, np.arange(6))
    assert not np.isnan(scores).any()
    if not private_tables(whole.clients) and not algorithm.server_only:
        np.testing.assert_array_equal(scores, algorithm.score(whole.server, whole.clients, history, np.arange(6)))


def test_a_private_table_makes_the_difference() -> None:
    algorithm = make("fedrap", lr_own=0.1)
    history = random_history(6, 25, 8, seed=2)
    scores = []
    for exchange in ("full", "server-only"):
        chosen = with_exchange(algorithm, exchange)  # type: ignore[arg-type]
        state = start(chosen, history, 0)
        for one in simulate(chosen, history, state, range(1, 6), 0):
            state = one.state
        scores.append(chosen.score(state.server, state.clients, history, np.arange(6)))
    assert np.abs(scores[0] - scores[1]).max() > 0.01


def test_alone_nobody_learns_the_others_taste() -> None:
    history, likes = checkerboard()
    *_, done = _alone(make("fedmf"), history, 30, threads=2)
    seen = np.zeros(likes.shape, bool)
    seen[np.repeat(np.arange(len(likes)), history.lengths), history.items] = True
    right = [
        np.mean(row[own & ~had][:, None] > row[~own][None, :])
        for row, own, had in zip(done.state.server.scores, likes, seen, strict=True)
        if (own & ~had).any()
    ]
    assert np.mean(right) < 0.65


def test_threads_do_not_matter_and_only_the_drawn_train() -> None:
    history = random_history(12, 30, 8, seed=3)
    runs = [_alone(make("fedmf"), history, 4, size=0.25, dropout=0.2, threads=t) for t in (1, 3)]
    for one, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one.state.server.scores, other.state.server.scores)
        assert one.loss == other.loss
    drawn = {int(i) for number in range(1, 5) for i in cohort(history, 0.25, 0.2, 0, number)}
    assert 0 < len(drawn) < 12
    algorithm = make("fedmf")
    for i in range(12):
        mine = one_of(history, i)
        fresh = start(algorithm, mine, 0)
        untrained = algorithm.score(fresh.server, fresh.clients, mine, np.array([0]))[0]
        assert np.array_equal(runs[0][-1].state.server.scores[i], untrained) == (i not in drawn)


def test_central_systems_have_no_exchange_to_leave_out() -> None:
    with pytest.raises(CoterieError, match="ease is central"):
        with_exchange(make("ease"), "local-only")
    with pytest.raises(CoterieError, match="mostpop is central"):
        coterie.run("mostpop", load("synthetic"), exchange="server-only")
    with pytest.raises(CoterieError, match="exchange: got 'some'"):
        coterie.run("fedmf", load("synthetic"), exchange="some")


def test_the_table_shows_a_system_beside_its_ablations(tmp_path: Any) -> None:
    data = load("synthetic")
    runs = [
        coterie.run(make("fedrap", dim=8), data, rounds=4, evaluate_every=2, exchange=e, out=tmp_path / e, threads=2)
        for e in ("full", "local-only", "server-only")
    ]
    rows = compare(runs)
    assert [row["exchange"] for row in rows] == ["full", "local-only", "server-only"]
    assert rows[1]["bytes_up"] == 0 and rows[0]["bytes_up"] > 0 and "nothing" in rows[1]["sends"]
    assert all(row["valid"] and row["canary"] is not None for row in rows)
    assert rows[0]["canary"]["HR@10"] == pytest.approx(rows[1]["canary"]["HR@10"]), "the same negatives were drawn"
    user = data.user_ids[0]
    assert len(runs[1].recommend(user, 5)) == 5
    alone = runs[1].recommend(history=data.item_ids[:4], N=5)
    assert len(alone) == 5 and np.isfinite([one.score for one in alone]).all()
    with pytest.raises(CoterieError, match="no item vectors"):
        runs[1].similar_items(data.item_ids[0])


def test_a_local_only_run_that_was_stopped_ends_the_same(tmp_path: Any) -> None:
    from coterie.runs.directory import RunDirectory
    from coterie.runs.drive import drive

    data = load("synthetic")
    whole = coterie.run(make("fedmf", dim=4), data, rounds=4, evaluate_every=2, checkpoint_every=1,
                        exchange="local-only", out=tmp_path / "whole", threads=2)  # fmt: skip
    stopped = RunDirectory(tmp_path / "stopped")
    records = drive(whole.spec, data, stopped, threads=2)
    for _ in range(3):
        next(records)
    records.close()
    again = resume(stopped.path, data=data, threads=1)
    assert again.metrics == whole.metrics
    assert again.summary["canary"] == whole.summary["canary"]
    assert again.summary["model_sha256"] == whole.summary["model_sha256"]


def test_the_wrapper_says_what_it_wraps() -> None:
    inner = make("metamf")
    wrapped = LocalOnly(inner, 7)
    assert wrapped.name == "metamf" and wrapped.home == inner.home and wrapped.draws_negatives and wrapped.rounds == 7
