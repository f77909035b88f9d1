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
from coterie.sharing import sharing_of


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
    read = data.notes.get("rows")
    counts = {"rows": len(data), "quarantined": int(read["quarantined"]) if isinstance(read, dict) else 0}
    data, rows = _filter(data, protocol, counts)
    if protocol.merge_repeats:
        rows = _merge(rows, data.n_items)
    counts["merged"] = counts["rows"] - counts["below_threshold"] - counts["in_dropped_users"] - len(rows.user)
    keys = rng.user_keys(data.user_ids)
    part = _split(rows, protocol, keys, seed)
    train, validation, test = (_Rows(*(field[part == code] for field in rows)) for code in range(3))

    everything = _distinct(rows, data.n_users)
    held = np.flatnonzero(np.bincount(np.r_[validation.user, test.user], minlength=data.n_users))
    for what, some in (("validation", validation), ("test", test)):
        if not len(some.user):
            raise CoterieError(
                f"no user of {data.name} has {protocol.min_interactions} interactions (and training items before the "
                f"cut, where there is one), so nothing can be held out for the {what}; lower --min-interactions or "
                "bring more data"
            )
    history = _history(train, data, keys, everything if protocol.negatives_avoid == "everything" else None)
    if data.times is not None or protocol.item_order_is_time:
        first = protocol.first_of_ties_is_last
        history = history._replace(ages=ages(history, train.user, train.item, train.time, first))
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
        "set_aside": int((part == 3).sum()),
        "test_with_later_training": _later_training(train, test, data.n_items) if data.times is not None else 0,
    }
    own = Ragged(history.indptr, history.items)
    of_each = [from_pairs(one.user, one.item, data.n_users) for one in (validation, test)]
    return Prepared(data, history, own, of_each[0], of_each[1], of_validation, of_test, held, counts)


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
        data.choices,
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


def _split(rows: _Rows, protocol: Protocol, keys: np.ndarray, seed: int) -> np.ndarray:
    """int8[rows]: 0 train, 1 validation, 2 test."""
    n_users = len(keys)
    lengths = np.bincount(rows.user, minlength=n_users)
    enough = lengths >= max(protocol.min_interactions, 3)
    if protocol.split == "global-time":
        return _global_cut(rows, protocol, enough)
    time, file_order = rows.time, np.arange(len(rows.time))
    if protocol.split in ("ratio", "k-fold"):  # a random order of each history takes the place of time
        time = np.argsort(np.argsort(_draws(rows.user, keys, seed), kind="stable"), kind="stable")
    order = np.lexsort((-file_order if protocol.first_of_ties_is_last else file_order, time, rows.user))
    from_end = np.empty(len(order), np.int64)
    from_end[order] = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(order))  # 1 is the latest
    part = np.zeros(len(order), np.int8)
    if protocol.split == "k-fold":
        fold = from_end % protocol.folds
        part[fold == (protocol.fold + 1) % protocol.folds] = 1
        part[fold == protocol.fold] = 2
    else:
        n_test = n_validation = np.ones(n_users, np.int64)
        if protocol.split != "leave-one-out":
            n_test = np.maximum(1, (lengths * protocol.test_share + 1e-9).astype(np.int64))
            n_validation = np.maximum(1, ((lengths - n_test) * protocol.validation_share + 1e-9).astype(np.int64))
        part[from_end <= (n_test + n_validation)[rows.user]] = 1
        part[from_end <= n_test[rows.user]] = 2
    part[~enough[rows.user]] = 0
    return part


def _global_cut(rows: _Rows, protocol: Protocol, enough: np.ndarray) -> np.ndarray:
    """One cut in time for everybody: nothing trains on what came after a held-out interaction."""
    if not rows.time.any():
        raise CoterieError("--split global-time needs times, and this data has none; use --split ratio or k-fold")
    test_from = np.quantile(rows.time, 1 - protocol.test_share, method="higher")
    before = rows.time[rows.time < test_from]
    validation_from = np.quantile(before, 1 - protocol.validation_share, method="higher") if len(before) else test_from
    part = np.zeros(len(rows.time), np.int8)
    part[rows.time >= validation_from] = 1
    part[rows.time >= test_from] = 2
    # Somebody without training items before the cut is nobody a model could know: her later rows are set aside.
    known = np.zeros(len(enough), bool)
    known[rows.user[part == 0]] = True
    part[~(known & enough)[rows.user] & (part > 0)] = 3
    return part


def _draws(user: np.ndarray, keys: np.ndarray, seed: int) -> np.ndarray:
    """float64[rows]: a number for each row, a function of the seed, its user's key and its place in her history."""
    starts = np.flatnonzero(np.r_[True, user[1:] != user[:-1]])
    out = np.empty(len(user))
    for first, last in zip(starts, np.r_[starts[1:], len(user)], strict=True):
        out[first:last] = _stream(seed, keys[user[first]], last - first)
    return out


@njit(nogil=True, cache=True)
def _stream(seed, key, count):  # type: ignore[no-untyped-def]
    out = np.empty(count)
    state = rng.stream(seed, 0, key, rng.SPLIT)
    for n in range(count):
        state = rng.after(state)
        out[n] = rng.uniform(state)
    return out


def _later_training(train: _Rows, test: _Rows, n_items: int) -> int:
    """How many test rows have training rows of the same item that came after them: what leave-one-out cannot avoid."""
    latest = np.full(n_items, np.iinfo(np.int64).min)
    np.maximum.at(latest, train.item, train.time)
    return int((latest[test.item] > test.time).sum())


def _distinct(rows: _Rows, n_users: int) -> Ragged:
    everything = from_pairs(rows.user, rows.item, n_users)
    owner = np.repeat(np.arange(n_users), everything.lengths)
    fresh = np.ones(len(owner), bool)
    fresh[1:] = (owner[1:] != owner[:-1]) | (everything.items[1:] != everything.items[:-1])
    return from_pairs(owner[fresh], everything.items[fresh], n_users)


def _history(train: _Rows, data: Interactions, keys: np.ndarray, avoid: Ragged | None) -> History:
    pair = train.user * data.n_items + train.item
    distinct, which, counts = np.unique(pair, return_inverse=True, return_counts=True)
    ratings = np.zeros(len(distinct), np.float32)
    np.add.at(ratings, which, train.rating)
    own = from_pairs(distinct // data.n_items, distinct % data.n_items, data.n_users)
    return History(
        own.indptr, own.items, counts.astype(np.float32), ratings, own if avoid is None else avoid, keys, data.n_items,
        sharing_of(data, own),
    )  # fmt: skip


def ages(
    history: History, user: np.ndarray, item: np.ndarray, time: np.ndarray, first_of_ties_is_last: bool = False
) -> np.ndarray:
    """int32[nnz]: how many of her distinct training items she came to later than to this one, for the last time."""
    file_order = np.arange(len(time))
    order = np.lexsort((-file_order if first_of_ties_is_last else file_order, time, user))
    owner = np.repeat(np.arange(history.n_clients), history.lengths)
    latest = np.empty(len(history.items), np.int64)  # the place of an item's last row; later ones overwrite
    places = np.searchsorted(owner * history.n_items + history.items, user * history.n_items + item)
    latest[places[order]] = np.arange(len(order))
    found = np.empty(len(latest), np.int32)
    found[np.lexsort((latest, owner))] = np.repeat(history.indptr[1:], history.lengths) - 1 - np.arange(len(latest))
    return found


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
    wanted = each if protocol.one_candidate_set else 2 * each
    drawn = _sample(everything.indptr, everything.items, keys, n_items, wanted, seed)
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
