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
        import polars as pl

        self.known = pl.DataFrame(schema={"text": pl.String, "number": pl.Int32})

    def encode(self, column: pl.Series) -> np.ndarray:
        import polars as pl

        numbers = self._look_up(column)
        if numbers.null_count():
            fresh = column.filter(numbers.is_null()).unique(maintain_order=True)
            first, last = self.known.height, self.known.height + len(fresh)
            if last >= 1 << 31:
                raise CoterieError("more than 2,147,483,647 different ids; Coterie counts them in 32 bits.")
            count = pl.int_range(first, last, dtype=pl.Int32, eager=True)
            self.known = pl.concat([self.known, pl.DataFrame({"text": fresh, "number": count})], rechunk=True)
            numbers = self._look_up(column)
        return numbers.to_numpy()

    def _look_up(self, column: pl.Series) -> pl.Series:
        table = column.alias("text").to_frame()
        return table.join(self.known, on="text", how="left", maintain_order="left")["number"]

    def ids(self) -> list[str]:
        return self.known["text"].to_list()


class Growing:
    """An array that grows in place (the operating system moves pages, nothing is held twice)."""

    def __init__(self, dtype: type) -> None:
        self.array: np.ndarray = np.empty(0, dtype)
        self.count = 0

    def add(self, more: np.ndarray) -> None:
        end = self.count + len(more)
        if end > len(self.array):
            self.array.resize(max(end, self.count + self.count // 8), refcheck=False)
        self.array[self.count : end] = more
        self.count = end

    def finish(self) -> np.ndarray:
        self.array.resize(self.count, refcheck=False)
        return self.array


class RowBuilder:
    """Collects blocks of rows; memory stays near the size of the finished arrays."""

    def __init__(self) -> None:
        self.user_numbers, self.item_numbers = Vocabulary(), Vocabulary()
        self.users, self.items = Growing(np.int32), Growing(np.int32)
        self.ratings, self.times = Growing(np.float32), Growing(np.int64)

    @property
    def count(self) -> int:
        return self.users.count

    def add(self, users: pl.Series, items: pl.Series, ratings: np.ndarray | None, times: np.ndarray | None) -> None:
        self.users.add(self.user_numbers.encode(users))
        self.items.add(self.item_numbers.encode(items))
        self.ratings.add(np.ones(len(users), np.float32) if ratings is None else ratings)
        if times is not None:
            self.times.add(times)

    def finish(self) -> Rows:
        return Rows(
            self.users.finish(),
            self.items.finish(),
            self.ratings.finish(),
            self.times.finish() if self.times.count else None,
            self.user_numbers.ids(),
            self.item_numbers.ids(),
        )


def group_by_user(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """(indptr, items, ratings, times) with each user's rows together, in file order. Takes the arrays out of `rows`."""
    indptr = np.zeros(len(rows.user_ids) + 1, np.int64)
    np.cumsum(np.bincount(rows.users, minlength=len(rows.user_ids)), out=indptr[1:])
    in_order = bool((rows.users[1:] >= rows.users[:-1]).all())
    order = slice(None) if in_order else _order(rows.users)
    rows.users = np.empty(0, np.int32)
    items = rows.items[order]
    rows.items = np.empty(0, np.int32)
    ratings = rows.ratings[order]
    rows.ratings = np.empty(0, np.float32)
    times = None if rows.times is None else rows.times[order]
    rows.times = None
    return indptr, items, ratings, times


def _order(users: np.ndarray) -> np.ndarray:
    order = np.argsort(users, kind="stable")
    return order.astype(np.int32) if len(users) < 1 << 31 else order


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
        pairs.sort()  # faster than np.unique, and in place
        repeats += int((pairs[1:] == pairs[:-1]).sum())
        user = last
    return repeats
