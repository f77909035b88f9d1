"""Lists of different lengths, one for each user, in two flat arrays (CSR without values)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Ragged(NamedTuple):
    """User u's list is `items[indptr[u]:indptr[u + 1]]`."""

    indptr: np.ndarray  # int64[users + 1]
    items: np.ndarray  # int32[total]

    def of(self, user: int) -> np.ndarray:
        return self.items[self.indptr[user] : self.indptr[user + 1]]

    @property
    def users(self) -> int:
        return len(self.indptr) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.indptr)


def ragged(lists: list[np.ndarray] | list[list[int]]) -> Ragged:
    """Lists, one for each user, as one `Ragged`."""
    indptr = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(one) for one in lists], out=indptr[1:])
    items = np.concatenate([np.asarray(one, np.int32) for one in lists]) if len(lists) else np.empty(0, np.int32)
    return Ragged(indptr, items.astype(np.int32))


def from_pairs(users: np.ndarray, items: np.ndarray, n_users: int) -> Ragged:
    """(user, item) pairs as lists, each sorted by item number."""
    order = np.lexsort((items, users))
    indptr = np.zeros(n_users + 1, np.int64)
    np.cumsum(np.bincount(users, minlength=n_users), out=indptr[1:])
    return Ragged(indptr, items[order].astype(np.int32))
