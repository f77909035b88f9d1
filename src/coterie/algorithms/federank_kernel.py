"""BPR on the device, for FedeRank: triples, gradients, and which of them are sent.

`_draw` and `_learn` are one exchange of one person. `steps` runs them for a cohort against the same download; `walk`
runs them for a whole epoch of cohorts of one, adding each upload to the table before the next person gets it:
sequential by nature, so it has to be one call. `federank_reference.py` in the tests says the same in plain NumPy.

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
AHEAD = 1 << 15  # triples of a walk that are drawn before the first of them is learnt from
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
    user: np.ndarray  # float32[1, dim]: the user vector as it moves
    step: np.ndarray  # float32[dim]: the user's summed gradient
    diff: np.ndarray  # float32[dim]: q_i - q_j of one triple
    liked: np.ndarray  # int32[ahead]: what was drawn for triples to come: the item consumed
    others: np.ndarray  # int32[ahead * hardest]: the unseen ones
    sent: np.ndarray  # bool[ahead]: does the consumed item's update leave the device?


def buffers(n_items: int, most_triples: int, width: int, hardest: int, ahead: int = 1) -> Buffers:
    slots, ahead = 2 * max(most_triples, 1), max(most_triples, ahead)
    f = np.float32
    return Buffers(
        np.full((2, n_items), -1, np.int32), np.empty(slots, np.int32), np.empty(slots, np.int8), np.empty(slots, f),
        np.empty(slots, f), np.empty((slots, width), f), np.empty((1, width - 1), f), np.empty(width - 1, f),
        np.empty(width - 1, f), np.empty(ahead, np.int32), np.empty(ahead * hardest, np.int32),
        np.empty(ahead, np.bool_),
    )  # fmt: skip


@njit(nogil=True, cache=True, forceinline=True)
def _holds(items, first, last, item):  # type: ignore[no-untyped-def]
    """Is `item` in the ascending items[first:last]? Halving without a branch: a processor guesses these wrong."""
    left = last - first
    while left > 1:
        half = left >> 1
        first += half if items[first + half] <= item else 0
        left -= half
    return left == 1 and items[first] == item


@njit(nogil=True, cache=True, forceinline=True)
def chosen(stream, number, pi):  # type: ignore[no-untyped-def]
    """The coin of one item (or triple), a function of the stream and its number alone: heads with probability pi."""
    return rng.uniform(stream + _GOLDEN * np.uint64(number + 1)) < pi


# Inlined, and with their arrays as plain arguments: handing over tuples of two dozen arrays for each client would cost
# more than a triple does.
@njit(nogil=True, cache=True, forceinline=True, inline="always")
def _draw(  # type: ignore[no-untyped-def]
    i, exchange, seed, indptr, items, avoid_indptr, avoid, never_indptr, never, pi_of, triples, keys, m, s,
    liked, others, sent, at,
):  # fmt: skip
    """Chance's part of client i's exchange: for triple `at` + t an item of hers, unseen ones, and is the first sent?"""
    fixed, hardest, pi = s.fixed, s.hardest, pi_of[i]
    first, last, avoid_first, avoid_last = indptr[i], indptr[i + 1], avoid_indptr[i], avoid_indptr[i + 1]
    never_first, never_last = never_indptr[i], never_indptr[i + 1]
    keeps = never_first < never_last
    state = rng.stream(seed, exchange, keys[i], rng.NEGATIVES)
    coins = keys[i]
    if pi < 1.0:  # the coins of somebody who shares everything need no drawing
        coins = rng.stream(seed, 0 if fixed else exchange, keys[i], rng.SHARING)
    for t in range(triples[i]):
        state = rng.after(state)
        own = np.int64(items[first + rng.below(state, last - first)])
        for draw in range(hardest):
            state = rng.after(state)
            item = rng.below(state, m)
            while _holds(avoid, avoid_first, avoid_last, item):
                # Never-share items, and hidden ones of a fixed subset, are drawn like any unseen item.
                if keeps and _holds(never, never_first, never_last, item):
                    break
                if fixed and _holds(items, first, last, item) and not chosen(coins, item, pi):
                    break
                state = rng.after(state)
                item = rng.below(state, m)
            others[(at + t) * hardest + draw] = item
        liked[at + t] = own
        goes = pi >= 1.0 or chosen(coins, m + t if s.mask_each and not fixed else own, pi)
        sent[at + t] = goes and not (keeps and _holds(never, never_first, never_last, own))


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST, inline="always")
def _learn(  # type: ignore[no-untyped-def]
    i, triples, rates, table, user, s, liked_items, others, sent, at,
    place, rows, roles, pull, count, values, now, step, diff, drawn, cursor,
):  # fmt: skip
    """The model's part: her vector moves, `rows` and `values` are what she sends. Returns (rows, loss)."""
    f = np.float32
    k, moves_each = user.shape[1], s.moves_each
    reg, reg_negative, lr = f(s.reg), f(s.reg_negative), rates[i]
    n, loss = 0, 0.0
    for d in range(k):
        now[0, d] = user[i, d]
        step[d] = f(0.0)
    for t in range(at, at + triples[i]):
        liked, other = np.int64(liked_items[t]), _hardest(table, now, 0, others, t, s.hardest)
        drawn[cursor + t - at] = other
        x = table[liked, k] - table[other, k]
        for d in range(k):  # stores apart from sums: docs/decisions/sums.md
            diff[d] = table[liked, d] - table[other, d]
        for d in range(k):
            x += now[0, d] * diff[d]
        e = np.exp(-abs(x))
        g = (e if x > f(0.0) else f(1.0)) / (f(1.0) + e)  # 1 - sigma(x)
        loss += np.log1p(e) + max(-x, f(0.0))
        for role in range(2 if sent[t] else 1):
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
                    values[slot, d] += g * now[0, d]
        if moves_each:
            for d in range(k):
                now[0, d] += lr * (g * diff[d] - reg * now[0, d])
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
                values[t, d] = weight * now[0, d] - decay * table[j, d]
        values[t, k] = sign * pull[t]
    shrink = lr * reg * f(triples[i])
    for d in range(k):
        user[i, d] = now[0, d] if moves_each else now[0, d] + lr * step[d] - shrink * now[0, d]
    return n, loss


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST, inline="always")
def _hardest(table, now, i, others, at, hardest):  # type: ignore[no-untyped-def]
    """Of the unseen items drawn for triple `at` the one she would rank highest."""
    other, k = np.int64(others[at * hardest]), now.shape[1]
    if hardest > 1:
        top = np.float32(-np.inf)
        for draw in range(hardest):
            item = np.int64(others[at * hardest + draw])
            x = table[item, k]
            for d in range(k):
                x += now[i, d] * table[item, d]
            if draw == 0 or not x <= top:  # also where a diverged model gives NaN
                other, top = item, x
    return other


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST, inline="always")
def _single(table, squares, user, i, rate, lr_server, s, liked, other, sent):  # type: ignore[no-untyped-def]
    """`_learn` and the server's step where an exchange is one triple: nothing to add up, so nothing is put aside."""
    f = np.float32
    k, adagrad, reg, reg_negative = user.shape[1], len(squares) > 0, f(s.reg), f(s.reg_negative)
    x = table[liked, k] - table[other, k]
    for d in range(k):
        x += user[i, d] * (table[liked, d] - table[other, d])
    e = np.exp(-abs(x))
    g = (e if x > f(0.0) else f(1.0)) / (f(1.0) + e)  # 1 - sigma(x)
    for d in range(k):
        p, high, low = user[i, d], table[liked, d], table[other, d]
        user[i, d] = p + rate * (g * (high - low) - reg * p)
        up, down = g * p - reg * high, -g * p - reg_negative * low
        if adagrad:
            squares[other, d] += down**2
            down /= np.sqrt(squares[other, d])
        table[other, d] = low + lr_server * down
        if sent:  # never with liked == other: an item that may be drawn as unseen is not sent as consumed
            if adagrad:
                squares[liked, d] += up**2
                up /= np.sqrt(squares[liked, d])
            table[liked, d] = high + lr_server * up
    for role in range(2 if sent else 1):
        j, up = (liked, g) if role else (other, -g)
        if adagrad:
            squares[j, k] += up**2
            up /= np.sqrt(squares[j, k])
        table[j, k] += lr_server * up
    return np.log1p(e) + max(-x, f(0.0))


@njit(nogil=True, cache=True, fastmath=_FAST)
def steps(ids, exchange, seed, p, table, user, s, b):  # type: ignore[no-untyped-def]
    """One exchange of a cohort, everybody from the same table. Rows go in ascending order, which tells nothing."""
    own_indptr, own, avoid_indptr, avoid, never_indptr, never, pi, triples, rates, keys = p
    place, slot_rows, roles, pull, count, slot_values, now, step, diff, liked, others, sent = b
    neg_indptr = np.zeros(len(ids) + 1, np.int64)
    for c in range(len(ids)):
        neg_indptr[c + 1] = neg_indptr[c] + triples[ids[c]]
    drawn = np.empty(neg_indptr[-1], np.int32)
    indptr = np.zeros(len(ids) + 1, np.int64)
    rows = np.empty(2 * neg_indptr[-1], np.int32)
    values = np.empty((2 * neg_indptr[-1], table.shape[1]), np.float32)
    losses, sizes = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    for c in range(len(ids)):
        i = ids[c]
        _draw(
            i, exchange, seed, own_indptr, own, avoid_indptr, avoid, never_indptr, never, pi, triples, keys,
            np.int64(table.shape[0]), s, liked, others, sent, 0,
        )  # fmt: skip
        n, loss = _learn(
            i, triples, rates, table, user, s, liked, others, sent, 0,
            place, slot_rows, roles, pull, count, slot_values, now, step, diff, drawn, neg_indptr[c],
        )  # fmt: skip
        sizes[c] = triples[i]
        losses[c] = loss / max(sizes[c], 1)
        order = np.argsort(slot_rows[:n])
        for t in range(n):
            rows[indptr[c] + t] = slot_rows[order[t]]
            values[indptr[c] + t] = slot_values[order[t]]
        indptr[c + 1] = indptr[c] + n
    return indptr, rows[: indptr[-1]].copy(), values[: indptr[-1]].copy(), losses, sizes, neg_indptr, drawn


@njit(nogil=True, cache=True, fastmath=_FAST)
def walk(visits, exchange, seed, p, table, squares, user, s, b, neg_indptr):  # type: ignore[no-untyped-def]
    """Exchange after exchange with one client each; table and squares move in place. Negatives come by client.

    What chance decides is drawn for a stretch of visits ahead: none of it waits for the model. With T = 1 going to and
    fro between people's histories and the model took more time than both.
    """
    own_indptr, own, avoid_indptr, avoid, never_indptr, never, pi, triples, rates, keys = p
    place, rows, roles, pull, count, values, now, step, diff, liked, others, sent = b
    lr = np.float32(s.lr_server)
    m, width, adagrad = table.shape[0], table.shape[1], len(squares) > 0
    cursor = neg_indptr[:-1].copy()
    drawn = np.empty(neg_indptr[-1], np.int32)
    losses, touched, bytes_up = np.zeros(len(cursor)), np.zeros(m, np.int64), 0
    begin, end = 0, 0
    while begin < len(visits):
        at = 0
        while end < len(visits) and at + triples[visits[end]] <= len(liked):
            _draw(
                visits[end], exchange + end, seed, own_indptr, own, avoid_indptr, avoid, never_indptr, never, pi,
                triples, keys, np.int64(m), s, liked, others, sent, at,
            )  # fmt: skip
            at += triples[visits[end]]
            end += 1
        at = 0
        for v in range(begin, end):
            i = visits[v]
            if triples[i] == 1:
                one, other = np.int64(liked[at]), _hardest(table, user, i, others, at, s.hardest)
                losses[i] += _single(table, squares, user, i, rates[i], lr, s, one, other, sent[at])
                drawn[cursor[i]] = other
                touched[other] += 1
                touched[one] += 1 if sent[at] else 0
                bytes_up += min((2 if sent[at] else 1) * (4 + 4 * width), m * 4 * width)
                at += 1
                cursor[i] += 1
                continue
            n, loss = _learn(
                i, triples, rates, table, user, s, liked, others, sent, at,
                place, rows, roles, pull, count, values, now, step, diff, drawn, cursor[i],
            )  # fmt: skip
            at += triples[i]
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
        begin = end
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
