"""A small multi-layer perceptron: forward and backward for batches, in a flat parameter vector.

z_l = W_l a_(l-1) + b_l, a_l = ReLU(z_l), and the last layer is left linear. One vector `theta` holds W_1, b_1, W_2
and so on; W_l is stored by input: theta[at + i * outputs + o]. So a client's network is one row of a matrix, and
averaging, uploading or shifting networks is arithmetic on vectors.

Batches stand in columns: row r of `acts` is one number for each example. All inner loops then run over examples, which
are many, and not over neurons, which are few; products go by tiles of both (tiles.py) and, at the edges, by loops: a
batch of a multiple of `tiles.COLUMNS` examples is the fastest. Inputs that are the same for the whole batch (a user's
vector in front of her items) are given once as `head` and cost nothing per example. `forward_numpy` and
`backward_numpy` say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numba import njit

from coterie.algorithms import tiles

_FAST = {"reassoc", "contract", "arcp", "nsz"}  # sums may be regrouped; NaN keeps its meaning


def n_parameters(sizes: Sequence[int]) -> int:
    """How many numbers a network of these layer sizes (inputs first, outputs last) has."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))


def start(sizes: Sequence[int], draws: np.random.Generator) -> np.ndarray:
    """float32[p]: weights and biases U(+-1/sqrt(inputs)), layer by layer."""
    parts = [
        draws.uniform(-(inputs**-0.5), inputs**-0.5, (inputs + 1) * outputs) for inputs, outputs in pairwise(sizes)
    ]
    return np.concatenate(parts).astype(np.float32)


def n_activations(sizes: Sequence[int], head: int = 0) -> int:
    """Rows that `acts` and `deltas` need: every layer's numbers but for the inputs given as `head`."""
    return sum(sizes) - head


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def _products(out, row, starts, least, theta, first, by_row, by_term, terms, acts, top, n):  # type: ignore[no-untyped-def]
    """out[row + r, e] = starts[r] + the sum of theta[first + r by_row + t by_term] acts[top + t, e] over t < terms.

    For e < n; it is `least` where that is less.
    """
    rows, wide = len(starts), n // tiles.COLUMNS * tiles.COLUMNS
    tiled = rows // tiles.ROWS * tiles.ROWS
    for e in range(0, wide, tiles.COLUMNS):
        for r in range(0, tiled, tiles.ROWS):
            at = first + r * by_row
            tiles.products(out, row + r, theta, at, by_row, by_term, terms, acts, top, starts, r, least, e)
        for r in range(tiled, rows):
            at = first + r * by_row
            tiles.products_row(out, row + r, theta, at, by_row, by_term, terms, acts, top, starts, r, least, e)
    for r in range(rows if wide < n else 0):
        z = out[row + r]
        for e in range(wide, n):
            z[e] = starts[r]
        for t in range(terms):
            weight, values = theta[first + r * by_row + t * by_term], acts[top + t]
            for e in range(wide, n):
                z[e] += weight * values[e]
        for e in range(wide, n):
            z[e] = least if z[e] < least else z[e]


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def forward(theta, sizes, head, acts, n):  # type: ignore[no-untyped-def]
    """Fill `acts` below its first rows (the inputs after `head`) for n columns; its last rows are the end's z.

    theta float32[p], sizes int64[layers + 1], head float32[h], acts float32[n_activations(sizes, h), at least n].
    """
    at, above, common = 0, 0, len(head)
    for layer in range(len(sizes) - 1):
        inputs, outputs = sizes[layer], sizes[layer + 1]
        fresh = inputs - common
        bias = at + inputs * outputs
        starts = theta[bias : bias + outputs].copy()
        for i in range(common):
            for o in range(outputs):
                starts[o] += head[i] * theta[at + i * outputs + o]
        own = at + common * outputs
        least = theta.dtype.type(0.0 if layer < len(sizes) - 2 else -np.inf)  # ReLU
        _products(acts, above + fresh, starts, least, theta, own, 1, outputs, fresh, acts, above, n)
        at, above, common = bias + outputs, above + fresh, 0


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def _inner_products(grad, first, left, top, rows, right, below, others, n):  # type: ignore[no-untyped-def]
    """grad[first + r others + s] = sum over e < n of left[top + r, e] right[below + s, e], r < rows, s < others."""
    tiled, paired = rows // tiles.ROWS * tiles.ROWS, others // tiles.PAIR * tiles.PAIR
    wide = n // tiles.COLUMNS * tiles.COLUMNS
    for r in range(0, tiled, tiles.ROWS):
        for s in range(0, paired, tiles.PAIR):
            tiles.inner_products(grad, first + r * others + s, others, left, top + r, right, below + s, wide)  # type: ignore[call-arg]
    for r in range(rows):
        for s in range(others):
            done = r < tiled and s < paired
            if done and wide == n:
                continue
            a, d, at = left[top + r], right[below + s], first + r * others + s
            total = grad[at] if done else np.float32(0.0)
            for e in range(wide if done else 0, n):
                total += a[e] * d[e]
            grad[at] = total


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def backward(theta, sizes, head, acts, deltas, n, grad, grad_head):  # type: ignore[no-untyped-def]
    """From dL/dz of the last layer (the last rows of `deltas`) to all gradients.

    Writes `grad` (of theta) and `grad_head`, and the other rows of `deltas`: its first rows become dL/d(inputs).
    `acts` are those of `forward` with the same theta.
    """
    for i in range(len(head)):
        grad_head[i] = np.float32(0.0)
    at, below = len(theta), acts.shape[0] - sizes[-1]
    for layer in range(len(sizes) - 2, -1, -1):
        inputs, outputs = sizes[layer], sizes[layer + 1]
        common = len(head) if layer == 0 else 0
        fresh = inputs - common
        bias = at - outputs
        at = bias - inputs * outputs
        above = below - fresh  # first row of this layer's inputs; `below` is that of its outputs
        for o in range(outputs):
            d = deltas[below + o]
            total = np.float32(0.0)
            for e in range(n):
                total += d[e]
            grad[bias + o] = total
            for i in range(common):
                grad[at + i * outputs + o] = head[i] * total
                grad_head[i] += theta[at + i * outputs + o] * total
        own = at + common * outputs
        _inner_products(grad, own, acts, above, fresh, deltas, below, outputs, n)
        none, least = np.zeros(fresh, theta.dtype), theta.dtype.type(-np.inf)
        _products(deltas, above, none, least, theta, own, outputs, 1, outputs, deltas, below, n)
        if layer > 0:  # a = max(z, 0): nothing flows where it is 0
            for i in range(fresh):
                a, back = acts[above + i], deltas[above + i]
                for e in range(n):
                    if a[e] <= np.float32(0.0):
                        back[e] = np.float32(0.0)
        below = above


def layers(theta: np.ndarray, sizes: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """(W[inputs, outputs], b[outputs]) of each layer, as views of the vector."""
    found, at = [], 0
    for inputs, outputs in pairwise(sizes):
        end = at + inputs * outputs
        found.append((theta[at:end].reshape(inputs, outputs), theta[end : end + outputs]))
        at = end + outputs
    return found


def forward_numpy(theta: np.ndarray, sizes: Sequence[int], inputs: np.ndarray) -> list[np.ndarray]:
    """The reference, examples in rows: the inputs, each layer's activations, and the end's z."""
    values = [inputs]
    for number, (weights, bias) in enumerate(layers(theta, sizes)):
        z = values[-1] @ weights + bias
        values.append(z if number == len(sizes) - 2 else np.maximum(z, 0))
    return values


def backward_numpy(
    theta: np.ndarray, sizes: Sequence[int], values: list[np.ndarray], delta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The reference: gradients of theta and of the inputs, from dL/dz of the last layer."""
    grad = np.zeros_like(theta)
    for number in range(len(sizes) - 2, -1, -1):
        (weights, _), (g_weights, g_bias) = layers(theta, sizes)[number], layers(grad, sizes)[number]
        g_weights[:], g_bias[:] = values[number].T @ delta, delta.sum(0)
        delta = delta @ weights.T
        if number > 0:
            delta = delta * (values[number] > 0)
    return grad, delta
