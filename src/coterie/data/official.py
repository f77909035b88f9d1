"""The official files of the catalogue, each read into the same rows as its prepared layout."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from coterie.data.blocks import Columns
from coterie.data.catalogue import Entry
from coterie.data.reading import Transform, read_file
from coterie.data.rows import Rows, keep_users
from coterie.data.titles import read_titles
from coterie.data.unpack import unpack
from coterie.errors import CoterieError

Notes = dict[str, object]
FOUR = {"user": "1", "item": "2", "rating": "3", "timestamp": "4"}
THREE = {"user": "1", "item": "2", "rating": "3"}


def read_official(entry: Entry, path: Path) -> tuple[Rows, dict[str, str] | None, Notes]:
    """(rows, titles, notes) from the official archive, or from its table already taken out."""
    names = [Path(member).name for member in entry.members]
    if not names or path.name == names[0]:
        beside = path.with_name(names[1]) if len(names) > 1 else None
        return _read(entry, path, beside if beside is not None and beside.is_file() else None)
    with tempfile.TemporaryDirectory(prefix="coterie-") as folder:
        table, *others = unpack(path, entry.members, Path(folder))
        try:
            return _read(entry, table, others[0] if others else None)
        except CoterieError as error:  # name the archive, not the folder that is gone in a moment
            raise CoterieError(str(error).replace(str(Path(folder)), str(path))) from None


def _read(entry: Entry, table: Path, titles: Path | None) -> tuple[Rows, dict[str, str] | None, Notes]:
    rows, notes = TABLES[entry.name](table)
    found = TITLES[entry.name](titles) if titles is not None and entry.name in TITLES else None
    notes["titles"] = None if found is None else "official"
    return rows, found, notes


def _table(columns: dict[str, str], transform: Transform | None = None) -> Callable[[Path], tuple[Rows, Notes]]:
    def read(path: Path) -> tuple[Rows, Notes]:
        return read_file(path, columns=columns, transform=transform)

    return read


def _tagged(path: Path) -> tuple[Rows, Notes]:
    """One row for each tag. Three days in May 2011 carry a time of day; as in the prepared file, the day is kept."""
    rows, notes = read_file(path, columns={"user": "userID", "item": "artistID", "timestamp": "timestamp"})
    if rows.times is not None:
        madrid = 2 * 3600  # ahead of UTC in May
        first, last = _seconds(2011, 5, 5) - madrid, _seconds(2011, 5, 10) - madrid
        here = (rows.times >= first) & (rows.times < last)
        rows.times[here] = (rows.times[here] + madrid) // 86_400 * 86_400 - madrid
    return rows, notes


def _amazon(at_least: int) -> Callable[[Path], tuple[Rows, Notes]]:
    """The whole category without a header; the prepared set has the users with so many ratings."""

    def read(path: Path) -> tuple[Rows, Notes]:
        rows, notes = read_file(path, columns=FOUR)
        kept = keep_users(rows, at_least)
        if not len(kept):
            raise CoterieError(f"{path}: no user has {at_least} ratings; this is not the whole official file.")
        notes["dropped"] = {"rows": len(rows) - len(kept), "why": f"users with fewer than {at_least} ratings"}
        return kept, notes

    return read


def _trading_days(block: Columns) -> None:
    """Ta-Feng: month/day/year becomes seconds at midnight UTC; ids are padded with spaces in some copies."""
    import polars as pl

    assert block.timestamp is not None
    known = {text: _midnight(text) for text in block.timestamp.unique().to_list()}
    block.timestamp = block.timestamp.replace_strict(list(known), list(known.values()), return_dtype=pl.String)
    block.user, block.item = block.user.str.strip_chars(), block.item.str.strip_chars()


def _midnight(text: str) -> str:
    for pattern in ("%m/%d/%Y", "%Y-%m-%d", "%Y-%m-%d %H:%M:%S"):
        try:
            return str(int(datetime.strptime(text.strip(), pattern).replace(tzinfo=UTC).timestamp()))
        except ValueError:
            continue
    return text  # is named as a bad timestamp later


def _seconds(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp())


def _halved(path: Path) -> tuple[Rows, Notes]:
    """LibraryThing: the file holds twice the rating."""
    rows, notes = read_file(path, columns=THREE)
    rows.ratings *= np.float32(0.5)
    return rows, notes


def _listed(separator: str, encoding: str) -> Callable[[Path], dict[str, str]]:
    """Titles in a file without a header: id first, title second."""

    def read(path: Path) -> dict[str, str]:
        titles = {}
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
            if not line.strip():
                continue
            fields = line.decode(encoding).rstrip("\r").split(separator)
            if len(fields) < 2:
                raise CoterieError(f"{path.name}:{number}:1: {line[:60]!r}, expected an id and a title.")
            titles[fields[0]] = " ".join(fields[1].split())
        return titles

    return read


def _hetrec_movies(path: Path) -> dict[str, str] | None:
    """A header and 21 columns in latin-1; id and title are the first two."""
    titles = _listed("\t", "latin-1")(path)
    titles.pop("id", None)
    return titles


TABLES: dict[str, Callable[[Path], tuple[Rows, Notes]]] = {
    "ml-100k": _table(FOUR),
    "ml-1m": _table(FOUR),
    "lastfm-2k": _table({"user": "userID", "item": "artistID", "rating": "weight"}),
    "lastfm-2k-tags": _tagged,
    "amazon-instant-video": _amazon(at_least=5),
    "amazon-digital-music": _amazon(at_least=20),
    "ta-feng": _table(
        {"user": "CUSTOMER_ID", "item": "PRODUCT_ID", "rating": "AMOUNT", "timestamp": "TRANSACTION_DT"}, _trading_days
    ),
    "hetrec2011": _table({"user": "userID", "item": "movieID", "rating": "rating", "timestamp": "timestamp"}),
    "librarything": _halved,
    "qb-article": _table({"user": "user_id", "item": "item_id"}),
    "douban": _table(THREE),
}
TITLES: dict[str, Callable[[Path], dict[str, str] | None]] = {
    "ml-100k": _listed("|", "latin-1"),
    "ml-1m": _listed("::", "latin-1"),
    "lastfm-2k": read_titles,
    "lastfm-2k-tags": read_titles,
    "hetrec2011": _hetrec_movies,
}
