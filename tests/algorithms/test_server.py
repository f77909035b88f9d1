"""Sums of uploads: exact in any order, and nothing of a cohort with a bad number gets in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.algorithms.interface import Sum, Upload
from coterie.algorithms.server import FIXED_POINT, Adam, Refused, adam_step, add, empty_sum, merge, real


def _uploads(clients: int, seed: int, scale: float = 1.0) -> list[Upload]:
    draw = np.random.default_rng(seed)
    out = []
    for _ in range(clients):
        rows = np.sort(draw.choice(9, draw.integers(0, 9), replace=False)).astype(np.int32)
        values = (scale * draw.standard_normal((len(rows), 5)) * 10.0 ** draw.integers(-6, 3)).astype(np.float32)
        out.append(Upload(np.array([0, len(rows)]), rows, values, draw.standard_normal((1, 2)).astype(np.float32)))
    return out


def _total(uploads: list[Upload], clients: int) -> Sum:
    total = empty_sum(9, 5, 2)
    for one in uploads:
        add(total, one, clients)
    return total


def _same(a: Sum, b: Sum) -> None:
    for left, right in zip(a, b, strict=True):
        np.testing.assert_array_equal(left, right)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), order=st.permutations(range(8)), cut=st.integers(0, 8))
def test_no_order_and_no_split_changes_a_bit(seed: int, order: list[int], cut: int) -> None:
    uploads = _uploads(8, seed)
    usual = _total(uploads, 8)
    shuffled = [uploads[i] for i in order]
    parts = _total(shuffled[:cut], 8)
    merge(parts, _total(shuffled[cut:], 8))
    _same(usual, parts)


def test_a_cohort_equals_its_clients_and_the_true_sum() -> None:
    uploads = _uploads(20, 1)
    together = Upload(
        np.concatenate([[0], np.cumsum([len(u.rows) for u in uploads])]),
        *(np.concatenate([u[field] for u in uploads]) for field in (1, 2, 3)),
    )
    total = _total([together], 20)
    _same(total, _total(uploads, 20))
    want, touched = np.zeros((9, 5)), np.zeros(9, int)
    for one in uploads:
        want[one.rows] += one.values.astype(float)
        touched[one.rows] += 1
    np.testing.assert_allclose(real(total.rows), want, atol=20 * 2.0**-35)
    np.testing.assert_allclose(real(total.dense), sum(u.dense[0].astype(float) for u in uploads), atol=20 * 2.0**-35)
    assert total.touched.tolist() == touched.tolist() and total.clients.tolist() == [20]


def test_threads_change_nothing() -> None:
    uploads = _uploads(200, 3)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda part: _total(part, 200), [uploads[i::7] for i in range(7)]))
    total = empty_sum(9, 5, 2)
    for part in parts:
        merge(total, part)
    _same(total, _total(uploads, 200))


@pytest.mark.parametrize("value", [2.0**16, -(2.0**16), 3.1e-11, -3.1e-11, 0.1, 12345.678, 2.0**-35, 3 * 2.0**-35])
def test_rounding_is_to_the_nearest_even_step(value: float) -> None:
    total = empty_sum(1, 1, 1)
    number = np.float32(value)
    add(total, Upload(np.array([0, 1]), np.zeros(1, np.int32), np.array([[number]]), np.array([[number]])), 1)
    want = int(np.rint(float(number) * FIXED_POINT))
    assert total.rows.tolist() == [[want]] and total.dense.tolist() == [want]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e6, -1e30])
@pytest.mark.parametrize("place", ["values", "dense"])
def test_bad_numbers_are_refused_and_nothing_is_added(bad: float, place: str) -> None:
    rows, values = np.array([0, 1, 2], np.int32), np.ones((3, 5), np.float32)
    upload = Upload(np.array([0, 2, 3]), rows, values, np.ones((2, 2), np.float32))
    getattr(upload, place)[-1, 1] = bad
    total = _total(_uploads(3, 0), 5)
    before = Sum(*(field.copy() for field in total))
    with pytest.raises(Refused, match="client 1 of this cohort"):
        add(total, upload, 5)
    _same(total, before)


def test_the_limit_leaves_room_for_everybody() -> None:
    """A million clients at the limit still fit in 63 bits; one above it is refused."""
    n = 1_000_000
    limit = 2.0**28 / n
    total = empty_sum(1, 1, 0)
    top = Upload(
        np.array([0, 1]), np.zeros(1, np.int32), np.full((1, 1), limit, np.float32), np.empty((1, 0), np.float32)
    )
    add(total, top, n)
    assert int(total.rows[0, 0]) * n < 2**63
    with pytest.raises(Refused):
        add(total, top._replace(values=top.values * np.float32(1.01)), n)


def test_adam_golden() -> None:
    """The first step of Adam is the rate in the direction of the sign; the second too if the direction stays."""
    table, moments = np.zeros((1, 2), np.float32), Adam.zeros((1, 2))
    step = np.array([[0.3, -2.0]])
    for round_ in (1, 2):
        table, moments = adam_step(table, moments, step, round_, 0.1, (0.9, 0.99))
        np.testing.assert_allclose(table, [[0.1 * round_, -0.1 * round_]], rtol=1e-5)
    assert table.dtype == np.float32 and moments.second.dtype == np.float32
