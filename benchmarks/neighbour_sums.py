"""Sums over neighbours, four ways: prefix sums with exceptions, looked-up subset sums, the matrix unit, and a product.

943 people, 1,682 items, width 32. Each person's neighbours are the first so many of one order but for a number of
exceptions; `exceptions` has CPU-seconds of each way by that number. add_up takes prefix sums up to an eighth of
exceptions, or, beside a matrix unit (AMX), up to one in 128. `likeness` has CPU-seconds of everybody's inner products
by that unit and by BLAS. Where there is no such unit its figures are missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measure import best
from coterie.algorithms import amx, subset_sums, tile_products, tile_sums
from coterie.algorithms import neighbour_sums as sums

_PEOPLE, _ITEMS, _WIDTH = 943, 1682, 32


def _graph(exceptions: int, draws: np.random.Generator) -> np.ndarray:
    order, reach = draws.permutation(_PEOPLE), draws.integers(0, _PEOPLE + 1, _PEOPLE)
    linked = order[None, :] < reach[:, None]
    for mine in linked:
        mine[draws.choice(_PEOPLE, exceptions, replace=False)] ^= True
    return linked


def run() -> dict[str, Any]:
    draws = np.random.default_rng(0)
    tables = draws.standard_normal((_PEOPLE, _ITEMS, _WIDTH)).astype(np.float32)
    flat, ones = tables.reshape(_PEOPLE, -1), np.ones(_PEOPLE, np.float32)
    everybody, found = np.arange(_PEOPLE), {}
    out = np.empty_like(flat)
    for exceptions in (4, 16, 48, 96, 192):
        linked = _graph(exceptions, draws)
        order, weights = sums.by_popularity(linked), (1 / np.maximum(linked.sum(1), 1)).astype(np.float32)
        cut, indptr, strays = sums._steps(linked, order)
        which, matrix = np.argsort(cut, kind="stable"), linked * weights[:, None]
        subsets = (linked, everybody, weights, ones, flat, out)
        steps = (which, cut, indptr, strays, order, weights, ones, flat, out)
        with threadpool_limits(1, "blas"):
            sums._prefixes(*steps)  # compiled, and the memory is there
            found[str(exceptions)] = {
                "prefixes": best(lambda given=steps: sums._prefixes(*given), 3),  # type: ignore[misc]
                "subsets": best(lambda given=subsets: subset_sums.add_up(*given), 3),  # type: ignore[misc]
                "product": best(lambda by=matrix: np.matmul(by, flat, out=out), 3),  # type: ignore[misc]
            }
            if amx.available():
                tile_sums.add_up(*subsets)
                found[str(exceptions)]["unit"] = best(lambda given=subsets: tile_sums.add_up(*given), 3)  # type: ignore[misc]
    with threadpool_limits(1, "blas"):
        likeness = {"blas": best(lambda: flat @ flat.T, 3)}
        if amx.available():
            tile_products.products(flat, everybody, everybody, 1)
            likeness["unit"] = best(lambda: tile_products.products(flat, everybody, everybody, 1), 3)
    few, many = found["16"], found["192"]
    return {
        "ratio": few["product"] / few["prefixes"],
        "what": "fewer CPU-seconds than a matrix product for sums over neighbours with 16 exceptions, one thread",
        "ratio_of_subsets": many["product"] / many["subsets"],
        "exceptions": found,
        "likeness": likeness,
    }
