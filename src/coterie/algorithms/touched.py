"""The rows a client touches in a round: her items first, then the drawn ones; each once, repeats as weights."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, forceinline=True)
def most_rows(ids, indptr, neg_indptr, n_items):  # type: ignore[no-untyped-def]
    """The largest number of rows that one client of the cohort can touch, and the sum over all of them."""
    most, total = np.int64(0), np.int64(0)
    for c in range(len(ids)):
        here = min(np.int64(n_items), indptr[ids[c] + 1] - indptr[ids[c]] + neg_indptr[c + 1] - neg_indptr[c])
        most, total = max(most, here), total + here
    return most, total


@njit(nogil=True, cache=True, forceinline=True)
def gather(i, indptr, items, counts, drawn, position, rows, positive, negative):  # type: ignore[no-untyped-def]
    """Fill rows and weights of client i; her own items are the first ones. `position` is -1 before and after.

    Returns how many rows there are and how many examples (repeats counted) stand behind them.
    """
    n = indptr[i + 1] - indptr[i]
    size = np.int64(len(drawn))
    for t in range(n):
        p = indptr[i] + t
        rows[t], positive[t], negative[t] = items[p], counts[p], np.float32(0.0)
        position[items[p]] = t
        size += np.int64(counts[p])
    for item in drawn:
        if position[item] < 0:
            position[item] = n
            rows[n], positive[n], negative[n] = item, np.float32(0.0), np.float32(0.0)
            n += 1
        negative[position[item]] += np.float32(1.0)
    for t in range(n):
        position[rows[t]] = -1
    return n, size


@njit(nogil=True, cache=True, forceinline=True)
def logistic(x, positive, negative):  # type: ignore[no-untyped-def]
    """Loss and its derivative at x of `positive` ones and `negative` zeros."""
    weight = positive + negative
    loss = weight * np.log1p(np.exp(-abs(x))) + weight * max(x, np.float32(0.0)) - positive * x
    return loss, weight / (np.float32(1.0) + np.exp(-x)) - positive
