"""Sums of neighbours' tables by prefix sums, looked-up subset sums and the matrix unit, against the matrix product."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.algorithms import amx, neighbour_sums, subset_sums, tile_sums
from coterie.algorithms.neighbour_sums import add_up, by_popularity


def _world(n: int, stray: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Tables longer than a stretch, a graph of first-so-many of a hidden order but for strays, and two weights."""
    draws = np.random.default_rng(seed)
    tables = draws.standard_normal((n, 190, 3)).astype(np.float32)
    hidden, reach = draws.permutation(n), draws.integers(0, n + 1, n)
    linked = hidden[None, :] < reach[:, None]
    linked ^= draws.random((n, n)) < stray
    return tables, linked, draws.random(n).astype(np.float32), draws.random(n).astype(np.float32)


@pytest.fixture(params=[False, True], ids=["without the unit", "with the unit"])
def unit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Each test on this processor as it is, and as if it had no matrix unit."""
    if request.param and not amx.available():
        pytest.skip("this processor has no matrix unit (AMX), or this system does not let us use it")
    monkeypatch.setattr(amx, "available", lambda: request.param)
    return bool(request.param)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n=st.integers(1, 70), stray=st.sampled_from([0.0, 0.02, 0.5]), seed=st.integers(0, 10_000))
def test_sums_equal_the_matrix_product(unit: bool, n: int, stray: float, seed: int) -> None:
    tables, linked, rows, columns = _world(n, stray, seed)
    expected = np.einsum("c,cj,j,jmw->cmw", rows.astype(float), linked.astype(float), columns, tables)
    found = add_up(tables, linked, rows, columns, by_popularity(linked))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("stray", [0.0, 0.05, 0.5])
def test_a_row_has_the_same_bytes_whoever_comes_with_it(unit: bool, stray: float) -> None:
    tables, linked, rows, columns = _world(60, stray, 1)
    order = by_popularity(linked)
    whole = add_up(tables, linked, rows, columns, order)
    for some in (np.array([3]), np.arange(10, 40), np.array([59, 0, 17])):
        np.testing.assert_array_equal(add_up(tables, linked[some], rows[some], columns, order), whole[some])


def test_strays_are_those_who_differ_from_the_first_so_many() -> None:
    linked = np.array([[True, True, False, False], [True, True, True, False], [True, False, False, True]])
    cut, indptr, strays = neighbour_sums._steps(linked, np.arange(4))
    assert cut.tolist() == [2, 3, 1] and indptr.tolist() == [0, 0, 0, 1] and strays.tolist() == [3]


def test_both_ways_are_taken_where_rows_differ_in_kind(unit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, linked, rows, columns = _world(64, 0.0, 2)
    linked[::2] = np.random.default_rng(3).random((32, 64)) < 0.5
    taken: dict[str, int] = {}
    other = tile_sums if unit else subset_sums
    for name, module, which in (("_prefixes", neighbour_sums, 0), ("add_up", other, 1)):
        way = getattr(module, name)

        def counted(*given: np.ndarray, name: str = name, way: object = way, which: int = which) -> None:
            taken[name] = len(given[which])
            way(*given)  # type: ignore[operator]

        monkeypatch.setattr(module, name, counted)
    found = add_up(tables, linked, rows, columns, by_popularity(linked))
    assert taken["_prefixes"] >= (5 if unit else 20) and taken["add_up"] >= 20 and sum(taken.values()) == 64
    expected = np.einsum("c,cj,j,jmw->cmw", rows.astype(float), linked.astype(float), columns, tables)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)


def test_looked_up_sums_of_whole_numbers_are_exact_for_any_number_of_users_and_width(unit: bool) -> None:
    draws, way = np.random.default_rng(4), tile_sums if unit else subset_sums
    for n, width in ((1, 1), (5, 31), (39, 32), (40, 33), (41, 255), (97, 257)):  # around groups, batches and strips
        tables = draws.integers(-9, 10, (n, width)).astype(np.float32)
        linked = draws.random((7, n)) < 0.5
        rows, columns = np.array([1, 2, 3, 4, 5, 6, 7], np.float32), draws.integers(1, 4, n).astype(np.float32)
        out = np.full((9, width), -1, np.float32)
        which = np.array([6, 0, 2, 5, 1, 3, 4])
        way.add_up(linked, which, rows, columns, tables, out)
        expected = rows[which, None] * (linked * columns @ tables)
        if unit:  # scales are not powers of two, so what is whole has an error in the last digit
            np.testing.assert_allclose(out[which], expected, rtol=1e-6, atol=2e-5)
        else:
            np.testing.assert_array_equal(out[which], expected)
        assert (out[7:] == -1).all()  # rows of others are left alone


def test_one_table_of_huge_numbers_costs_those_not_linked_to_it_no_digit(unit: bool) -> None:
    tables, _, rows, columns = _world(65, 0.0, 5)
    linked = np.random.default_rng(6).random((65, 65)) < 0.5
    tables[64, :100] = 1e15
    expected = np.einsum("c,cj,j,jmw->cmw", rows.astype(float), linked.astype(float), columns, tables)
    found = add_up(tables, linked, rows, columns, by_popularity(linked))
    alone, hit = ~linked[:, 64], linked[:, 64]
    np.testing.assert_allclose(found[alone], expected[alone], rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(found[hit], expected[hit], rtol=1e-5, atol=2e-5)
