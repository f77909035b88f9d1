"""Sums of arbitrary neighbours' tables, from tabulated sums of all subsets of a few users (the "four Russians").

Users are taken six at a time: the 64 sums of their subsets are made once and looked up for everybody. A strip of 32
numbers of the tables is worked on at a time, so that the sums of a batch of groups stay in the caches next to the
processor. The inner operations are written for the compiler as operations on whole vectors: of loops it would have to
find out each time that no two of their arrays overlap, and it gives up on so many. Sums are added group by group in
the order of the users, whatever the sizes of strips and batches. `python -m benchmarks neighbour_sums` has what this
costs beside a matrix product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_BITS = 6  # users of a group
_SUBSETS = 1 << _BITS
_BATCH = 8  # groups that are looked up together: a total is loaded and stored once for them
_STRIP = 32  # numbers of a table
_STRIPS = 2  # that are copied together, side by side: short pieces of rows far apart are slow to fetch
_LANES = 16  # float32 in a vector; on processors whose vectors are shorter the compiler takes several
_BYTES = 4 * _LANES
_CODES = 4  # in a word of 64 bits


def _row(context: Any, builder: Any, kind: Any, array: Any, number: Any, width: int) -> Any:
    """Where row `number` of a contiguous array of this width begins."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [builder.mul(number, ir.Constant(ir.IntType(64), width))])


def _vectors(builder: Any, row: Any) -> list[Any]:
    """Where the vectors of a strip lie."""
    kind = ir.VectorType(ir.FloatType(), _LANES).as_pointer()
    firsts = range(0, _STRIP, _LANES)
    return [builder.bitcast(builder.gep(row, [ir.Constant(ir.IntType(64), first)]), kind) for first in firsts]


@intrinsic
def _add_strips(typing, sums, to, one, strips, other):  # type: ignore[no-untyped-def]
    """sums[to] = sums[one] + strips[other]."""

    def build(context, builder, signature, given):  # type: ignore[no-untyped-def]
        rows = [
            _row(context, builder, signature.args[a], given[a], given[b], _STRIP) for a, b in ((0, 1), (0, 2), (3, 4))
        ]
        for out, a, b in zip(*(_vectors(builder, row) for row in rows), strict=True):
            total = builder.fadd(builder.load(a, align=_BYTES), builder.load(b, align=_BYTES))
            builder.store(total, out, align=_BYTES)
        return context.get_dummy_value()

    return types.void(sums, types.int64, types.int64, strips, types.int64), build


@intrinsic
def _look_up(typing, totals, row, sums, codes, at):  # type: ignore[no-untyped-def]
    """totals[row] += the sum over a batch's groups g of the strip of `sums` that begins at its number codes[at, g]."""

    def build(context, builder, signature, given):  # type: ignore[no-untyped-def]
        whole = ir.IntType(64)
        outs = _vectors(builder, _row(context, builder, signature.args[0], given[0], given[1], _STRIP))
        begin = context.make_array(signature.args[2])(context, builder, given[2]).data
        mine = _row(context, builder, signature.args[3], given[3], given[4], _BATCH)
        found = [builder.load(out, align=_BYTES) for out in outs]
        for group in range(_BATCH):
            if group % _CODES == 0:  # four of them by one load: loads are what this loop waits for
                place = builder.bitcast(builder.gep(mine, [ir.Constant(whole, group)]), whole.as_pointer())
                word = builder.load(place, align=2)
            here = builder.lshr(word, ir.Constant(whole, group % _CODES * 16))
            code = builder.and_(here, ir.Constant(whole, 0xFFFF))
            parts = _vectors(builder, builder.gep(begin, [code]))
            found = [builder.fadd(a, builder.load(b, align=_BYTES)) for a, b in zip(found, parts, strict=True)]
        for value, out in zip(found, outs, strict=True):
            builder.store(value, out, align=_BYTES)
        return context.get_dummy_value()

    return types.void(totals, types.int64, sums, codes, types.int64), build


@njit(nogil=True, cache=True, forceinline=True)
def _strips(count):  # type: ignore[no-untyped-def]
    """float32[count, _STRIP] of zeros where a vector never lies across two lines of the cache."""
    room = np.zeros(count * _STRIP + _LANES, np.float32)
    skipped = -room.ctypes.data % _BYTES // 4
    return room[skipped : skipped + count * _STRIP].reshape(count, _STRIP)


@intrinsic
def _scale_strip(typing, to, at, given, begin, weight):  # type: ignore[no-untyped-def]
    """A strip of `to` from its number `at` on = weight x a strip of `given` from its number `begin` on."""

    def build(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        to, at, given, begin, weight = arguments
        vector = ir.VectorType(ir.FloatType(), _LANES)
        nothing, first = ir.Constant(vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), None)
        weights = builder.shuffle_vector(builder.insert_element(nothing, weight, first), nothing, everywhere)
        outs = _vectors(builder, _row(context, builder, signature.args[0], to, at, 1))
        ins = _vectors(builder, _row(context, builder, signature.args[2], given, begin, 1))
        for out, one in zip(outs, ins, strict=True):
            builder.store(builder.fmul(weights, builder.load(one, align=4)), out, align=4)
        return context.get_dummy_value()

    return types.void(to, types.int64, given, types.int64, types.float32), build


@njit(nogil=True, cache=True, forceinline=True)
def _copy(strips, padded, tables, columns, first):  # type: ignore[no-untyped-def]
    """strips[k * padded + j] = the k-th strip of columns[j] tables[j] from number `first` on."""
    width = tables.shape[1]
    for j in range(len(tables)):
        for k in range(_STRIPS):
            begin = first + k * _STRIP
            if begin + _STRIP <= width:
                _scale_strip(strips, (k * padded + j) * _STRIP, tables, j * width + begin, columns[j])  # type: ignore[call-arg]
            else:
                for t in range(width - begin):
                    strips[k * padded + j, t] = columns[j] * tables[j, begin + t]


@njit(nogil=True, cache=True, forceinline=True)
def add_up(linked, which, rows, columns, tables, out):  # type: ignore[no-untyped-def]
    """out[which[c]] = rows[which[c]] x the sum of columns[j] tables[j] over the users j that linked[c] has."""
    n, width = tables.shape
    count, together = len(linked), _BATCH * _BITS
    batches = (n + together - 1) // together
    padded = batches * together  # users beyond the last are zeros
    codes = np.zeros((batches * count, _BATCH), np.uint16)  # where the sum of a row's users of a group begins
    for group in range(_BATCH):
        codes[:, group] = group * _SUBSETS * _STRIP
    for c in range(count):
        for j in range(n):
            if linked[c, j]:
                codes[j // together * count + c, j % together // _BITS] += np.uint16(_STRIP << (j % _BITS))
    sums, totals, strips = _strips(_BATCH * _SUBSETS), _strips(_STRIPS * count), _strips(_STRIPS * padded)
    for first in range(0, width, _STRIPS * _STRIP):
        _copy(strips, padded, tables, columns, first)
        totals[:] = np.float32(0.0)
        for k in range(_STRIPS):
            for batch in range(batches):
                j = k * padded + batch * together
                for group in range(_BATCH):
                    for bit in range(_BITS):
                        empty = group * _SUBSETS
                        for s in range(empty, empty + (1 << bit)):
                            _add_strips(sums, s + (1 << bit), s, strips, j)  # type: ignore[call-arg]
                        j += 1
                for c in range(count):
                    _look_up(totals, k * count + c, sums, codes, batch * count + c)  # type: ignore[call-arg]
        for c in range(count):
            row, weight = which[c], rows[which[c]]
            for k in range(_STRIPS):
                begin = first + k * _STRIP
                if begin + _STRIP <= width:
                    _scale_strip(out, row * width + begin, totals, (k * count + c) * _STRIP, weight)  # type: ignore[call-arg]
                else:
                    for t in range(width - begin):
                        out[row, begin + t] = weight * totals[k * count + c, t]
