"""FedeRank: the kernel against plain NumPy and finite differences, an epoch in one call, what may leave a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coterie import rng
from coterie.algorithms import federank_kernel as kernel
from coterie.algorithms import make
from coterie.algorithms.federank import FedeRank, Server
from coterie.algorithms.interface import History, Sharing
from coterie.engine.simulate import simulate, start
from coterie.errors import CoterieError
from coterie.ragged import Ragged, ragged
from tests.federank.federank_reference import exchange
from tests.worlds import history, random_history

SGD = {
    "dim": 6, "hardest": 1, "lr": 0.05, "lr_server": None, "rate_by_history": False, "optimiser": "sgd", "reg": 0.05,
    "reg_negative": 0.005,
}  # fmt: skip
SETTINGS: list[dict[str, Any]] = [
    {"user_moves": "once"},
    {"user_moves": "each", "pi": 0.5},
    {"user_moves": "each", "mask": "triple", "pi": 0.4, "triples": "own"},
    {"user_moves": "once", "sharing": "fixed-subset", "pi": 0.3},
    {"hardest": 3, "rate_by_history": True, "reg": 2.0, "triples": 5},
    {"triples": 1, "pi": 0.0},
]


def _choices(world: History) -> History:
    """Client 0 chose a fifth, client 1 nothing; clients 0 and 2 never share their first item."""
    pi = np.full(world.n_clients, np.nan)
    pi[:2] = 0.2, 0.0
    own = Ragged(world.indptr, world.items)
    never = ragged([own.of(u)[:1] if u in (0, 2) else [] for u in range(world.n_clients)])
    return world._replace(sharing=Sharing(pi, never))


def _triples(a: FedeRank, world: History) -> np.ndarray:
    if a.triples == "own":
        return world.lengths
    return np.full(world.n_clients, -(-len(world.items) // world.n_clients) if a.triples == "average" else a.triples)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("chosen", [False, True])
def test_kernel_is_the_reference(settings: dict[str, Any], chosen: bool) -> None:
    a = FedeRank(**SGD | settings)
    world = random_history(8, 25, 12, seed=1)
    world = _choices(world) if chosen else world
    state = start(a, world, 3)
    before = state.clients.user.copy()
    ids = np.arange(8)
    upload, report = a.client_step(state.clients, ids, world, a.download(state.server, ids, 4), 4, 3)
    for i in ids:
        sent, user, made, loss = exchange(a, world, i, state.server.table, before[i], _triples(a, world)[i], 4, 3)
        part = slice(upload.indptr[i], upload.indptr[i + 1])
        assert upload.rows[part].tolist() == sorted(sent)
        for row, value in zip(upload.rows[part], upload.values[part], strict=True):
            np.testing.assert_allclose(value, sent[row], rtol=2e-4, atol=2e-6)
        np.testing.assert_allclose(state.clients.user[i], user, rtol=2e-4, atol=2e-6)
        assert report.negatives is not None and report.negatives.of(i).tolist() == [other for _, other in made]
        assert report.loss[i] == pytest.approx(loss, rel=1e-4)


def test_gradients_are_those_of_the_objective() -> None:
    """Finite differences of sum ln sigma(x_ui - x_uj) - reg/2 |.|^2 over one client's triples."""
    a = FedeRank(**SGD | {"user_moves": "once", "triples": 4})
    world = random_history(1, 12, 5, seed=2)
    state = start(a, world, 0)
    table, p = state.server.table.astype(np.float64), state.clients.user[0].astype(np.float64)
    _, _, made, _ = exchange(a, world, 0, table, p, 4, 1, 0)
    reg, reg_negative = a.reg * a.lr, a.reg_negative * a.lr

    def objective(table: np.ndarray, p: np.ndarray) -> float:
        total = 0.0
        for i, j in made:
            x = table[i, -1] - table[j, -1] + p @ (table[i, :-1] - table[j, :-1])
            total -= np.log1p(np.exp(-x))
            total -= (
                0.5 * reg * (p @ p + table[i, :-1] @ table[i, :-1]) + 0.5 * reg_negative * table[j, :-1] @ table[j, :-1]
            )
        return float(total)

    upload, _ = a.client_step(state.clients, np.array([0]), world, a.download(state.server, np.array([0]), 1), 1, 0)
    h = 1e-5
    for row, value in zip(upload.rows, upload.values, strict=True):
        for d in range(table.shape[1]):
            up, down = table.copy(), table.copy()
            up[row, d] += h
            down[row, d] -= h
            assert value[d] == pytest.approx((objective(up, p) - objective(down, p)) / (2 * h), abs=1e-4)
    moved = (state.clients.user[0] - p) / a.lr
    for d in range(len(p)):
        step = np.eye(len(p))[d] * h
        assert moved[d] == pytest.approx((objective(table, p + step) - objective(table, p - step)) / (2 * h), abs=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimiser": "sgd"}, {"optimiser": "adagrad", "triples": 1}, {"pi": 0.5}, {"pi": 0.5, "triples": 1},
        {"triples": 1, "hardest": 3, "sharing": "fixed-subset", "pi": 0.5, "optimiser": "adagrad"},
    ],
)  # fmt: skip
def test_a_walk_is_its_exchanges_one_by_one(settings: dict[str, Any]) -> None:
    a = FedeRank(**SGD | settings)
    world = random_history(15, 30, 9, seed=5)
    walked, stepped = start(a, world, 1), start(a, world, 1)
    plan = a.plan(world, 1, 1, 1)
    walk = a.walk(walked.server, walked.clients, plan.items, world, 1, 1)
    rounds = simulate(a, world, stepped, range(1, 2), 1, 1, path=lambda upload, ids, number: upload)
    slow = next(rounds)  # with an upload path the engine takes each exchange by itself
    np.testing.assert_allclose(walk.server.table, slow.state.server.table, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(walked.clients.user, stepped.clients.user, rtol=1e-3, atol=1e-6)
    assert slow.touched is not None
    np.testing.assert_array_equal(walk.touched, slow.touched)
    assert walk.bytes_up / len(walk.ids) == slow.bytes_up and walk.bytes_down / len(walk.ids) == slow.bytes_down
    assert float(walk.report.loss @ walk.report.examples / walk.report.examples.sum()) == pytest.approx(
        slow.loss, rel=1e-4
    )


@pytest.mark.parametrize("triples", ["average", 1])
def test_a_walk_does_not_depend_on_where_its_arrays_lie(triples: Any) -> None:
    draw, held, found = np.random.default_rng(0), [], set()
    world = _choices(random_history(20, 40, 12, seed=11))
    for optimiser in ("sgd", "adagrad"):
        a = FedeRank(**SGD | {"dim": 21, "triples": triples, "optimiser": optimiser, "hardest": 2})
        for _ in range(24):
            held.append([np.empty(size, np.uint8) for size in draw.integers(1, 400, draw.integers(20))])
            if len(held) > 10:
                held.pop(draw.integers(10))
            state = start(a, world, 0)
            for one in simulate(a, world, state, range(1, 3), 0, 1):
                state = one.state
            found.add(state.server.table.tobytes() + state.clients.user.tobytes())
    assert len(found) == 2  # one for each optimiser


def test_the_number_of_draws_grows_with_the_items() -> None:
    """An eighth of the square root: 1 of 40 items, 3 of 700."""
    for n_items, draws in ((40, 1), (700, 3)):
        world, tables = random_history(10, n_items, 9, seed=12), []
        for hardest in ("by-items", draws, draws + 1):
            a = FedeRank(dim=6, hardest=hardest)  # type: ignore[arg-type]
            state = start(a, world, 0)
            tables.append(next(simulate(a, world, state, range(1, 2), 0, 1)).state.server.table)
        np.testing.assert_array_equal(tables[0], tables[1])
        assert not np.array_equal(tables[1], tables[2])


def test_an_epoch_visits_everybody_once_or_draws_positives() -> None:
    world = random_history(20, 30, 9, seed=6)
    once = FedeRank().plan(world, 1, 0, 1)
    assert sorted(once.items.tolist()) == list(range(20)) and (once.lengths == 1).all()
    assert once.items.tolist() != FedeRank().plan(world, 1, 0, 2).items.tolist()
    uniform = FedeRank(triples=1)
    drawn = np.concatenate([uniform.plan(world, 1, 0, epoch).items for epoch in range(1, 400)])
    assert len(drawn) == 399 * len(world.items)
    expected = world.lengths / world.lengths.sum()
    np.testing.assert_allclose(np.bincount(drawn, minlength=20) / len(drawn), expected, rtol=0.08)
    groups = FedeRank(triples=3).plan(world, 4, 0, 1)
    assert groups.users == int(np.ceil(np.ceil(len(world.items) / 3) / 4))
    assert all(len(set(groups.of(e).tolist())) == len(groups.of(e)) <= 4 for e in range(groups.users))


def test_cohorts_larger_than_one_go_through_the_sum() -> None:
    a = FedeRank(**SGD)
    world = random_history(12, 30, 9, seed=7)
    state = start(a, world, 2)
    one = next(simulate(a, world, state, range(1, 2), 2, 4, threads=2))
    assert one.participants == 12 and one.loss is not None and np.isfinite(one.loss)
    assert not np.array_equal(one.state.server.table, state.server.table)


def _uploads(a: FedeRank, world: History, exchanges: int = 60) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Everything that leaves the devices in a training: (client, rows, values)."""
    state, seen, ids = start(a, world, 0), [], np.arange(world.n_clients)
    for number in range(1, exchanges + 1):
        upload, _ = a.client_step(state.clients, ids, world, a.download(state.server, ids, number), number, 0)
        for i in ids:
            part = slice(upload.indptr[i], upload.indptr[i + 1])
            seen.append((int(i), upload.rows[part], upload.values[part]))
        table = state.server.table.copy()
        np.add.at(table, upload.rows, np.float32(a.lr) * upload.values)
        state = state._replace(server=Server(table, state.server.squares))
    return seen


@pytest.mark.parametrize("sharing", ["per-round", "fixed-subset"])
def test_never_share_items_never_leave_as_positives(sharing: Any) -> None:
    """The bias has no regularisation: its update is above 0 for a consumed item and below for an unseen one."""
    world = _choices(random_history(6, 25, 10, seed=8))
    assert world.sharing is not None
    a = FedeRank(**SGD | {"sharing": sharing, "pi": 1.0})
    met = positives = 0
    for i, rows, values in _uploads(a, world):
        never = world.sharing.never.of(i)
        marked = np.isin(rows, never)
        met += int(marked.sum())
        assert (values[marked, -1] < 0).all(), "a never-share item left the device as a consumed one"
        shared = np.isin(rows, world.items[world.indptr[i] : world.indptr[i + 1]]) & ~marked
        if sharing == "per-round":
            assert (values[shared, -1] > 0).all()
        positives += int((values[shared, -1] > 0).sum())
    assert met > 0, "they do look like any unseen item"
    assert positives > 0, "the others are shared: the check can fail"


def test_pi_is_each_persons_own() -> None:
    world = _choices(random_history(6, 40, 12, seed=9))
    sent = np.zeros(6)
    for i, _, values in _uploads(FedeRank(**SGD | {"triples": 1}), world, 400):
        sent[i] += (values[:, -1] > 0).sum()
    first = world.lengths[0]
    assert sent[1] == 0  # pi 0
    assert (sent[3:] == 400).all()  # pi of the run, 1
    assert sent[0] / 400 == pytest.approx(0.2 * (first - 1) / first, abs=0.07)
    assert sent[2] / 400 == pytest.approx((world.lengths[2] - 1) / world.lengths[2], abs=0.07)


def test_a_fixed_subset_stays_the_same_and_hides_the_rest() -> None:
    world = random_history(5, 40, 20, seed=10)
    a = FedeRank(**SGD | {"sharing": "fixed-subset", "pi": 0.5})
    positive: list[set[int]] = [set() for _ in range(5)]
    negative: list[set[int]] = [set() for _ in range(5)]
    for i, rows, values in _uploads(a, world, 150):
        positive[i] |= set(rows[values[:, -1] > 0].tolist())
        negative[i] |= set(rows[values[:, -1] < 0].tolist())
    for i in range(5):
        own = set(world.items[world.indptr[i] : world.indptr[i + 1]].tolist())
        coins = np.uint64(rng.stream(0, 0, world.keys[i], rng.SHARING))
        shared = {j for j in own if kernel.chosen(coins, j, 0.5)}
        assert positive[i] == shared
        assert negative[i] == set(range(40)) - shared, "hidden items are drawn like any unseen one"


def test_settings_that_cannot_be() -> None:
    for settings, words in (
        ({"pi": 1.5}, "from 0 to 1"), ({"pi": -0.1}, "from 0 to 1"), ({"triples": 0}, "1 or more"),
        ({"hardest": 0}, "at least 1"), ({"dim": 0}, "dim must be 1"), ({"lr": -1.0}, "below 0"),
    ):  # fmt: skip
        with pytest.raises(CoterieError, match=words):
            make("federank", **settings)
    everything = history(ragged([[0, 1, 2], [0]]), 3)
    a = FedeRank()
    with pytest.raises(CoterieError, match="no negative"):
        next(simulate(a, everything, start(a, everything, 0), range(1, 2), 0, 1))
    with pytest.raises(CoterieError, match="cohort of 9"):
        a.plan(everything, 9, 0, 1)


@pytest.mark.parametrize("behaviour", ["coterie", "as_published", "as_released"])
def test_threads_do_not_matter(behaviour: str) -> None:
    a = make("federank", behaviour)
    world = random_history(30, 40, 12, seed=11)
    tables = []
    for threads in (1, 4):
        state = start(a, world, 0)
        for one in simulate(a, world, state, range(1, 3), 0, 10, threads=threads):
            state = one.state
        tables.append(state.server.table)
    np.testing.assert_array_equal(*tables)
