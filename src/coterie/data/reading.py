"""A file of interactions, whatever its format, as rows in file order, with notes on what was found."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from coterie.data.blocks import LONGEST, Columns, columns_of, too_long, whole_lines
from coterie.data.dialect import SEPARATORS, Dialect, detect
from coterie.data.fields import UNITS, Expectation, check
from coterie.data.opening import BOM, Source, opened, refuse_foreign
from coterie.data.problems import Problems, shown
from coterie.data.rows import RowBuilder, Rows
from coterie.errors import CoterieError

HEAD = 256 << 10  # bytes looked at to find out the dialect
OnBadRow = Literal["error", "quarantine"]
Transform = Callable[[Columns], None]  # rewrites the text of some columns before they are checked


def read_file(
    path: Path,
    *,
    columns: dict[str, str] | None = None,
    on_bad_row: OnBadRow = "error",
    quarantine: Path | None = None,
    transform: Transform | None = None,
) -> tuple[Rows, dict[str, object]]:
    """All sound rows of a file, and the notes."""
    aside = quarantine_file(path, on_bad_row, quarantine)
    with opened(path) as source:
        return read_source(source, columns, aside, transform)


def read_source(
    source: Source, columns: dict[str, str] | None, quarantine: Path | None = None, transform: Transform | None = None
) -> tuple[Rows, dict[str, object]]:
    head = _head(source)
    problems = Problems(source.name, quarantine)
    if head[:4] == b"PAR1" and source.packing == "plain" and source.path.exists():
        from coterie.data.parquet import parquet_columns

        notes: dict[str, object] = {"format": "parquet", "separator": None}
        dialect, blocks = parquet_columns(source.path, columns)
    else:
        dialect, rest, line = _begin(source, head, columns)
        notes = {"format": source.inner.rpartition(".")[2], "separator": SEPARATORS[dialect.separator]}
        blocks = (columns_of(block, dialect, problems) for block in whole_lines(source, rest, line))
    return _gather(blocks, dialect, problems, notes, transform)


def quarantine_file(path: Path, on_bad_row: str, quarantine: Path | None) -> Path | None:
    """Where rejects go; None if the file is read strictly."""
    if on_bad_row not in ("error", "quarantine"):
        raise CoterieError(f"on_bad_row: {on_bad_row!r}, expected error or quarantine.")
    if on_bad_row == "error":
        if quarantine is not None:
            raise CoterieError(
                'a quarantine file is only written with on_bad_row="quarantine" (--on-bad-row quarantine).'
            )
        return None
    aside = path.with_name(path.name + ".rejected.tsv") if quarantine is None else Path(quarantine)
    if aside.is_dir() or (aside.exists() and path.exists() and aside.samefile(path)):
        raise CoterieError(f"{aside}: cannot take the rejected rows; name another file with --quarantine.")
    return aside


def _head(source: Source) -> bytes:
    parts: list[bytes] = []
    while sum(map(len, parts)) < HEAD and (part := source.read(HEAD)):
        parts.append(part)
    return b"".join(parts)


def _begin(source: Source, head: bytes, columns: dict[str, str] | None) -> tuple[Dialect, bytes, int]:
    """(dialect, what of the head is data, its first line number)."""
    while b"\n" not in head[:LONGEST] and (more := source.read(HEAD)):
        head += more
        if len(head) > LONGEST and b"\n" not in head[:LONGEST]:
            raise too_long(source.name, 1)
    head = head.removeprefix(BOM)
    refuse_foreign(source, head)
    if not head.strip():
        raise CoterieError(f"{source.name}: is empty, expected a header and one interaction on each line.")
    if b"\n" not in head and b"\r" in head.strip():
        raise CoterieError(
            f"{source.name}: has line ends of old Macs (CR only), expected LF or CRLF; convert it (mac2unix)."
        )
    raw = head.split(b"\n")
    at = next(number for number, line in enumerate(raw) if line.strip())
    try:
        first = raw[at].decode().rstrip("\r")
    except UnicodeDecodeError as error:
        byte = raw[at][error.start : error.start + 1]
        raise CoterieError(
            f"{source.name}:{at + 1}:1: byte {byte!r}, expected UTF-8 text; convert the file "
            f"(iconv -f latin1 -t utf-8)."
        ) from None
    complete = raw[at + 1 :] if len(head) < HEAD else raw[at + 1 : -1]
    sample = [line.decode("utf-8", "replace").rstrip("\r") for line in complete[:1000] if line.strip()]
    dialect = detect(source.name, [first, *sample], columns, at + 1)
    skip = at + (dialect.names is not None)
    return dialect, b"\n".join(raw[skip:]), skip + 1


def _gather(
    blocks: Iterator[Columns],
    dialect: Dialect,
    problems: Problems,
    notes: dict[str, object],
    transform: Transform | None,
) -> tuple[Rows, dict[str, object]]:
    builder, expect = RowBuilder(), Expectation()
    for block in blocks:
        if not len(block.lines):
            continue
        if transform is not None:
            transform(block)
        keep, ratings, times = check(block, expect, dialect, problems)
        if keep.all():
            builder.add(block.user, block.item, ratings, times)
        elif keep.any():
            kept = [None if array is None else array[keep] for array in (ratings, times)]
            builder.add(block.user.filter(keep), block.item.filter(keep), *kept)
    problems.settle()
    total, kept_rows = builder.count + problems.total, builder.count
    if not kept_rows:
        aside = f"; all {total} are set aside in {problems.quarantine}" if total else ""
        raise CoterieError(
            f"{problems.file}: holds no interactions, expected one on each line after the header{aside}."
        )
    rows = builder.finish()
    notes["header"] = dialect.names is not None
    notes["columns"] = _told_columns(dialect)
    notes["time_unit"] = UNITS.get(expect.unit or 0)
    notes["rows"] = {"in": total, "kept": kept_rows, "quarantined": problems.total}
    notes["quarantine"] = str(problems.quarantine) if problems.total else None
    notes["announcements"] = _announcements(dialect, notes, problems)
    notes["warnings"] = id_warnings(rows.user_ids, "user") + id_warnings(rows.item_ids, "item")
    return rows, notes


def _told_columns(dialect: Dialect) -> dict[str, str]:
    at = {"user": dialect.user, "item": dialect.item, "rating": dialect.rating, "timestamp": dialect.timestamp}
    names = dialect.names
    return {role: str(index + 1) if names is None else names[index] for role, index in at.items() if index is not None}


def _announcements(dialect: Dialect, notes: dict[str, object], problems: Problems) -> list[str]:
    """What was found out rather than told, in sentences."""
    told = ", ".join(f"{role} {name!r}" for role, name in _told_columns(dialect).items())
    if notes["separator"] is not None:
        sentences = [
            f"separated by {notes['separator']}; {'columns' if dialect.names else 'no header, columns'}: {told}"
        ]
    else:
        sentences = [f"columns: {told}"]
    if notes["time_unit"] not in (None, "seconds"):
        sentences.append(f"times are in {notes['time_unit']}; converted to seconds")
    if problems.total:
        rows = notes["rows"]
        assert isinstance(rows, dict)
        sentences.append(
            f"rows in {rows['in']:,} = kept {rows['kept']:,} + quarantined {problems.total:,} ({problems.quarantine})"
        )
    return sentences


def id_warnings(ids: list[str], role: str) -> list[str]:
    """Ids that a person would take for one another, though they are different text."""
    warnings = []
    forms: dict[str, list[str]] = {}
    for text in ids:
        if not text.isascii():
            forms.setdefault(unicodedata.normalize("NFC", text), []).append(text)
    known = set(ids)
    clashes = [same for form, same in forms.items() if len(same) > 1 or (form not in same and form in known)]
    if clashes:
        warnings.append(
            f"{len(clashes)} {role} ids are written in more than one Unicode form and count as different, e.g. "
            f"{shown(clashes[0][0])}; normalise the file to NFC if they are the same."
        )
    padded = [text for text in ids if text[0].isspace() or text[-1].isspace()]
    if padded:
        warnings.append(f"{len(padded)} {role} ids begin or end with a space, which counts, e.g. {shown(padded[0])}.")
    empty = [text for text in ids if text.lower() in ("nan", "null", "none", "n/a")]
    if empty:
        warnings.append(
            f"{role} id {shown(empty[0])} is read as a name; remove those rows if it means a missing value."
        )
    return warnings
