"""Titles of items, from a file beside the interactions or one that is named."""

from __future__ import annotations

import re
from pathlib import Path

from coterie.data.dialect import KNOWN, SEPARATORS, TYPED, QuoteError, split_line
from coterie.data.opening import BOM, Source, opened, refuse_foreign
from coterie.data.problems import shown
from coterie.errors import CoterieError

TITLE_NAMES = ["title", "name", "movietitle", "itemtitle", "itemname", "artistname", "productname", "booktitle"]
ITEM_NAMES = [*KNOWN["item"], "id"]
TABLES = ("tsv", "csv", "txt", "tsv.gz", "csv.gz", "txt.gz")
LARGEST = 1 << 30


def beside(path: Path) -> Path | None:
    """The items file that belongs to a file of interactions, if there is one."""
    stem = re.sub(r"(\.(gz|zip|csv|tsv|txt|dat|inter|parquet|data))+$", "", path.name, flags=re.IGNORECASE)
    names = [f"{stem}.items.{end}" for end in TABLES] + [f"{stem}.item", f"{stem}.item.gz"]
    names += [f"items.{end}" for end in TABLES]
    return next((path.with_name(name) for name in names if path.with_name(name).is_file()), None)


def read_titles(path: Path) -> dict[str, str] | None:
    """Item id to title; None where the file has items but no titles."""
    with opened(path) as source:
        return titles_from(source)


def titles_from(source: Source) -> dict[str, str] | None:
    content = source.read(LARGEST)
    refuse_foreign(source, content[:4096].removeprefix(BOM))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = content[: error.start].count(b"\n") + 1
        raise CoterieError(
            f"{source.name}:{at}:1: byte {content[error.start : error.start + 1]!r}, expected UTF-8 text; convert "
            f"the file (iconv -f latin1 -t utf-8)."
        ) from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    separator, item, title, width = _header(source.name, lines[0])
    if title is None:
        return None
    titles: dict[str, str] = {}
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        try:
            fields = split_line(line, separator)
        except QuoteError as error:
            raise CoterieError(f"{source.name}:{number}:1: {shown(line)}: a quoted field {error}; close it.") from None
        if len(fields) != width:
            raise CoterieError(
                f"{source.name}:{number}:{min(len(fields), width)}: {shown(line)} has {len(fields)} fields, expected "
                f"{width}; complete or remove the line."
            )
        titles.setdefault(fields[item], " ".join(fields[title].split()))
    return titles


def _header(name: str, line: str) -> tuple[str, int, int | None, int]:
    for separator in SEPARATORS:
        if separator not in line:
            continue
        plain = [
            re.sub(r"[^a-z0-9]", "", TYPED.sub("", field.strip().strip('"').lower())) for field in line.split(separator)
        ]
        item = next((plain.index(known) for known in ITEM_NAMES if known in plain), None)
        if item is not None:
            title = next(
                (plain.index(known) for known in TITLE_NAMES if known in plain and plain.index(known) != item), None
            )
            return separator, item, title, len(plain)
    raise CoterieError(f"{name}:1:1: {shown(line)}, expected a header with the columns item_id and title.")


def in_item_order(titles: dict[str, str], item_ids: list[str]) -> list[str]:
    """Titles by item number; the id where an item has none."""
    return [titles.get(item) or item for item in item_ids]
