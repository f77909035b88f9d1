"""Kernels that place held-out items among their candidates, and the plain NumPy version they are checked against.

One rule serves all: a score that is not finite counts as minus infinity. Finite scores then beat it, it never beats
them, and a diverged model (all NaN) leaves its held-out items last, because they rank last among equals.
No `fastmath` here: the comparisons with NaN are meant.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def gather(indptr, items, users, cursor, out):  # type: ignore[no-untyped-def]
    """Append each user's list to `out` at her `cursor` (int64[users], moved on in place)."""
    for e in range(len(users)):
        at = cursor[e]
        for k in range(indptr[users[e]], indptr[users[e] + 1]):
            out[at] = items[k]
            at += 1
        cursor[e] = at


@njit(nogil=True, cache=True, forceinline=True)
def _sift(keys, heap, size, item):  # type: ignore[no-untyped-def]
    """Put `item` in place of the root of a heap whose root is the worst: the lowest key, among equals the last item."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        a = heap[child]
        if child + 1 < size:
            b = heap[child + 1]
            if keys[b] < keys[a] or (keys[b] == keys[a] and b > a):
                child, a = child + 1, b
        if not (keys[a] < keys[item] or (keys[a] == keys[item] and a > item)):
            break
        heap[at] = a
        at = child
    heap[at] = item


@njit(nogil=True, cache=True, forceinline=True)
def _best(keys, top):  # type: ignore[no-untyped-def]
    """The items with the highest keys into `top`, best first, equal ones by lower number, -1 where too few are finite.

    A heap of the best so far: nearly every item fails the one comparison with its root, so this reads the row once
    instead of sorting it. Excluded items are NaN and non-finite ones -inf: neither is recommended.
    """
    top[:] = -1
    size = 0
    j = 0
    while j < len(keys) and size < len(top):
        if keys[j] > -np.inf:
            at = size  # climb: the newcomer goes above all that are better
            while at > 0 and keys[top[(at - 1) // 2]] >= keys[j]:
                top[at] = top[(at - 1) // 2]
                at = (at - 1) // 2
            top[at] = j
            size += 1
        j += 1
    while j < len(keys):
        if keys[j] > keys[top[0]]:  # an equal one that comes later is no better
            _sift(keys, top, size, j)
        j += 1
    for last in range(size - 1, 0, -1):  # the worst to the end, again and again
        worst = top[0]
        _sift(keys, top, last, top[last])
        top[last] = worst


@njit(nogil=True, cache=True, forceinline=True)
def _not_below(keys, bound):  # type: ignore[no-untyped-def]
    """How many keys are at least `bound`; NaN never is. An int32 sum, so that the loop becomes vector code."""
    count = np.int32(0)
    for j in range(len(keys)):
        count += np.int32(keys[j] >= bound)
    return count


@njit(nogil=True, cache=True)
def rank_full(scores, held_indptr, held, out_indptr, out, ranks, candidates, top):  # type: ignore[no-untyped-def]
    """Rank the held-out items of a chunk of users among all items but the excluded ones (`out`).

    `scores` is float[u, m]; `ranks` is aligned with `held`; `top` is int32[u, n], n = 0 where no lists are wanted.
    Returns how many scores of candidates were not finite.
    """
    users, m = scores.shape
    keys = np.empty(m, scores.dtype)
    nonfinite = 0
    for u in range(users):
        start, end = held_indptr[u], held_indptr[u + 1]
        for j in range(m):
            s = scores[u, j]
            keys[j] = s if np.isfinite(s) else -np.inf
        mine = np.empty(end - start, scores.dtype)
        for k in range(start, end):  # read before excluding: a held-out item is ranked even if excluded
            mine[k - start] = keys[held[k]]
        for k in range(out_indptr[u], out_indptr[u + 1]):
            keys[out[k]] = np.nan
        for k in range(start, end):
            keys[held[k]] = mine[k - start]
        dropped = 0
        finite = 0
        for j in range(m):
            dropped += np.isnan(keys[j])
            finite += keys[j] > -np.inf
        candidates[u] = m - dropped
        nonfinite += m - dropped - finite
        if top.shape[1] > 0:
            _best(keys, top[u])
        for k in range(start, end):
            keys[held[k]] = np.nan  # now only the candidates that are not held out are left to count
        mine.sort()
        for i in range(end - start):
            ranks[start + i] = _not_below(keys, mine[end - start - 1 - i]) + i
    return nonfinite


@njit(nogil=True, cache=True)
def rank_sampled(scores, held_indptr, held, some_indptr, some, ranks, candidates):  # type: ignore[no-untyped-def]
    """Rank the held-out items of a chunk of users among her listed candidates and themselves, each item once."""
    users, m = scores.shape
    seen = np.zeros(m, np.bool_)
    nonfinite = 0
    for u in range(users):
        start, end = held_indptr[u], held_indptr[u + 1]
        mine = np.empty(end - start, scores.dtype)
        for k in range(start, end):
            seen[held[k]] = True
            s = scores[u, held[k]]
            mine[k - start] = s if np.isfinite(s) else -np.inf
            nonfinite += not np.isfinite(s)
        keys = np.empty(some_indptr[u + 1] - some_indptr[u], scores.dtype)
        size = 0
        for k in range(some_indptr[u], some_indptr[u + 1]):
            if not seen[some[k]]:
                seen[some[k]] = True
                s = scores[u, some[k]]
                keys[size] = s if np.isfinite(s) else -np.inf
                nonfinite += not np.isfinite(s)
                size += 1
        for k in range(start, end):
            seen[held[k]] = False
        for k in range(some_indptr[u], some_indptr[u + 1]):
            seen[some[k]] = False
        candidates[u] = size + end - start
        mine.sort()
        for i in range(end - start):
            ranks[start + i] = _not_below(keys[:size], mine[end - start - 1 - i]) + i
    return nonfinite


def rank_reference(scores: np.ndarray, held: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One user in plain NumPy: her scores float[m], held-out and candidate items -> (ranks, all items as recommended).

    Sorting says the rule most plainly: by key downwards, and among equals the held-out ones last.
    """
    key = np.where(np.isfinite(scores), scores, -np.inf)
    ranked = np.union1d(held, candidates)
    is_held = np.isin(ranked, held)
    order = np.lexsort((is_held, -key[ranked]))
    recommended = ranked[np.lexsort((ranked, -key[ranked]))]
    return np.flatnonzero(is_held[order]), recommended[np.isfinite(scores[recommended])]
