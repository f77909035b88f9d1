"""BPR on the device, for FedeRank: triples, gradients, and which of them are sent.

`_client` is one exchange of one person. `steps` runs it for a cohort against the same download; `walk` runs it for a
whole epoch of cohorts of one, adding each upload to the table before the next person gets it: sequential by nature, so
it has to be one call. `federank_reference.py` in the tests says the same in plain NumPy.

Given the downloaded rows, all gradients of one item are multiples of the user vector (which moves only once): the
kernel adds up one number for each touched row and forms the vectors at the end. Where the user vector moves with each
triple the vectors themselves are added up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from coterie import rng
from coterie.ragged import Ragged, ragged

# Reassociation lets the compiler use vector instructions in sums; NaN keeps its meaning, so divergence is seen.
_FAST = {"reassoc", "contract", "arcp", "nsz"}
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Settings(NamedTuple):
    lr_server: float
    reg: float  # of the user and of consumed items
    reg_negative: float
    moves_each: bool  # the user vector moves after each triple, not once
    mask_each: bool  # sharing is decided for each triple, not for each item
    hardest: int  # negatives drawn for a triple, of which the one ranked highest is taken
    fixed: bool  # the shared items are chosen once for all rounds, and the hidden ones count as unseen


class People(NamedTuple):
    """What the devices know, flat: own items, items not to be drawn, items never to be shared, pi, triples, key."""

    indptr: np.ndarray  # int64[n + 1]
    items: np.ndarray  # int32: ascending for each client
    avoid_indptr: np.ndarray  # int64[n + 1]
    avoid_items: np.ndarray  # int32: ascending for each client
    never_indptr: np.ndarray  # int64[n + 1]
    never_items: np.ndarray  # int32: ascending for each client
    pi: np.ndarray  # float64[n]
    triples: np.ndarray  # int64[n]: T
    rate: np.ndarray  # float32[n]: step size of her vector
    keys: np.ndarray  # uint64[n]


class Buffers(NamedTuple):
    """Room for one exchange; nothing in here is kept from one client to the next."""

    place: np.ndarray  # int32[2, m]: slot of an item drawn as negative (0) or consumed (1); -1 between clients
    rows: np.ndarray  # int32[slots]
    role: np.ndarray  # int8[slots]
    pull: np.ndarray  # float32[slots]: sum of 1 - sigma over the row's triples
    count: np.ndarray  # float32[slots]: how many triples
    values: np.ndarray  # float32[slots, dim + 1]: what is sent
    user: np.ndarray  # float32[dim]: the user vector as the round began
    step: np.ndarray  # float32[dim]: the user's summed gradient


def buffers(n_items: int, most_triples: int, width: int) -> Buffers:
    slots = 2 * max(most_triples, 1)
    f = np.float32
    return Buffers(
        np.full((2, n_items), -1, np.int32), np.empty(slots, np.int32), np.empty(slots, np.int8), np.empty(slots, f),
        np.empty(slots, f), np.empty((slots, width), f), np.empty(width - 1, f), np.empty(width - 1, f),
    )  # fmt: skip


@njit(nogil=True, cache=True)
def _holds(items, first, last, item):  # type: ignore[no-untyped-def]
    """Is `item` in the ascending items[first:last]?"""
    while first < last:
        middle = (first + last) >> 1
        if items[middle] < item:
            first = middle + 1
        elif items[middle] > item:
            last = middle
        else:
            return True
    return False


@njit(nogil=True, cache=True)
def chosen(stream, number, pi):  # type: ignore[no-untyped-def]
    """The coin of one item (or triple), a function of the stream and its number alone: heads with probability pi."""
    return rng.uniform(stream + _GOLDEN * np.uint64(number + 1)) < pi


@njit(nogil=True, cache=True)
def _unseen(p, i, item, coins, s):  # type: ignore[no-untyped-def]
    """May `item` be drawn as a negative? Never-share items, and hidden ones of a fixed subset, look like any other."""
    if not _holds(p.avoid_items, p.avoid_indptr[i], p.avoid_indptr[i + 1], item):
        return True
    if _holds(p.never_items, p.never_indptr[i], p.never_indptr[i + 1], item):
        return True
    return s.fixed and _holds(p.items, p.indptr[i], p.indptr[i + 1], item) and not chosen(coins, item, p.pi[i])


@njit(nogil=True, cache=True, fastmath=_FAST)
def _negative(p, i, state, coins, table, now, s):  # type: ignore[no-untyped-def]
    """An unseen item: a uniform draw, or the one she would rank highest of several draws."""
    k, best, top = len(now), np.int64(0), np.float32(-np.inf)
    for _ in range(s.hardest):
        state = rng.after(state)
        item = rng.below(state, len(table))
        while not _unseen(p, i, item, coins, s):
            state = rng.after(state)
            item = rng.below(state, len(table))
        if s.hardest == 1:
            return item, state
        x = table[item, k]
        for d in range(k):
            x += now[d] * table[item, d]
        if not x <= top:  # also where a diverged model gives NaN
            best, top = item, x
    return best, state


@njit(nogil=True, cache=True)
def _slot(b, n, role, item):  # type: ignore[no-untyped-def]
    """The slot of an item in this exchange, and how many slots there are now."""
    t = b.place[role, item]
    if t < 0:
        t = np.int32(n)
        b.place[role, item], b.rows[t], b.role[t], b.pull[t], b.count[t] = t, item, role, 0.0, 0.0
        n += 1
    return t, n


@njit(nogil=True, cache=True, fastmath=_FAST)
def _client(i, exchange, seed, p, table, user, s, b, drawn, cursor):  # type: ignore[no-untyped-def]
    """One exchange of client i: her vector moves, rows and values of `b` are what she sends. Returns (rows, loss)."""
    f = np.float32
    m, k = table.shape[0], user.shape[1]
    lr, reg, reg_negative = p.rate[i], f(s.reg), f(s.reg_negative)
    first, own = p.indptr[i], p.indptr[i + 1] - p.indptr[i]
    state = rng.stream(seed, exchange, p.keys[i], rng.NEGATIVES)
    coins = rng.stream(seed, 0 if s.fixed else exchange, p.keys[i], rng.SHARING)
    now, step, n, loss = b.user, b.step, 0, 0.0
    for d in range(k):
        now[d], step[d] = user[i, d], f(0.0)
    for t in range(p.triples[i]):
        state = rng.after(state)
        liked = p.items[first + rng.below(state, own)]
        other, state = _negative(p, i, state, coins, table, now, s)
        drawn[cursor + t] = other
        x = table[liked, k] - table[other, k]
        for d in range(k):
            x += now[d] * (table[liked, d] - table[other, d])
        g = f(1.0) / (f(1.0) + np.exp(x))
        loss += np.log1p(np.exp(-abs(x))) + max(-x, f(0.0))
        sent = chosen(coins, m + t if s.mask_each and not s.fixed else liked, p.pi[i]) and not _holds(
            p.never_items, p.never_indptr[i], p.never_indptr[i + 1], liked
        )
        for role in range(2 if sent else 1):
            before = n
            slot, n = _slot(b, n, role, liked if role else other)
            b.pull[slot] += g
            b.count[slot] += f(1.0)
            if s.moves_each:
                if n > before:
                    b.values[slot, :k] = f(0.0)
                for d in range(k):
                    b.values[slot, d] += g * now[d]
        if s.moves_each:
            for d in range(k):
                now[d] += lr * (g * (table[liked, d] - table[other, d]) - reg * now[d])
        else:
            for d in range(k):
                step[d] += g * (table[liked, d] - table[other, d])
    for t in range(n):
        j, sign, decay = b.rows[t], f(1.0) if b.role[t] else f(-1.0), reg if b.role[t] else reg_negative
        b.place[b.role[t], j] = -1
        if s.moves_each:
            for d in range(k):
                b.values[t, d] = sign * b.values[t, d] - decay * b.count[t] * table[j, d]
        else:
            for d in range(k):
                b.values[t, d] = sign * b.pull[t] * now[d] - decay * b.count[t] * table[j, d]
        b.values[t, k] = sign * b.pull[t]
    shrink = lr * reg * f(p.triples[i])
    for d in range(k):
        user[i, d] = now[d] if s.moves_each else now[d] + lr * step[d] - shrink * now[d]
    return n, loss


@njit(nogil=True, cache=True)
def steps(ids, exchange, seed, p, table, user, s, b):  # type: ignore[no-untyped-def]
    """One exchange of a cohort, everybody from the same table. Rows go in ascending order, which tells nothing."""
    neg_indptr = np.zeros(len(ids) + 1, np.int64)
    for c in range(len(ids)):
        neg_indptr[c + 1] = neg_indptr[c] + p.triples[ids[c]]
    drawn = np.empty(neg_indptr[-1], np.int32)
    indptr = np.zeros(len(ids) + 1, np.int64)
    rows = np.empty(2 * neg_indptr[-1], np.int32)
    values = np.empty((2 * neg_indptr[-1], table.shape[1]), np.float32)
    losses, sizes = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    for c in range(len(ids)):
        n, loss = _client(ids[c], exchange, seed, p, table, user, s, b, drawn, neg_indptr[c])
        sizes[c] = p.triples[ids[c]]
        losses[c] = loss / max(sizes[c], 1)
        order = np.argsort(b.rows[:n])
        for t in range(n):
            rows[indptr[c] + t] = b.rows[order[t]]
            values[indptr[c] + t] = b.values[order[t]]
        indptr[c + 1] = indptr[c] + n
    return indptr, rows[: indptr[-1]].copy(), values[: indptr[-1]].copy(), losses, sizes, neg_indptr, drawn


@njit(nogil=True, cache=True, fastmath=_FAST)
def walk(visits, exchange, seed, p, table, squares, user, s, b, neg_indptr):  # type: ignore[no-untyped-def]
    """Exchange after exchange with one client each; table and squares move in place. Negatives come by client."""
    f = np.float32
    m, width, lr = table.shape[0], table.shape[1], f(s.lr_server)
    cursor = neg_indptr[:-1].copy()
    drawn = np.empty(neg_indptr[-1], np.int32)
    losses, touched, bytes_up = np.zeros(len(cursor)), np.zeros(m, np.int64), 0
    for v in range(len(visits)):
        i = visits[v]
        n, loss = _client(i, exchange + v, seed, p, table, user, s, b, drawn, cursor[i])
        cursor[i] += p.triples[i]
        losses[i] += loss
        bytes_up += min(n * (4 + 4 * width), m * 4 * width)
        for t in range(n):
            j = b.rows[t]
            touched[j] += 1
            if len(squares):
                for d in range(width):
                    squares[j, d] += b.values[t, d] ** 2
                    table[j, d] += lr * b.values[t, d] / np.sqrt(squares[j, d])
            else:
                for d in range(width):
                    table[j, d] += lr * b.values[t, d]
    return drawn, losses, touched, bytes_up


@njit(nogil=True, cache=True)
def in_turn(ids, wanted, seed, round_):  # type: ignore[no-untyped-def]
    """`wanted` visits: everybody in random order, then everybody again in another."""
    out = np.empty(wanted, np.int64)
    order = ids.copy()
    state = rng.stream(seed, round_, 0, rng.COHORT)
    for v in range(wanted):
        at = v % len(order)
        state = rng.after(state)
        other = at + rng.below(state, len(order) - at)
        order[at], order[other] = order[other], order[at]
        out[v] = order[at]
    return out


@njit(nogil=True, cache=True)
def by_positives(indptr, wanted, seed, round_):  # type: ignore[no-untyped-def]
    """`wanted` visits, each to the owner of a positive drawn uniformly: with T = 1 the bootstrap of BPR."""
    owner = np.empty(indptr[-1], np.int32)
    for i in range(len(indptr) - 1):
        owner[indptr[i] : indptr[i + 1]] = i
    out = np.empty(wanted, np.int64)
    state = rng.stream(seed, round_, 0, rng.COHORT)
    for v in range(wanted):
        state = rng.after(state)
        out[v] = owner[rng.below(state, len(owner))]
    return out


def cohorts(visits: np.ndarray, size: int) -> Ragged:
    """Visits cut into cohorts of `size`; who was drawn twice for one takes part once."""
    return ragged([np.unique(visits[first : first + size]) for first in range(0, len(visits), size)])
