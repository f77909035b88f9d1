"""What must hold for every system in the catalogue. A new one is tested by being listed."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.algorithms import CATALOGUE, algorithm_class, make
from coterie.algorithms.interface import Central, Federated
from coterie.data.synthetic import synthetic
from coterie.engine.simulate import State, simulate, start
from coterie.errors import CoterieError
from coterie.protocol import prepare, resolve
from coterie.runs import tensors
from coterie.runs.measure import measure
from tests.worlds import checkerboard, interactions, random_history


def _available(name: str) -> Any:
    try:
        return make(name)
    except CoterieError as problem:
        pytest.skip(str(problem))


def _federated(name: str) -> Any:
    algorithm = _available(name)
    if not isinstance(algorithm, Federated):
        pytest.skip(f"{name} is central")
    return algorithm


def _flat(state: Any) -> dict[str, np.ndarray]:
    found = {}
    for name, value in tensors.leaves(state):
        if hasattr(value, "table"):
            found[name] = np.array([value.table(client) for client in range(len(value.used))])
        else:
            found[name] = value
    return found


def _assert_same(one: Any, other: Any) -> None:
    left, right = _flat(one), _flat(other)
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


every = pytest.mark.parametrize("name", list(CATALOGUE))


@every
def test_says_what_it_is(name: str) -> None:
    cls = algorithm_class(name)
    assert _available(name).sends and cls.citation and "coterie" in cls.behaviours
    for behaviour, settings in cls.behaviours.items():
        assert set(settings) <= {field.name for field in fields(cls)}, behaviour


@every
def test_a_cohort_equals_its_clients_one_at_a_time(name: str) -> None:
    algorithm = _federated(name)
    history = random_history(7, 40, 12, seed=1)
    together, apart = start(algorithm, history, 3), start(algorithm, history, 3)
    everybody = np.arange(7)
    for round_ in (1, 2):
        download = algorithm.download(together.server, everybody, round_)
        upload, report = algorithm.client_step(together.clients, everybody, history, download, round_, 3)
        for client in everybody:
            ids = np.array([client])
            alone = algorithm.download(apart.server, ids, round_)
            one, said = algorithm.client_step(apart.clients, ids, history, alone, round_, 3)
            part = slice(upload.indptr[client], upload.indptr[client + 1])
            np.testing.assert_array_equal(one.rows, upload.rows[part])
            np.testing.assert_array_equal(one.values, upload.values[part])
            np.testing.assert_array_equal(one.dense[0], upload.dense[client])
            assert said.loss[0] == report.loss[client]
    _assert_same(together.clients, apart.clients)


@every
def test_removing_a_client_changes_nothing_of_another(name: str) -> None:
    algorithm = _federated(name)
    history = random_history(6, 40, 12, seed=2)
    everybody, fewer = np.arange(6), np.array([0, 2, 3, 5])
    whole, part = start(algorithm, history, 0), start(algorithm, history, 0)
    upload, _ = algorithm.client_step(
        whole.clients, everybody, history, algorithm.download(whole.server, everybody, 1), 1, 0
    )
    smaller, _ = algorithm.client_step(part.clients, fewer, history, algorithm.download(part.server, fewer, 1), 1, 0)
    for place, client in enumerate(fewer):
        mine = slice(upload.indptr[client], upload.indptr[client + 1])
        again = slice(smaller.indptr[place], smaller.indptr[place + 1])
        np.testing.assert_array_equal(upload.rows[mine], smaller.rows[again])
        np.testing.assert_array_equal(upload.values[mine], smaller.values[again])


@every
def test_state_goes_through_disk_unchanged(name: str, tmp_path: Any) -> None:
    algorithm = _available(name)
    history = random_history(9, 30, 10, seed=3)
    state = start(algorithm, history, 1)
    for one in simulate(algorithm, history, state, range(1, 3), 1):
        state = one.state
    tensors.save(tmp_path / "model", state, {"round": 2})
    again: State = tensors.load(tmp_path / "model", start(algorithm, history, 1))
    _assert_same(state, again)
    everybody = np.arange(9)
    np.testing.assert_array_equal(
        algorithm.score(state.server, state.clients, history, everybody),
        algorithm.score(again.server, again.clients, history, everybody),
    )
    assert tensors.save(tmp_path / "again", again, {"round": 2}) == tensors.read_manifest(tmp_path / "model")["sha256"]


@every
def test_threads_and_partial_cohorts(name: str) -> None:
    """The same bytes on 1, 2 and 4 threads, with a third of the clients in each round and some dropping out."""
    algorithm = _federated(name)
    history = random_history(40, 50, 15, seed=4)
    results = []
    for threads in (1, 2, 4):
        state = start(algorithm, history, 5)
        for one in simulate(algorithm, history, state, range(1, 4), 5, size=0.34, dropout=0.1, threads=threads):
            state = one.state
        results.append(state)
    _assert_same(results[0], results[1])
    _assert_same(results[0], results[2])


@every
def test_nothing_depends_on_where_its_arrays_lie(name: str) -> None:
    """A compiler that asks at run time whether arrays overlap may sum in another order: see docs/decisions/sums.md."""
    draw, held = np.random.default_rng(0), []
    history = random_history(20, 40, 12, seed=11)
    for behaviour in algorithm_class(name).behaviours:
        _available(name)
        algorithm, first = make(name, behaviour), None
        for _ in range(24):
            held.append([np.empty(size, np.uint8) for size in draw.integers(1, 400, draw.integers(20))])
            if len(held) > 10:
                held.pop(draw.integers(10))
            state = start(algorithm, history, 0)
            for one in simulate(algorithm, history, state, range(1, 3), 0, 10):
                state = one.state
            first = first or state
            _assert_same(first, state)


@every
def test_the_checkerboard_is_learnt(name: str) -> None:
    algorithm = _available(name)
    if not algorithm.collaborative:
        pytest.skip(f"{name} does not learn from others' taste")
    history, likes = checkerboard()
    seen = np.zeros(likes.shape, bool)
    seen[np.repeat(np.arange(len(likes)), history.lengths), history.items] = True

    def learnt(state: State) -> float:
        """How often an unseen item of her colour scores above one of the other colour."""
        scores = algorithm.score(state.server, state.clients, history, np.arange(len(likes)))
        return float(
            np.mean(
                [
                    np.mean(row[own & ~had][:, None] > row[~own][None, :])
                    for row, own, had in zip(scores, likes, seen, strict=True)
                    if (own & ~had).any()
                ]
            )
        )

    # The world is tiny, so a round is few steps for systems that go by batches: some may take longer than by default.
    # Others (MetaMF) have it by round 40 and may lose it again; a run, too, looks every few rounds and keeps the best.
    state, found = start(algorithm, history, 0), 0.0
    every_so_many = max(1, algorithm.default_rounds // 5)
    for one in simulate(algorithm, history, state, range(1, 8 * algorithm.default_rounds + 1), 0, threads=2):
        state = one.state
        if one.number % every_so_many == 0:
            found = learnt(state)
            if found > 0.9:
                break
    assert found > 0.9


@every
def test_scores_that_are_not_finite_never_count(name: str) -> None:
    algorithm = _available(name)
    data = interactions([[u % 5, 5 + u % 7, 12 + u % 3, 20 + u] for u in range(8)], n_items=40)
    prepared = prepare(data, resolve("clean"), 0)
    state = start(algorithm, prepared.history, 0)
    broken = type("Broken", (), {"score": lambda *a: np.full((len(a[-1]), 40), np.nan, np.float32)})()
    for part in measure(broken, state, prepared, 1).metrics.values():
        for kind in part.values():
            assert kind["HR@10"] == 0 and kind["NDCG@10"] == 0


@every
def test_a_newcomer_is_served_from_her_history_alone(name: str) -> None:
    algorithm = _available(name)
    history, _ = checkerboard()
    state = start(algorithm, history, 0)
    for one in simulate(algorithm, history, state, range(1, 3 * algorithm.default_rounds + 1), 0, threads=2):
        state = one.state
    someone = random_history(1, history.n_items, 1, seed=0)._replace(keys=np.array([99], np.uint64))
    evens = np.arange(0, 12, 2, dtype=np.int32)
    ones = np.ones(len(evens), np.float32)
    own = type(someone.forbidden)(np.array([0, len(evens)]), evens)
    someone = someone._replace(indptr=own.indptr, items=evens, counts=ones, ratings=ones, forbidden=own)
    if isinstance(algorithm, Federated) and not algorithm.collaborative:  # nothing shared, nothing to offer her
        with pytest.raises(CoterieError, match="outside training"):
            algorithm.newcomer(state.server, someone, 0)
        return
    scores = algorithm.score(state.server, algorithm.newcomer(state.server, someone, 0), someone, np.array([0]))[0]
    assert scores.shape == (history.n_items,) and np.isfinite(scores).all()
    if algorithm.collaborative and getattr(algorithm, "guides_newcomers", True):
        unseen = np.arange(12, 24)
        assert scores[unseen[unseen % 2 == 0]].mean() > scores[unseen[unseen % 2 == 1]].mean()


def test_central_systems_say_so() -> None:
    for name in CATALOGUE:
        cls = algorithm_class(name)
        if issubclass(cls, Central) and name != "random":
            assert "central" in cls.sends


@pytest.mark.parametrize(
    ("name", "behaviour"), [(name, one) for name in CATALOGUE for one in algorithm_class(name).behaviours]
)
def test_every_behaviour_makes_a_run_as_a_person_would_start_it(name: str, behaviour: str, tmp_path: Path) -> None:
    _available(name)
    data = synthetic(users=30, items=40, seed=1, shortest=6, longest=15)
    run = coterie.run(make(name, behaviour), data, rounds=2, out=tmp_path / "run")
    said = make(run.summary["algorithm"], run.summary["behaviour"])
    assert asdict(said) == asdict(make(name, behaviour)), "the record calls it by what it is"
    assert run.recommend(data.user_ids[0], n=3)


def test_a_changed_setting_does_not_change_what_a_run_is_called(tmp_path: Path) -> None:
    data = synthetic(users=30, items=40, seed=1, shortest=6, longest=15)
    run = coterie.run(make("fedrap-c", "as_released", dim=8), data, rounds=1, out=tmp_path / "run")
    assert (run.summary["algorithm"], run.summary["behaviour"]) == ("fedrap-c", "as_released")
