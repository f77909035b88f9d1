"""Which separator, which header, which column is the user: read off the first lines, and announced."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coterie.data.problems import shown
from coterie.errors import CoterieError

SEPARATORS = {"::": "::", "\t": "tab", ",": "comma", ";": "semicolon", "|": "bar", " ": "space"}
QUOTING = {",", ";", "|"}  # in tab- and ::-separated files a double quote is an ordinary sign
ROLES = ("user", "item", "rating", "timestamp")

# Header names as people write them, reduced to letters and digits. The first of each list wins over the others.
KNOWN = {
    "user": ["userid", "user", "uid", "userno", "username", "customerid", "customer", "reviewerid", "memberid",
             "visitorid", "personid", "accountid", "msno"],
    "item": ["itemid", "item", "iid", "movieid", "movie", "artistid", "artist", "productid", "product", "bookid",
             "book", "songid", "trackid", "asin", "parentasin", "isbn", "sku", "articleid", "businessid", "gameid"],
    "rating": ["rating", "ratings", "score", "stars", "overall", "count", "weight", "plays", "playcount", "amount",
               "quantity", "value"],
    "timestamp": ["timestamp", "time", "ts", "unixreviewtime", "unixtime", "unixtimestamp", "datetime", "ratedat",
                  "createdat"],
}  # fmt: skip
TYPED = re.compile(r":(token|float|token_seq|float_seq)$")  # RecBole's headers
NUMBER = re.compile(r" *[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)? *\Z")  # no other digits, no other spaces


class QuoteError(ValueError):
    """A quoted field that is not closed on its line, or goes on after the closing quote."""


@dataclass(frozen=True)
class Dialect:
    """How the lines of one file become fields, and which fields matter (numbers from 0)."""

    separator: str
    names: tuple[str, ...] | None  # None: no header
    width: int
    user: int
    item: int
    rating: int | None
    timestamp: int | None

    @property
    def quoted(self) -> bool:
        return self.separator in QUOTING

    def split(self, line: str) -> list[str]:
        return split_line(line, self.separator)


def split_line(line: str, separator: str) -> list[str]:
    """One line as fields. Where quotes count, a field may be "quoted" and a quote inside it doubled."""
    if '"' not in line or separator not in QUOTING:
        return line.split(separator)
    fields, at = [], 0
    while True:
        if line.startswith('"', at):
            end = at + 1
            while True:
                end = line.find('"', end)
                if end < 0:
                    raise QuoteError("is not closed")
                if not line.startswith('"', end + 1):
                    break
                end += 2
            fields.append(line[at + 1 : end].replace('""', '"'))
            at = end + 1
            if at < len(line) and not line.startswith(separator, at):
                raise QuoteError("goes on after its closing quote")
        else:
            end = line.find(separator, at)
            end = len(line) if end < 0 else end
            fields.append(line[at:end])
            at = end
        if at >= len(line):
            return fields
        at += len(separator)


def detect(file: str, lines: list[str], columns: dict[str, str] | None, first_line: int) -> Dialect:
    """The dialect of a file from its first lines; `columns` names (or numbers, from 1) those that matter."""
    asked = _asked(columns)
    present = [sep for sep in SEPARATORS if sep in lines[0]]
    if not present:
        raise CoterieError(
            f"{file}:{first_line}:1: {shown(lines[0])}, expected at least a user and an item column; separate them by "
            f"one of {', '.join(SEPARATORS.values())}."
        )
    if asked:
        return _by_request(file, lines, asked, present, first_line)
    headers = {sep: _fields(lines[0], sep) for sep in present}
    for sep, names in headers.items():
        found = recognise(names)
        if found["user"] and found["item"]:
            chosen = {role: _one(file, role, found[role], names, first_line) for role in ROLES}
            return _dialect(sep, names, len(names), chosen)
    for sep in present:
        shape = [_is_known_shape(_fields(line, sep)) for line in lines[:200]]
        if shape[0] and sum(shape) >= 0.9 * len(shape):  # a few bad rows are named one by one later
            return _dialect(sep, None, 4, {"user": 0, "item": 1, "rating": 2, "timestamp": 3})
    best = max(present, key=lambda sep: (sum(map(bool, recognise(headers[sep]).values())), len(headers[sep])))
    found = recognise(headers[best])
    missing = [role for role in ("user", "item") if not found[role]]
    raise CoterieError(
        f"{file}:{first_line}:1: {shown(lines[0])}, expected a header with a user and an item column, and "
        f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; name the columns of this file with "
        f"--columns, e.g. user=NAME,item=NAME, or by number (user=1,item=2) where it has no header."
    )


def recognise(names: list[str]) -> dict[str, list[int]]:
    """For each role, the columns that bear one of its names."""
    plain = [re.sub(r"[^a-z0-9]", "", TYPED.sub("", name.strip().lower())) for name in names]
    return {role: [at for at, name in enumerate(plain) if name in known] for role, known in KNOWN.items()}


def _one(file: str, role: str, found: list[int], names: list[str], first_line: int) -> int | None:
    """The one column of a role: the only one, or the one with the plainest name."""
    if len(found) > 1:
        plain = [re.sub(r"[^a-z0-9]", "", TYPED.sub("", names[at].strip().lower())) for at in found]
        first = [at for at, name in zip(found, plain, strict=True) if name == KNOWN[role][0]]
        if len(first) != 1:
            listed = ", ".join(repr(names[at]) for at in found)
            raise CoterieError(
                f"{file}:{first_line}:{found[1] + 1}: {shown(names[found[1]])}, expected one {role} column but "
                f"{listed} could all be it; say which by number, e.g. --columns {role}={found[0] + 1}."
            )
        found = first
    return found[0] if found else None


def parse_columns(text: str | None) -> dict[str, str] | None:
    """`user=who,item=2` as a dictionary; None stays None."""
    if text is None:
        return None
    columns = {}
    for part in text.split(","):
        key, sign, value = part.partition("=")
        if not sign or not value.strip():
            raise CoterieError(f"columns: {part.strip()!r}, expected role=name or role=number, e.g. user=who,item=2.")
        columns[key.strip()] = value.strip()
    return columns


def _asked(columns: dict[str, str] | None) -> dict[str, str]:
    asked: dict[str, str] = {}
    for key, value in (columns or {}).items():
        role = next((role for role, known in KNOWN.items() if key.lower().replace("_", "") in known), None)
        if role is None:
            raise CoterieError(f"columns: unknown key {key!r}, expected some of {', '.join(ROLES)}.")
        asked[role] = str(value)
    if asked and not {"user", "item"} <= asked.keys():
        raise CoterieError("columns: name at least user and item, e.g. user=who,item=what.")
    return asked


def _by_request(file: str, lines: list[str], asked: dict[str, str], present: list[str], first_line: int) -> Dialect:
    """The columns as they were asked for: by name where the header has the name, else by number."""
    headers = {sep: _fields(lines[0], sep) for sep in present}
    named = [value for value in asked.values() if not _is_number(value)]
    for sep, names in headers.items() if named else ():
        places = {role: _places(value, names) for role, value in asked.items()}
        if all(places.values()):
            for role, hits in places.items():
                if len(hits) > 1:
                    raise CoterieError(
                        f"{file}:{first_line}:{hits[1] + 1}: {shown(asked[role])}, expected the {role} column once but "
                        f"the header names it {len(hits)} times; give its number, e.g. --columns {role}={hits[0] + 1}."
                    )
            return _dialect(sep, names, len(names), {role: hits[0] for role, hits in places.items()})
    if named:
        names = max(headers.values(), key=len)
        unknown = [value for value in asked.values() if not _places(value, names)]
        raise CoterieError(
            f"{file}:{first_line}:1: no column {', '.join(map(repr, unknown))}, expected one of "
            f"{', '.join(map(repr, names))}; correct --columns (names, or numbers from 1)."
        )
    numbers = {role: int(value) - 1 for role, value in asked.items()}
    most = max(numbers.values())
    counts = {sep: [len(_fields(line, sep)) for line in lines[:200]] for sep in present}
    sep = max(present, key=lambda sep: (len(set(counts[sep])) == 1, counts[sep][0] > most, counts[sep][0]))
    names = headers[sep]
    if most >= len(names):
        raise CoterieError(
            f"{file}:{first_line}:1: {len(names)} columns separated by {SEPARATORS[sep]}, expected at least "
            f"{most + 1}; correct --columns."
        )
    return _dialect(sep, names if _is_header(names, numbers) else None, len(names), numbers)


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit() and 0 < int(value) < 1_000_000


def _places(value: str, names: list[str]) -> list[int]:
    """Where a column is: everywhere the header has its name, else at its number."""
    hits = [at for at, name in enumerate(names) if value in (name, TYPED.sub("", name))]
    return hits or ([int(value) - 1] if _is_number(value) and int(value) <= len(names) else [])


def _is_header(first: list[str], numbers: dict[str, int]) -> bool:
    """Is this first line a header? A row with one bad number is not: it must not be lost without a word."""
    found = recognise(first)
    words = all(field and not NUMBER.match(field) for field in first)
    return bool(found["user"] and found["item"]) or (words and bool({"rating", "timestamp"} & numbers.keys()))


def _dialect(sep: str, names: list[str] | None, width: int, at: dict[str, int] | dict[str, int | None]) -> Dialect:
    user, item = at["user"], at["item"]
    assert user is not None and item is not None
    header = None if names is None else tuple(names)
    return Dialect(sep, header, width, user, item, at.get("rating"), at.get("timestamp"))


def _fields(line: str, sep: str) -> list[str]:
    try:
        return [field.strip() for field in split_line(line, sep)]
    except QuoteError:
        return [field.strip() for field in line.split(sep)]


def _is_known_shape(row: list[str]) -> bool:
    """Four fields, the third like a rating, the fourth like a time: user, item, rating, timestamp in all such files."""
    if len(row) != 4 or not (NUMBER.match(row[2]) and NUMBER.match(row[3])):
        return False
    return 0 <= float(row[2]) <= 1e6 and 1e8 <= abs(float(row[3])) < 1e19
