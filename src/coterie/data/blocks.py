"""A stream of bytes as blocks of whole lines, and a block as columns of text.

Two roads to the same columns: plain blocks (no quotes, no odd bytes, the same number of fields in every line) go
through polars; any other block is split line by line, which is slower and knows the place of everything it refuses.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coterie.data.dialect import Dialect, QuoteError
from coterie.data.opening import Source
from coterie.data.problems import Complaint, Problem, Problems, shown
from coterie.errors import CoterieError

if TYPE_CHECKING:
    import polars as pl

BLOCK = 8 << 20  # bytes at a time: large enough for polars, small beside the arrays of a large file
LONGEST = 1 << 20  # bytes in one line; more is not a table
UNIT = "\x1f"  # stands for "::" inside polars, which wants a separator of one byte


class Block(NamedTuple):
    data: bytes  # whole lines
    first_line: int


@dataclass
class Columns:
    """The fields that matter of one block, as text. `lines` says which line each row stands on."""

    user: pl.Series
    item: pl.Series
    rating: pl.Series | None
    timestamp: pl.Series | None
    lines: np.ndarray  # int64[rows]

    def raw(self, row: int) -> str:
        cells = [self.user[row], self.item[row]]
        cells += [column[row] for column in (self.rating, self.timestamp) if column is not None]
        return "\t".join(cells)


def whole_lines(source: Source, head: bytes, first_line: int, size: int = BLOCK) -> Iterator[Block]:
    """What follows `head` (bytes read already), cut at line ends; the last line may lack its end."""
    rest, line = head, first_line
    while True:
        more = source.read(size)
        rest += more
        cut = rest.rfind(b"\n") + 1 if more else len(rest)
        if cut:
            data, rest = rest[:cut], rest[cut:]
            yield Block(data, line)
            line += data.count(b"\n")
        if not more:
            return
        if len(rest) > LONGEST:
            raise too_long(source.name, line)


def too_long(name: str, line: int) -> CoterieError:
    return CoterieError(
        f"{name}:{line}:1: a line of more than {LONGEST:,} bytes, expected one interaction on each line; check the "
        f"line ends (LF or CRLF) and that this is a text file."
    )


def columns_of(block: Block, dialect: Dialect, problems: Problems) -> Columns:
    fast = plain_columns(block, dialect)
    return split_columns(block, dialect, problems) if fast is None else fast


def plain_columns(block: Block, dialect: Dialect) -> Columns | None:
    """Through polars, or None where the block is not plain enough for that."""
    import polars as pl

    data = block.data
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    if b"\r" in data or b"\0" in data:
        return None
    separator = dialect.separator
    if separator == "::":
        if UNIT.encode() in data or b":::" in data:
            return None
        data, separator = data.replace(b"::", UNIT.encode()), UNIT
    if not data.endswith(b"\n"):
        data += b"\n"
    unquoted = _without_quotes(data, separator.encode()) if dialect.quoted and b'"' in data else data
    rows = None if unquoted is None else _rows_of_width(unquoted, separator.encode(), dialect.width)
    if rows is None or unquoted is None:
        return None
    data = unquoted
    try:
        if not data.isascii():
            data.decode()
        wanted = {"user": dialect.user, "item": dialect.item, "rating": dialect.rating, "timestamp": dialect.timestamp}
        at = sorted({index for index in wanted.values() if index is not None})
        table = pl.read_csv(
            io.BytesIO(data),
            has_header=False,
            separator=separator,
            quote_char=None,
            columns=at,
            infer_schema=False,
        ).fill_null("")  # polars takes an empty field for a missing one
    except (UnicodeDecodeError, pl.exceptions.PolarsError):
        return None  # the slow road finds the place
    if table.height != rows or table.width != len(at):
        return None
    series = {role: None if index is None else table.to_series(at.index(index)) for role, index in wanted.items()}
    lines = np.arange(block.first_line, block.first_line + rows)
    user, item = series["user"], series["item"]
    assert user is not None and item is not None
    return Columns(user, item, series["rating"], series["timestamp"], lines)


def _without_quotes(data: bytes, separator: bytes) -> bytes | None:
    """The same lines without quotes, if these only stand around whole fields with nothing special inside; else None."""
    codes = np.frombuffer(b"\n" + data, np.uint8)
    border = (codes == separator[0]) | (codes == 10)
    quotes = np.flatnonzero(codes == 34)
    opening, closing = quotes[::2], quotes[1::2]
    if len(opening) != len(closing) or not (border[opening - 1].all() and border[closing + 1].all()):
        return None
    borders = np.flatnonzero(border)
    if (np.searchsorted(borders, opening) != np.searchsorted(borders, closing)).any():
        return None
    return bytes(codes[1:][codes[1:] != 34])


def _rows_of_width(data: bytes, separator: bytes, width: int) -> int | None:
    """The number of lines, if each has exactly `width` fields and none is blank; else None."""
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == 10)
    cuts = np.flatnonzero(codes == separator[0])
    if len(cuts) != len(ends) * (width - 1):
        return None
    if width > 1:
        by_line = cuts.reshape(len(ends), width - 1)
        if (by_line[:, -1] > ends).any() or (by_line[1:, 0] < ends[:-1]).any():
            return None
    return len(ends)


def split_columns(block: Block, dialect: Dialect, problems: Problems) -> Columns:
    """Line by line; what is no row of the right width becomes a problem with its place."""
    import polars as pl

    wanted = [dialect.user, dialect.item, dialect.rating, dialect.timestamp]
    cells: list[list[str]] = [[] for _ in wanted]
    lines: list[int] = []
    for line, raw in enumerate(block.data.split(b"\n"), block.first_line):
        raw = raw.removesuffix(b"\r")
        if not raw.strip() and dialect.separator.encode() not in raw:
            continue  # a blank line says nothing, and is no row
        fields = _fields_or_problem(raw, line, dialect)
        if isinstance(fields, Problem):
            problems.add(fields, raw.decode("utf-8", "backslashreplace"))
            continue
        lines.append(line)
        for cell, index in zip(cells, wanted, strict=True):
            if index is not None:
                cell.append(fields[index])
    user, item, rating, timestamp = (pl.Series(cell, dtype=pl.String) for cell in cells)
    has_rating, has_time = dialect.rating is not None, dialect.timestamp is not None
    return Columns(
        user, item, rating if has_rating else None, timestamp if has_time else None, np.array(lines, np.int64)
    )


def _fields_or_problem(raw: bytes, line: int, dialect: Dialect) -> list[str] | Problem:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        column = raw[: error.start].count(dialect.separator.encode()) + 1
        byte = raw[error.start : error.start + 1]
        return Problem(
            line, column, f"byte {byte!r}", Complaint("UTF-8 text", "convert the file (iconv -f latin1 -t utf-8)")
        )
    for sign, what in (("\0", "a NUL character"), ("\r", "a carriage return inside the line")):
        if sign in text:
            column = text[: text.index(sign)].count(dialect.separator) + 1
            return Problem(line, column, what, Complaint("text", "remove it"))
    try:
        fields = dialect.split(text)
    except QuoteError as error:
        column = text[: text.rindex('"')].count(dialect.separator) + 1
        mend = 'close the quote on the same line, and double quotes inside a quoted field ("")'
        return Problem(line, column, f"{shown(text)}: a quoted field {error}", Complaint("closed quotes", mend))
    if len(fields) != dialect.width:
        column = min(len(fields), dialect.width) + (len(fields) > dialect.width)
        more = len(fields) > dialect.width
        mend = "quote fields that contain the separator" if more and dialect.quoted else "complete or remove the line"
        what = f"{shown(text)} has {len(fields)} field{'s' if len(fields) != 1 else ''}"
        return Problem(line, column, what, Complaint(f"{dialect.width}", mend))
    return fields
