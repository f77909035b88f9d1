"""Plots as SVG text: a few shapes that scale, print, need no script and say in words what they show.

All are 360 units wide, so that on a phone a unit is about a pixel and the lettering stays readable; on a wide screen
they stand side by side. Colours differ in brightness and lines in dashes: they are told apart in grey as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 360, 42, 12, 28, 38
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5c00", "#56b4e9", "#444444", "#e69f00")
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 3", "12 4", "6 2 1 2")
_MARKS = ("circle", "square", "triangle", "diamond")
_GAP, _ROW, _EDGE = 24, 17, 8  # between a sheet's plots, from one line of its legend to the next, around it

STYLE = """
.plot text{font:12px system-ui,sans-serif;fill:#333c45}
.plot .head{font-weight:600;font-size:13px}
.plot .value{font-variant-numeric:tabular-nums;font-weight:600}
.plot .grid{stroke:#e3e7ea;fill:none}
.plot .axis{stroke:#6a747e;fill:none}
.plot .interval{stroke:#111;fill:none;stroke-width:1.4}
.plot .dot{stroke-linecap:round;fill:none}
"""

Worded = Callable[[float], str]


class Line(NamedTuple):
    name: str
    style: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None  # a band around it
    high: Sequence[float] | None = None
    mark: tuple[float, float] | None = None  # a point of its own


class Bar(NamedTuple):
    name: str
    style: int
    value: float
    low: float | None = None
    high: float | None = None


class Row(NamedTuple):
    """Several values of one thing, each in the style of its kind."""

    name: str
    values: Sequence[Bar]


class Point(NamedTuple):
    name: str
    style: int
    x: float
    y: float
    low: float | None = None
    high: float | None = None


def colour(style: int) -> str:
    return _COLOURS[style % len(_COLOURS)]


def number(value: float) -> str:
    """Short, for axes: 0.05, 12, 3.4k."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 1e4:
        return f"{value / 1e3:.3g}k"
    return f"{value:.3g}" if size >= 1e-3 else f"{value:.0e}"


def swatch(style: int) -> str:
    """A legend's sample; the name beside it is the text."""
    body = f'<path d="M1 6H27" stroke="{colour(style)}" stroke-width="2.5"{_dash(style)}/>{_mark(14, 6, style)}'
    return f'<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true">{body}</svg>'


def lines(
    title: str,
    about: str,
    series: Sequence[Line],
    x_name: str,
    y_name: str,
    from_zero: bool = True,
    x_words: Worded = number,
    y_words: Worded = number,
    reach: Sequence[float] = (),
) -> str:
    """Curves over a common x; a series of one point becomes a level line across the plot. `reach`: y goes that far."""
    xs = [x for one in series for x in one.x if len(one.x) > 1] or [x for one in series for x in one.x]
    ys = [y for one in series for y in (*one.y, *(one.low or ()), *(one.high or ()))] + list(reach)
    frame = _Frame.around(xs, ys, from_zero)
    parts = [frame.axes(x_name, y_name, x_words, y_words)]
    for one in series:
        paint, dash = colour(one.style), _dash(one.style)
        if one.low is not None and one.high is not None and len(one.x) > 1:
            there = [f"{frame.x(x)} {frame.y(y)}" for x, y in zip(one.x, one.high, strict=True)]
            back = [f"{frame.x(x)} {frame.y(y)}" for x, y in zip(one.x, one.low, strict=True)]
            parts.append(f'<path d="M{"L".join(there + back[::-1])}Z" fill="{paint}" opacity=".16"/>')
        if len(one.x) == 1:
            path = f"M{LEFT} {frame.y(one.y[0])}H{WIDTH - RIGHT}"
        else:
            path = "M" + "L".join(f"{frame.x(x)} {frame.y(y)}" for x, y in zip(one.x, one.y, strict=True))
        parts.append(f'<path d="{path}" fill="none" stroke="{paint}" stroke-width="2"{dash}/>')
        if one.mark is not None:
            parts.append(_mark(_float(frame.x(one.mark[0])), _float(frame.y(one.mark[1])), one.style))
    return picture(title, about, frame.height, "".join(parts))


def points(
    title: str,
    about: str,
    series: Sequence[Point],
    levels: Sequence[Bar],
    x_name: str,
    y_name: str,
    x_words: Worded = number,
) -> str:
    """Points with an interval upwards and downwards, x by powers of ten; `levels` are lines that have no x."""
    ys = [y for one in series for y in (one.y, one.low, one.high) if y is not None] + [one.value for one in levels]
    frame = _Frame.around([math.log10(one.x) for one in series], ys, True, pad=0.12, spread=1.0)
    parts = [frame.axes(x_name, y_name, lambda power: x_words(10**power), number, by_powers=True)]
    for level in levels:
        path = f"M{LEFT} {frame.y(level.value)}H{WIDTH - RIGHT}"
        parts.append(f'<path d="{path}" stroke="{colour(level.style)}" stroke-width="2"{_dash(level.style)}/>')
    for one in series:
        x = frame.x(math.log10(one.x))
        if one.low is not None and one.high is not None:
            parts.append(f'<path d="M{x} {frame.y(one.low)}V{frame.y(one.high)}" stroke="{colour(one.style)}"/>')
        parts.append(_mark(_float(x), _float(frame.y(one.y)), one.style, 5.5))
    return picture(title, about, frame.height, "".join(parts))


def bars(title: str, about: str, rows: Sequence[Bar], worded: Worded = number) -> str:
    """Level bars from 0, the name above each, its interval as a line: long names have room on a phone."""
    top, step = 26, 32
    most = max([one.high if one.high is not None else one.value for one in rows] + [1e-12])
    width = WIDTH - 8

    def at(value: float) -> str:
        return _short(4 + width * max(value, 0.0) / most)

    parts = [_head(title)]
    for k, one in enumerate(rows):
        y = top + k * step
        parts.append(
            f'<text x="4" y="{y + 10}">{escape(_cut(one.name, 46))}</text>'
            f'<text x="{WIDTH - 4}" y="{y + 10}" text-anchor="end" class="value">{escape(worded(one.value))}</text>'
            f'<path d="M4 {y + 15}H{at(one.value)}v9H4Z" fill="{colour(one.style)}"/>'
        )
        if one.low is not None and one.high is not None:
            ends = f"M{at(one.low)} {y + 16}v7M{at(one.high)} {y + 16}v7M{at(one.low)} {y + 19.5}H{at(one.high)}"
            parts.append(f'<path d="{ends}" class="interval"/>')
    return picture(title, about, top + step * len(rows), "".join(parts))


def rows(title: str, about: str, head: str, shown: Sequence[Row], worded: Worded = number) -> str:
    """A line for each row, its name above, with a mark for each value from 0 on and a stroke for the interval."""
    top, step, edge = 26, 30, 10
    ends = [end for one in shown for v in one.values for end in (v.value, v.high or v.value)]
    most, bottom = 1.02 * max([*ends, 1e-12]), top + step * len(shown)

    def at(value: float) -> str:
        return _short(edge + (WIDTH - 2 * edge) * max(value, 0.0) / most)

    parts = [_head(head)]
    for tick in ticks(0.0, most):
        x = at(tick)
        parts.append(f'<path d="M{x} {top}V{bottom}" class="grid"/>')
        parts.append(f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">{escape(worded(tick))}</text>')
    for k, one in enumerate(shown):
        y = top + k * step
        parts.append(f'<text x="4" y="{y + 11}">{escape(_cut(one.name, 54))}</text>')
        for v in one.values:
            if v.low is not None and v.high is not None:
                stroke = f'stroke="{colour(v.style)}" stroke-width="2" opacity=".55"'
                parts.append(f'<path d="M{at(v.low)} {y + 20}H{at(v.high)}" {stroke}/>')
        parts += [_mark(_float(at(v.value)), y + 20, v.style) for v in one.values]
    return picture(title, about, bottom + 20, "".join(parts))


def sheet(title: str, about: str, plots: Sequence[str], names: Sequence[tuple[str, int]] = (), note: str = "") -> str:
    """A file of its own: plots two side by side, a legend below them and a note, on white."""
    columns = min(2, len(plots))
    width, place, parts = columns * WIDTH + (columns - 1) * _GAP, 0.0, []
    for first in range(0, len(plots), columns):
        line = plots[first : first + columns]
        heights = [float(one.partition(f'viewBox="0 0 {WIDTH} ')[2].partition('"')[0]) for one in line]
        for k, (one, height) in enumerate(zip(line, heights, strict=True)):
            where = f'x="{k * (WIDTH + _GAP)}" y="{place:g}" width="{WIDTH}" height="{height:g}"'
            parts.append(one.replace("<svg ", f"<svg {where} ", 1))
        place += max(heights) + 10
    for k, (name, style) in enumerate(names):
        x, y = (k % columns) * (WIDTH + _GAP) + 4, place + _ROW * (k // columns)
        sample = swatch(style).replace("<svg ", f'<svg x="{x}" y="{y:g}" width="28" height="12" ', 1)
        parts.append(f'{sample}<text x="{x + 34}" y="{y + 10:g}">{escape(_cut(name, 50))}</text>')
    place += _ROW * -(-len(names) // columns)
    if note:
        place += _ROW
        parts.append(f'<text x="4" y="{place - 4:g}">{escape(note)}</text>')
    across, down = width + 2 * _EDGE, place + 2 * _EDGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" width="{across}" height="{down:g}" '
        f'viewBox="-{_EDGE} -{_EDGE} {across} {down:g}"><title>{escape(title)}</title><desc>{escape(about)}</desc>'
        f'<style>{STYLE}</style><path d="M-{_EDGE} -{_EDGE}h{across}v{down:g}h-{across}Z" fill="#fff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def cloud(title: str, about: str, places: Sequence[tuple[float, float]], marked: Sequence[bool]) -> str:
    """Points without axes (only their nearness means something); the marked ones dark, larger and on top."""
    xs, ys = [x for x, _ in places], [y for _, y in places]
    size, edge = WIDTH - 24, 12
    span = max(max(xs) - min(xs), max(ys) - min(ys), 1e-12)
    left = edge + (size - size * (max(xs) - min(xs)) / span) / 2
    head = 24
    height = head + size * (max(ys) - min(ys)) / span + edge

    def dots(wanted: bool) -> str:
        return "".join(
            f"M{_short(left + size * (x - min(xs)) / span)} {_short(head + size * (y - min(ys)) / span)}h0"
            for (x, y), mark in zip(places, marked, strict=True)
            if mark == wanted
        )

    body = (
        f'{_head(title)}<path d="{dots(False)}" class="dot" stroke="#9db4c8" stroke-width="4"/>'
        f'<path d="{dots(True)}" class="dot" stroke="#b3400a" stroke-width="6.5"/>'
    )
    return picture(title, about, math.ceil(height), body)


def picture(title: str, about: str, height: float, body: str) -> str:
    """The SVG element with its text alternative."""
    return (
        f'<svg class="plot" role="img" viewBox="0 0 {WIDTH} {height:g}"><title>{escape(title)}</title>'
        f"<desc>{escape(about)}</desc>{body}</svg>"
    )


class _Frame(NamedTuple):
    """Where numbers lie in a plot with two axes."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    height: int = 244

    @staticmethod
    def around(
        xs: Sequence[float], ys: Sequence[float], from_zero: bool, pad: float = 0.0, spread: float = 0.0
    ) -> _Frame:
        low, high = min(xs), max(xs)
        room = max(pad * (high - low), spread * 0.5 if high - low < spread else 0.0)
        if high - low + 2 * room == 0:
            room = 1.0
        bottom = 0.0 if from_zero and min(ys) >= 0 else min(ys)
        top = max(ys)
        if top == bottom:
            top = bottom + 1.0
        return _Frame((low - room, high + room), (bottom, top + 0.04 * (top - bottom)))

    def x(self, value: float) -> str:
        low, high = self.x_range
        return _short(LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low))

    def y(self, value: float) -> str:
        low, high = self.y_range
        return _short(self.height - BOTTOM - (self.height - TOP - BOTTOM) * (value - low) / (high - low))

    def axes(self, x_name: str, y_name: str, x_words: Worded, y_words: Worded, by_powers: bool = False) -> str:
        """Ticks, a grid, what x is below and what y is above."""
        parts, bottom = [], self.height - BOTTOM
        for value in ticks(*self.y_range):
            y = self.y(value)
            parts.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" class="grid"/>')
            parts.append(f'<text x="{LEFT - 5}" y="{y}" dy="4" text-anchor="end">{escape(y_words(value))}</text>')
        for value in powers(*self.x_range) if by_powers else ticks(*self.x_range, about=4):
            x = self.x(value)
            parts.append(f'<path d="M{x} {bottom}v4" class="axis"/>')
            parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{escape(x_words(value))}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<path d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}" class="axis"/>')
        parts.append(f'<text x="{middle:g}" y="{self.height - 6}" text-anchor="middle">{escape(x_name)}</text>')
        parts.append(_head(y_name))
        return "".join(parts)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two bounds: steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def powers(low: float, high: float) -> list[float]:
    """Powers of ten between two logarithms; where there are few, 2 and 5 times them too."""
    steps = (1, 2, 5) if high - low < 2 else (1,)
    every = [k + math.log10(m) for k in range(math.floor(low), math.ceil(high) + 1) for m in steps]
    return [one for one in every if low <= one <= high]


def _mark(x: float, y: float, style: int, size: float = 4.0) -> str:
    paint, kind = colour(style), _MARKS[_turned(style) % len(_MARKS)]
    if kind == "circle":
        return f'<circle cx="{x:g}" cy="{y:g}" r="{size:g}" fill="{paint}"/>'
    s, d = size, 1.3 * size
    path = {
        "square": f"M{x - s:g} {y - s:g}h{2 * s:g}v{2 * s:g}h{-2 * s:g}Z",
        "triangle": f"M{x:g} {y - 1.2 * s:g}l{1.2 * s:g} {2.2 * s:g}h{-2.4 * s:g}Z",
        "diamond": f"M{x:g} {y - d:g}l{d:g} {d:g}l{-d:g} {d:g}l{-d:g} {-d:g}Z",
    }[kind]
    return f'<path d="{path}" fill="{paint}"/>'


def _turned(style: int) -> int:
    """When colours come round again, dashes and marks are other ones."""
    return style + style // len(_COLOURS)


def _head(text: str) -> str:
    return f'<text x="4" y="14" class="head">{escape(_cut(text, 50))}</text>'


def _dash(style: int) -> str:
    dash = _DASHES[_turned(style) % len(_DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _float(text: str) -> float:
    return float(text)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
