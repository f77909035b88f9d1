"""Sums of arbitrary neighbours' tables by the processor's matrix unit (amx.py), exact but for one rounding.

Numbers are made whole: each column of everybody's tables has a scale, by which the largest of it fills four signed
digits (32 bits). A 0/1 matrix times each digit is exact; the four sums and the scale give a float32 that is nearer to
the true sum than adding float32 up is. A row's sum does not depend on whose rows are asked for with it. One number may
be so large beside the others of its column that these would lose their digits to it: then float32 are added up
(subset_sums.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from coterie.algorithms import amx, subset_sums
from coterie.algorithms.amx import DEPTH, FLOAT, LANES, SIDE, TILE, WORD, data, number

_WIDE = 128  # numbers of a table that are worked on together: shorter pieces of rows far apart are slow to fetch
_STRIPS = _WIDE // SIDE
_DIGITS = 4
_LARGEST = float(amx.largest_whole(_DIGITS))
_FAR_FROM_THE_REST = 16.0  # binary digits: the largest number of a column against the others, zeros aside
_TOGETHER = 2 * SIDE  # rows, and columns, that the unit works on together


@intrinsic
def _cut(typing, digits, at, line, given, begin, width, weights, first, scales):  # type: ignore[no-untyped-def]
    """Four rows of `given`, times weights[first] and so on, as a row of right tiles: one for each strip and digit.

    Column t is multiplied by scales[t].

    Tiles of one strip and digit are a `line`, in words; lines come strip by strip, and within one digit by digit.
    """

    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        outs, rows, factors, scale = (data(context, builder, signature.args[a], args[a]) for a in (0, 3, 6, 8))
        at, line, begin, width, first = args[1], args[2], args[4], args[5], args[7]
        owners = [
            amx.spread(builder, builder.load(builder.gep(factors, [builder.add(first, number(r))]))) for r in range(4)
        ]
        begins = [builder.add(begin, builder.mul(width, number(r))) for r in range(4)]
        with cgutils.for_range(builder, number(_STRIPS)) as strip:
            skipped = builder.mul(strip.index, number(SIDE))
            by, found = builder.load(amx.vector(builder, scale, skipped), align=64), []
            for owner, row in zip(owners, begins, strict=True):
                values = builder.load(amx.vector(builder, rows, builder.add(row, skipped)), align=4)
                found.append(amx.whole(builder, builder.fmul(builder.fmul(owner, values), by), _DIGITS))
            for digit in range(_DIGITS):
                parts = [_byte_to(builder, one, digit, r) for r, one in enumerate(found)]
                word = builder.or_(builder.or_(parts[0], parts[1]), builder.or_(parts[2], parts[3]))
                lines = builder.add(builder.mul(strip.index, number(_DIGITS)), number(digit))
                place = amx.vector(builder, outs, builder.add(at, builder.mul(line, lines)), WORD)
                builder.store(word, place, align=64)
        return context.get_dummy_value()

    i = types.int64
    return types.void(digits, i, i, given, i, i, weights, i, scales), build


def _byte_to(builder: Any, words: Any, byte: int, to: int) -> Any:
    """This byte of each word moved to byte `to`, the others 0."""
    part = builder.and_(words, amx.everywhere(WORD, 0xFF << 8 * byte))
    if to == byte:
        return part
    moved = amx.everywhere(WORD, 8 * abs(to - byte))
    return builder.shl(part, moved) if to > byte else builder.lshr(part, moved)


@intrinsic
def _compose(typing, out, at, sums, place, weight, inverse, first):  # type: ignore[no-untyped-def]
    """out[at + t] = weight x inverse[first + t] x the number whose digits' sums stand from `place` on.

    For the columns t of two tiles.
    """

    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        outs, begin, by = (data(context, builder, signature.args[a], args[a]) for a in (0, 2, 5))
        weights = amx.spread(builder, args[4])
        for side in range(2):
            total = None
            for digit in reversed(range(_DIGITS)):  # sums of digits are below 2^24 for 131,072 users: exact
                where = builder.add(args[3], number((digit * 4 + side) * TILE // 4))
                words = builder.load(amx.vector(builder, begin, where, WORD), align=64)
                value = builder.sitofp(words, weights.type)
                higher = None if total is None else builder.fmul(total, amx.everywhere(FLOAT, 256.0))
                total = value if higher is None else builder.fadd(higher, value)
            unit = builder.load(amx.vector(builder, by, builder.add(args[6], number(side * SIDE))), align=64)
            to = amx.vector(builder, outs, builder.add(args[1], number(side * SIDE)))
            builder.store(builder.fmul(weights, builder.fmul(unit, total)), to, align=64)
        return context.get_dummy_value()

    i = types.int64
    return types.void(out, i, sums, i, types.float32, inverse, i), build


@intrinsic
def _copy(typing, out, at, given, begin):  # type: ignore[no-untyped-def]
    """out[at + t] = given[begin + t] for t < _WIDE, as whole vectors."""

    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        outs, ins = (data(context, builder, signature.args[a], args[a]) for a in (0, 2))
        for first in range(0, _WIDE, LANES):
            values = builder.load(amx.vector(builder, ins, builder.add(args[3], number(first))), align=64)
            builder.store(values, amx.vector(builder, outs, builder.add(args[1], number(first))), align=4)
        return context.get_dummy_value()

    return types.void(out, types.int64, given, types.int64), build


@njit(nogil=True, cache=True, forceinline=True)
def _left_tiles(linked, steps):  # type: ignore[no-untyped-def]
    """A 0/1 matrix as lines of `steps` left tiles."""
    count, n = linked.shape
    out = amx.room((count + _TOGETHER - 1) // _TOGETHER * 2 * steps * TILE)
    for c in range(count):
        begin = c // SIDE * steps * TILE + c % SIDE * DEPTH
        for j in range(n):
            out[begin + j // DEPTH * TILE + j % DEPTH] = linked[c, j]
    return out


@njit(nogil=True, cache=True, forceinline=True)
def _scale(given, first, columns, scales, inverse, seen):  # type: ignore[no-untyped-def]
    """By what the numbers of _WIDE columns are made whole, each column for itself, and back; 0 where all are nothing.

    False if a column's largest number is too far from the others of it.
    """
    n, width = given.shape
    scales[:], seen[:] = np.float32(0.0), np.int32(0)
    exponents, count = seen[:_WIDE], seen[_WIDE:]
    for j in range(n):
        for t in range(0, _WIDE, LANES):
            amx.grow(scales, exponents, count, t, given, j * width + first + t, columns[j])  # type: ignore[call-arg]
    near = True
    for t in range(_WIDE):
        most = scales[t]
        if most > np.float32(1e-30):
            near &= np.log2(most) + 127.0 - exponents[t] / count[t] < _FAR_FROM_THE_REST
            scales[t], inverse[t] = np.float32(_LARGEST) / most, most / np.float32(_LARGEST)
        else:
            scales[t], inverse[t] = np.float32(0.0), np.float32(0.0)
    return near


@njit(nogil=True, cache=True, forceinline=True)
def _right_tiles(given, first, columns, scales, four, steps, out):  # type: ignore[no-untyped-def]
    """_WIDE columns of everybody's weighted tables, whole and cut into digits, as lines of `steps` right tiles."""
    n, width = given.shape
    for j in range(0, n, 4):
        at = j // DEPTH * (TILE // 4) + j % DEPTH // 4 * SIDE
        if j + 4 <= n:
            _cut(out, at, steps * (TILE // 4), given, j * width + first, width, columns, j, scales)  # type: ignore[call-arg]
        else:
            four[:] = np.float32(0.0)
            four[: n - j] = given[j:, first : first + _WIDE]
            _cut(out, at, steps * (TILE // 4), four, 0, _WIDE, columns, j, scales)  # type: ignore[call-arg]


@njit(nogil=True, cache=True, forceinline=True)
def _products(lefts, rights, steps, which, begin, rows, inverse, sums, out):  # type: ignore[no-untyped-def]
    """out[c] = rows[which[begin + c]] x the sums of that row, of _WIDE columns, for c < _TOGETHER."""
    line = steps * TILE
    for pair in range(_STRIPS // 2):
        at = pair * _TOGETHER
        for digit in range(_DIGITS):
            amx.clear()  # type: ignore[call-arg]
            first = (pair * 2 * _DIGITS + digit) * line
            amx.multiply(lefts, begin // SIDE * line, line, rights, first, _DIGITS * line, steps)  # type: ignore[call-arg]
            amx.fetch(sums, digit * TILE, TILE // 4)  # type: ignore[call-arg]
        for c in range(min(_TOGETHER, len(which) - begin)):
            place = c // SIDE * (TILE // 2) + c % SIDE * SIDE
            _compose(out, c * _WIDE + at, sums, place, rows[which[begin + c]], inverse, at)  # type: ignore[call-arg]


@njit(nogil=True, cache=True)
def _add_up(linked, which, rows, columns, tables, out, shapes):  # type: ignore[no-untyped-def]
    n, width = tables.shape
    steps = (n + DEPTH - 1) // DEPTH
    lefts, rights = _left_tiles(linked, steps), amx.room(_STRIPS * _DIGITS * steps * TILE)
    scales, inverse = amx.room(4 * _WIDE).view(np.float32), amx.room(4 * _WIDE).view(np.float32)
    seen, sums = amx.room(8 * _WIDE).view(np.int32), amx.room(_DIGITS * 4 * TILE).view(np.int32)
    weights = np.zeros(n + 3, np.float32)  # columns, and 0 for users beyond the last
    weights[:n] = columns
    four = amx.room(16 * _WIDE).view(np.float32).reshape(4, _WIDE)
    lines = amx.room(4 * _TOGETHER * _WIDE).view(np.float32).reshape(_TOGETHER, _WIDE)
    last = np.zeros((n, _WIDE if width % _WIDE else 0), np.float32)
    amx.begin(shapes)  # type: ignore[call-arg]
    for first in range(0, width, _WIDE):
        many = min(_WIDE, width - first)
        if many == _WIDE:
            near = _scale(tables, first, weights, scales, inverse, seen)
        else:
            last[:, :many] = tables[:, first:]
            near = _scale(last, 0, weights, scales, inverse, seen)
        if not near:
            piece, part = np.empty((len(out), many), np.float32), tables[:, first : first + many].copy()
            subset_sums.add_up(linked, which, rows, columns, part, piece)
            for row in which:
                out[row, first : first + many] = piece[row]
            continue
        if many == _WIDE:
            _right_tiles(tables, first, weights, scales, four, steps, rights.view(np.uint32))
        else:
            _right_tiles(last, 0, weights, scales, four, steps, rights.view(np.uint32))
        for begin in range(0, len(which), _TOGETHER):
            _products(lefts, rights, steps, which, begin, rows, inverse, sums, lines)
            for c in range(min(_TOGETHER, len(which) - begin)):
                row = which[begin + c]
                if many == _WIDE:
                    _copy(out, row * width + first, lines, c * _WIDE)  # type: ignore[call-arg]
                else:
                    out[row, first:] = lines[c, :many]
    amx.end()  # type: ignore[call-arg]


def add_up(
    linked: np.ndarray, which: np.ndarray, rows: np.ndarray, columns: np.ndarray, tables: np.ndarray, out: np.ndarray
) -> None:
    """out[which[c]] = rows[which[c]] x the sum of columns[j] tables[j] over the users j that linked[c] has."""
    _add_up(linked, which, rows, columns, tables, out, amx.SHAPES)
