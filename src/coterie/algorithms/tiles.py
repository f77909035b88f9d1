"""Products of small matrices a tile at a time: sums that stay in registers while they grow.

The compiler makes vector instructions of a loop over examples, but loads and stores the sum at every step; these two
intrinsics hold the sums of a tile and do as many multiplications with each number they load as there is room for.
Examples stand in columns (mlp.py). Functions that call them must allow `contract`, so that a product and a sum become
one instruction.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ROWS = 4  # of a tile of sums
COLUMNS = 16  # examples in a tile: two vectors of 8 for each row
PAIR = 2  # rows of the second matrix in a tile of inner products
_LANES = 8


def _at(context: Any, builder: Any, kind: Any, array: Any, row: Any, column: Any) -> Any:
    """Where element [row, column] of a contiguous matrix is."""
    given = context.make_array(kind)(context, builder, array)
    width = builder.extract_value(given.shape, 1)
    return builder.gep(given.data, [builder.add(builder.mul(row, width), column)])


def _tile(count: int) -> Any:
    @intrinsic
    def tile(typing, out, row, theta, first, by_row, by_term, terms, acts, top, starts, at, least, column):  # type: ignore[no-untyped-def]
        """out[row + r, c] = starts[at + r] + the sum of theta[first + r by_row + t by_term] acts[top + t, c] over t.

        For r < count, t < terms and the COLUMNS columns from `column` on; it is `least` where that is less.
        """

        def build(context, builder, signature, given):  # type: ignore[no-untyped-def]
            out, row, theta, first, by_row, by_term, terms, acts, top, starts, at, least, column = given
            weights = context.make_array(signature.args[2])(context, builder, theta).data
            begin = context.make_array(signature.args[9])(context, builder, starts).data
            vector, size = _vector(weights, COLUMNS)
            numbers = [ir.Constant(ir.IntType(64), r) for r in range(count)]

            def place(kind: Any, array: Any, at: Any) -> Any:
                return builder.bitcast(_at(context, builder, kind, array, at, column), vector.as_pointer())

            sums, rows = [], []
            for r in numbers:
                value = builder.load(builder.gep(begin, [builder.add(at, r)]))
                sums.append(cgutils.alloca_once_value(builder, _spread(builder, value, vector)))
                rows.append(builder.add(first, builder.mul(by_row, r)))
            with cgutils.for_range(builder, terms) as loop:
                values = builder.load(place(signature.args[7], acts, builder.add(top, loop.index)), align=size)
                step = builder.mul(loop.index, by_term)
                for total, mine in zip(sums, rows, strict=True):
                    weight = builder.load(builder.gep(weights, [builder.add(mine, step)]))
                    product = builder.fmul(_spread(builder, weight, vector), values)
                    builder.store(builder.fadd(builder.load(total), product), total)
            floor = _spread(builder, least, vector)
            for r, total in zip(numbers, sums, strict=True):
                value = builder.load(total)
                kept = builder.select(builder.fcmp_ordered("<", value, floor), floor, value)  # NaN stays
                builder.store(kept, place(signature.args[0], out, builder.add(row, r)), align=size)
            return context.get_dummy_value()

        i = types.int64
        return types.void(out, i, theta, i, i, i, i, acts, i, starts, i, out.dtype, i), build

    return tile


def _vector(data: Any, lanes: int) -> tuple[Any, int]:
    """A vector of the numbers that `data` points at, and the bytes of one of them."""
    number = data.type.pointee
    return ir.VectorType(number, lanes), 4 if isinstance(number, ir.FloatType) else 8


def _spread(builder: Any, value: Any, vector: Any) -> Any:
    """A vector of one number."""
    nothing = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, nothing, mask)


def _total(builder: Any, vector: Any) -> Any:
    """The sum of a vector's numbers, by halves."""
    while vector.type.count > 1:
        half = vector.type.count // 2
        parts = [
            builder.shuffle_vector(
                vector, vector, ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(start, start + half)))
            )
            for start in (0, half)
        ]
        vector = builder.fadd(*parts)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


@intrinsic
def inner_products(typing, grad, first, by_row, left, top, right, below, columns):  # type: ignore[no-untyped-def]
    """grad[first + r by_row + s] = sum over c < columns of left[top + r, c] right[below + s, c].

    For r < ROWS and s < PAIR; `columns` is a multiple of COLUMNS.
    """

    def build(context, builder, signature, given):  # type: ignore[no-untyped-def]
        grad, first, by_row, left, top, right, below, columns = given
        whole = ir.IntType(64)
        found = context.make_array(signature.args[0])(context, builder, grad).data
        vector, size = _vector(found, _LANES)
        zero = ir.Constant(whole, 0)

        def begins(kind: Any, array: Any, at: Any, count: int) -> list[Any]:
            return [
                _at(context, builder, kind, array, builder.add(at, ir.Constant(whole, r)), zero) for r in range(count)
            ]

        lefts = begins(signature.args[3], left, top, ROWS)
        rights = begins(signature.args[5], right, below, PAIR)
        nothing = ir.Constant(vector, [0.0] * _LANES)
        sums = [[cgutils.alloca_once_value(builder, nothing) for _ in rights] for _ in lefts]
        steps = builder.sdiv(columns, ir.Constant(whole, _LANES))

        def loaded(place: Any, index: Any) -> Any:
            here = builder.gep(place, [builder.mul(index, ir.Constant(whole, _LANES))])
            return builder.load(builder.bitcast(here, vector.as_pointer()), align=size)

        with cgutils.for_range(builder, steps) as loop:
            mine = [loaded(one, loop.index) for one in rights]
            for place, row in zip(lefts, sums, strict=True):
                value = loaded(place, loop.index)
                for other, total in zip(mine, row, strict=True):
                    builder.store(builder.fadd(builder.load(total), builder.fmul(value, other)), total)
        for r, row in enumerate(sums):
            begin = builder.add(first, builder.mul(by_row, ir.Constant(whole, r)))
            for s, total in enumerate(row):
                at = builder.gep(found, [builder.add(begin, ir.Constant(whole, s))])
                builder.store(_total(builder, builder.load(total)), at)
        return context.get_dummy_value()

    i = types.int64
    return types.void(grad, i, i, left, i, right, i, i), build


products = _tile(ROWS)
products_row = _tile(1)  # for the rows that are left over
