"""Drawing negatives: on the device, from items outside the lists it was told to avoid."""

from __future__ import annotations

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms.interface import History
from coterie.ragged import Ragged


@njit(nogil=True, cache=True)
def _draw(ids, indptr, counts, avoid_indptr, avoid_items, keys, n_items, per_positive, seed, round_):  # type: ignore[no-untyped-def]
    out_indptr = np.zeros(len(ids) + 1, np.int64)
    for c in range(len(ids)):
        i = ids[c]
        positives = np.int64(0)
        for p in range(indptr[i], indptr[i + 1]):
            positives += np.int64(counts[p])
        available = n_items - (avoid_indptr[i + 1] - avoid_indptr[i])
        out_indptr[c + 1] = out_indptr[c] + positives * min(per_positive, available)
    out = np.empty(out_indptr[-1], np.int32)
    avoided = np.full(n_items, -1, np.int32)
    for c in range(len(ids)):
        i = ids[c]
        for p in range(avoid_indptr[i], avoid_indptr[i + 1]):
            avoided[avoid_items[p]] = c
        available = n_items - (avoid_indptr[i + 1] - avoid_indptr[i])
        each = min(per_positive, available)
        state = rng.stream(seed, round_, keys[i], rng.NEGATIVES)
        first = out_indptr[c]
        while first < out_indptr[c + 1]:  # one positive at a time; its negatives are distinct
            drawn = 0
            while drawn < each:
                state = rng.after(state)
                item = np.int32(rng.below(state, n_items))
                fresh = avoided[item] != c
                for other in range(first, first + drawn):
                    fresh = fresh and out[other] != item
                if fresh:
                    out[first + drawn] = item
                    drawn += 1
            first += each
    return out_indptr, out


def draw(history: History, ids: np.ndarray, per_positive: int, seed: int, round_: int) -> Ragged:
    """`per_positive` distinct negatives for each positive row of each client; fewer where fewer items are left."""
    indptr, items = _draw(
        ids,
        history.indptr,
        history.counts,
        history.forbidden.indptr,
        history.forbidden.items,
        history.keys,
        history.n_items,
        per_positive,
        seed,
        round_,
    )
    return Ragged(indptr, items)
