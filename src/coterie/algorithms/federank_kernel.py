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
_AHEAD = 8  # visits
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
    count: np.ndarray  # type: ignore[assignment]  # float32[slots]: how many triples
    values: np.ndarray  # float32[slots, dim + 1]: what is sent
    user: np.ndarray  # float32[dim]: the user vector as the round began
    step: np.ndarray  # float32[dim]: the user's summed gradient
    diff: np.ndarray  # float32[dim]: q_i - q_j of one triple


def buffers(n_items: int, most_triples: int, width: int) -> Buffers:
    slots = 2 * max(most_triples, 1)
    f = np.float32
    return Buffers(
        np.full((2, n_items), -1, np.int32), np.empty(slots, np.int32), np.empty(slots, np.int8), np.empty(slots, f),
        np.empty(slots, f), np.empty((slots, width), f), np.empty(width - 1, f), np.empty(width - 1, f),
        np.empty(width - 1, f),
    )  # fmt: skip


@njit(nogil=True, cache=True)
def _holds(items, first, last, item):  # type: ignore[no-untyped-def]
    """Is `item` in the ascending items[first:last]? Halving without a branch: a processor guesses these wrong."""
    left = last - first
    while left > 1:
        half = left >> 1
        first += half if items[first + half] <= item else 0
        left -= half
    return left == 1 and items[first] == item


@njit(nogil=True, cache=True)
def chosen(stream, number, pi):  # type: ignore[no-untyped-def]
    """The coin of one item (or triple), a function of the stream and its number alone: heads with probability pi."""
    return rng.uniform(stream + _GOLDEN * np.uint64(number + 1)) < pi


@njit(nogil=True, cache=True, inline="always")
def _unseen(item, coins, pi, fixed, items, first, last, avoid, avoid_first, avoid_last, never, never_first, never_last):  # type: ignore[no-untyped-def]
    """May `item` be drawn as a negative? Never-share items, and hidden ones of a fixed subset, look like any other."""
    return (
        not _holds(avoid, avoid_first, avoid_last, item)
        or _holds(never, never_first, never_last, item)
        or (fixed and _holds(items, first, last, item) and not chosen(coins, item, pi))
    )


# Inlined, and with its arrays as plain arguments: handing over tuples of two dozen arrays for each client would cost
# more than a triple does.
@njit(nogil=True, cache=True, fastmath=_FAST, inline="always")
def _client(  # type: ignore[no-untyped-def]
    i, exchange, seed, indptr, items, avoid_indptr, avoid, never_indptr, never, pi_of, triples, rates, keys,
    table, user, s,
    place, rows, roles, pull, count, values, now, step, diff, drawn, cursor,
):  # fmt: skip
    """One exchange of client i: her vector moves, `rows` and `values` are what she sends. Returns (rows, loss)."""
    f = np.float32
    m, k = np.int64(table.shape[0]), user.shape[1]
    fixed, mask_each, moves_each, hardest = s.fixed, s.mask_each, s.moves_each, s.hardest
    reg, reg_negative = f(s.reg), f(s.reg_negative)
    lr, pi, own = rates[i], pi_of[i], indptr[i + 1] - indptr[i]
    first, last, avoid_first, avoid_last = indptr[i], indptr[i + 1], avoid_indptr[i], avoid_indptr[i + 1]
    never_first, never_last = never_indptr[i], never_indptr[i + 1]
    state = rng.stream(seed, exchange, keys[i], rng.NEGATIVES)
    coins = keys[i]
    if pi < 1.0:  # the coins of somebody who shares everything need no drawing
        coins = rng.stream(seed, 0 if fixed else exchange, keys[i], rng.SHARING)
    n, loss = 0, 0.0
    for d in range(k):
        now[d] = user[i, d]
        step[d] = f(0.0)
    for t in range(triples[i]):
        state = rng.after(state)
        liked = np.int64(items[first + rng.below(state, own)])
        other, top = np.int64(0), f(-np.inf)
        for draw in range(hardest):
            state = rng.after(state)
            item = rng.below(state, m)
            while not _unseen(
                item,
                coins,
                pi,
                fixed,
                items,
                first,
                last,
                avoid,
                avoid_first,
                avoid_last,
                never,
                never_first,
                never_last,
            ):
                state = rng.after(state)
                item = rng.below(state, m)
            if hardest > 1:  # the one she would rank highest
                x = table[item, k]
                for d in range(k):
                    x += now[d] * table[item, d]
                if draw == 0 or not x <= top:  # also where a diverged model gives NaN
                    other, top = item, x
            else:
                other = item
        drawn[cursor + t] = other
        x = table[liked, k] - table[other, k]
        for d in range(k):  # stores apart from sums: docs/decisions/sums.md
            diff[d] = table[liked, d] - table[other, d]
        for d in range(k):
            x += now[d] * diff[d]
        e = np.exp(-abs(x))
        g = (e if x > f(0.0) else f(1.0)) / (f(1.0) + e)  # 1 - sigma(x)
        loss += np.log1p(e) + max(-x, f(0.0))
        sent = pi >= 1.0 or chosen(coins, m + t if mask_each and not fixed else liked, pi)
        sent = sent and not _holds(never, never_first, never_last, liked)
        for role in range(2 if sent else 1):
            j = liked if role else other
            slot = place[role, j]
            if slot < 0:
                slot = np.int32(n)
                place[role, j], rows[n], roles[n], pull[n], count[n] = n, j, role, f(0.0), f(0.0)
                if moves_each:
                    values[n] = f(0.0)
                n += 1
            pull[slot] += g
            count[slot] += f(1.0)
            if moves_each:
                for d in range(k):
                    values[slot, d] += g * now[d]
        if moves_each:
            for d in range(k):
                now[d] += lr * (g * diff[d] - reg * now[d])
        else:
            for d in range(k):
                step[d] += g * diff[d]
    for t in range(n):
        j, sign, decay = np.int64(rows[t]), f(-1.0), reg_negative * count[t]
        if roles[t]:
            sign, decay = f(1.0), reg * count[t]
        place[roles[t], j] = -1
        if moves_each:
            for d in range(k):
                values[t, d] = sign * values[t, d] - decay * table[j, d]
        else:
            weight = sign * pull[t]
            for d in range(k):
                values[t, d] = weight * now[d] - decay * table[j, d]
        values[t, k] = sign * pull[t]
    shrink = lr * reg * f(triples[i])
    for d in range(k):
        user[i, d] = now[d] if moves_each else now[d] + lr * step[d] - shrink * now[d]
    return n, loss


@njit(nogil=True, cache=True, fastmath=_FAST)
def steps(ids, exchange, seed, p, table, user, s, b):  # type: ignore[no-untyped-def]
    """One exchange of a cohort, everybody from the same table. Rows go in ascending order, which tells nothing."""
    own_indptr, own, avoid_indptr, avoid, never_indptr, never, pi, triples, rates, keys = p
    place, slot_rows, roles, pull, count, slot_values, now, step, diff = b
    neg_indptr = np.zeros(len(ids) + 1, np.int64)
    for c in range(len(ids)):
        neg_indptr[c + 1] = neg_indptr[c] + triples[ids[c]]
    drawn = np.empty(neg_indptr[-1], np.int32)
    indptr = np.zeros(len(ids) + 1, np.int64)
    rows = np.empty(2 * neg_indptr[-1], np.int32)
    values = np.empty((2 * neg_indptr[-1], table.shape[1]), np.float32)
    losses, sizes = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    for c in range(len(ids)):
        n, loss = _client(
            ids[c], exchange, seed, own_indptr, own, avoid_indptr, avoid, never_indptr, never, pi, triples, rates, keys,
            table, user, s,
            place, slot_rows, roles, pull, count, slot_values, now, step, diff, drawn, neg_indptr[c],
        )  # fmt: skip
        sizes[c] = triples[ids[c]]
        losses[c] = loss / max(sizes[c], 1)
        order = np.argsort(slot_rows[:n])
        for t in range(n):
            rows[indptr[c] + t] = slot_rows[order[t]]
            values[indptr[c] + t] = slot_values[order[t]]
        indptr[c + 1] = indptr[c] + n
    return indptr, rows[: indptr[-1]].copy(), values[: indptr[-1]].copy(), losses, sizes, neg_indptr, drawn


@njit(nogil=True, cache=True, fastmath=_FAST)
def walk(visits, exchange, seed, p, table, squares, user, s, b, neg_indptr):  # type: ignore[no-untyped-def]
    """Exchange after exchange with one client each; table and squares move in place. Negatives come by client."""
    own_indptr, own, avoid_indptr, avoid, never_indptr, never, pi, triples, rates, keys = p
    place, rows, roles, pull, count, values, now, step, diff = b
    lr = np.float32(s.lr_server)
    m, width, adagrad = table.shape[0], table.shape[1], len(squares) > 0
    cursor = neg_indptr[:-1].copy()
    drawn = np.empty(neg_indptr[-1], np.int32)
    losses, touched, bytes_up = np.zeros(len(cursor)), np.zeros(m, np.int64), 0
    warm = np.float32(0.0)  # sum of what was only touched: returned, so that the compiler keeps the touching
    for v in range(len(visits)):
        i = visits[v]
        if v + _AHEAD < len(visits):  # with T = 1 waiting for memory would take most of the time: ask for it early
            soon = visits[v + _AHEAD]
            near = visits[v + _AHEAD // 2]
            warm += user[soon, 0] + user[soon, user.shape[1] - 1] + np.float32(own_indptr[soon] + avoid_indptr[soon])
            warm += rates[soon] + np.float32(pi[soon] + triples[soon] + cursor[soon])
            warm += np.float32(avoid[(avoid_indptr[near] + avoid_indptr[near + 1]) >> 1])
            warm += np.float32(own[own_indptr[near]])
        n, loss = _client(
            i, exchange + v, seed, own_indptr, own, avoid_indptr, avoid, never_indptr, never, pi, triples, rates, keys,
            table, user, s,
            place, rows, roles, pull, count, values, now, step, diff, drawn, cursor[i],
        )  # fmt: skip
        cursor[i] += triples[i]
        losses[i] += loss
        bytes_up += min(n * (4 + 4 * width), m * 4 * width)
        for t in range(n):
            j = np.int64(rows[t])
            touched[j] += 1
            if adagrad:
                for d in range(width):
                    squares[j, d] += values[t, d] ** 2
                    table[j, d] += lr * values[t, d] / np.sqrt(squares[j, d])
            else:
                for d in range(width):
                    table[j, d] += lr * values[t, d]
    return drawn, losses, touched, bytes_up, warm


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
