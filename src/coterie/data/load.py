"""`load`: a name or a file becomes `Interactions`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from coterie.data.catalogue import CATALOGUE, Entry
from coterie.data.filters import filter_users
from coterie.data.interactions import Interactions
from coterie.data.reading import OnBadRow, read_file
from coterie.data.rows import Rows, group_by_user, repeated_pairs
from coterie.data.synthetic import synthetic
from coterie.data.titles import beside, in_item_order, read_titles
from coterie.errors import CoterieError, unknown_name

PREPARED = (
    "interactions.tsv.gz",
    "interactions.tsv",
    "interactions.csv.gz",
    "interactions.csv",
    "interactions.parquet",
)
SYNTHETIC_OPTIONS = ("users", "items", "seed", "shortest", "longest")


def load(
    source: str | Path,
    *,
    columns: dict[str, str] | None = None,
    data_dir: Path | None = None,
    on_bad_row: OnBadRow = "error",
    quarantine: Path | None = None,
    items: Path | None = None,
    at_least: int = 0,
) -> Interactions:
    """Interactions from `"synthetic"`, the name of a data set, or a file.

    `columns` names the columns of a file (`{"user": "who", "item": "what"}`, or by number from 1). A row that cannot be
    read is an error unless `on_bad_row="quarantine"`, which sets such rows aside in the file `quarantine` (by default
    beside the source). `items` is a file of titles; without it one is looked for beside the source. `at_least` keeps
    the users with so many rows.
    """
    if isinstance(source, str) and source.partition(":")[0] == "synthetic":
        data = _made_up(source)
    else:
        name, path = locate(source, data_dir)
        entry = CATALOGUE.get(name)
        if entry is not None and path.name not in PREPARED:
            from coterie.data.official import read_official

            data = interactions(name, *read_official(entry, path))
        else:
            data = from_file(name, path, columns, on_bad_row, quarantine, items)
        data.notes["source"] = str(path)
    return filter_users(data, at_least=at_least) if at_least else data


def from_file(
    name: str,
    path: Path,
    columns: dict[str, str] | None = None,
    on_bad_row: OnBadRow = "error",
    quarantine: Path | None = None,
    items: Path | None = None,
) -> Interactions:
    rows, notes = read_file(path, columns=columns, on_bad_row=on_bad_row, quarantine=quarantine)
    where = beside(path) if items is None else Path(items)
    titles = None if where is None else read_titles(where)
    notes["titles"] = None if titles is None else str(where)
    if items is not None and titles is None:
        raise CoterieError(f"{items}: has no title column, expected the columns item_id and title.")
    return interactions(name, rows, titles, notes)


def interactions(name: str, rows: Rows, titles: dict[str, str] | None, notes: dict[str, object]) -> Interactions:
    """Rows in file order as `Interactions`. Takes the arrays out of `rows`."""
    indptr, items, ratings, times = group_by_user(rows)
    notes["repeated_pairs"] = repeated_pairs(indptr, items, len(rows.item_ids))
    by_number = None
    if titles is not None:
        found = sum(item in titles for item in rows.item_ids)
        by_number = in_item_order(titles, rows.item_ids) if found else None
        if found < len(rows.item_ids):
            warnings = notes.setdefault("warnings", [])
            assert isinstance(warnings, list)
            warnings.append(f"{found:,} of {len(rows.item_ids):,} items have a title; the id stands for the others.")
    return Interactions(name, indptr, items, ratings, times, rows.user_ids, rows.item_ids, by_number, notes)


def locate(source: str | Path, data_dir: Path | None = None) -> tuple[str, Path]:
    """(name, file) of a data set or a path."""
    if isinstance(source, str) and source in CATALOGUE:
        return source, _named(CATALOGUE[source], data_dir)
    path = Path(source).expanduser()
    if isinstance(source, str) and os.sep not in source and not path.exists():
        for folder in data_folders(data_dir):
            found = _prepared(folder / source)
            if found is not None:
                return source, found
        if not path.suffix:
            looked = ", ".join(map(str, data_folders(data_dir)))
            error = unknown_name("data set", source, ["synthetic", *CATALOGUE])
            raise CoterieError(f"{error} There is no file of that name either. Looked in: {looked}.")
    if path.is_dir():
        found = _prepared(path)
        if found is not None:
            return path.resolve().name, found
    return path.name.partition(".")[0] or path.name, path


def data_folders(data_dir: Path | None = None) -> list[Path]:
    """Where named data sets are looked for, in this order: as asked, COTERIE_DATA, what was fetched."""
    asked = [] if data_dir is None else [Path(data_dir)]
    set_up = [Path(os.environ["COTERIE_DATA"])] if os.environ.get("COTERIE_DATA") else []
    return [*asked, *set_up, fetched_folder()]


def fetched_folder() -> Path:
    """Where `fetch` puts data sets unless told otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "coterie" / "data"


def _prepared(folder: Path) -> Path | None:
    return next((folder / name for name in PREPARED if (folder / name).is_file()), None)


def is_here(entry: Entry, data_dir: Path | None = None) -> bool:
    """Can this data set be loaded without fetching it?"""
    return _find(entry, data_folders(data_dir)) is not None


def _find(entry: Entry, folders: list[Path]) -> Path | None:
    for folder in folders:
        found = _prepared(folder / entry.name) or next(_official(entry, folder), None)
        if found is not None:
            return found
    return None


def _named(entry: Entry, data_dir: Path | None) -> Path:
    folders = data_folders(data_dir)
    found = _find(entry, folders)
    if found is not None:
        return found
    raise CoterieError(
        f"{entry.name} ({entry.title}) is known but not here. Looked in: {', '.join(map(str, folders))}.\n"
        + entry.how_to_get(folders[0])
    )


def _official(entry: Entry, folder: Path) -> Iterator[Path]:
    """An official file that somebody put there by hand."""
    for place in (folder / entry.name, folder):
        for name in (entry.file, *(Path(member).name for member in entry.members[:1])):
            if (place / name).is_file():
                yield place / name


def _made_up(source: str) -> Interactions:
    options: dict[str, int] = {}
    for part in filter(None, source.partition(":")[2].split(",")):
        key, _, value = part.partition("=")
        if key.strip() not in SYNTHETIC_OPTIONS:
            raise unknown_name("option of synthetic", key.strip(), list(SYNTHETIC_OPTIONS))
        try:
            options[key.strip()] = int(value)
        except ValueError:
            raise CoterieError(f"synthetic: {key.strip()}={value!r}, expected a whole number.") from None
    return synthetic(**options)
