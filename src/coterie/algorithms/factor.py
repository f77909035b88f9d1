"""Local training of factor models: score = <u, C[j] + D[j]> + biases, logistic or squared loss.

FedMF (no D) and FedRAP (all of it) are settings of this one kernel. For one client and one batch it walks the distinct
items once: score, error, gradient and update of a row are one fused pass, since given u the rows are independent.
Repeated negatives are folded into a weight. The touched rows are gathered into a small buffer that stays in cache for
all local passes. `factor_reference.py` says the same in plain NumPy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms.interface import Download, History, Report, Upload
from coterie.algorithms.rowstore import RowStore
from coterie.ragged import Ragged

# Reassociation lets the compiler use vector instructions in sums; NaN keeps its meaning, so divergence is seen.
_FAST = {"reassoc", "contract", "arcp", "nsz"}

NO_PENALTY, L1, L2, SOFT_THRESHOLD = range(4)


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


@njit(nogil=True, cache=True, fastmath=_FAST)
def _gradient_step(n, C, D, u, bias, gu, positive, negative, size, rate_user, fade, s, track):  # type: ignore[no-untyped-def]
    """One simultaneous step on u, bias, C and D over the first n rows. Returns loss sum, penalty sum and new bias."""
    f = np.float32
    k = len(u)
    inverse = f(1.0) / f(size) if s.mean else f(1.0)
    per_row = f(1.0) / f(size * k) if s.mean else f(1.0)
    item, own = f(s.rate_item) * fade, f(s.rate_own) * fade
    decay_item, decay_own = f(s.decay_item), f(s.decay_own)
    apart, sparse = f(2.0) * f(s.apart) * per_row, f(s.sparse) * per_row
    if s.penalty == L2:
        sparse *= f(2.0)
    loss, penalty, g_bias = 0.0, 0.0, f(0.0)
    gu[:] = f(0.0)
    for t in range(n):
        weight = positive[t] + negative[t]
        if weight == f(0.0) and not s.whole:
            if s.everywhere:  # in the buffer for another batch: weight decay only
                for d in range(C.shape[1]):
                    C[t, d] -= item * decay_item * C[t, d]
                if s.private:
                    for d in range(k):
                        D[t, d] -= own * decay_own * D[t, d]
            continue
        x = bias
        if s.shared:
            for d in range(k):
                x += u[d] * C[t, d]
            if s.item_bias:
                x += C[t, k]
        if s.private:
            for d in range(k):
                x += u[d] * D[t, d]
        if s.squared:
            error = weight * x - positive[t]
        else:
            error = weight / (f(1.0) + np.exp(-x)) - positive[t]
        if track:
            if s.squared:
                loss += 0.5 * (positive[t] * (1.0 - x) ** 2 + negative[t] * x * x)
            else:
                loss += weight * np.log1p(np.exp(-abs(x))) + weight * max(x, f(0.0)) - positive[t] * x
        g = error * inverse
        g_bias += g
        pull = apart * (f(1.0) if s.whole else weight)
        shrink = sparse * (f(1.0) if s.whole else weight)
        if track and (s.apart != 0.0 or s.sparse != 0.0):
            for d in range(k):
                c = C[t, d] if s.shared else f(0.0)
                if s.private:
                    penalty -= 0.5 * pull * (D[t, d] - c) ** 2
                penalty += 0.5 * shrink * c * c if s.penalty == L2 else shrink * abs(c)
        if s.shared and s.private:
            if s.penalty == L1:
                for d in range(k):
                    c, o = C[t, d], D[t, d]
                    gu[d] += g * (c + o)
                    C[t, d] = c - item * (g * u[d] + pull * (o - c) + shrink * np.sign(c) + decay_item * c)
                    D[t, d] = o - own * (g * u[d] - pull * (o - c) + decay_own * o)
            else:
                ridge = shrink if s.penalty == L2 else f(0.0)
                for d in range(k):
                    c, o = C[t, d], D[t, d]
                    gu[d] += g * (c + o)
                    C[t, d] = c - item * (g * u[d] + pull * (o - c) + ridge * c + decay_item * c)
                    D[t, d] = o - own * (g * u[d] - pull * (o - c) + decay_own * o)
        elif s.private:
            for d in range(k):
                o = D[t, d]
                gu[d] += g * o
                D[t, d] = o - own * (g * u[d] - pull * o + decay_own * o)
        else:
            for d in range(k):
                c = C[t, d]
                gu[d] += g * c
                grip = shrink * np.sign(c) if s.penalty == L1 else (shrink * c if s.penalty == L2 else f(0.0))
                C[t, d] = c - item * (g * u[d] + grip + decay_item * c)
        if s.shared and s.item_bias:
            C[t, k] -= item * (g + decay_item * C[t, k])
        if s.shared and s.penalty == SOFT_THRESHOLD:
            theta = item * shrink
            for d in range(k):
                C[t, d] = np.sign(C[t, d]) * max(abs(C[t, d]) - theta, f(0.0))
    for d in range(k):
        u[d] -= rate_user * fade * (gu[d] + f(s.decay_user) * u[d])
    if s.user_bias:
        bias -= rate_user * fade * (g_bias + f(s.decay_user) * bias)
    return loss, penalty, bias


@njit(nogil=True, cache=True, fastmath=_FAST)
def _train(
    ids, indptr, items, counts, neg_indptr, neg_items, keys, seed, round_,
    table, user, user_bias, start, scale, slot, used, pool, rate_user, s,
):  # fmt: skip # type: ignore[no-untyped-def]
    """Train each client of a cohort. State arrays change in place; the touched rows' movement is returned."""
    f = np.float32
    m, width, k = table.shape[0], table.shape[1], user.shape[1]
    most_rows, most_all, total = 0, 0, 0
    for c in range(len(ids)):
        here = neg_indptr[c + 1] - neg_indptr[c]
        own_rows = indptr[ids[c] + 1] - indptr[ids[c]]
        rows_here = m if s.whole else min(m, own_rows + here)
        repeats = np.int64(0)
        for p in range(indptr[ids[c]], indptr[ids[c] + 1]):
            repeats += np.int64(counts[p])
        most_rows, most_all, total = max(most_rows, rows_here), max(most_all, repeats + here), total + rows_here
    C = np.empty((most_rows, width), np.float32)
    D = np.empty((most_rows if s.private else 1, k), np.float32)
    rows = np.empty(most_rows, np.int32)
    positive, negative = np.empty(most_rows, np.float32), np.empty(most_rows, np.float32)
    part_positive, part_negative = np.empty(most_rows, np.float32), np.empty(most_rows, np.float32)
    example, label = np.empty(most_all, np.int32), np.empty(most_all, np.bool_)
    position = np.full(m, -1, np.int32)
    u, gu = np.empty(k, np.float32), np.empty(k, np.float32)

    up_indptr = np.zeros(len(ids) + 1, np.int64)
    up_rows = np.empty(total if s.shared else 0, np.int32)
    up_values = np.empty((total if s.shared else 0, width), np.float32)
    shrinks = np.ones((len(ids), 1), np.float32)
    losses, sizes = np.zeros(len(ids)), np.zeros(len(ids), np.int64)

    for c in range(len(ids)):
        i = ids[c]
        n, size = 0, np.int64(0)
        for p in range(indptr[i], indptr[i + 1]):
            j = items[p]
            position[j], rows[n], positive[n], negative[n] = n, j, counts[p], f(0.0)
            for _ in range(np.int64(counts[p])):
                example[size], label[size] = n, True
                size += 1
            n += 1
        for p in range(neg_indptr[c], neg_indptr[c + 1]):
            j = neg_items[p]
            t = position[j]
            if t < 0:
                t = n
                position[j], rows[n], positive[n], negative[n] = n, j, f(0.0), f(0.0)
                n += 1
            negative[t] += f(1.0)
            example[size], label[size] = t, False
            size += 1
        if s.whole:
            for j in range(m):
                if position[j] < 0:
                    position[j], rows[n], positive[n], negative[n] = n, j, f(0.0), f(0.0)
                    n += 1
        old_scale = f(scale[i]) if s.private else f(1.0)
        for t in range(n):
            j = rows[t]
            position[j] = -1
            if s.shared:
                for d in range(width):
                    C[t, d] = table[j, d]
            if s.private:
                if slot[i, j] >= 0:
                    base = np.int64(i) * m + slot[i, j]
                    for d in range(k):
                        D[t, d] = old_scale * pool[base, d]
                else:
                    for d in range(k):
                        D[t, d] = old_scale * start[j, d]
        for d in range(k):
            u[d] = user[i, d]
        bias = user_bias[i] if s.user_bias else f(0.0)

        fade, shrink_item, shrink_own = f(1.0), 1.0, 1.0
        running, seen, before = 0.0, 0, 0.0
        state = rng.stream(seed, round_, keys[i], rng.SHUFFLE)
        several = size > s.batch
        for sweep in range(s.passes if size > 0 else 0):
            track = sweep == 0 or s.tolerance > 0.0
            if several:
                for e in range(size - 1, 0, -1):
                    state = rng.after(state)
                    other = rng.below(state, e + 1)
                    example[e], example[other] = example[other], example[e]
                    label[e], label[other] = label[other], label[e]
            for first in range(0, size, s.batch):
                last = min(first + s.batch, size)
                if several:
                    part_positive[:n] = f(0.0)
                    part_negative[:n] = f(0.0)
                    for e in range(first, last):
                        if label[e]:
                            part_positive[example[e]] += f(1.0)
                        else:
                            part_negative[example[e]] += f(1.0)
                    loss, penalty, bias = _gradient_step(
                        n, C, D, u, bias, gu, part_positive, part_negative, last - first, rate_user[c], fade, s, track
                    )
                else:
                    loss, penalty, bias = _gradient_step(
                        n, C, D, u, bias, gu, positive, negative, size, rate_user[c], fade, s, track
                    )
                if s.everywhere:
                    shrink_item *= 1.0 - s.rate_item * fade * s.decay_item
                    shrink_own *= 1.0 - s.rate_own * fade * s.decay_own
                fade *= f(s.step_decay)
                if sweep == 0:
                    losses[c] += loss
                running += loss + penalty * (last - first if s.mean else 1)
                seen += last - first
            if s.tolerance > 0.0:
                now = running / seen
                if sweep > 0 and abs(now - before) / abs(before) < s.tolerance:
                    break
                before = now
        losses[c] /= max(size, 1)
        sizes[c] = size

        for d in range(k):
            user[i, d] = u[d]
        if s.user_bias:
            user_bias[i] = bias
        if s.private:
            scale[i] *= shrink_own
            back = f(1.0) / f(scale[i])
            for t in range(n):
                j = rows[t]
                if slot[i, j] < 0:
                    slot[i, j] = used[i]
                    used[i] += 1
                base = np.int64(i) * m + slot[i, j]
                for d in range(k):
                    pool[base, d] = back * D[t, d]
        shrinks[c, 0] = shrink_item
        cursor = up_indptr[c]
        if s.shared:
            kept = f(shrink_item)
            for t in range(n):
                j = rows[t]
                up_rows[cursor] = j
                for d in range(width):
                    up_values[cursor, d] = C[t, d] - kept * table[j, d]
                cursor += 1
        up_indptr[c + 1] = cursor
    return up_indptr, up_rows[: up_indptr[-1]], up_values[: up_indptr[-1]], shrinks, losses, sizes


_NO_STORE = RowStore(
    np.empty((0, 1), np.float32),
    np.empty(0),
    np.empty((0, 0), np.int32),
    np.empty(0, np.int64),
    np.empty((0, 1), np.float32),
)
_NO_BIAS = np.empty(0, np.float32)


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
    indptr, rows, values, shrinks, loss, examples = _train(
        ids, history.indptr, history.items, history.counts, negatives.indptr, negatives.items, history.keys, seed,
        round_, download.table, user, user_bias if user_bias is not None else _NO_BIAS,
        store.start, store.scale, store.slot, store.used, store.pool, rate_user.astype(np.float32), settings,
    )  # fmt: skip
    return Upload(indptr, rows, values, shrinks), Report(loss, examples, negatives)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _score(users, table, user, user_bias, start, scale, slot, pool, shared, private, item_bias, out):  # type: ignore[no-untyped-def]
    m, k = table.shape[0], user.shape[1]
    for row in range(len(users)):
        i = users[row]
        bias = user_bias[i] if len(user_bias) else np.float32(0.0)
        kept = np.float32(scale[i]) if private else np.float32(1.0)
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
                    base = np.int64(i) * m + slot[i, j]
                    for d in range(k):
                        y += user[i, d] * pool[base, d]
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
        store.pool, shared, own is not None, item_bias, out,
    )  # fmt: skip
    return out
