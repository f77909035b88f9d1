"""Sums of neighbours' tables: R_c = row_c sum_j A_cj column_j Q_j for a 0/1 matrix A, without a matrix product.

Order users by how many people they are neighbours of. In graphs that come from a threshold on likeness a person's
neighbours are then nearly the first so many (docs/findings/gpfedrec.md has how nearly), so her sum is a prefix sum,
which all people share, and a few additions and subtractions. Both are done on a stretch of everybody's tables at a
time, which the cache has room for. People whose neighbours are not like that get theirs from the processor's matrix
unit where there is one (tile_sums.py), else from tabulated sums (subset_sums.py). Which way a row goes depends on that
row, the graph and the machine alone: the same bytes for every cut of the cohort.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from coterie.algorithms import amx, memory, subset_sums, tile_sums

# A row goes by prefix sums if at most one user in so many is an exception. Tabulating pays for many rows only; the
# matrix unit takes as long for a row as some exceptions do.
_STRAY, _STRAY_BESIDE_UNIT = 8, 128
_WIDE = 128  # numbers of a table that prefix sums are worked on at a time
_LANES = 16  # float32 in a vector
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


@njit(nogil=True, cache=True, forceinline=True)
def _terms(which, cut, indptr, strays, order, columns):  # type: ignore[no-untyped-def]
    """What is added to each row's prefix of whole fours, row after row: the users and their signed weights.

    First those of the cut beyond the fours, then the strays among the first cut[c] users, which are taken off, then the
    others.
    """
    rank = np.empty(len(order), np.int64)
    for p in range(len(order)):
        rank[order[p]] = p
    begins = np.zeros(len(which) + 1, np.int64)
    for r in range(len(which)):
        c = which[r]
        begins[r + 1] = begins[r] + cut[c] % 4 + indptr[c + 1] - indptr[c]
    users, weights = np.empty(begins[-1], np.int64), np.empty(begins[-1], np.float32)
    for r in range(len(which)):
        c, at = which[r], begins[r]
        for p in range(cut[c] // 4 * 4, cut[c]):
            users[at], weights[at] = order[p], columns[order[p]]
            at += 1
        for e in range(indptr[c], indptr[c + 1]):  # by rank: first those to take off
            j = strays[e]
            users[at], weights[at] = j, -columns[j] if rank[j] < cut[c] else columns[j]
            at += 1
    return begins, users, weights


@intrinsic
def _add_terms(typing, out, at, running, weight, users, weights, first, last, tables, begin, width):  # type: ignore[no-untyped-def]
    """out[at + t] = weight x (running[t] + sum over terms e of weights[e] tables[users[e] x width + begin + t]).

    For t < _WIDE, from term `first` to before `last`: the sums stay in registers.
    """

    def build(context, builder, signature, given):  # type: ignore[no-untyped-def]
        def begin_of(which: int) -> Any:
            return context.make_array(signature.args[which])(context, builder, given[which]).data

        whole, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), _LANES)

        def vectors(place: Any, lanes: Any = vector) -> list[Any]:
            places = [builder.gep(place, [ir.Constant(whole, t)]) for t in range(0, _WIDE, _LANES)]
            return [builder.bitcast(one, lanes.as_pointer()) for one in places]

        def spread(value: Any) -> Any:
            nothing, zero = ir.Constant(vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
            everywhere = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), None)
            return builder.shuffle_vector(builder.insert_element(nothing, value, zero), nothing, everywhere)

        doubles = ir.VectorType(ir.DoubleType(), _LANES)
        sums = [
            cgutils.alloca_once_value(builder, builder.fptrunc(builder.load(one, align=8), vector))
            for one in vectors(begin_of(2), doubles)
        ]
        who, how, rows = begin_of(4), begin_of(5), begin_of(8)
        with cgutils.for_range_slice(builder, given[6], given[7], ir.Constant(whole, 1)) as (term, _):
            row = builder.mul(builder.load(builder.gep(who, [term])), given[10])
            times = spread(builder.load(builder.gep(how, [term])))
            for total, one in zip(sums, vectors(builder.gep(rows, [builder.add(row, given[9])])), strict=True):
                product = builder.fmul(times, builder.load(one, align=4), flags=["contract"])
                builder.store(builder.fadd(builder.load(total), product, flags=["contract"]), total)
        times = spread(given[3])
        for total, one in zip(sums, vectors(builder.gep(begin_of(0), [given[1]])), strict=True):
            builder.store(builder.fmul(times, builder.load(total)), one, align=4)
        return context.get_dummy_value()

    i = types.int64
    return types.void(out, i, running, types.float32, users, weights, i, i, tables, i, i), build


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
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

    A piece of everybody's tables at a time: strays find it in the cache.
    """
    width = tables.shape[1]
    begins, users, weights = _terms(which, cut, indptr, strays, order, columns)
    for first in range(0, width, _WIDE):
        many = min(_WIDE, width - first)
        running = np.zeros(many)  # in double precision: so many sums, one after the other, would lose digits
        added = 0
        for r in range(len(which)):
            c = which[r]
            fours = cut[c] // 4 * 4  # cut in the same places whoever else is in the cohort
            if fours > added:
                _add_fours(running, tables, columns, order[added:fours], first)
                added = fours
            if many == _WIDE:
                _add_terms(
                    out,
                    c * width + first,
                    running,
                    rows[c],
                    users,
                    weights,
                    begins[r],
                    begins[r + 1],
                    tables,
                    first,
                    width,
                )  # type: ignore[call-arg]
                continue
            line = out[c, first:]
            for t in range(many):
                line[t] = running[t]
            for e in range(begins[r], begins[r + 1]):
                one, weight = tables[users[e], first:], weights[e]
                for t in range(many):
                    line[t] += weight * one[t]
            for t in range(many):
                line[t] *= rows[c]
