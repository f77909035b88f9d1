"""Drawing negatives: on the device, from items outside the lists it was told to avoid."""

from __future__ import annotations

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms.interface import History
from coterie.ragged import Ragged


@njit(nogil=True, cache=True)
def _draw(ids, avoid_indptr, avoid_items, keys, n_items, seed, round_, positives, each, mark, out):  # type: ignore[no-untyped-def]
    """`mark[j]` is the last positive item j was drawn for; what must not be drawn is marked as of the last one."""
    stamp, at = np.int64(0), np.int64(0)
    for c in range(len(ids)):
        i = ids[c]
        final = stamp + positives[c]
        for p in range(avoid_indptr[i], avoid_indptr[i + 1]):
            mark[avoid_items[p]] = final
        state = rng.stream(seed, round_, keys[i], rng.NEGATIVES)
        while stamp < final:  # one positive at a time; its negatives are distinct
            stamp += 1
            end = at + each[c]
            while at < end:
                state = rng.after(state)
                item = rng.below(state, n_items)
                if mark[item] < stamp:
                    mark[item] = stamp
                    out[at] = item
                    at += 1


def repeats(history: History, ids: np.ndarray) -> np.ndarray:
    """int64[len(ids)]: how many positive rows each client has, repeats counted."""
    if not len(ids):
        return np.zeros(0, np.int64)
    first = history.indptr[ids.min()]
    until = np.concatenate([[0], np.cumsum(history.counts[first : history.indptr[ids.max() + 1]], dtype=np.int64)])
    counted: np.ndarray = until[history.indptr[ids + 1] - first] - until[history.indptr[ids] - first]
    return counted


def draw(history: History, ids: np.ndarray, per_positive: int, seed: int, round_: int) -> Ragged:
    """`per_positive` distinct negatives for each positive row of each client; fewer where fewer items are left."""
    positives = repeats(history, ids)
    each = np.minimum(per_positive, history.n_items - history.forbidden.lengths[ids])
    indptr = np.concatenate([[0], np.cumsum(positives * each)])
    out = np.empty(indptr[-1], np.int32)
    mark = np.zeros(history.n_items, np.int64)
    _draw(
        ids, history.forbidden.indptr, history.forbidden.items, history.keys, history.n_items, seed, round_,
        positives, each, mark, out,
    )  # fmt: skip
    return Ragged(indptr, out)
