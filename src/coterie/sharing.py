"""What people chose to share: how large a part of what they consumed, and which items never.

    data = coterie.choose(data, pi=lambda user: 0.2 if user in careful else 1.0, never={"196": ["50", "172"]})
    data = coterie.choose(data, table="choices.csv")     # user_id,pi  and/or  user_id,item_id,never_share

The table may be the interactions file itself with a column more: other columns are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from coterie.errors import CoterieError

if TYPE_CHECKING:
    from coterie.algorithms.interface import Sharing
    from coterie.data.interactions import Interactions
    from coterie.ragged import Ragged

_YES, _NO = ("1", "true", "yes", "never"), ("", "0", "false", "no")


class Choices(NamedTuple):
    """By user id; who is not named left it to the run."""

    pi: dict[str, float]  # share of her items' updates that she lets go
    never: dict[str, tuple[str, ...]]  # item ids that never leave her device as consumed

    def text(self) -> str:
        """The same choices give the same text, in whatever order they were made: for the data's hash."""
        shares = (f"{user}\x1f{pi!r}" for user, pi in sorted(self.pi.items()))
        kept = (f"{user}\x1f{item}" for user, items in sorted(self.never.items()) for item in sorted(set(items)))
        return "\x1e".join([*shares, "\x1d", *kept])


def choose(
    data: Interactions,
    pi: float | Mapping[str, float] | Callable[[str], float | None] | None = None,
    never: Mapping[str, Iterable[str]] | None = None,
    table: str | Path | None = None,
) -> Interactions:
    """The data with people's choices: from a table, then from `pi` (one share, by user, or a function) and `never`."""
    found = Choices({}, {}) if table is None else read_choices(Path(table))
    shares, kept = dict(found.pi), {user: list(items) for user, items in found.never.items()}
    if callable(pi):
        for user in data.user_ids:
            share = pi(user)
            if share is not None:
                shares[user] = float(share)
    elif isinstance(pi, Mapping):
        shares |= {user: float(share) for user, share in pi.items()}
    elif pi is not None:
        shares |= {user: float(pi) for user in data.user_ids}
    for user, items in (never or {}).items():
        kept.setdefault(user, []).extend(items)
    _check(data, shares, kept)
    in_memory = pi is not None or never is not None
    notes = data.notes | {"sharing": None if table is None else str(table)}
    if in_memory:  # a file cannot bring these back: the run must be handed its data again
        notes |= {"source": None, "sharing": None}
    choices = Choices(shares, {user: tuple(items) for user, items in kept.items()})
    return replace(data, choices=choices, notes=notes)


def _check(data: Interactions, shares: Mapping[str, float], kept: Mapping[str, Iterable[str]]) -> None:
    """A choice that names nobody would silently not be kept, so it is refused."""
    for user in [*shares, *kept]:
        if user not in data.user_number:
            raise CoterieError(
                f"a choice names user {user!r}, who is not one of the {data.n_users} users of {data.name}"
            )
    for user, share in shares.items():
        if not 0.0 <= share <= 1.0:
            raise CoterieError(f"user {user!r} chose pi = {share}; it is a share of her items: a number from 0 to 1")
    for user, items in kept.items():
        for item in items:
            if item not in data.item_number:
                raise CoterieError(
                    f"user {user!r} never shares item {item!r}, which is not one of the {data.n_items} of {data.name}"
                )


def read_choices(path: Path) -> Choices:
    """A table with the columns user_id and pi, or user_id, item_id and never_share, or all of these."""
    import polars as pl

    if not path.is_file():
        raise CoterieError(f"{path}: no such file; expected a table with the columns user_id and pi")
    separator = "\t" if ".tsv" in path.suffixes else ","
    try:
        rows = pl.read_csv(path, separator=separator, infer_schema=False)
    except pl.exceptions.PolarsError as problem:
        raise CoterieError(f"{path}: cannot be read as a table: {problem}") from None
    has_pi, has_never = "pi" in rows.columns, {"item_id", "never_share"} <= set(rows.columns)
    half = "never_share" in rows.columns and not has_never  # else those choices would silently not be kept
    if "user_id" not in rows.columns or not (has_pi or has_never) or half:
        raise CoterieError(
            f"{path}: the columns are {', '.join(rows.columns)}; expected user_id and pi, or user_id, item_id and "
            "never_share (1 or 0)"
        )
    shares: dict[str, float] = {}
    kept: dict[str, list[str]] = {}
    for line, row in enumerate(rows.iter_rows(named=True), 2):
        user = row["user_id"] or ""
        said = (row["pi"] or "").strip() if has_pi else ""
        if said:
            try:
                share = float(said)
            except ValueError:
                raise CoterieError(f"{path}:{line}: pi is {said!r}, expected a number from 0 to 1") from None
            if not 0.0 <= share <= 1.0:
                raise CoterieError(f"{path}:{line}: pi is {said}, expected a number from 0 to 1")
            if shares.setdefault(user, share) != share:
                raise CoterieError(f"{path}:{line}: user {user!r} has pi {share}, but {shares[user]} above; choose one")
        if has_never:
            mark = (row["never_share"] or "").strip().lower()
            if mark not in _YES + _NO:
                raise CoterieError(f"{path}:{line}: never_share is {mark!r}, expected 1 or 0")
            if mark in _YES:
                kept.setdefault(user, []).append(row["item_id"] or "")
    return Choices(shares, {user: tuple(items) for user, items in kept.items()})


def sharing_of(data: Interactions, own: Ragged) -> Sharing | None:
    """People's choices in the numbers of `data`; of never-share items, those in their training histories `own`."""
    import numpy as np

    from coterie.algorithms.interface import Sharing
    from coterie.ragged import ragged

    if data.choices is None:
        return None
    pi = np.array([data.choices.pi.get(user, np.nan) for user in data.user_ids])
    lists: list[Any] = []
    for number, user in enumerate(data.user_ids):
        items = [data.item_number[one] for one in data.choices.never.get(user, ()) if one in data.item_number]
        lists.append(np.intersect1d(np.array(items, np.int32), own.of(number)) if items else [])
    return Sharing(pi, ragged(lists))
