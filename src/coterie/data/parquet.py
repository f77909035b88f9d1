"""Parquet: the same columns as text, a million rows at a time. Problems are told by row number.

A damaged Parquet file can abort the whole process inside polars, where no exception can be caught (the fuzzer found
one). So a child process reads it first: if the child dies, the file is refused.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.blocks import Columns
from coterie.data.dialect import Dialect, detect
from coterie.errors import CoterieError

if TYPE_CHECKING:
    import polars as pl

AT_ONCE = 1_000_000
READ_ALL = """
import sys, polars
frame, start = polars.scan_parquet(sys.argv[1], glob=False), 0
while (got := frame.slice(start, 1_000_000).collect().height):
    start += got
"""


def parquet_columns(path: Path, columns: dict[str, str] | None) -> tuple[Dialect, Iterator[Columns]]:
    import polars as pl

    _refuse_if_deadly(path)
    try:
        frame = pl.scan_parquet(path, glob=False)
        schema = frame.collect_schema()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise _damaged(path, error) from None
    names = list(schema)
    if len(names) < 2:
        raise CoterieError(f"{path}: has {len(names)} columns, expected at least a user and an item column.")
    dialect = detect(str(path), ["\t".join(names)], columns, 1)
    if dialect.names is None:
        raise CoterieError(f"{path}: no user and item among the columns {', '.join(names)}; name them with --columns.")
    for role, at in (("user", dialect.user), ("item", dialect.item)):
        kind = schema[names[at]]
        if not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum)):
            raise CoterieError(
                f"{path}: the {role} column {names[at]!r} is of type {kind}, expected text or whole numbers; "
                f"cast it first."
            )
    return dialect, _batches(path, frame, schema, dialect)


def _batches(path: Path, frame: pl.LazyFrame, schema: pl.Schema, dialect: Dialect) -> Iterator[Columns]:
    import polars as pl

    names = list(schema)
    wanted = [dialect.user, dialect.item, dialect.rating, dialect.timestamp]
    chosen = [_as_text(names[at], schema[names[at]]).alias(str(n)) for n, at in enumerate(wanted) if at is not None]
    start = 0
    while True:
        try:
            table = frame.slice(start, AT_ONCE).select(chosen).collect()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise _damaged(path, error) from None
        if not table.height:
            return
        parts = [None if at is None else table[str(n)] for n, at in enumerate(wanted)]
        user, item, rating, timestamp = parts
        assert user is not None and item is not None
        yield Columns(user, item, rating, timestamp, np.arange(start + 1, start + 1 + table.height))
        start += table.height


def _as_text(name: str, kind: pl.DataType) -> pl.Expr:
    import polars as pl

    column = pl.col(name)
    if isinstance(kind, pl.Datetime | pl.Date):
        column = column.dt.epoch("s")
    return column.cast(pl.String).fill_null("")


def _refuse_if_deadly(path: Path) -> None:
    if not sys.executable:
        return
    patience = 60 + path.stat().st_size / 1e6  # seconds
    try:
        child = subprocess.run([sys.executable, "-c", READ_ALL, str(path)], capture_output=True, timeout=patience)
    except subprocess.TimeoutExpired:
        raise _damaged(path, TimeoutError(f"reading it does not end within {patience:.0f} s")) from None
    if child.returncode:
        last = child.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise _damaged(path, RuntimeError(last or f"reading it ends with code {child.returncode}"))


def _damaged(path: Path, error: BaseException) -> CoterieError:
    first = (str(error).splitlines() or [""])[0]
    return CoterieError(f"{path}: the Parquet file is damaged or not complete ({first}); copy or write it again.")
