"""Rows in file order, numbered as they come; then grouped by user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.errors import CoterieError

if TYPE_CHECKING:
    import polars as pl

AT_ONCE = 2_000_000  # rows looked at together when counting repeated pairs


@dataclass
class Rows:
    """Every row of a file, in its order; users and items numbered by first appearance."""

    users: np.ndarray  # int32[rows]
    items: np.ndarray  # int32[rows]
    ratings: np.ndarray  # float32[rows]
    times: np.ndarray | None  # int64[rows]
    user_ids: list[str]
    item_ids: list[str]

    def __len__(self) -> int:
        return len(self.users)


class Vocabulary:
    """Text to numbers, by first appearance."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def encode(self, column: pl.Series) -> np.ndarray:
        import polars as pl

        distinct = column.unique(maintain_order=True)
        numbers = self.numbers
        known = [numbers.setdefault(text, len(numbers)) for text in distinct.to_list()]
        if len(numbers) >= 1 << 31:
            raise CoterieError("more than 2,147,483,647 different ids; Coterie counts them in 32 bits.")
        mapped = column.replace_strict(distinct, pl.Series(known, dtype=pl.Int32), return_dtype=pl.Int32)
        return mapped.to_numpy()


class RowBuilder:
    """Collects blocks of rows; memory stays near the size of the finished arrays."""

    def __init__(self) -> None:
        self.user_numbers, self.item_numbers = Vocabulary(), Vocabulary()
        self.users: list[np.ndarray] = []
        self.items: list[np.ndarray] = []
        self.ratings: list[np.ndarray] = []
        self.times: list[np.ndarray] = []
        self.count = 0

    def add(self, users: pl.Series, items: pl.Series, ratings: np.ndarray | None, times: np.ndarray | None) -> None:
        rows = len(users)
        self.count += rows
        self.users.append(self.user_numbers.encode(users))
        self.items.append(self.item_numbers.encode(items))
        self.ratings.append(np.ones(rows, np.float32) if ratings is None else ratings)
        if times is not None:
            self.times.append(times)

    def finish(self) -> Rows:
        timed = bool(self.times)
        user_ids, item_ids = list(self.user_numbers.numbers), list(self.item_numbers.numbers)
        return Rows(
            _joined(self.users, np.int32),
            _joined(self.items, np.int32),
            _joined(self.ratings, np.float32),
            _joined(self.times, np.int64) if timed else None,
            user_ids,
            item_ids,
        )


def _joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    """The parts as one array; each part is let go once it is copied."""
    whole: np.ndarray = np.empty(sum(map(len, parts)), dtype)
    at = len(whole)
    while parts:
        part = parts.pop()
        whole[at - len(part) : at] = part
        at -= len(part)
    return whole


def group_by_user(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """(indptr, items, ratings, times) with each user's rows together, in file order. Takes the arrays out of `rows`."""
    indptr = np.zeros(len(rows.user_ids) + 1, np.int64)
    np.cumsum(np.bincount(rows.users, minlength=len(rows.user_ids)), out=indptr[1:])
    in_order = bool((rows.users[1:] >= rows.users[:-1]).all())
    order = slice(None) if in_order else np.argsort(rows.users, kind="stable")
    rows.users = np.empty(0, np.int32)
    items = rows.items[order]
    rows.items = np.empty(0, np.int32)
    ratings = rows.ratings[order]
    rows.ratings = np.empty(0, np.float32)
    times = None if rows.times is None else rows.times[order]
    rows.times = None
    return indptr, items, ratings, times


def keep_users(rows: Rows, at_least: int) -> Rows:
    """The rows of users with at least so many, renumbered as if the file held nothing else."""
    counts = np.bincount(rows.users, minlength=len(rows.user_ids))
    kept = counts[rows.users] >= at_least
    users, user_ids = renumbered(rows.users[kept], rows.user_ids)
    items, item_ids = renumbered(rows.items[kept], rows.item_ids)
    times = None if rows.times is None else rows.times[kept]
    return Rows(users, items, rows.ratings[kept], times, user_ids, item_ids)


def renumbered(numbers: np.ndarray, ids: list[str]) -> tuple[np.ndarray, list[str]]:
    """Numbers and ids anew, by first appearance in `numbers`."""
    distinct, first = np.unique(numbers, return_index=True)
    by_appearance = distinct[np.argsort(first)]
    fresh = np.full(len(ids), -1, np.int32)
    fresh[by_appearance] = np.arange(len(by_appearance), dtype=np.int32)
    return fresh[numbers], [ids[old] for old in by_appearance.tolist()]


def repeated_pairs(indptr: np.ndarray, items: np.ndarray, n_items: int) -> int:
    """How many rows repeat an earlier (user, item) pair."""
    repeats, user, users = 0, 0, len(indptr) - 1
    while user < users:
        last = max(user + 1, int(np.searchsorted(indptr, indptr[user] + AT_ONCE, side="right")) - 1)
        lengths = np.diff(indptr[user : last + 1])
        local = np.repeat(np.arange(last - user, dtype=np.int64), lengths)
        pairs = local * n_items + items[indptr[user] : indptr[last]]
        repeats += len(pairs) - len(np.unique(pairs))
        user = last
    return repeats
