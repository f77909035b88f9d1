"""Negatives from a fixed pool: each person draws from the same few items all along, so her own table stays small."""

from __future__ import annotations

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms.interface import History
from coterie.ragged import Ragged


@njit(nogil=True, cache=True)
def _draw(ids, indptr, counts, avoid_indptr, avoid_items, keys, n_items, per_positive, size, seed, round_):  # type: ignore[no-untyped-def]
    out_indptr = np.zeros(len(ids) + 1, np.int64)
    for c in range(len(ids)):
        i = ids[c]
        positives = np.int64(0)
        for p in range(indptr[i], indptr[i + 1]):
            positives += np.int64(counts[p])
        available = n_items - (avoid_indptr[i + 1] - avoid_indptr[i])
        out_indptr[c + 1] = out_indptr[c] + positives * min(per_positive, size, available)
    out = np.empty(out_indptr[-1], np.int32)
    taken = np.full(n_items, -1, np.int64)
    pool = np.empty(size, np.int32)
    for c in range(len(ids)):
        i = ids[c]
        for p in range(avoid_indptr[i], avoid_indptr[i + 1]):
            taken[avoid_items[p]] = c
        filled = 0
        state = rng.stream(seed, 0, keys[i], rng.NEGATIVES)  # round 0: the same pool in every round
        while filled < min(size, n_items - (avoid_indptr[i + 1] - avoid_indptr[i])):
            state = rng.after(state)
            item = rng.below(state, n_items)
            if taken[item] != c:
                taken[item] = c
                pool[filled] = item
                filled += 1
        each = min(per_positive, filled)
        state = rng.stream(seed, round_, keys[i], rng.NEGATIVES)
        first = out_indptr[c]
        while first < out_indptr[c + 1]:
            drawn = 0
            while drawn < each:
                state = rng.after(state)
                item = pool[rng.below(state, filled)]
                fresh = True
                for other in range(first, first + drawn):
                    fresh = fresh and out[other] != item
                if fresh:
                    out[first + drawn] = item
                    drawn += 1
            first += each
    return out_indptr, out


def draw(history: History, ids: np.ndarray, per_positive: int, size: int, seed: int, round_: int) -> Ragged:
    """`per_positive` distinct negatives for each positive row, all from the client's own fixed pool of `size` items."""
    avoid = history.forbidden
    return Ragged(
        *_draw(
            ids, history.indptr, history.counts, avoid.indptr, avoid.items, history.keys, history.n_items,
            per_positive, size, seed, round_,
        )
    )  # fmt: skip
