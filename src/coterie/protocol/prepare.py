"""Interactions -> what devices train on, and, apart from it, what they are tested on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms.interface import History
from coterie.data.interactions import Interactions
from coterie.errors import CoterieError
from coterie.protocol.rules import Protocol
from coterie.ragged import Ragged, from_pairs


class Prepared(NamedTuple):
    """`history` is all that an algorithm ever sees; the rest is for evaluation and the canary."""

    data: Interactions  # after filters, in whose numbers all below speaks
    history: History
    train: Ragged
    validation: Ragged
    test: Ragged
    validation_candidates: Ragged  # sampled, the held-out items not among them
    test_candidates: Ragged
    users: np.ndarray  # int64: users with held-out items
    counts: dict[str, int]  # what was read, kept, merged, dropped; printed and recorded


class _Rows(NamedTuple):
    """Interactions as flat rows in file order within each user."""

    user: np.ndarray  # int64[rows]
    item: np.ndarray  # int32[rows]
    rating: np.ndarray  # float32[rows]
    time: np.ndarray  # int64[rows]


def prepare(data: Interactions, protocol: Protocol, seed: int) -> Prepared:
    """Filter, merge, split, and draw the sampled candidates, as the protocol says."""
    counts = {"rows": len(data)}
    data, rows = _filter(data, protocol, counts)
    if protocol.merge_repeats:
        rows = _merge(rows, data.n_items)
    counts["merged"] = counts["rows"] - counts["below_threshold"] - counts["in_dropped_users"] - len(rows.user)
    part = _split(rows, protocol, data.n_users)
    train, validation, test = (_Rows(*(field[part == code] for field in rows)) for code in range(3))

    everything = _distinct(rows, data.n_users)
    held = np.flatnonzero(np.bincount(test.user, minlength=data.n_users))
    if not len(held):
        raise CoterieError(
            f"no user of {data.name} has {protocol.min_interactions} interactions, so nothing can be held out for the "
            "test; lower --min-interactions or bring more data"
        )
    history = _history(train, data, everything if protocol.negatives_avoid == "everything" else None)
    of_validation, of_test, short = _candidates(everything, history.keys, data.n_items, protocol, seed)
    counts |= {
        "users": data.n_users,
        "items": data.n_items,
        "interactions": len(rows.user),
        "train": len(train.user),
        "validation": len(validation.user),
        "test": len(test.user),
        "users_tested": len(held),
        "users_training_only": data.n_users - len(held),
        "users_with_few_candidates": int(short[held].sum()),
    }
    lists = (from_pairs(one.user, one.item, data.n_users) for one in (validation, test))
    own = Ragged(history.indptr, history.items)
    return Prepared(data, history, own, *lists, of_validation, of_test, held, counts)


def _filter(data: Interactions, protocol: Protocol, counts: dict[str, int]) -> tuple[Interactions, _Rows]:
    user = np.repeat(np.arange(data.n_users), np.diff(data.indptr))
    keep = np.ones(len(data), bool)
    if protocol.rating_threshold is not None:
        keep &= data.ratings >= protocol.rating_threshold
    counts["below_threshold"] = int((~keep).sum())
    if protocol.drop_short:
        keep &= (np.bincount(user[keep], minlength=data.n_users) >= protocol.min_interactions)[user]
    counts["in_dropped_users"] = int((~keep).sum()) - counts["below_threshold"]
    if not keep.all():
        data, user = _subset(data, user, keep)
    if data.times is not None:
        time = data.times
    elif protocol.item_order_is_time:
        time = data.items.astype(np.int64)
    else:
        time = np.zeros(len(data), np.int64)  # file order within each user stands in for time
    return data, _Rows(user, data.items, data.ratings, time)


def _subset(data: Interactions, user: np.ndarray, keep: np.ndarray) -> tuple[Interactions, np.ndarray]:
    """The kept rows with users and items numbered anew, in the old order."""
    users, user = np.unique(user[keep], return_inverse=True)
    items, item = np.unique(data.items[keep], return_inverse=True)
    indptr = np.zeros(len(users) + 1, np.int64)
    np.cumsum(np.bincount(user, minlength=len(users)), out=indptr[1:])
    smaller = Interactions(
        data.name,
        indptr,
        item.astype(np.int32),
        data.ratings[keep],
        None if data.times is None else data.times[keep],
        [data.user_ids[u] for u in users],
        [data.item_ids[i] for i in items],
        None if data.titles is None else [data.titles[i] for i in items],
        data.notes,
    )
    return smaller, user


def _merge(rows: _Rows, n_items: int) -> _Rows:
    """Repeated pairs become one row: the last by time (then by file), its ratings added up."""
    order = np.lexsort((rows.time, rows.user))  # stable: file order among equal times
    pair = rows.user[order] * n_items + rows.item[order]
    _, back, which = np.unique(pair[::-1], return_index=True, return_inverse=True)
    if len(back) == len(pair):
        return rows
    last = len(pair) - 1 - back
    total = np.bincount(which, weights=rows.rating[order][::-1])
    ratings = rows.rating.copy()
    ratings[order[last]] = total
    kept = np.sort(order[last])
    return _Rows(rows.user[kept], rows.item[kept], ratings[kept], rows.time[kept])


def _split(rows: _Rows, protocol: Protocol, n_users: int) -> np.ndarray:
    """int8[rows]: 0 train, 1 validation, 2 test."""
    order = np.lexsort((rows.time, rows.user))
    if protocol.first_of_ties_is_last:
        order = np.lexsort((-np.arange(len(rows.time)), rows.time, rows.user))
    lengths = np.bincount(rows.user, minlength=n_users)
    from_end = np.empty(len(order), np.int64)
    ends = np.cumsum(lengths)
    from_end[order] = np.repeat(ends, lengths) - np.arange(len(order))  # 1 is the latest
    if protocol.split == "leave-one-out":
        n_test = np.ones(n_users, np.int64)
        n_validation = np.ones(n_users, np.int64)
    else:
        n_test = np.maximum(1, lengths // 5)
        n_validation = np.maximum(1, (lengths - n_test) // 5)
    enough = lengths >= max(protocol.min_interactions, 3)
    n_test, n_validation = n_test * enough, n_validation * enough
    part = np.zeros(len(order), np.int8)
    part[from_end <= (n_test + n_validation)[rows.user]] = 1
    part[from_end <= n_test[rows.user]] = 2
    return part


def _distinct(rows: _Rows, n_users: int) -> Ragged:
    everything = from_pairs(rows.user, rows.item, n_users)
    owner = np.repeat(np.arange(n_users), everything.lengths)
    fresh = np.ones(len(owner), bool)
    fresh[1:] = (owner[1:] != owner[:-1]) | (everything.items[1:] != everything.items[:-1])
    return from_pairs(owner[fresh], everything.items[fresh], n_users)


def _history(train: _Rows, data: Interactions, avoid: Ragged | None) -> History:
    pair = train.user * data.n_items + train.item
    distinct, which, counts = np.unique(pair, return_inverse=True, return_counts=True)
    ratings = np.zeros(len(distinct), np.float32)
    np.add.at(ratings, which, train.rating)
    own = from_pairs(distinct // data.n_items, distinct % data.n_items, data.n_users)
    keys = rng.user_keys(data.user_ids)
    return History(
        own.indptr, own.items, counts.astype(np.float32), ratings, own if avoid is None else avoid, keys, data.n_items
    )


@njit(nogil=True, cache=True)
def _sample(indptr, items, keys, n_items, wanted, seed):  # type: ignore[no-untyped-def]
    """Up to `wanted` distinct items outside each list, in the order drawn; -1 where there are no more."""
    out = np.full((len(indptr) - 1, wanted), -1, np.int32)
    taken = np.full(n_items, -1, np.int64)
    for u in range(len(indptr) - 1):
        for p in range(indptr[u], indptr[u + 1]):
            taken[items[p]] = u
        left = min(wanted, n_items - (indptr[u + 1] - indptr[u]))
        state = rng.stream(seed, 0, keys[u], rng.CANDIDATES)
        got = 0
        while got < left:
            state = rng.after(state)
            item = rng.below(state, n_items)
            if taken[item] != u:
                taken[item] = u
                out[u, got] = item
                got += 1
    return out


def _candidates(
    everything: Ragged, keys: np.ndarray, n_items: int, protocol: Protocol, seed: int
) -> tuple[Ragged, Ragged, np.ndarray]:
    """Sampled candidates for validation and test (two disjoint sets, or one), and who got fewer than asked."""
    each = protocol.candidates
    drawn = _sample(everything.indptr, everything.items, keys, n_items, each if protocol.one_candidate_set else 2 * each, seed)
    if protocol.one_candidate_set:
        first = second = drawn
    else:
        got = (drawn >= 0).sum(1, keepdims=True)
        half = np.minimum(each, got // 2)  # where there are too few for both, each takes half
        column = np.arange(2 * each)
        second = np.where(column < half, drawn, -1)
        first = np.where((column >= half) & (column < 2 * half), drawn, -1)
    short = (second >= 0).sum(1) < each
    return _rows_to_ragged(first), _rows_to_ragged(second), short


def _rows_to_ragged(rows: np.ndarray) -> Ragged:
    user, column = np.nonzero(rows >= 0)
    return from_pairs(user, rows[user, column], len(rows))
