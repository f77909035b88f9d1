"""Inner products by the matrix unit, against double precision; skipped where there is no such unit."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.algorithms import amx, graph, tile_products

pytestmark = pytest.mark.skipif(not amx.available(), reason="this processor has no matrix unit (AMX), or none for us")


def _tables(n: int, width: int) -> np.ndarray:
    draws = np.random.default_rng(n)
    return (draws.standard_normal((n, width)) * draws.uniform(0.01, 50.0, (n, 1))).astype(np.float32)


@pytest.mark.parametrize(("n", "width"), [(1, 1), (31, 63), (33, 2048), (64, 2049), (129, 4100), (150, 5000)])
def test_products_are_those_of_double_precision(n: int, width: int) -> None:
    tables, everybody = _tables(n, width), np.arange(n)
    exact = tables.astype(float) @ tables.astype(float).T
    lengths = np.sqrt(np.diagonal(exact))
    found = tile_products.products(tables, everybody, everybody, 1)
    np.testing.assert_allclose(found / lengths / lengths[:, None], exact / lengths / lengths[:, None], atol=3e-5)
    np.testing.assert_array_equal(found, found.T)
    some = everybody[::3].copy()
    np.testing.assert_array_equal(tile_products.products(tables, some, everybody, 1), found[some])
    np.testing.assert_array_equal(tile_products.products(tables, everybody, everybody, 3), found)  # any threads


def test_whole_numbers_of_full_size_are_multiplied_exactly() -> None:
    """Two digits hold up to 32,631 without loss; the sums of their products pass 2^31."""
    most = amx.largest_whole(2)
    tables = np.random.default_rng(1).integers(-most, most + 1, (40, 5000)).astype(np.float32)
    tables[:, 0] = most  # so that the scale is 1
    everybody = np.arange(40)
    exact = tables.astype(np.int64) @ tables.astype(np.int64).T
    assert exact.max() > 2**31
    found = tile_products.products(tables, everybody, everybody, 2)
    np.testing.assert_array_equal(found, exact.astype(np.float32))


def test_a_table_of_nothing_is_like_nobody() -> None:
    tables = _tables(40, 4096)
    tables[7] = 0
    found = tile_products.products(tables, np.arange(40), np.arange(40), 1)
    assert (found[7] == 0).all() and (found[:, 7] == 0).all() and np.isfinite(found).all()


def test_a_graph_of_long_tables_is_the_same_with_and_without_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, everybody = _tables(90, tile_products.SHORTEST + 4).reshape(90, -1, 4), np.arange(90)
    by_unit = graph.alike(tables, everybody, everybody, "cosine")
    monkeypatch.setattr(amx, "available", lambda: False)
    by_blas = graph.alike(tables, everybody, everybody, "cosine")
    np.testing.assert_allclose(by_unit, by_blas, atol=1e-5)
    assert (by_unit != by_blas).any()  # two ways, and not one asked twice
