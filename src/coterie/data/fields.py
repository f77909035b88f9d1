"""Are these ids, ratings and times? Whole columns at once; a row in doubt is looked at closely, and named if bad."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coterie.data.blocks import Columns
from coterie.data.dialect import NUMBER, Dialect
from coterie.data.problems import Complaint, Problem, Problems, shown

if TYPE_CHECKING:
    import polars as pl

NO_ID = r"^\s*$|[\x00-\x1f\x7f]"
LARGEST_RATING = float(np.finfo(np.float32).max)
FARTHEST = 100_000_000_000  # seconds; beyond (the year 5138) a time must be in a finer unit
UNITS = {1: "seconds", 1_000: "milliseconds", 1_000_000: "microseconds", 1_000_000_000: "nanoseconds"}
INTEGERS = 1 << 63


@dataclass
class Expectation:
    """What the first block of a file says about the rest of it: are there ratings, are there times, in which unit."""

    ratings: bool | None = None  # None: not known yet; False: the column is empty
    unit: int | None = None  # units of time in a second; 0: the column is empty


class Checked(NamedTuple):
    keep: np.ndarray  # bool[rows]
    ratings: np.ndarray | None  # float32[rows]
    times: np.ndarray | None  # int64[rows], seconds


def check(columns: Columns, expect: Expectation, dialect: Dialect, problems: Problems) -> Checked:
    """Which rows of a block are sound, with their ratings and times; the others are added to `problems`."""
    doubt = columns.user.str.contains(NO_ID).to_numpy() | columns.item.str.contains(NO_ID).to_numpy()
    ratings = times = None
    if columns.rating is not None:
        if expect.ratings is None:
            expect.ratings = _filled(columns.rating)
        ratings, bad = _ratings(columns.rating, expect)
        doubt = doubt | bad
    if columns.timestamp is not None:
        times, bad = _times(columns.timestamp, expect)
        doubt = doubt | bad
    keep = np.ones(len(doubt), bool)
    for row in np.flatnonzero(doubt):
        keep[row] = _look_closely(int(row), columns, expect, dialect, problems, ratings, times)
    return Checked(keep, ratings if expect.ratings else None, times if expect.unit else None)


def _ratings(column: pl.Series, expect: Expectation) -> tuple[np.ndarray, np.ndarray]:
    import polars as pl

    if not expect.ratings:
        return np.ones(len(column), np.float32), (column != "").to_numpy()
    values = column.cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()
    good = (values >= 0) & (values <= LARGEST_RATING)
    return np.where(good, values, 0).astype(np.float32), ~good


def _times(column: pl.Series, expect: Expectation) -> tuple[np.ndarray, np.ndarray]:
    import polars as pl

    whole = column.cast(pl.Int64, strict=False)
    missing = whole.is_null().to_numpy()
    values = whole.fill_null(0).to_numpy().copy()
    if missing.any():
        real = column.cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()
        usable = missing & np.isfinite(real) & (np.abs(np.nan_to_num(real)) < INTEGERS)
        values[usable] = np.floor(real[usable]).astype(np.int64)
        missing &= ~usable
    if expect.unit is None:
        expect.unit = _unit(values[~missing]) if _filled(column) else 0
    if expect.unit == 0:
        return np.zeros(len(values), np.int64), (column != "").to_numpy()
    values //= expect.unit
    return values, missing | (values > FARTHEST) | (values < -FARTHEST)


def _filled(column: pl.Series) -> bool:
    """Has this column values, or is it empty but for mistakes?"""
    return 2 * int((column.str.strip_chars() != "").sum()) >= len(column)


def _unit(values: np.ndarray) -> int:
    """The unit in which most of these times make sense."""
    typical = float(np.median(np.abs(values.astype(np.float64)))) if len(values) else 0.0
    return next((unit for unit in UNITS if typical <= FARTHEST * unit), 1)


def _look_closely(
    row: int,
    columns: Columns,
    expect: Expectation,
    dialect: Dialect,
    problems: Problems,
    ratings: np.ndarray | None,
    times: np.ndarray | None,
) -> bool:
    """Judge one row field by field; its values are set if it is sound after all."""
    found: list[tuple[int, str, Complaint]] = []

    def judge(role: str, at: int | None, text: str, verdict: Complaint | None) -> None:
        if verdict is not None and at is not None:
            found.append((at, f"{role} {shown(text)}", verdict))

    judge("user", dialect.user, columns.user[row], id_complaint(columns.user[row]))
    judge("item", dialect.item, columns.item[row], id_complaint(columns.item[row]))
    if columns.rating is not None and ratings is not None:
        rating = read_rating(columns.rating[row], expect)
        if isinstance(rating, Complaint):
            judge("rating", dialect.rating, columns.rating[row], rating)
        else:
            ratings[row] = rating
    if columns.timestamp is not None and times is not None:
        time = read_time(columns.timestamp[row], expect)
        if isinstance(time, Complaint):
            judge("timestamp", dialect.timestamp, columns.timestamp[row], time)
        else:
            times[row] = time
    if found:
        at, what, complaint = min(found)
        problems.add(Problem(int(columns.lines[row]), at + 1, what, complaint), columns.raw(row))
    return not found


def id_complaint(text: str) -> Complaint | None:
    if not text.strip():
        return Complaint("an id", "fill it in or remove the line")
    if any(sign < " " or sign == "\x7f" for sign in text):
        return Complaint("an id without control characters", "remove them")
    return None


def read_rating(text: str, expect: Expectation) -> float | Complaint:
    if not expect.ratings:
        if not text.strip():
            return 1.0
        return Complaint("no rating, as in the other rows", "give every row a rating, or none")
    if not text.strip():
        return Complaint("a number of 0 or more, as in the other rows", "fill it in or remove the line")
    if not NUMBER.match(text):
        mend = "write a decimal point, not a comma" if "," in text else "correct it or remove the line"
        return Complaint("a finite number of 0 or more", mend)
    value = float(text)
    if value < 0:
        return Complaint("a number of 0 or more", "shift the scale so that the lowest rating is 0, or remove the line")
    if value > LARGEST_RATING:
        return Complaint(f"at most {LARGEST_RATING:.2g}", "correct it or remove the line")
    return value


def read_time(text: str, expect: Expectation) -> int | Complaint:
    if not expect.unit:
        if not text.strip():
            return 0
        return Complaint("no time, as in the other rows", "give every row a time, or none")
    if not text.strip():
        return Complaint("a time, as in the other rows", "fill it in or remove the line")
    if not NUMBER.match(text):
        return Complaint("a number of seconds (or milliseconds) since 1970", "convert dates to such numbers")
    plain = text.strip().lstrip("+-")
    value = (int(text) if plain.isdigit() and len(plain) < 40 else _floor(float(text))) // expect.unit
    if abs(value) > FARTHEST:
        return Complaint(f"a time in {UNITS[expect.unit]}, as in the first rows", "use one unit throughout")
    return value


def _floor(value: float) -> int:
    return math.floor(value) if math.isfinite(value) else INTEGERS * 1_000_000_000
