"""Local training of neural collaborative filtering: score = MLP([p; q_j]), logistic loss, optionally pulled to a table.

FedNCF and GPFedRec are settings of this one kernel. A client's loss is BCE + (pull / 2) sum (q - r)^2 over the whole
table, r being a table she was sent. Rows outside a batch only feel the pull, and rows she never touches feel nothing
else: they are r + (1 - rate x pull)^steps (q - r), written once at the end. Within a batch repeated items are folded
into a weight, and her vector enters the network once and not once for each example. `train_numpy` says the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms import mlp, tiles
from coterie.algorithms.factor_step import exp, log1p
from coterie.algorithms.interface import History, Report
from coterie.ragged import Ragged

_FAST = {"reassoc", "contract", "arcp", "nsz"}


class Local(NamedTuple):
    """One round's settings of the local training."""

    passes: int  # local passes over the client's batches
    batch: int  # most examples (repeats counted) in one gradient step
    mean: bool  # the logistic loss is a mean over the batch, not a sum
    rate_user: float
    rate_item: float
    rate_network: float
    decay_user: float
    decay_item: float  # of rows in the batch
    decay_network: float
    pull: float  # weight of (q - r)^2 / 2 for each number of the table


class Moved(NamedTuple):
    """The touched rows of each client, by how much they moved."""

    indptr: np.ndarray  # int64[c + 1]
    rows: np.ndarray  # int32[r]
    values: np.ndarray  # float32[r, k]


@njit(nogil=True, cache=True, forceinline=True)
def _whole_tiles(n):  # type: ignore[no-untyped-def]
    """n examples, rounded up to the network's tiles."""
    return (n + tiles.COLUMNS - 1) // tiles.COLUMNS * tiles.COLUMNS


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST, error_model="numpy")
def _step(rows, n, C, R, held, u, theta, sizes, acts, deltas, grad, grad_user, positive, negative, size, s):  # type: ignore[no-untyped-def]
    """One simultaneous step on u, theta and the buffer's rows; `rows` are the batch's n distinct ones of `held`."""
    f = np.float32
    k, last = len(u), acts.shape[0] - 1
    inverse = f(1.0) / f(size) if s.mean else f(1.0)
    whole = _whole_tiles(n)  # with examples of nothing at the end, whose errors are 0
    for a in range(n):
        for d in range(k):
            acts[d, a] = C[rows[a], d]
    acts[:k, n:whole] = f(0.0)
    mlp.forward(theta, sizes, u, acts, whole)
    z, wanted, weight = acts[last], np.empty(n, np.float32), np.empty(n, np.float32)
    for a in range(n):
        wanted[a], weight[a] = positive[rows[a]], positive[rows[a]] + negative[rows[a]]
    loss = f(0.0)
    for a in range(n):
        loss += weight[a] * (log1p(exp(-abs(z[a]))) + (z[a] if z[a] > f(0.0) else f(0.0))) - wanted[a] * z[a]
    for a in range(n):
        e = exp(-abs(z[a]))
        deltas[last, a] = (weight[a] * (e if z[a] < f(0.0) else f(1.0)) / (f(1.0) + e) - wanted[a]) * inverse
    deltas[last, n:whole] = f(0.0)
    mlp.backward(theta, sizes, u, acts, deltas, whole, grad, grad_user)
    rate, decay = f(s.rate_item), f(s.rate_item) * f(s.decay_item)
    if s.pull > 0.0:
        pull = rate * f(s.pull)
        for t in range(held):
            for d in range(k):
                C[t, d] += pull * (R[t, d] - C[t, d])
    for a in range(n):  # acts still holds the rows as they were
        t = rows[a]
        for d in range(k):
            C[t, d] -= rate * deltas[d, a] + decay * acts[d, a]
    for d in range(k):
        u[d] -= f(s.rate_user) * (grad_user[d] + f(s.decay_user) * u[d])
    for p in range(len(theta)):
        theta[p] -= f(s.rate_network) * (grad[p] + f(s.decay_network) * theta[p])
    return loss


@njit(nogil=True, cache=True, forceinline=True)
def _rows_of(out, table, rows, n):  # type: ignore[no-untyped-def]
    """out[t] = table[rows[t]] for t < n: row by row, which the compiler copies as vectors."""
    for t in range(n):
        to, given = out[t], table[rows[t]]
        for d in range(len(given)):
            to[d] = given[d]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _train(  # type: ignore[no-untyped-def]
    ids, indptr, items, counts, neg_indptr, neg_items, keys, seed, round_,
    table, towards, user, network, place, own, slot, sizes, s,
):  # fmt: skip # type: ignore[no-untyped-def]
    """Train each client. `user`, `network[place]` and, where it is there, `own[slot]` change in place."""
    f = np.float32
    m, k = table.shape
    most_rows, most_all, total = 0, 0, 0
    for c in range(len(ids)):
        drawn, mine = neg_indptr[c + 1] - neg_indptr[c], indptr[ids[c] + 1] - indptr[ids[c]]
        repeats = np.int64(0)
        for p in range(indptr[ids[c]], indptr[ids[c] + 1]):
            repeats += np.int64(counts[p])
        most_rows, most_all = max(most_rows, min(m, mine + drawn)), max(most_all, repeats + drawn)
        total += min(m, mine + drawn)
    keep_rows = own.shape[0] == 0
    C, R = np.empty((most_rows, k), np.float32), np.empty((most_rows, k), np.float32)
    rows, active = np.empty(most_rows, np.int32), np.empty(most_rows, np.int32)
    positive, negative = np.zeros(most_rows, np.float32), np.zeros(most_rows, np.float32)
    example, label = np.empty(most_all, np.int32), np.empty(most_all, np.bool_)
    position = np.full(m, -1, np.int32)
    wide = _whole_tiles(min(most_rows, s.batch)) + tiles.COLUMNS  # rows a power of two apart would share cache lines
    height = -k
    for layer in range(len(sizes)):
        height += sizes[layer]
    acts, deltas = np.empty((height, wide), np.float32), np.empty((height, wide), np.float32)
    grad, u, gu = np.empty(network.shape[1], np.float32), np.empty(k, np.float32), np.empty(k, np.float32)
    up_indptr = np.zeros(len(ids) + 1, np.int64)
    up_rows = np.empty(total if keep_rows else 0, np.int32)
    up_values = np.empty((total if keep_rows else 0, k), np.float32)
    losses, sizes_seen = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    pulled = s.pull > 0.0
    pull = f(s.rate_item) * f(s.pull)

    for c in range(len(ids)):
        i = ids[c]
        n, size = 0, np.int64(0)
        for p in range(indptr[i], indptr[i + 1]):
            position[items[p]], rows[n] = n, items[p]
            for _ in range(np.int64(counts[p])):
                example[size], label[size] = n, True
                size += 1
            n += 1
        for p in range(neg_indptr[c], neg_indptr[c + 1]):
            j = neg_items[p]
            if position[j] < 0:
                position[j], rows[n] = n, j
                n += 1
            example[size], label[size] = position[j], False
            size += 1
        if not keep_rows:  # the whole table first, in one loop: what she trains goes over it, and finds it in the cache
            steps = s.passes * ((size + s.batch - 1) // s.batch)
            left = (f(1.0) - pull) ** steps
            mine, first = own[slot[c]].reshape(-1), table.reshape(-1)
            if pulled:
                view = towards[c].reshape(-1)
                for p in range(len(mine)):
                    mine[p] = view[p] + left * (first[p] - view[p])
            else:
                for p in range(len(mine)):
                    mine[p] = first[p]
        _rows_of(C, table, rows, n)
        if pulled:
            _rows_of(R, towards[c], rows, n)
        for d in range(k):
            u[d] = user[i, d]
        theta = network[place[c]]
        state = rng.stream(seed, round_, keys[i], rng.SHUFFLE)
        for sweep in range(s.passes if size > 0 else 0):
            if size > s.batch:
                for e in range(size - 1, 0, -1):
                    state = rng.after(state)
                    other = rng.below(state, e + 1)
                    example[e], example[other] = example[other], example[e]
                    label[e], label[other] = label[other], label[e]
            for first in range(0, size, s.batch):
                last, distinct = min(first + s.batch, size), 0
                for e in range(first, last):
                    t = example[e]
                    if positive[t] + negative[t] == f(0.0):
                        active[distinct] = t
                        distinct += 1
                    if label[e]:
                        positive[t] += f(1.0)
                    else:
                        negative[t] += f(1.0)
                loss = _step(
                    active, distinct, C, R, n, u, theta, sizes, acts, deltas, grad, gu, positive, negative,
                    last - first, s,
                )  # fmt: skip
                for a in range(distinct):
                    positive[active[a]], negative[active[a]] = f(0.0), f(0.0)
                if sweep == 0:
                    losses[c] += loss
        losses[c] /= max(size, 1)
        sizes_seen[c] = size
        for d in range(k):
            user[i, d] = u[d]
        if keep_rows:
            cursor = up_indptr[c]
            for t in range(n):
                up_rows[cursor] = rows[t]
                for d in range(k):
                    up_values[cursor, d] = C[t, d] - table[rows[t], d]
                cursor += 1
            up_indptr[c + 1] = cursor
        else:
            whole = own[slot[c]]
            for t in range(n):
                to, given = whole[rows[t]], C[t]
                for d in range(k):
                    to[d] = given[d]
        for t in range(n):
            position[rows[t]] = -1
    return up_indptr, up_rows[: up_indptr[-1]], up_values[: up_indptr[-1]], losses, sizes_seen


_NO_TABLES = np.empty((0, 0, 0), np.float32)


def train(
    ids: np.ndarray,
    history: History,
    negatives: Ragged,
    table: np.ndarray,
    towards: np.ndarray | None,
    user: np.ndarray,
    network: np.ndarray,
    place: np.ndarray,
    own: np.ndarray | None,
    slot: np.ndarray,
    sizes: np.ndarray,
    settings: Local,
    round_: int,
    seed: int,
) -> tuple[Moved, Report]:
    """Train clients `ids` in place from `table`; client c's network is network[place[c]].

    With `own` (float32[..., m, k]) each whole table is written to own[slot[c]] and `Moved` stays empty.
    """
    *moved, loss, examples = _train(
        ids, history.indptr, history.items, history.counts, negatives.indptr, negatives.items, history.keys, seed,
        round_, table, _NO_TABLES if towards is None else towards, user, network, place,
        _NO_TABLES if own is None else own, slot, sizes, settings,
    )  # fmt: skip
    return Moved(*moved), Report(loss, examples, negatives)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _score(users, tables, which, user, network, place, sizes, out):  # type: ignore[no-untyped-def]
    m, k = tables.shape[1], tables.shape[2]
    height = -k
    for layer in range(len(sizes)):
        height += sizes[layer]
    acts = np.zeros((height, 256 + tiles.COLUMNS), np.float32)
    for row in range(len(users)):
        for first in range(0, m, 256):
            n = min(256, m - first)
            for a in range(n):
                for d in range(k):
                    acts[d, a] = tables[which[row], first + a, d]
            mlp.forward(network[place[row]], sizes, user[users[row]], acts, _whole_tiles(n))
            for a in range(n):
                out[row, first + a] = acts[height - 1, a]


def score(
    users: np.ndarray,
    tables: np.ndarray,
    which: np.ndarray,
    user: np.ndarray,
    network: np.ndarray,
    place: np.ndarray,
    sizes: np.ndarray,
) -> np.ndarray:
    """float32[len(users), m]: scores before the logistic function, from tables[which] and network[place]."""
    out = np.empty((len(users), tables.shape[1]), np.float32)
    _score(users, tables, which, user, network, place, sizes, out)
    return out


def train_numpy(
    batches: list[tuple[np.ndarray, np.ndarray]],
    table: np.ndarray,
    towards: np.ndarray,
    user: np.ndarray,
    theta: np.ndarray,
    sizes: tuple[int, ...],
    s: Local,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The reference: one client's steps over `batches` of (items, labels). Returns new table, vector and network."""
    q, u, theta = table.copy(), user.copy(), theta.copy()
    for items, labels in batches:
        values = mlp.forward_numpy(theta, sizes, np.hstack([np.tile(u, (len(items), 1)), q[items]]))
        error = (1 / (1 + np.exp(-values[-1][:, 0])) - labels) / (len(items) if s.mean else 1)
        grad, into = mlp.backward_numpy(theta, sizes, values, error[:, None])
        slope = s.pull * (q - towards)
        np.add.at(slope, items, into[:, len(u) :])
        slope[np.unique(items)] += s.decay_item * q[np.unique(items)]
        q = q - s.rate_item * slope
        u = u - s.rate_user * (into[:, : len(u)].sum(0) + s.decay_user * u)
        theta = theta - s.rate_network * (grad + s.decay_network * theta)
    return q, u, theta
