"""Keep some users of a data set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.data.interactions import Interactions
from coterie.data.rows import renumbered, repeated_pairs
from coterie.errors import CoterieError


def filter_users(data: Interactions, *, at_least: int) -> Interactions:
    """Users with at least so many rows; users and items are renumbered by first appearance among what is left.

    Where users' rows were mixed in the file, which of two items came first is known only as far as `data.items` tells:
    items then keep their order.
    """
    lengths = np.diff(data.indptr)
    kept = lengths >= at_least
    if kept.all():
        return data
    if not kept.any():
        raise CoterieError(
            f"{data.name}: no user has {at_least} or more interactions (the longest history has {lengths.max()}); "
            f"ask for fewer."
        )
    rows = np.repeat(kept, lengths)
    items = data.items[rows]
    if _grouped(data):
        fresh, item_ids = renumbered(items, data.item_ids)
    else:
        left = np.unique(items)
        fresh, item_ids = np.searchsorted(left, items).astype(np.int32), [data.item_ids[old] for old in left.tolist()]
    indptr = np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int64)
    title = None if data.titles is None else dict(zip(data.item_ids, data.titles, strict=True))
    filtered = {
        "at_least": at_least,
        "before": {"users": data.n_users, "items": data.n_items, "interactions": len(data)},
        "after": {"users": int(kept.sum()), "items": len(item_ids), "interactions": len(items)},
    }
    return replace(
        data,
        indptr=indptr,
        items=fresh,
        ratings=data.ratings[rows],
        times=None if data.times is None else data.times[rows],
        user_ids=[data.user_ids[user] for user in np.flatnonzero(kept).tolist()],
        item_ids=item_ids,
        titles=None if title is None else [title[item] for item in item_ids],
        notes={**data.notes, "filter": filtered, "repeated_pairs": repeated_pairs(indptr, fresh, len(item_ids))},
    )


def _grouped(data: Interactions) -> bool:
    """Do items appear in the order of their numbers when read user by user, as in a file sorted by user?"""
    _, first = np.unique(data.items, return_index=True)
    return bool((np.diff(first) > 0).all())
