"""A private table for each client, holding only the rows she has touched.

Row j of client i is `scale[i] * start[j]` until she touches it, and a row of her own after that. The pool reserves
address space for every row but the system hands out memory only as rows are first written, each client filling her
part from the front: a table that is 40 % touched costs 40 %, and a full one costs 3 % more than a plain array.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_SHARD_BYTES = 48 << 20  # how much is copied at a time when the store goes to disk


def _reserve(rows: int, width: int) -> np.ndarray:
    """float32[rows, width] of address space, without asking for the memory yet."""
    size = max(rows * width * 4, 1)
    flags = getattr(mmap, "MAP_PRIVATE", 2) | getattr(mmap, "MAP_ANONYMOUS", 32) | getattr(mmap, "MAP_NORESERVE", 0)
    pages = mmap.mmap(-1, size, flags=flags)
    return np.frombuffer(pages, np.float32, count=rows * width).reshape(rows, width)


class RowStore(NamedTuple):
    start: np.ndarray  # float32[m, k]: everybody's first table
    scale: np.ndarray  # float64[n]: what weight decay has made of rows not written since
    slot: np.ndarray  # int32[n, m]: where row j of client i stands in her part of the pool, or -1
    used: np.ndarray  # int64[n]: how many rows of her part are in use
    pool: np.ndarray  # float32[n * m, k]: client i's part begins at i * m

    @classmethod
    def empty(cls, n_clients: int, start: np.ndarray) -> RowStore:
        n_items, dim = start.shape
        slot = np.full((n_clients, n_items), -1, np.int32)
        used = np.zeros(n_clients, np.int64)
        return cls(start, np.ones(n_clients), slot, used, _reserve(n_clients * n_items, dim))

    @property
    def nbytes(self) -> int:
        return int(self.slot.nbytes + self.used.sum() * self.start.shape[1] * 4)

    def table(self, client: int) -> np.ndarray:
        """float32[m, k]: one client's whole table, written out."""
        rows = self.start.copy()
        mine = np.flatnonzero(self.slot[client] >= 0)
        rows[mine] = self.pool[client * len(rows) + self.slot[client, mine]]
        return rows * np.float32(self.scale[client])

    def forget(self, clients: np.ndarray) -> None:
        """These clients' tables are the first one again."""
        self.scale[clients], self.slot[clients], self.used[clients] = 1.0, -1, 0

    def copy(self, into: RowStore | None = None) -> RowStore:
        """A store like this one; `into`, a former copy, is overwritten, which spares asking for its memory again."""
        twin = RowStore.empty(len(self.used), self.start) if into is None else into
        twin.scale[:], twin.slot[:], twin.used[:] = self.scale, self.slot, self.used
        m = self.slot.shape[1]
        for client, count in enumerate(self.used):
            twin.pool[client * m : client * m + count] = self.pool[client * m : client * m + count]
        return twin

    def shards(self) -> Iterator[dict[str, np.ndarray]]:
        """The store as small dictionaries of plain arrays, a part of the clients at a time."""
        yield {"start": self.start, "scale": self.scale, "used": self.used, "slot": self.slot}
        m, k = len(self.start), self.start.shape[1]
        first = 0
        while first < len(self.used):
            last, size = first, 0
            while last < len(self.used) and (size == 0 or size < _SHARD_BYTES):
                size += int(self.used[last]) * k * 4
                last += 1
            parts = [self.pool[c * m : c * m + self.used[c]] for c in range(first, last)]
            yield {"first": np.array([first, last], np.int64), "rows": np.concatenate(parts)}
            first = last

    @classmethod
    def from_shards(cls, shards: Iterator[dict[str, np.ndarray]]) -> RowStore:
        head = next(shards)
        store = cls.empty(len(head["used"]), head["start"].copy())
        store.scale[:], store.slot[:], store.used[:] = head["scale"], head["slot"], head["used"]
        m = len(store.start)
        for shard in shards:
            taken = 0
            for client in range(*(int(n) for n in shard["first"])):
                count = int(store.used[client])
                store.pool[client * m : client * m + count] = shard["rows"][taken : taken + count]
                taken += count
        return store
