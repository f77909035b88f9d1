"""Two sets of interactions as one: what a run was made with, and what has come since."""

from __future__ import annotations

import numpy as np

from coterie.data.interactions import Interactions


def joined(old: Interactions, new: Interactions) -> Interactions:
    """Old rows first, so old users and items keep their numbers; a row that stands in both is taken once."""
    user_ids, item_ids = list(old.user_ids), list(old.item_ids)
    users, items = dict(old.user_number), dict(old.item_number)
    for one in new.user_ids:
        if one not in users:
            users[one] = len(user_ids)
            user_ids.append(one)
    for one in new.item_ids:
        if one not in items:
            items[one] = len(item_ids)
            item_ids.append(one)
    user = np.concatenate(
        [
            np.repeat(np.arange(old.n_users), np.diff(old.indptr)),
            np.repeat([users[one] for one in new.user_ids], np.diff(new.indptr)),
        ]
    )
    item = np.concatenate([old.items, np.array([items[one] for one in new.item_ids], np.int32)[new.items]])
    rating = np.concatenate([old.ratings, new.ratings])
    times = None if old.times is None or new.times is None else np.concatenate([old.times, new.times])
    key = np.stack([user, item, np.zeros(len(user), np.int64) if times is None else times], axis=1)
    in_old = {tuple(row) for row in key[: len(old)].tolist()}
    fresh = np.array([tuple(row) not in in_old for row in key[len(old) :].tolist()], bool)
    keep = np.concatenate([np.ones(len(old), bool), fresh])
    order = np.flatnonzero(keep)[np.argsort(user[keep], kind="stable")]
    indptr = np.zeros(len(user_ids) + 1, np.int64)
    np.cumsum(np.bincount(user[order], minlength=len(user_ids)), out=indptr[1:])
    titles = None
    if old.titles is not None or new.titles is not None:
        named = {one: new.title(i) for i, one in enumerate(new.item_ids)}
        named |= {one: old.title(i) for i, one in enumerate(old.item_ids) if old.title(i) != one}
        titles = [named.get(one, one) for one in item_ids]
    return Interactions(
        old.name,
        indptr,
        item[order].astype(np.int32),
        rating[order],
        None if times is None else times[order],
        user_ids,
        item_ids,
        titles,
        dict(old.notes),
        old.choices,
    )
