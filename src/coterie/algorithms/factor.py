"""Local training of factor models: score = <u, C[j] + D[j]> + biases, logistic or squared loss.

FedMF (no D) and FedRAP (all of it) are settings of this one kernel. For one client and one batch it walks the distinct
items once: given u the rows are independent, so score, error, gradient and update of a row need no gradient table.
Repeated negatives are folded into a weight. The touched rows are gathered into one small buffer, which becomes the
upload, and stay in cache for all local passes. `factor_reference.py` says the same in plain NumPy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms.factor_step import BLOCK, FAST, L1, L2, NO_PENALTY, SOFT_THRESHOLD, step_rows
from coterie.algorithms.interface import Download, History, Report, Upload
from coterie.algorithms.rowstore import RowStore
from coterie.ragged import Ragged

__all__ = ["L1", "L2", "NO_PENALTY", "SOFT_THRESHOLD", "Local", "score", "train"]


class Local(NamedTuple):
    """One round's settings of the local training."""

    passes: int  # local passes over the client's batches
    batch: int  # most rows (repeats counted) in one gradient step
    mean: bool  # gradients are means over the batch, not sums
    squared: bool  # squared error instead of logistic loss
    shared: bool  # the shared table C is there and is trained
    private: bool  # the private table D is there and is trained
    item_bias: bool  # the last column of C is the item's bias
    user_bias: bool  # each client has a bias of her own
    whole: bool  # regularisers act on every item, not only on the batch's
    everywhere: bool  # weight decay acts on every item, not only on touched ones
    rate_item: float  # step size for C
    rate_own: float  # step size for D
    decay_user: float
    decay_item: float
    decay_own: float
    step_decay: float  # all step sizes are multiplied by this after each step
    apart: float  # lambda: weight of -(D - C)^2
    sparse: float  # mu: weight of the penalty on C
    penalty: int  # NO_PENALTY, L1 (sub-gradient), L2 (squares) or SOFT_THRESHOLD (proximal step)
    tolerance: float  # stop when the running mean loss changes by less than this share; 0: never
    own_items: bool = False  # D has rows for the client's own items only; elsewhere it is 0 and stays so
    half_life: float = 0.0  # a positive's weight halves with every so many later ones; 0: all weigh 1
    oldest: float = 0.0  # but no less than this much of her latest's


def check_recency(half_life: float, oldest: float, batch: int) -> None:
    """Settings that cannot work are refused before anything runs."""
    if half_life < 0 or not 0 <= oldest <= 1:
        raise ValueError(
            f"half_life={half_life}, oldest={oldest}: a number of items, 0 or more, and a weight from 0 to 1"
        )
    if half_life > 0 and batch < 1 << 20:  # a batch is cut from examples that all weigh the same
        raise ValueError(f"half_life={half_life} with batch={batch}: weights need her whole history in one step")


@njit(nogil=True, cache=True, forceinline=True)
def _weights(count, half_life, oldest):  # type: ignore[no-untyped-def]
    """float64[count]: what a positive of each age weighs, 1 in the mean."""
    weights, fade, total = np.empty(count), 0.5 ** (1.0 / half_life), 0.0
    left = 1.0
    for age in range(count):
        weights[age] = max(left, oldest)
        total += weights[age]
        left *= fade
    for age in range(count):
        weights[age] *= count / total
    return weights


@njit(nogil=True, cache=True)
def _fold(  # type: ignore[no-untyped-def]
    ids, indptr, items, counts, ages, half_life, oldest, neg_indptr, neg_items, whole, position, out_indptr, rows,
    positive, negative, sizes,
):  # fmt: skip
    """Each client's distinct items, what each weighs as a positive and as a negative, and how many examples she has."""
    n = 0
    for c in range(len(ids)):
        first, size = n, 0.0
        aged = half_life > 0.0 and len(ages) > 0
        weights = _weights(indptr[ids[c] + 1] - indptr[ids[c]], half_life, oldest) if aged else np.empty(0)
        for p in range(indptr[ids[c]], indptr[ids[c] + 1]):
            position[items[p]] = n
            rows[n] = items[p]
            positive[n] = counts[p] * weights[ages[p]] if aged else counts[p]
            size += counts[p]
            n += 1
        for p in range(neg_indptr[c], neg_indptr[c + 1]):
            j = neg_items[p]
            if position[j] < first:
                position[j] = n
                rows[n] = j
                n += 1
            negative[position[j]] += np.float32(1.0)
        if whole:
            for j in range(len(position)):
                if position[j] < first:
                    position[j] = n
                    rows[n] = j
                    n += 1
        out_indptr[c + 1] = n
        sizes[c] = np.int64(size) + neg_indptr[c + 1] - neg_indptr[c]


@njit(nogil=True, cache=True, forceinline=True)
def _rows(examples, n, hers, whole, count, both, work, which):  # type: ignore[no-untyped-def]
    """A batch's rows, ascending, into `which`, their counts into `work`; returns how many, and how many with a D.

    `count` is all 0 before and after.
    """
    for e in examples:  # negatives in the lower half of a number, positives in the upper
        count[e >> 1] += (1 << 32) if e & 1 else 1
    found, own = 0, 0
    for t in range(n):  # without a branch: who is in a batch is chance, and a processor guesses that wrong
        which[found], both[found] = t, count[t]
        here = whole or count[t] > 0
        count[t] = 0
        found += here
        own += here and t < hers
    for p in range(found):
        work[1, p], work[2, p] = np.float32(both[p] >> 32), np.float32(both[p] & 0xFFFFFFFF)
    return found, own


@njit(nogil=True, cache=True, forceinline=True)
def _places(row_at, used, which):  # type: ignore[no-untyped-def]
    """Where her rows of this round stand in the store, ascending, into `which`; returns how many.

    The store is far larger than a cache: in its own order it is read and written several times as fast.
    """
    found = 0
    for place in range(used):
        which[found] = place
        found += row_at[place] >= 0
    return found


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def _train(  # type: ignore[no-untyped-def]
    ids, indptr, all_rows, all_positive, all_negative, keys, seed, round_,
    table, user, user_bias, start, scale, slot, used, pool, rate_user, s, rest,
    values, example, every, which, row_at, count, both, work, D, gu, scales, shrinks, losses, sizes,
):  # fmt: skip
    """Train each client of a cohort. State arrays change in place; the movement of her rows fills `values`."""
    f = np.float32
    k = user.shape[1]
    for c in range(len(ids)):
        i = ids[c]
        rows, C = all_rows[indptr[c] : indptr[c + 1]], values[indptr[c] if s.shared else 0 :]
        positive, negative = all_positive[indptr[c] : indptr[c + 1]], all_negative[indptr[c] : indptr[c + 1]]
        n, size = len(rows), sizes[c]
        hers = n  # how many rows have a part in D; her own items come first
        while s.own_items and hers > 0 and positive[hers - 1] == f(0.0):
            hers -= 1
        several = size > s.batch
        # Where rows decay while they wait for their batch, they are stored over what decay has left of a row so far.
        late = several and s.everywhere
        scales[:] = 1.0
        if several:  # one entry for each example: its row, and whether it is a positive
            e = 0
            for t in range(n):
                for number in range(int(positive[t] + negative[t])):
                    example[e] = 2 * t + (number < positive[t])
                    e += 1
        u = user[i]
        bias = user_bias[i] if s.user_bias else f(0.0)
        fade, shrink_item, shrink_own = f(1.0), 1.0, 1.0
        running, seen, before, g_bias = 0.0, 0, 0.0, f(0.0)
        state = rng.stream(seed, round_, keys[i], rng.SHUFFLE)
        old_scale = f(scale[i]) if s.private else f(1.0)
        mine = i * table.shape[0]  # where her part of the pool begins
        # What a step walks: how often each row counts, how many rows, how many with a part in D. A batch has its own.
        positives, negatives, listed, with_own = positive, negative, n, hers

        if s.private:
            for t in range(hers):
                j = rows[t]
                if slot[i, j] >= 0:
                    row_at[slot[i, j]] = t
                else:
                    for d in range(k):
                        D[t, d] = old_scale * start[j, d]
            for p in range(_places(row_at, used[i], which)):
                t, place = row_at[which[p]], mine + which[p]
                for d in range(k):
                    D[t, d] = old_scale * pool[place, d]

        # Where one step is all there is, C is gathered, stepped and finished a block at a time; else all at once.
        stretch = BLOCK if s.passes == 1 and not several and not s.everywhere else max(n, 1)
        for first in range(0, n, stretch):
            last = min(first + stretch, n)
            if s.shared:
                for t in range(first, last):
                    j = rows[t]
                    for d in range(table.shape[1]):
                        C[t, d] = table[j, d]

            for sweep in range(s.passes if size > 0 else 0):
                if several:
                    for e in range(size - 1, s.batch - 1, -1):  # what is left is the first batch, in any order
                        state = rng.after(state)
                        other = rng.below(state, e + 1)
                        swap = example[e]
                        example[e] = example[other]
                        example[other] = swap
                for a in range(0, size, s.batch):
                    b = min(a + s.batch, size)
                    if several:
                        listed, with_own = _rows(example[a:b], n, hers, s.whole, count, both, work, which)
                        positives, negatives = work[1], work[2]
                    if late:
                        scales[0], scales[1] = shrink_item, shrink_own
                        scales[2] = shrink_item * (1.0 - s.rate_item * fade * s.decay_item)
                        scales[3] = shrink_own * (1.0 - s.rate_own * fade * s.decay_own)
                    if first == 0:
                        gu[:] = f(0.0)
                        g_bias = f(0.0)
                    for part in range(2):  # rows with D, then rows without
                        stop = listed if several else last
                        begin, end = (first, min(stop, with_own)) if part == 0 else (max(first, with_own), stop)
                        if begin >= end:
                            continue
                        loss, penalty, g = step_rows(
                            begin, end, which if several else every, C, D, u, gu, bias, positives, negatives, work,
                            scales, b - a, fade, s if part == 0 else rest, sweep == 0 or s.tolerance > 0.0,
                        )  # fmt: skip
                        g_bias += g
                        if sweep == 0:
                            losses[c] += loss
                        running += loss + penalty * (b - a if s.mean else 1)
                    if last < n:
                        continue
                    seen += b - a
                    step = rate_user[c] * fade
                    for d in range(k):
                        u[d] -= step * (gu[d] + f(s.decay_user) * u[d])
                    if s.user_bias:
                        bias -= step * (g_bias + f(s.decay_user) * bias)
                    if s.everywhere:
                        shrink_item *= 1.0 - s.rate_item * fade * s.decay_item
                        shrink_own *= 1.0 - s.rate_own * fade * s.decay_own
                    fade *= f(s.step_decay)
                if s.tolerance > 0.0:
                    now = running / seen
                    if sweep > 0 and abs(now - before) / abs(before) < s.tolerance:
                        break
                    before = now

            held, kept = f(shrink_item if late else 1.0), f(shrink_item)
            if s.shared:
                for t in range(first, last):
                    j = rows[t]
                    for d in range(table.shape[1]):
                        C[t, d] = held * C[t, d] - kept * table[j, d]

        if s.user_bias:
            user_bias[i] = bias
        if s.private:
            back = f((shrink_own if late else 1.0) / (scale[i] * shrink_own))
            for t in range(hers):
                if slot[i, rows[t]] < 0:
                    slot[i, rows[t]] = used[i]
                    row_at[used[i]] = t
                    used[i] += 1
            for p in range(_places(row_at, used[i], which)):
                t, place = row_at[which[p]], mine + which[p]
                for d in range(k):
                    pool[place, d] = back * D[t, d]
                row_at[which[p]] = -1
            scale[i] *= shrink_own
        losses[c] /= max(size, 1)
        shrinks[c, 0] = shrink_item


_NO_STORE = RowStore(
    np.empty((0, 1), np.float32),
    np.empty(0),
    np.empty((0, 0), np.int32),
    np.empty(0, np.int64),
    np.empty((0, 1), np.float32),
)
_NO_BIAS, _NO_AGES = np.empty(0, np.float32), np.empty(0, np.int32)


def train(
    ids: np.ndarray,
    history: History,
    negatives: Ragged,
    download: Download,
    user: np.ndarray,
    user_bias: np.ndarray | None,
    own: RowStore | None,
    rate_user: np.ndarray,
    settings: Local,
    round_: int,
    seed: int,
) -> tuple[Upload, Report]:
    """Train clients `ids` in place. `upload.dense` is by how much each client shrank the rows she did not touch."""
    store = own if own is not None else _NO_STORE
    count, m, width, k = len(ids), history.n_items, download.table.shape[1], user.shape[1]
    most = np.minimum(history.lengths[ids] + negatives.lengths, m)  # rows a client can touch
    total = count * m if settings.whole else int(most.sum())
    indptr, rows = np.zeros(count + 1, np.int64), np.empty(total, np.int32)
    positive, negative = np.zeros(total, np.float32), np.zeros(total, np.float32)
    shrinks, losses, sizes = np.ones((count, 1), np.float32), np.zeros(count), np.zeros(count, np.int64)
    _fold(
        ids, history.indptr, history.items, history.counts, _NO_AGES if history.ages is None else history.ages,
        settings.half_life, settings.oldest, negatives.indptr, negatives.items, settings.whole, np.full(m, -1), indptr,
        rows, positive, negative, sizes,
    )  # fmt: skip
    sent, longest = int(indptr[-1]), int(np.diff(indptr).max(initial=1))
    values = np.empty((sent, width), np.float32) if settings.shared else np.zeros((longest, k), np.float32)
    _train(
        ids, indptr, rows, positive, negative, history.keys, seed, round_, download.table, user,
        user_bias if user_bias is not None else _NO_BIAS, store.start, store.scale, store.slot, store.used, store.pool,
        rate_user.astype(np.float32), settings, settings._replace(private=False), values,
        np.empty(int(sizes.max(initial=0)), np.int32), np.arange(longest), np.empty(m, np.int64),
        np.full(m, -1, np.int32), np.zeros(longest, np.int64), np.empty(longest, np.int64),
        np.empty((3, longest), np.float32), np.empty((longest if settings.private else 1, k), np.float32),
        np.empty(k, np.float32), np.ones(4), shrinks, losses, sizes,
    )  # fmt: skip
    if not settings.shared:
        indptr, rows, values = np.zeros(count + 1, np.int64), rows[:0], values[:0, :width]
    return Upload(indptr, rows[: indptr[-1]], values, shrinks), Report(losses, sizes, negatives)


@njit(nogil=True, cache=True, fastmath=FAST)
def _score(users, table, user, user_bias, start, scale, slot, used, pool, shared, private, item_bias, dots, out):  # type: ignore[no-untyped-def]
    m, k = table.shape[0], user.shape[1]
    for row in range(len(users)):
        i = users[row]
        bias = user_bias[i] if len(user_bias) else np.float32(0.0)
        kept = np.float32(scale[i]) if private else np.float32(1.0)
        if private:  # her rows as they stand in memory, which is much faster than in the items' order
            first = np.int64(i) * m
            for p in range(used[i]):
                y = np.float32(0.0)
                for d in range(k):
                    y += user[i, d] * pool[first + p, d]
                dots[p] = y
        for j in range(m):
            x = bias
            if shared:
                for d in range(k):
                    x += user[i, d] * table[j, d]
                if item_bias:
                    x += table[j, k]
            if private:
                y = np.float32(0.0)
                if slot[i, j] >= 0:
                    y = dots[slot[i, j]]
                else:
                    for d in range(k):
                        y += user[i, d] * start[j, d]
                x += kept * y
            out[row, j] = x


def score(
    users: np.ndarray,
    table: np.ndarray,
    user: np.ndarray,
    user_bias: np.ndarray | None,
    own: RowStore | None,
    shared: bool,
    item_bias: bool,
) -> np.ndarray:
    """float32[len(users), m]: each user's score of every item (before the logistic function, which keeps the order)."""
    store = own if own is not None else _NO_STORE
    out = np.empty((len(users), len(table)), np.float32)
    _score(
        users, table, user, user_bias if user_bias is not None else _NO_BIAS, store.start, store.scale, store.slot,
        store.used, store.pool, shared, own is not None, item_bias, np.empty(len(table), np.float32), out,
    )  # fmt: skip
    return out
