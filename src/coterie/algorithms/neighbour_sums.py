"""Sums of neighbours' tables: R_c = row_c sum_j A_cj column_j Q_j for a 0/1 matrix A, without a matrix product.

Order users by how many people they are neighbours of. In graphs that come from a threshold on likeness a person's
neighbours are then nearly the first so many (docs/findings/gpfedrec.md has how nearly), so her sum is a prefix sum,
which all people share, and a few additions and subtractions. Both are done on a stretch of everybody's tables at a
time, which the cache has room for. People whose neighbours are not like that get theirs from the processor's matrix
unit where there is one (tile_sums.py), else from tabulated sums (subset_sums.py). Which way a row goes depends on that
row, the graph and the machine alone: the same bytes for every cut of the cohort.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from coterie.algorithms import amx, memory, subset_sums, tile_sums

# A row goes by prefix sums if at most one user in so many is an exception. Tabulating pays for many rows only; the
# matrix unit takes as long for a row as some exceptions do.
_STRAY, _STRAY_BESIDE_UNIT = 8, 128
_WIDE = 512  # numbers of a table that prefix sums are worked on at a time
_FAST = {"reassoc", "contract", "arcp", "nsz"}


def by_popularity(linked: np.ndarray) -> np.ndarray:
    """int64[n]: users by how many people they are neighbours of, most first."""
    return np.argsort(-linked.sum(0), kind="stable")


def add_up(
    tables: np.ndarray, linked: np.ndarray, rows: np.ndarray, columns: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """float32[c, m, w]: the weighted sums of each row's neighbours' tables; `order` is the whole graph's."""
    out = memory.empty(len(linked), *tables.shape[1:])
    flat, sums = tables.reshape(len(tables), -1), out.reshape(len(linked), -1)
    cut, indptr, strays = _steps(linked, order)
    near = np.diff(indptr) <= len(order) // (_STRAY_BESIDE_UNIT if amx.available() else _STRAY)
    if near.any():
        which = np.flatnonzero(near)
        _prefixes(which[np.argsort(cut[which], kind="stable")], cut, indptr, strays, order, rows, columns, flat, sums)
    rest = np.flatnonzero(~near)
    if len(rest):
        way = tile_sums if amx.available() else subset_sums
        way.add_up(linked[rest], rest, rows, columns, flat, sums)
    return out


@njit(nogil=True, cache=True)
def _steps(linked, order):  # type: ignore[no-untyped-def]
    """The k for which a row is most nearly the first k users of `order`; and who is an exception, row by row."""
    count, n = linked.shape
    cut, indptr = np.zeros(count, np.int64), np.zeros(count + 1, np.int64)
    for c in range(count):
        wrong = 0
        for j in range(n):
            wrong += linked[c, j]
        fewest = wrong
        for p in range(n):
            wrong += -1 if linked[c, order[p]] else 1
            if wrong < fewest:
                fewest, cut[c] = wrong, p + 1
        indptr[c + 1] = indptr[c] + fewest
    strays = np.empty(indptr[-1], np.int64)
    for c in range(count):
        found = indptr[c]
        for p in range(n):
            if linked[c, order[p]] != (p < cut[c]):
                strays[found] = order[p]
                found += 1
    return cut, indptr, strays


@njit(nogil=True, cache=True, fastmath=_FAST)
def _add_strays(line, tables, columns, users, sign, first):  # type: ignore[no-untyped-def]
    """line += sign x these users' weighted tables from `first` on, four at a time: `line` is stored once for them."""
    f, e, end = np.float32(sign), 0, first + len(line)
    while e + 4 <= len(users):
        a, b, c, d = users[e], users[e + 1], users[e + 2], users[e + 3]
        one, two, three, four = tables[a, first:end], tables[b, first:end], tables[c, first:end], tables[d, first:end]
        wa, wb, wc, wd = f * columns[a], f * columns[b], f * columns[c], f * columns[d]
        for t in range(len(line)):
            line[t] += (wa * one[t] + wb * two[t]) + (wc * three[t] + wd * four[t])
        e += 4
    while e < len(users):
        one, weight = tables[users[e], first:end], f * columns[users[e]]
        for t in range(len(line)):
            line[t] += weight * one[t]
        e += 1


@njit(nogil=True, cache=True, fastmath=_FAST)
def _add_fours(running, tables, columns, users, first):  # type: ignore[no-untyped-def]
    """running += the weighted tables of these users, a multiple of four, from `first` on, in double precision."""
    end = first + len(running)
    for e in range(0, len(users), 4):
        a, b, c, d = users[e], users[e + 1], users[e + 2], users[e + 3]
        one, two, three, four = tables[a, first:end], tables[b, first:end], tables[c, first:end], tables[d, first:end]
        wa, wb, wc, wd = np.float64(columns[a]), np.float64(columns[b]), np.float64(columns[c]), np.float64(columns[d])
        for t in range(len(running)):
            running[t] += (wa * one[t] + wb * two[t]) + (wc * three[t] + wd * four[t])


@njit(nogil=True, cache=True, fastmath=_FAST)
def _prefixes(which, cut, indptr, strays, order, rows, columns, tables, out):  # type: ignore[no-untyped-def]
    """Rows `which`, ascending by cut: the sum of the first cut[c] users, strays among them taken off, others added.

    A wide piece of everybody's tables at a time: read in long stretches once, and strays find it in the cache.
    """
    n, width = tables.shape
    rank, middle = np.empty(n, np.int64), np.empty(len(cut), np.int64)
    for p in range(n):
        rank[order[p]] = p
    for c in which:  # a row's strays come by rank: first those to take off
        middle[c] = indptr[c]
        while middle[c] < indptr[c + 1] and rank[strays[middle[c]]] < cut[c]:
            middle[c] += 1
    for first in range(0, width, _WIDE):
        many = min(_WIDE, width - first)
        running = np.zeros(many)  # in double precision: so many sums, one after the other, would lose digits
        added = 0
        for c in which:
            fours = cut[c] // 4 * 4  # cut in the same places whoever else is in the cohort
            _add_fours(running, tables, columns, order[added:fours], first)
            added = fours
            line = out[c, first : first + many]
            for t in range(many):
                line[t] = running[t]
            _add_strays(line, tables, columns, order[fours : cut[c]], 1.0, first)
            _add_strays(line, tables, columns, strays[indptr[c] : middle[c]], -1.0, first)
            _add_strays(line, tables, columns, strays[middle[c] : indptr[c + 1]], 1.0, first)
            for t in range(many):
                line[t] *= rows[c]
