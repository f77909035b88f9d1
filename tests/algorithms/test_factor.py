"""The training kernel against the plain NumPy version, against numerical gradients, and against itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.algorithms import factor, factor_reference, factor_step
from coterie.algorithms.factor import L1, L2, SOFT_THRESHOLD, Local
from coterie.algorithms.factor_reference import Model
from tests.algorithms.clients import PLAIN, by_kernel, by_reference, client_table, examples_of, start_of, world

_REG = {"apart": 0.3, "sparse": 0.2}
SWITCHES: dict[str, dict[str, object]] = {
    "plain": {},
    "mean": {"mean": True, "rate_item": 3.0, "rate_own": 2.0},
    "squared": {"squared": True},
    "squared, mean, several passes": {"squared": True, "mean": True, "passes": 4},
    "shared only": {"private": False},
    "private only": {"shared": False},
    "private only, regularised": {"shared": False, "penalty": L1, **_REG},
    "item bias": {"item_bias": True, "decay_item": 0.1},
    "item bias without private": {"item_bias": True, "private": False, "decay_item": 0.1},
    "user bias": {"user_bias": True, "decay_user": 0.3},
    "recency": {"half_life": 1.5},
    "recency, at least a half": {"half_life": 1.0, "oldest": 0.5, "passes": 3, "penalty": L1, **_REG},
    "recency, squared, item bias": {"half_life": 4.0, "squared": True, "item_bias": True, "private": False},
    "several passes": {"passes": 5, "step_decay": 0.8},
    "decay": {"decay_user": 0.3, "decay_item": 0.2, "decay_own": 0.4},
    "decay everywhere": {"everywhere": True, "passes": 3, "decay_item": 0.5, "decay_own": 0.7, "step_decay": 0.9},
    "several batches": {"batch": 3, "passes": 2},
    "several batches, decay": {"batch": 3, "passes": 2, "decay_item": 0.5, "decay_own": 0.7},
    "several batches, decay everywhere": {"batch": 3, "passes": 2, "everywhere": True, "decay_item": 0.5},
    "several batches, regularised": {"batch": 4, "passes": 2, "mean": True, "penalty": L1, **_REG},
    "apart": {"apart": 0.3},
    "L1": {"penalty": L1, **_REG},
    "L1 without private": {"penalty": L1, "sparse": 0.4, "private": False},
    "L2": {"penalty": L2, **_REG},
    "L2 without private": {"penalty": L2, "sparse": 0.4, "private": False, "passes": 3},
    "soft threshold": {"penalty": SOFT_THRESHOLD, "sparse": 5.0, "passes": 2},
    "soft threshold without private": {"penalty": SOFT_THRESHOLD, "sparse": 5.0, "private": False},
    "soft threshold, mean": {"penalty": SOFT_THRESHOLD, "sparse": 50.0, "mean": True, **{"apart": 0.1}},
    "whole": {"whole": True, "penalty": L1, **_REG},
    "whole, soft threshold": {"whole": True, "penalty": SOFT_THRESHOLD, "sparse": 3.0, "apart": 0.01, "passes": 3},
    "whole, several batches": {"whole": True, "penalty": L2, "batch": 4, **_REG},
    "stops": {"tolerance": 0.05, "passes": 40, "mean": True},
    "stops, regularised": {"tolerance": 0.02, "passes": 40, "mean": True, "penalty": L1, **_REG},
    "stops, sums": {"tolerance": 0.05, "passes": 40, "penalty": L2, "sparse": 0.01},
    "as_released": {
        "passes": 10, "mean": True, "user_bias": True, "everywhere": True, "rate_item": 6.0, "rate_own": 6.0,
        "decay_user": 1e-4, "decay_item": 1e-2, "decay_own": 1e-2, "step_decay": 0.95, "apart": 0.1, "sparse": 0.1,
        "penalty": L1, "tolerance": 1e-4, "batch": 8,
    },
}  # fmt: skip


def _settings(name: str) -> Local:
    return PLAIN._replace(**SWITCHES[name])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SWITCHES)
def test_kernel_equals_reference(name: str) -> None:
    s = _settings(name)
    for seed in range(3):
        w = world(s, seed=seed, most_counts=2)
        got = by_kernel(w, s)
        for i in range(w.history.n_clients):
            want, loss = by_reference(w, s, i)
            close = {"rtol": 2e-4, "atol": 2e-5}
            np.testing.assert_allclose(got.user[i], want.user, **close)
            np.testing.assert_allclose(got.report.loss[i], loss, **close)
            assert got.report.examples[i] == len(examples_of(w, i).items)
            if s.shared:
                np.testing.assert_allclose(client_table(w, got.upload, i), want.shared, **close)
            if s.private:
                np.testing.assert_allclose(got.own.table(i), want.own, **close)
            if s.user_bias:
                np.testing.assert_allclose(got.bias[i], want.bias, **close)
        if not s.shared:
            assert len(got.upload.rows) == 0 and not got.upload.indptr.any()


def test_long_vectors_and_many_rows_equal_reference() -> None:
    """More rows than a block and more dimensions than a vector register, neither a multiple of it."""
    s = PLAIN._replace(passes=3, item_bias=True, penalty=L1, apart=0.02, sparse=0.02, rate_item=0.02, rate_own=0.01)
    for one in (s, s._replace(passes=1), s._replace(passes=1, private=False)):
        w = world(one, clients=2, items=90, dim=37, per_positive=30, seed=5)
        got = by_kernel(w, one)
        for i in range(2):
            want, _ = by_reference(w, one, i)
            np.testing.assert_allclose(client_table(w, got.upload, i), want.shared, rtol=1e-3, atol=2e-4)
            np.testing.assert_allclose(got.user[i], want.user, rtol=1e-3, atol=2e-4)


GRADIENTS = [
    name for name in SWITCHES
    if _settings(name).penalty != SOFT_THRESHOLD and _settings(name).batch > 100 and not _settings(name).tolerance
]  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_step_follows_the_numerical_gradient(name: str) -> None:
    """One step at rate 1 moves everything by minus the gradient of the objective written down here."""
    s = _settings(name)._replace(passes=1, rate_item=1.0, rate_own=1.0)
    w = world(s, seed=11)._replace(rates=np.ones(4))
    got = by_kernel(w, s)
    i = 2
    batch = examples_of(w, i, s)
    m, k = len(w.table), w.user.shape[1]
    decayed = np.arange(m) if s.everywhere or s.whole else np.unique(batch.items)

    def objective(model: Model) -> float:
        mean_or_sum = factor_reference.losses(model, batch, s).sum() / (len(batch.items) if s.mean else 1)
        ridge = s.decay_item * (model.shared[decayed] ** 2).sum() + s.decay_own * (model.own[decayed] ** 2).sum()
        ridge += s.decay_user * ((model.user**2).sum() + model.bias**2)
        return float(mean_or_sum + factor_reference.penalty(model, batch, s) + 0.5 * ridge)

    def slope(field: str, index: tuple[int, ...]) -> float:
        ends = []
        for h in (1e-5, -1e-5):
            model = start_of(w, i)
            moved = np.array(getattr(model, field), float)
            moved[index] += h
            ends.append(objective(model._replace(**{field: moved})))
        return (ends[0] - ends[1]) / 2e-5

    after_shared = client_table(w, got.upload, i) if s.shared else None
    after_own = got.own.table(i)
    for d in range(k):
        assert w.user[i, d] - got.user[i, d] == pytest.approx(slope("user", (d,)), rel=2e-4, abs=2e-5)
        for j in range(m):
            if after_shared is not None:
                moved = w.table[j, d] - after_shared[j, d]
                assert moved == pytest.approx(slope("shared", (j, d)), rel=2e-4, abs=2e-5)
            if s.private:
                moved = w.own.table(i)[j, d] - after_own[j, d]
                assert moved == pytest.approx(slope("own", (j, d)), rel=2e-4, abs=2e-5)
    if s.item_bias and after_shared is not None:
        for j in range(m):
            assert w.table[j, k] - after_shared[j, k] == pytest.approx(slope("shared", (j, k)), rel=2e-4, abs=2e-5)
    if s.user_bias:
        assert w.bias[i] - got.bias[i] == pytest.approx(slope("bias", ()), rel=2e-4, abs=2e-5)


def test_golden_step() -> None:
    """u = (1, 2), C[0] = (0, 0) is the positive, C[1] = (1, -0.5) the negative drawn twice; both scores are 0.

    Errors: sigma(0) - 1 = -0.5 for item 0, 2 (sigma(0) - 0) = 1 for item 1.
    Item rate 0.1: C[0] moves by 0.1 x 0.5 x u = (0.05, 0.1), C[1] by -0.1 x 1 x u = (-0.1, -0.2).
    User rate 0.5: u moves by -0.5 (-0.5 C[0] + 1 C[1]) = (-0.5, 0.25). Mean loss of three examples at 0: ln 2.
    """
    s = PLAIN._replace(private=False, rate_item=0.1)
    w = world(s, clients=1, items=3, dim=2)
    history = w.history._replace(
        indptr=np.array([0, 1]), items=np.array([0], np.int32), counts=np.ones(1, np.float32), n_items=3
    )
    w = w._replace(
        history=history, negatives=w.negatives._replace(indptr=np.array([0, 2]), items=np.array([1, 1], np.int32)),
        table=np.array([[0, 0], [1, -0.5], [7, 7]], np.float32), user=np.array([[1, 2]], np.float32),
        rates=np.array([0.5]),
    )  # fmt: skip
    got = by_kernel(w, s)
    assert got.upload.rows.tolist() == [0, 1]
    np.testing.assert_allclose(got.upload.values, [[0.05, 0.1], [-0.1, -0.2]], atol=1e-7)
    np.testing.assert_allclose(got.user, [[0.5, 2.25]], atol=1e-7)
    assert got.report.loss[0] == pytest.approx(np.log(2), abs=1e-6)
    assert got.report.examples[0] == 3


_NAMES = st.sampled_from(["plain", "mean", "as_released", "several batches, decay everywhere", "L1", "item bias"])


@settings(max_examples=25, deadline=None)
@given(
    name=_NAMES, clients=st.integers(2, 6), items=st.integers(6, 40), dim=st.integers(1, 20), seed=st.integers(0, 99)
)
def test_a_cohort_equals_its_clients_one_at_a_time(name: str, clients: int, items: int, dim: int, seed: int) -> None:
    s = _settings(name)
    w = world(s, clients, items, dim, seed=seed)
    together = by_kernel(w, s)
    for i in range(clients):
        alone = by_kernel(w, s, np.array([i]))
        part = slice(together.upload.indptr[i], together.upload.indptr[i + 1])
        np.testing.assert_array_equal(together.upload.rows[part], alone.upload.rows)
        np.testing.assert_array_equal(together.upload.values[part], alone.upload.values)
        np.testing.assert_array_equal(together.upload.dense[i], alone.upload.dense[0])
        np.testing.assert_array_equal(together.user[i], alone.user[i])
        np.testing.assert_array_equal(together.own.table(i), alone.own.table(i))
        assert together.report.loss[i] == alone.report.loss[0]


@settings(max_examples=15, deadline=None)
@given(name=_NAMES, seed=st.integers(0, 99), order=st.permutations(range(5)))
def test_the_order_of_clients_changes_nothing(name: str, seed: int, order: list[int]) -> None:
    s = _settings(name)
    w = world(s, clients=5, seed=seed)
    usual, other = by_kernel(w, s), by_kernel(w, s, np.array(order))
    np.testing.assert_array_equal(usual.user, other.user)
    for i in range(5):
        np.testing.assert_array_equal(usual.own.table(i), other.own.table(i))
        np.testing.assert_array_equal(client_table(w, usual.upload, i), client_table(w, other.upload, order.index(i)))


def test_clients_without_examples_are_left_alone() -> None:
    s = _settings("as_released")
    w = world(s, clients=2)
    empty = w.history._replace(indptr=np.zeros(3, np.int64), items=w.history.items[:0], counts=w.history.counts[:0])
    w = w._replace(history=empty, negatives=w.negatives._replace(indptr=np.zeros(3, np.int64)))
    got = by_kernel(w, s)
    np.testing.assert_array_equal(got.user, w.user)
    assert got.upload.indptr.tolist() == [0, 0, 0] and got.report.loss.tolist() == [0, 0]
    assert by_kernel(w, s, np.empty(0, np.int64)).upload.indptr.tolist() == [0]


def test_divergence_is_seen_not_hidden() -> None:
    for s in (PLAIN, PLAIN._replace(private=False, passes=2), PLAIN._replace(squared=True)):
        w = world(s)
        w.user[1, 0] = np.nan
        got = by_kernel(w, s)
        assert np.isnan(got.report.loss[1]) and np.isfinite(got.report.loss[[0, 2, 3]]).all()
        assert np.isnan(got.upload.values[got.upload.indptr[1] : got.upload.indptr[2]]).any()


def test_large_scores_saturate_without_overflow() -> None:
    s = PLAIN._replace(private=False)
    w = world(s)
    w.table[:] *= 1e4
    got = by_kernel(w, s)
    assert np.isfinite(got.report.loss).all() and np.isfinite(got.upload.values).all()


def test_exponential_and_logarithm_are_those_of_the_library() -> None:
    x = np.linspace(-80, 0, 100_001).astype(np.float32)
    e = np.array([factor_step.exp(one) for one in x])
    np.testing.assert_allclose(e, np.exp(x.astype(float)), rtol=2.5e-7)
    assert factor_step.exp(np.float32(0.0)) == 1.0 and factor_step.exp(np.float32(-1e30)) < 1e-37
    assert np.isnan(factor_step.exp(np.float32(np.nan)))
    near = np.array([factor_step.log1p(one) for one in e])
    np.testing.assert_allclose(near, np.log1p(e.astype(float)), rtol=4e-7)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("item_bias", [True, False])
def test_scores_are_those_of_the_model(private: bool, item_bias: bool) -> None:
    s = PLAIN._replace(private=private, item_bias=item_bias, user_bias=True)
    w = world(s)
    users = np.array([3, 0])
    got = factor.score(users, w.table, w.user, w.bias, w.own if private else None, True, item_bias)
    for row, i in enumerate(users):
        np.testing.assert_allclose(
            got[row], factor_reference.logits(start_of(w, int(i)), np.arange(12), s), rtol=1e-5, atol=1e-5
        )
