"""The prepared layout: a folder with interactions.tsv.gz and, where titles are known, items.tsv.gz."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path

import numpy as np

from coterie.data.catalogue import CATALOGUE
from coterie.data.interactions import Interactions
from coterie.data.load import load, locate
from coterie.data.reading import OnBadRow, read_file
from coterie.data.rows import Rows
from coterie.data.titles import beside, read_titles
from coterie.errors import CoterieError, unknown_name

AT_ONCE = 500_000  # rows written together


def convert(
    source: str | Path,
    target: str | Path,
    *,
    official: str | None = None,
    columns: dict[str, str] | None = None,
    data_dir: Path | None = None,
    on_bad_row: OnBadRow = "error",
    quarantine: Path | None = None,
    items: Path | None = None,
) -> Path:
    """Write any readable source into the folder `target` in the prepared layout; the content hash stays the same.

    `official` names the data set whose official archive `source` is.
    """
    target = Path(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CoterieError(f"{target}: is there already; name a new folder.")
    titles: dict[str, str] | None = None
    if official is not None:
        if official not in CATALOGUE:
            raise unknown_name("data set", official, list(CATALOGUE))
        from coterie.data.official import read_official

        rows, titles, _ = read_official(CATALOGUE[official], Path(source))
    elif isinstance(source, str) and source.partition(":")[0] == "synthetic":
        rows, titles = ungrouped(load(source))
    else:
        name, path = locate(source, data_dir)
        if name in CATALOGUE and path.name in (CATALOGUE[name].file, *map(os.path.basename, CATALOGUE[name].members)):
            return convert(path, target, official=name)
        rows, _ = read_file(path, columns=columns, on_bad_row=on_bad_row, quarantine=quarantine)
        where = beside(path) if items is None else items
        titles = None if where is None else read_titles(where)
    return write_prepared(rows, titles, target)


def ungrouped(data: Interactions) -> tuple[Rows, dict[str, str] | None]:
    """Rows user by user. For data whose file was in that order (or made here), the file order."""
    users = np.repeat(np.arange(data.n_users, dtype=np.int32), np.diff(data.indptr))
    rows = Rows(users, data.items, data.ratings, data.times, data.user_ids, data.item_ids)
    return rows, None if data.titles is None else dict(zip(data.item_ids, data.titles, strict=True))


def write_prepared(rows: Rows, titles: dict[str, str] | None, target: Path) -> Path:
    """The interactions come last: a folder that has them is complete."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".partial-") as folder:
            half_done = Path(folder)
            _write_rows(rows, half_done / "interactions.tsv.gz")
            if titles:
                _write_titles(rows.item_ids, titles, half_done / "items.tsv.gz")
                os.replace(half_done / "items.tsv.gz", target / "items.tsv.gz")
            os.replace(half_done / "interactions.tsv.gz", target / "interactions.tsv.gz")
    except OSError as error:
        raise CoterieError(f"{target}: cannot be written ({error.strerror or error}).") from None
    return target


def _write_rows(rows: Rows, path: Path) -> None:
    import polars as pl

    users, items = pl.Series(rows.user_ids, dtype=pl.String), pl.Series(rows.item_ids, dtype=pl.String)
    whole = bool((rows.ratings == np.floor(rows.ratings)).all()) and bool((rows.ratings < 1e15).all())
    with gzip.GzipFile(path, "wb", mtime=0) as out:
        out.write(b"user_id\titem_id\trating\ttimestamp\n")
        for start in range(0, len(rows), AT_ONCE):
            here = slice(start, start + AT_ONCE)
            ratings = rows.ratings[here].astype(np.int64 if whole else np.float64)
            count = len(ratings)
            table = pl.DataFrame(
                {
                    "user_id": users.gather(rows.users[here]),
                    "item_id": items.gather(rows.items[here]),
                    "rating": ratings,
                    "timestamp": pl.Series([""] * count) if rows.times is None else rows.times[here],
                }
            )
            out.write(table.write_csv(include_header=False, separator="\t", quote_style="never").encode())


def _write_titles(item_ids: list[str], titles: dict[str, str], path: Path) -> None:
    """Titles of the items that occur, in their order; a quote becomes a space so that any TSV reader can read them."""
    with gzip.GzipFile(path, "wb", mtime=0) as out:
        out.write(b"item_id\ttitle\n")
        for item in item_ids:
            if titles.get(item):
                out.write(f"{item}\t{' '.join(titles[item].replace(chr(34), ' ').split())}\n".encode())
