"""The leak canary: could one tell the held-out item just from which items were drawn as negatives?

It watches the negatives that clients really drew and counts them on each watched user's sampled test candidates. If
held-out items are kept out of the negatives they stand out as the ones never drawn, and the canary sings.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from coterie.algorithms.interface import Report
from coterie.protocol.prepare import Prepared
from coterie.ragged import Ragged, from_pairs

_MOST_WATCHED = 2000  # users; enough for a standard error of a few tenths of a per cent


@njit(nogil=True, cache=True)
def _count(ids, drawn_indptr, drawn_items, place, indptr, items, counts, n_items):  # type: ignore[no-untyped-def]
    where = np.full(n_items, -1, np.int64)
    for c in range(len(ids)):
        u = place[ids[c]]
        if u < 0:
            continue
        for p in range(indptr[u], indptr[u + 1]):
            where[items[p]] = p
        for p in range(drawn_indptr[c], drawn_indptr[c + 1]):
            if where[drawn_items[p]] >= 0:
                counts[where[drawn_items[p]]] += 1
        for p in range(indptr[u], indptr[u + 1]):
            where[items[p]] = -1


class CanaryWatch:
    """Counts how often each candidate was drawn as a negative for its user. Clients may report from many threads."""

    def __init__(self, prepared: Prepared) -> None:
        users = prepared.users[prepared.test.lengths[prepared.users] > 0]
        if len(users) > _MOST_WATCHED:
            users = users[np.linspace(0, len(users) - 1, _MOST_WATCHED).astype(np.int64)]
        self.users = users
        held, others = (_take(lists, users) for lists in (prepared.test, prepared.test_candidates))
        owner = np.concatenate([np.repeat(np.arange(len(users)), lists.lengths) for lists in (held, others)])
        self.lists = from_pairs(owner, np.concatenate([held.items, others.items]), len(users))
        self.counts = np.zeros(len(self.lists.items), np.int64)
        self._held, self._others = held, others
        self._place = np.full(prepared.data.n_users, -1, np.int64)
        self._place[users] = np.arange(len(users))
        self._n_items = prepared.data.n_items

    def observe(self, ids: np.ndarray, report: Report) -> None:
        if report.negatives is not None:
            drawn = report.negatives
            _count(
                ids, drawn.indptr, drawn.items, self._place, self.lists.indptr, self.lists.items, self.counts,
                self._n_items,
            )  # fmt: skip

    def draws(self) -> tuple[np.ndarray, Ragged, np.ndarray]:
        """Draws of each user's held-out items (first one each), and of her candidates as lists of counts."""
        return self._look_up(_first(self._held)), self._others, self._look_up(self._others)

    def _look_up(self, lists: Ragged) -> np.ndarray:
        owner = np.repeat(np.arange(lists.users), lists.lengths)
        keys = np.repeat(np.arange(self.lists.users), self.lists.lengths) * self._n_items + self.lists.items
        return self.counts[np.searchsorted(keys, owner * self._n_items + lists.items)]


def _take(lists: Ragged, users: np.ndarray) -> Ragged:
    picked = [lists.of(u) for u in users]
    owner = np.repeat(np.arange(len(users)), [len(one) for one in picked])
    return from_pairs(owner, np.concatenate(picked), len(users))


def _first(lists: Ragged) -> Ragged:
    return Ragged(np.arange(lists.users + 1), lists.items[lists.indptr[:-1]])
