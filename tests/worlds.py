"""Worlds in which the right answer is known."""

from __future__ import annotations

import numpy as np

from coterie.algorithms.interface import History
from coterie.data.interactions import Interactions
from coterie.ragged import Ragged, from_pairs, ragged
from coterie.rng import user_keys


def interactions(
    lists: list[list[int]], times: list[list[int]] | None = None, n_items: int | None = None
) -> Interactions:
    """Histories as written down, in time order unless times are given."""
    together = ragged(lists)
    count = n_items or int(together.items.max()) + 1
    when = np.concatenate([np.arange(len(one)) if times is None else times[u] for u, one in enumerate(lists)])
    return Interactions(
        "world", together.indptr, together.items, np.ones(len(together.items), np.float32), when.astype(np.int64),
        [f"u{u}" for u in range(len(lists))], [f"i{i}" for i in range(count)],
    )  # fmt: skip


def history(own: Ragged, n_items: int) -> History:
    """What devices know, under the clean protocol."""
    ones = np.ones(len(own.items), np.float32)
    return History(own.indptr, own.items, ones, ones, own, user_keys([f"u{u}" for u in range(own.users)]), n_items)


def random_history(n_users: int, n_items: int, longest: int, seed: int) -> History:
    draw = np.random.default_rng(seed)
    lists = [np.sort(draw.choice(n_items, draw.integers(1, longest + 1), replace=False)) for _ in range(n_users)]
    return history(ragged(lists), n_items)


def checkerboard(n_users: int = 60, n_items: int = 24, share: float = 0.6, seed: int = 0) -> tuple[History, np.ndarray]:
    """Even people like even items, odd people odd ones; each has seen a part of hers. Also who likes what."""
    draw = np.random.default_rng(seed)
    likes = (np.arange(n_users)[:, None] + np.arange(n_items)) % 2 == 0
    seen = likes & (draw.random(likes.shape) < share)
    user, item = np.nonzero(seen)
    return history(from_pairs(user, item, n_users), n_items), likes
