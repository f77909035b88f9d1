"""What Coterie knows of a data set: who touched which item, when, and how the things are called."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from coterie.sharing import Choices


@dataclass(frozen=True)
class Interactions:
    """Interactions grouped by user (CSR), in file order within each user.

    Users and items are numbered by first appearance in the file, so `items` doubles as the order in which the file
    first names them (some data sets have no other clock).
    """

    name: str
    indptr: np.ndarray  # int64[users + 1]: user u's rows are indptr[u]:indptr[u + 1]
    items: np.ndarray  # int32[rows]: item numbers
    ratings: np.ndarray  # float32[rows]: stars, counts, or 1 where the file has none
    times: np.ndarray | None  # int64[rows]: seconds since 1970, or None where the file has no time
    user_ids: list[str]  # text as in the file: "007" is not "7"
    item_ids: list[str]
    titles: list[str] | None = None  # by item number; the id where an item has no title
    notes: dict[str, object] = field(default_factory=dict)  # what reading found: separator, rows in, merged, ...
    choices: Choices | None = None  # what people chose to share, where they made a choice

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def sha256(self) -> str:
        """Hash of the content, whatever file format it came in: ids, ratings and times in order."""
        digest = hashlib.sha256()
        for array in (self.indptr.astype("<i8"), self.items.astype("<i4"), self.ratings.astype("<f4")):
            digest.update(array.tobytes())
        digest.update(b"" if self.times is None else self.times.astype("<i8").tobytes())
        for ids in (self.user_ids, self.item_ids):
            digest.update("\x1f".join(ids).encode())
            digest.update(b"\x1e")
        if self.choices is not None:
            digest.update(self.choices.text().encode())
        return digest.hexdigest()

    @cached_property
    def user_number(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.user_ids)}

    @cached_property
    def item_number(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.item_ids)}

    def title(self, item: int) -> str:
        return self.item_ids[item] if self.titles is None else self.titles[item]
