"""Inner products of everybody's tables by the processor's matrix unit (amx.py), exact for the numbers made whole.

Each table has a scale of its own, by which its largest number fills two signed digits (16 bits); a product of two
numbers is four of digits. Products of whole numbers are summed exactly, in 64 bits from piece to piece, so the result
depends neither on the number of threads nor on the order. The cosine of two tables of 50,000 numbers is right to some
1e-6, as it is with float32.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from coterie.algorithms import amx
from coterie.algorithms.amx import BYTE, DEPTH, LANES, SIDE, TILE, WORD, data, number

SHORTEST = 4096  # tables this long: in shorter ones errors of rounding are too few to even out, and nothing is gained
_DIGITS = 2
_LARGEST = float(amx.largest_whole(_DIGITS))
_STEPS = 32  # tiles of a table that are worked on together
_TOGETHER = 2 * SIDE  # rows, and columns, that the unit works on together
_NEAR = 8 * SIDE  # columns whose tiles stay in the cache while all rows pass


@intrinsic
def _cut(typing, digits, at, apart, table, begin, scale):  # type: ignore[no-untyped-def]
    """A row of a left tile for each digit, `apart` bytes from one another: DEPTH numbers from `begin` on, x scale."""

    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        outs, ins = (data(context, builder, signature.args[a], args[a]) for a in (0, 3))
        scales, short = amx.spread(builder, args[5]), ir.VectorType(BYTE, LANES)
        for first in range(0, DEPTH, LANES):
            values = builder.load(amx.vector(builder, ins, builder.add(args[4], number(first))), align=4)
            words = amx.whole(builder, builder.fmul(scales, values), _DIGITS)
            for digit in range(_DIGITS):
                shifted = builder.lshr(words, amx.everywhere(WORD, 8 * digit))
                place = builder.add(args[1], builder.add(builder.mul(args[2], number(digit)), number(first)))
                builder.store(builder.trunc(shifted, short), amx.vector(builder, outs, place, BYTE), align=16)
        return context.get_dummy_value()

    i = types.int64
    return types.void(digits, i, i, table, i, types.float32), build


@njit(nogil=True, cache=True)
def _scales(tables):  # type: ignore[no-untyped-def]
    """By what each table is made whole; 0 where it is (next to) nothing."""
    n, width = tables.shape
    found = np.zeros(n, np.float32)
    for i in range(n):
        line, largest = tables[i], np.zeros(LANES, np.float32)
        for first in range(0, width - LANES + 1, LANES):  # so many largest numbers side by side, one for each lane
            for t in range(LANES):
                size = abs(line[first + t])
                largest[t] = size if size > largest[t] else largest[t]
        for t in range(width // LANES * LANES, width):
            largest[0] = max(largest[0], abs(line[t]))
        most = largest.max()
        if most > np.float32(1e-30):
            found[i] = np.float32(_LARGEST) / most
    return found


@njit(nogil=True, cache=True, forceinline=True)
def _left_tiles(tables, who, scales, first, many, out, last):  # type: ignore[no-untyped-def]
    """Numbers `first` to `first + many` of these users' tables: for 16 users and each digit a line of _STEPS tiles."""
    line, width = _STEPS * TILE, tables.shape[1]
    for a in range(len(who)):
        begin = a // SIDE * _DIGITS * line + a % SIDE * DEPTH
        for t in range(0, _STEPS * DEPTH, DEPTH):
            at = begin + t // DEPTH * TILE
            if t + DEPTH <= many:
                _cut(out, at, line, tables, who[a] * width + first + t, scales[who[a]])  # type: ignore[call-arg]
            else:
                last[:] = np.float32(0.0)
                for e in range(max(0, many - t)):
                    last[e] = tables[who[a], first + t + e]
                _cut(out, at, line, last, 0, scales[who[a]])  # type: ignore[call-arg]


@njit(nogil=True, cache=True, forceinline=True)
def _transposed(tiles, out):  # type: ignore[no-untyped-def]
    """Left tiles as right ones: the same words with rows and columns changed over."""
    for tile in range(0, len(tiles), TILE // 4):
        for row in range(SIDE):
            for column in range(SIDE):
                out[tile + column * SIDE + row] = tiles[tile + row * SIDE + column]


@njit(nogil=True, cache=True, forceinline=True)
def _add(total, a, b, sums):  # type: ignore[no-untyped-def]
    """total[a : a + 32, b : b + 32] += the numbers whose digits' products stand in `sums`, as far as there are any."""
    rows, columns = min(_TOGETHER, total.shape[0] - a), min(_TOGETHER, total.shape[1] - b)
    for r in range(rows):
        for side in range((columns + SIDE - 1) // SIDE):
            tile = (r // SIDE * 2 + side) * (TILE // 4) + r % SIDE * SIDE
            out = total[a + r, b + side * SIDE : b + min(columns, side * SIDE + SIDE)]
            high, middle, low = sums[0, tile : tile + SIDE], sums[1, tile : tile + SIDE], sums[2, tile : tile + SIDE]
            for t in range(len(out)):
                out[t] += (np.int64(high[t]) << 16) + (np.int64(middle[t]) << 8) + np.int64(low[t])


@njit(nogil=True, cache=True)
def _products(tables, left, right, mirrored, scales, begin, end, shapes):  # type: ignore[no-untyped-def]
    """int64[len(left), len(right)]: inner products of whole numbers `begin` to `end` of these users' tables.

    If it is `mirrored`, left and right are the same users, and what is far below the diagonal is left out.
    """
    line = _STEPS * TILE
    total = np.zeros((len(left), len(right)), np.int64)
    lefts = amx.room((len(left) + _TOGETHER - 1) // _TOGETHER * 2 * _DIGITS * line)
    rights = amx.room((len(right) + _TOGETHER - 1) // _TOGETHER * 2 * _DIGITS * line)
    sums, last = amx.room(3 * 4 * TILE).view(np.int32).reshape(3, TILE), amx.room(4 * DEPTH).view(np.float32)
    flat = sums.reshape(-1)
    amx.begin(shapes)  # type: ignore[call-arg]
    for first in range(begin, end, _STEPS * DEPTH):
        many = min(_STEPS * DEPTH, end - first)
        _left_tiles(tables, right, scales, first, many, lefts if mirrored else rights, last)
        if mirrored:
            _transposed(lefts.view(np.uint32), rights.view(np.uint32))
        else:
            _transposed(rights.view(np.uint32).copy(), rights.view(np.uint32))
            _left_tiles(tables, left, scales, first, many, lefts, last)
        for near in range(0, len(right), _NEAR):
            for a in range(0, min(len(left), near + _NEAR) if mirrored else len(left), _TOGETHER):
                for b in range(near, min(len(right), near + _NEAR), _TOGETHER):
                    if mirrored and b < a:
                        continue
                    at, to = a // SIDE * _DIGITS * line, b // SIDE * _DIGITS * line
                    for part in range(3):  # both high digits; one high and one low; both low
                        amx.clear()  # type: ignore[call-arg]
                        for x in range(_DIGITS):
                            y = 2 - part - x
                            if 0 <= y < _DIGITS:
                                amx.multiply(lefts, at + x * line, 2 * line, rights, to + y * line, 2 * line, _STEPS)  # type: ignore[call-arg]
                        amx.fetch(flat, part * TILE, TILE // 4)  # type: ignore[call-arg]
                    _add(total, a, b, sums)
    amx.end()  # type: ignore[call-arg]
    return total


def products(tables: np.ndarray, left: np.ndarray, right: np.ndarray, threads: int) -> np.ndarray:
    """float32[len(left), len(right)]: inner products of float32[n, w] `tables`, cut by columns between threads."""
    mirrored, scales, width = left is right, _scales(tables), tables.shape[1]
    pieces = -(-width // (_STEPS * DEPTH))
    cuts = [min(width, pieces * t // threads * _STEPS * DEPTH) for t in range(threads)] + [width]

    def part(at: int) -> np.ndarray:
        found: np.ndarray = _products(tables, left, right, mirrored, scales, cuts[at], cuts[at + 1], amx.SHAPES)
        return found

    with ThreadPoolExecutor(threads) as pool:
        whole = sum(pool.map(part, range(threads)))
    inverse = np.divide(1.0, scales, out=np.zeros(len(scales)), where=scales > 0)
    found: np.ndarray = (whole * inverse[left][:, None] * inverse[right][None, :]).astype(np.float32)
    if mirrored:
        below = np.tril_indices(len(left), -1)
        found[below] = found.T[below]
    return found
