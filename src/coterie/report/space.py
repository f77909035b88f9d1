"""A search space from the command line: `lr=0.02,0.04`, `reg=0.01..0.3:log`, `dim=16..128:log:4`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from coterie.algorithms import algorithm_class, make, settings_of
from coterie.errors import CoterieError, unknown_name
from coterie.runs.spec import parse_setting

METHODS = ("grid", "random", "tpe")
EXAMPLES = "'lr=0.02,0.04,0.08' (a list), 'reg=0.01..0.3:log' (a range) or 'reg=0.01..0.3:log:4' (4 points of it)"


class Axis(NamedTuple):
    """One field to search: a list of values, or a range."""

    field: str
    values: tuple[Any, ...] | None  # a list; None: a range
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False  # a range of whole numbers

    def corners(self) -> tuple[Any, ...]:
        return self.values if self.values is not None else (self.low, self.high)

    def said(self) -> list[Any] | dict[str, Any]:
        """As it stands in the record."""
        if self.values is not None:
            return list(self.values)
        return {"low": self.low, "high": self.high, "log": self.log}

    def distribution(self) -> Any:
        from optuna import distributions as kind

        if self.values is not None:
            return kind.CategoricalDistribution(self.values)
        if self.whole:
            return kind.IntDistribution(int(self.low), int(self.high), log=self.log)
        return kind.FloatDistribution(self.low, self.high, log=self.log)


def parse_space(
    algorithm: str, behaviour: str, fixed: Mapping[str, Any], space: Sequence[str] | Mapping[str, Any], method: str
) -> list[Axis]:
    """The axes, or an error that says what is wrong with them; every corner must be a setting the algorithm takes."""
    if method not in METHODS:
        raise unknown_name("method", method, list(METHODS))
    if not space:
        raise CoterieError(f"nothing to search: give --space, for example {EXAMPLES}")
    pairs = list(space.items()) if isinstance(space, Mapping) else [_pair(one) for one in space]
    axes = [_axis(algorithm, field, said) for field, said in pairs]
    for number, axis in enumerate(axes):
        if axis.field in [other.field for other in axes[:number]]:
            raise CoterieError(f"--space names {axis.field} twice; put all its values in one list")
        if axis.field in fixed:
            raise CoterieError(f"{axis.field} is fixed by --set and searched by --space; leave one of them out")
        if method == "grid" and axis.values is None:
            raise CoterieError(
                f"--space {axis.field}={axis.low:g}..{axis.high:g} is a range and has no grid: say how many points "
                f"({axis.field}={axis.low:g}..{axis.high:g}{':log' if axis.log else ''}:4), or --method random or tpe"
            )
    first = {axis.field: axis.corners()[0] for axis in axes}
    for axis in axes:
        for value in axis.corners():
            try:
                make(algorithm, behaviour, **{**fixed, **first, axis.field: value})
            except CoterieError as problem:
                raise CoterieError(f"--space {axis.field}: {value!r} cannot be run: {problem}") from None
    return axes


def grid(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """All combinations, the last axis fastest."""
    names = [axis.field for axis in axes]
    return [dict(zip(names, one, strict=True)) for one in itertools.product(*(axis.values or () for axis in axes))]


def _pair(text: str) -> tuple[str, str]:
    field, equals, said = text.partition("=")
    if not (field and equals and said):
        raise CoterieError(f"--space {text!r}: expected field=values, for example {EXAMPLES}")
    return field.strip(), said.strip()


def _axis(algorithm: str, field: str, said: Any) -> Axis:
    known = settings_of(algorithm_class(algorithm))
    if not known:
        raise CoterieError(f"{algorithm} has no settings, so there is nothing to search")
    if field not in known:
        raise unknown_name(f"setting of {algorithm}", field, known)
    if isinstance(said, str) and ".." in said:
        return _range(algorithm, field, said)
    values = [one.strip() for one in said.split(",")] if isinstance(said, str) else list(said)
    read = tuple(_value(algorithm, field, one) if isinstance(one, str) else one for one in values)
    for value in read:
        if not isinstance(value, bool | int | float | str | None):
            raise CoterieError(f"--space {field}: {value!r} cannot be searched; numbers, words, true and false can")
        if isinstance(value, float) and not math.isfinite(value):
            raise CoterieError(f"--space {field}: {value!r} is not a number to try")
    if len(read) < 2:
        raise CoterieError(f"--space {field}={said}: one value is no search; use --set {field}={said}")
    if len({repr(value) for value in read}) < len(read):
        raise CoterieError(f"--space {field}={said}: a value stands twice")
    return Axis(field, read)


def _range(algorithm: str, field: str, said: str) -> Axis:
    bounds, *extras = said.split(":")
    low, high = (_value(algorithm, field, one.strip()) for one in bounds.split("..", 1))
    for one in (low, high):
        if isinstance(one, bool) or not isinstance(one, int | float) or not math.isfinite(one):
            raise CoterieError(f"--space {field}={said}: a range needs numbers, and {one!r} is none; give a list")
    if not low < high:
        raise CoterieError(f"--space {field}={said}: the range is empty, {low:g} is not below {high:g}")
    log, points = False, None
    for extra in extras:
        if extra == "log":
            log = True
        elif extra.isdecimal() and int(extra) > 1:
            points = int(extra)
        else:
            raise CoterieError(f"--space {field}={said}: {extra!r} after the range; expected log or how many points")
    if log and low <= 0:
        raise CoterieError(
            f"--space {field}={said}: a log range starts above 0; give a small number instead of {low:g}"
        )
    whole = isinstance(low, int) and isinstance(high, int)
    if points is None:
        return Axis(field, None, low, high, log, whole)
    steps = [n / (points - 1) for n in range(points)]
    spread = [low * (high / low) ** s if log else low + (high - low) * s for s in steps]
    values = tuple(dict.fromkeys(round(one) if whole else float(f"{one:.6g}") for one in spread))
    if len(values) < 2:
        raise CoterieError(f"--space {field}={said}: one value is no search; use --set")
    return Axis(field, values)


def _value(algorithm: str, field: str, text: str) -> Any:
    try:
        return parse_setting(algorithm, f"{field}={text}")[1]
    except CoterieError as problem:
        raise CoterieError(str(problem).replace("--set", "--space", 1)) from None
