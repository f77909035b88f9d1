"""A small multi-layer perceptron: forward and backward for batches, in a flat parameter vector.

z_l = W_l a_(l-1) + b_l, a_l = ReLU(z_l), and the last layer is left linear. One vector `theta` holds W_1, b_1, W_2
and so on; W_l is stored by input: theta[at + i * outputs + o]. So a client's network is one row of a matrix, and
averaging, uploading or shifting networks is arithmetic on vectors.

Batches stand in columns: row r of `acts` is one number for each example. All inner loops then run over examples, which
are many, and not over neurons, which are few. Inputs that are the same for the whole batch (a user's vector in front of
her items) are given once as `head` and cost nothing per example. `forward_numpy` and `backward_numpy` say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numba import njit

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


@njit(nogil=True, cache=True, fastmath=_FAST)
def forward(theta, sizes, head, acts, n):  # type: ignore[no-untyped-def]
    """Fill `acts` below its first rows (the inputs after `head`) for n columns; its last rows are the end's z.

    theta float32[p], sizes int64[layers + 1], head float32[h], acts float32[n_activations(sizes, h), at least n].
    """
    at, above, common = 0, 0, len(head)
    for layer in range(len(sizes) - 1):
        inputs, outputs = sizes[layer], sizes[layer + 1]
        fresh = inputs - common
        bias = at + inputs * outputs
        for o in range(outputs):
            z = acts[above + fresh + o]
            first = theta[bias + o]
            for i in range(common):
                first += head[i] * theta[at + i * outputs + o]
            for e in range(n):
                z[e] = first
            i = 0
            while i + 4 <= fresh:  # four inputs at a time: z is loaded and stored a quarter as often
                base = at + (common + i) * outputs + o
                w0, w1 = theta[base], theta[base + outputs]
                w2, w3 = theta[base + 2 * outputs], theta[base + 3 * outputs]
                a0, a1, a2, a3 = acts[above + i], acts[above + i + 1], acts[above + i + 2], acts[above + i + 3]
                for e in range(n):
                    z[e] += (w0 * a0[e] + w1 * a1[e]) + (w2 * a2[e] + w3 * a3[e])
                i += 4
            while i < fresh:
                w0, a0 = theta[at + (common + i) * outputs + o], acts[above + i]
                for e in range(n):
                    z[e] += w0 * a0[e]
                i += 1
            if layer < len(sizes) - 2:
                for e in range(n):
                    z[e] = max(z[e], np.float32(0.0))
        at, above, common = bias + outputs, above + fresh, 0


@njit(nogil=True, cache=True, fastmath=_FAST)
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
        for i in range(fresh):
            a, back = acts[above + i], deltas[above + i]
            row = at + (common + i) * outputs
            for e in range(n):
                back[e] = np.float32(0.0)
            o = 0
            while o + 4 <= outputs:
                d0, d1, d2, d3 = deltas[below + o], deltas[below + o + 1], deltas[below + o + 2], deltas[below + o + 3]
                w0, w1, w2, w3 = theta[row + o], theta[row + o + 1], theta[row + o + 2], theta[row + o + 3]
                g0, g1, g2, g3 = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
                for e in range(n):
                    x = a[e]
                    g0 += x * d0[e]
                    g1 += x * d1[e]
                    g2 += x * d2[e]
                    g3 += x * d3[e]
                    back[e] += (w0 * d0[e] + w1 * d1[e]) + (w2 * d2[e] + w3 * d3[e])
                grad[row + o], grad[row + o + 1], grad[row + o + 2], grad[row + o + 3] = g0, g1, g2, g3
                o += 4
            while o < outputs:
                d0, w0, g0 = deltas[below + o], theta[row + o], np.float32(0.0)
                for e in range(n):
                    g0 += a[e] * d0[e]
                    back[e] += w0 * d0[e]
                grad[row + o] = g0
                o += 1
            if layer > 0:  # a = max(z, 0): nothing flows where it is 0
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
