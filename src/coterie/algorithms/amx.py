"""Products of whole numbers by the processor's matrix unit, where there is one (Intel's AMX).

Tiles are 16 rows of 64 bytes. A left tile holds 64 numbers of each of 16 rows; a right tile holds, for each of 16
columns, the same 64 numbers four by four: its row q is numbers 4q to 4q + 3 of column 0, then of column 1 and so on.
Seen as 32-bit words it is the left tile of the same numbers transposed. Two left and two right tiles are multiplied at
a time, into four tiles of 32-bit sums that stay in the unit. Sums of whole numbers are exact, so neither the order in
which they are made nor the number of threads can matter. Numbers are cut into signed bytes ("digits") by whoever calls.

The unit's instructions have no public wrapper in Numba or NumPy; these are LLVM's own names for them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

TILE = 1024  # bytes of a tile
SIDE = 16  # its rows, and the columns of a tile of sums
DEPTH = 64  # numbers of a row
LANES = 16  # float32 or int32 in a vector

BYTE, WORD, LONG, FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
_NEEDED = ("amx-tile", "amx-int8", "avx512f", "avx512bw")
_ASK, _TILE_DATA = 0x1023, 18  # Linux: ask for a part of the processor's state
_PRCTL = 158  # the system call, on x86-64


@cache
def available() -> bool:
    """Whether this processor has the unit, this system lets us use it, and Numba compiles for this very processor."""
    features = binding.get_host_cpu_features()
    if not sys.platform.startswith("linux") or not all(features.get(one) for one in _NEEDED):
        return False
    if config.CPU_NAME or config.CPU_FEATURES:  # type: ignore[attr-defined] # told to compile for another one
        return False
    return bool(ctypes.CDLL(None).syscall(_PRCTL, _ASK, _TILE_DATA) == 0)


def _shapes() -> np.ndarray:
    """What the unit is told first: eight tiles of 16 rows of 64 bytes."""
    found = np.zeros(64, np.uint8)
    found[0] = 1
    found[16:32:2] = DEPTH
    found[48:56] = SIDE
    return found


SHAPES = _shapes()


def data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Where a contiguous array's numbers begin."""
    return context.make_array(kind)(context, builder, array).data


def number(value: int) -> Any:
    return ir.Constant(LONG, value)


def vector(builder: Any, begin: Any, index: Any, kind: Any = FLOAT) -> Any:
    """Where a vector of numbers lies from `index` on."""
    return builder.bitcast(builder.gep(begin, [index]), ir.VectorType(kind, LANES).as_pointer())


def spread(builder: Any, value: Any) -> Any:
    """A vector of one number."""
    nothing = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(WORD, 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(WORD, LANES), [0] * LANES))


def everywhere(kind: Any, value: float) -> Any:
    return ir.Constant(ir.VectorType(kind, LANES), [value] * LANES)


def by_vector(builder: Any, name: str, value: Any) -> Any:
    """LLVM's function of this name of each number of a vector of float32."""
    kind = ir.FunctionType(value.type, [value.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f32"), [value])


def whole(builder: Any, value: Any, digits: int) -> Any:
    """A vector of float32 as the nearest whole numbers, each byte of them a signed digit (the lowest is byte 0)."""
    rounded = builder.fptosi(by_vector(builder, "rint", value), ir.VectorType(WORD, LANES))
    middle = everywhere(WORD, sum(0x80 << 8 * d for d in range(digits)))
    return builder.xor(builder.add(rounded, middle), middle)


def largest_whole(digits: int) -> int:
    """What signed digits can hold on both sides of 0, less a little for what rounding may add."""
    return sum(0x7F << 8 * d for d in range(digits)) * 4095 // 4096


def _unit(builder: Any, name: str, given: Sequence[Any]) -> None:
    kind = ir.FunctionType(ir.VoidType(), [one.type for one in given])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), given)


def _tile(number: int) -> Any:
    return ir.Constant(BYTE, number)


@intrinsic
def grow(typing, largest, total, count, at, values, begin, weight):  # type: ignore[no-untyped-def]
    """For a vector of x = |weight x values[begin + t]|: the largest so far at largest[at + t], and, of those that are
    not 0, the sum of their binary exponents at total[at + t] and their number at count[at + t].
    """

    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        ins, weights = data(context, builder, signature.args[4], args[4]), spread(builder, args[6])
        value = builder.fmul(weights, builder.load(vector(builder, ins, args[5]), align=4))
        size, words = by_vector(builder, "fabs", value), ir.VectorType(WORD, LANES)

        def kept(number: int, kind: Any) -> Any:
            return vector(builder, data(context, builder, signature.args[number], args[number]), args[3], kind)

        place = kept(0, FLOAT)
        former = builder.load(place, align=64)
        builder.store(builder.select(builder.fcmp_ordered(">", size, former), size, former), place, align=64)
        bits = builder.bitcast(size, words)
        some = builder.zext(builder.icmp_unsigned("!=", bits, everywhere(WORD, 0)), words)
        for place, more in ((kept(1, WORD), builder.lshr(bits, everywhere(WORD, 23))), (kept(2, WORD), some)):
            builder.store(builder.add(builder.load(place, align=64), more), place, align=64)
        return context.get_dummy_value()

    i = types.int64
    return types.void(largest, total, count, i, values, i, types.float32), build


@intrinsic
def begin(typing, shapes):  # type: ignore[no-untyped-def]
    """Give this thread the unit; `shapes` is SHAPES. Every `begin` needs its `end`."""

    def build(context, builder, signature, given):  # type: ignore[no-untyped-def]
        _unit(builder, "ldtilecfg", [data(context, builder, signature.args[0], given[0])])
        return context.get_dummy_value()

    return types.void(shapes), build


@intrinsic
def end(typing):  # type: ignore[no-untyped-def]
    def build(context, builder, signature, given):  # type: ignore[no-untyped-def]
        _unit(builder, "tilerelease", [])
        return context.get_dummy_value()

    return types.void(), build


@intrinsic
def clear(typing):  # type: ignore[no-untyped-def]
    """The unit's four sums are 0."""

    def build(context, builder, signature, given):  # type: ignore[no-untyped-def]
        for sums in range(4):
            _unit(builder, "tilezero", [_tile(sums)])
        return context.get_dummy_value()

    return types.void(), build


@intrinsic
def multiply(typing, left, at, next_left, right, begin, next_right, steps):  # type: ignore[no-untyped-def]
    """Add to the unit's sums: rows of two lines of `steps` left tiles by columns of two lines of right ones.

    Lines begin at byte `at` and `at + next_left` of `left`, at `begin` and `begin + next_right` of `right`.
    """

    def build(context, builder, signature, given):  # type: ignore[no-untyped-def]
        _, at, next_left, _, begin, next_right, steps = given
        lefts, rights = (data(context, builder, signature.args[a], given[a]) for a in (0, 3))
        places = [(lefts, at), (lefts, builder.add(at, next_left))]
        places += [(rights, begin), (rights, builder.add(begin, next_right))]
        with cgutils.for_range(builder, steps) as loop:
            moved = builder.mul(loop.index, number(TILE))
            for tile, (array, first) in enumerate(places, 4):
                place = builder.gep(array, [builder.add(first, moved)])
                _unit(builder, "tileloadd64", [_tile(tile), place, number(DEPTH)])
            for sums, (a, b) in enumerate(((4, 6), (4, 7), (5, 6), (5, 7))):
                _unit(builder, "tdpbssd", [_tile(sums), _tile(a), _tile(b)])
        return context.get_dummy_value()

    i = types.int64
    return types.void(left, i, i, right, i, i, i), build


@intrinsic
def fetch(typing, sums, at, apart):  # type: ignore[no-untyped-def]
    """The unit's sums to `sums`, 256 words each: first rows by first columns, by second ones, then second rows."""

    def build(context, builder, signature, given):  # type: ignore[no-untyped-def]
        begin = data(context, builder, signature.args[0], given[0])
        for tile in range(4):
            place = builder.add(given[1], builder.mul(given[2], number(tile)))
            _unit(builder, "tilestored64", [_tile(tile), builder.gep(begin, [place]), number(DEPTH)])
        return context.get_dummy_value()

    return types.void(sums, types.int64, types.int64), build


@njit(nogil=True, cache=True, forceinline=True)
def room(count):  # type: ignore[no-untyped-def]
    """uint8[count] of zeros where a vector never lies across two lines of the cache."""
    found = np.zeros(count + DEPTH, np.uint8)
    skipped = -found.ctypes.data % DEPTH
    return found[skipped : skipped + count]
