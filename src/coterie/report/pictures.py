"""What a paper's page shows of its tables and drawings: SVG files beside it, made from the records alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from coterie.protocol.rules import PAPER_WARNING
from coterie.report import svg
from coterie.report.plan import label

Key = tuple[str, str, str]  # entry, row, protocol: where a figure stands in a record
_STYLES = {"clean": 0, "paper": 1, "published": 6}
_WORDS = {"published": "published", "paper": "paper's protocol", "clean": "clean protocol"}
# rows that differ by a number: "noise 0.1", "BA graph, 10 % of pairs"
_SWEPT = re.compile(r"(?P<kind>\D+?),? (?P<at>\d+(?:\.\d+)?)(?P<unit> %[^%]*)?")


class Picture(NamedTuple):
    file: str
    about: str  # its text alternative
    text: str  # the SVG


class _Drawn(NamedTuple):
    plots: list[str]
    names: list[tuple[str, int]]  # the legend: what is drawn in which style
    paper: bool = False  # whether anything of the paper's protocol is in it


def pictures(
    paper: Mapping[str, Any], name: str, record: Mapping[str, Any], found: Mapping[Key, Mapping[str, Any]]
) -> dict[str, Picture]:
    """By the entry's id, what can be shown of a data set's record."""
    drawn = {}
    for entry in (one for one in paper["entries"] if name in one["datasets"]):
        title = f"{str(entry['id']).capitalize()} on {name}: {entry['title']}"
        made = _of_rows(entry, name, found) if "rows" in entry else _of_numbers(record["figures"].get(entry["id"]))
        if made is None:
            continue
        warned = made.paper and paper["name"] != "federank"
        about = f"{title}{f' ({PAPER_WARNING})' if warned else ''}. The numbers are in {name}.json"
        text = svg.sheet(title, about, made.plots, made.names, PAPER_WARNING if warned else "")
        drawn[entry["id"]] = Picture(f"{name}-{entry['id'].replace(' ', '-')}.svg", about, text)
    return drawn


def _of_rows(entry: Mapping[str, Any], name: str, found: Mapping[Key, Mapping[str, Any]]) -> _Drawn | None:
    """A table's first metric: marks beside each other, or curves where rows differ by a number."""
    values = {row: {who: one for who, one in _values(entry, row, name, found).items()} for row in _named(entry)}
    shown = {row: some for row, some in values.items() if "paper" in some or "clean" in some}
    if not shown:
        return None
    swept = {row: said for row in shown if (said := _SWEPT.fullmatch(row))}
    if len(swept) == len(shown) > 2:
        return _curves(entry["metrics"][0], shown, swept)
    kinds = [who for who in _WORDS if any(who in some for some in shown.values())]
    rows = [svg.Row(row, [some[who] for who in kinds if who in some]) for row, some in shown.items()]
    metric = f"{entry['metrics'][0]}{', %' if entry['percent'] else ''}"
    return _Drawn([svg.rows(metric, metric, metric, rows)], _legend(kinds), "paper" in kinds)


def _legend(kinds: Sequence[str]) -> list[tuple[str, int]]:
    return [(_WORDS[who], _STYLES[who]) for who in kinds]


def _named(entry: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {label(row): row for row in entry["rows"]}


def _values(
    entry: Mapping[str, Any], row: str, name: str, found: Mapping[Key, Mapping[str, Any]]
) -> dict[str, svg.Bar]:
    """The first metric of a row, as it was published and as it came out here."""
    values = {}
    printed = _named(entry)[row].get("published", {}).get(name)
    if printed and printed[0] is not None:
        values["published"] = svg.Bar(row, _STYLES["published"], float(printed[0]["value"]))
    for who in ("paper", "clean"):
        cell = found.get((entry["id"], row, who))
        if cell is not None and cell["values"] is not None:
            one = cell["values"][entry["metrics"][0]]
            values[who] = svg.Bar(row, _STYLES[who], one["mean"], one.get("low"), one.get("high"))
    return values


def _curves(metric: str, shown: Mapping[str, Mapping[str, svg.Bar]], swept: Mapping[str, re.Match[str]]) -> _Drawn:
    """One kind of row: a curve for each column. Several kinds: a plot for each column, a curve for each kind."""
    kinds = list(dict.fromkeys(said["kind"] for said in swept.values()))
    columns = [who for who in _WORDS if any(who in some for some in shown.values())]

    def curve(kind: str, who: str, style: int) -> svg.Line:
        points = [
            (float(said["at"]), shown[row][who])
            for row, said in swept.items()
            if said["kind"] == kind and who in shown[row]
        ]
        banded = len(kinds) == 1 and all(v.low is not None for _, v in points)
        band = ([v.low or 0.0 for _, v in points], [v.high or 0.0 for _, v in points]) if banded else (None, None)
        return svg.Line(kind, style, [x for x, _ in points], [v.value for _, v in points], *band)

    if len(kinds) == 1:
        lines = [curve(kinds[0], who, _STYLES[who]) for who in columns]
        plots = [svg.lines(kinds[0], metric, lines, kinds[0], f"{metric}, %", from_zero=False)]
        return _Drawn(plots, _legend(columns), "paper" in columns)
    unit = next(iter(swept.values()))["unit"].strip()
    reach = [v.value for some in shown.values() for v in some.values()]
    plots = []
    for who in columns:
        head, lines = f"{metric}, %: {_WORDS[who]}", [curve(kind, who, k) for k, kind in enumerate(kinds)]
        plots.append(svg.lines(head, metric, lines, unit, head, from_zero=False, reach=reach))
    return _Drawn(plots, [(kind, k) for k, kind in enumerate(kinds)], "paper" in columns)


def _of_numbers(numbers: Mapping[str, Any] | None) -> _Drawn | None:
    """A drawing, by what its record holds."""
    if numbers is None:
        return None
    if "points" in numbers and "rated" in numbers:
        return _clouds(numbers)
    if "points" in numbers:
        metrics = list(numbers["points"][0]["test"])
        return _by_pi([(f"T {one['T']}", one["pi"], one["test"]) for one in numbers["points"]], metrics)
    if "shares" in numbers:
        firsts = list(numbers["shares"][0]["share_of_first"])
        every = [(f"T {one['T']}", one["pi"], one["share_of_first"]) for one in numbers["shares"]]
        return _by_pi(every, firsts, "share of the first {}")
    return _by_round(numbers) if "lines" in numbers else None


def _by_pi(
    every: Sequence[tuple[str, float, Mapping[str, float]]], metrics: Sequence[str], words: str = "{}"
) -> _Drawn:
    """A plot for each metric over the share that is sent; a curve for each number of triples a round."""
    kinds = list(dict.fromkeys(kind for kind, _, _ in every))
    plots = []
    for metric in metrics:
        lines = []
        for k, kind in enumerate(kinds):
            points = [(pi, float(values[metric])) for one, pi, values in every if one == kind]
            lines.append(svg.Line(kind, k, [pi for pi, _ in points], [y for _, y in points]))
        plots.append(svg.lines(words.format(metric), metric, lines, "pi", words.format(metric)))
    return _Drawn(plots, [(kind, k) for k, kind in enumerate(kinds)])


def _by_round(numbers: Mapping[str, Any]) -> _Drawn:
    """A plot for each protocol, with the same curve for a system in both; a level line is a system without rounds."""
    scale, words = percent(numbers["y"])
    lines = {split(name): line for name, line in numbers["lines"].items() if line["y"]}
    systems, protocols = (list(dict.fromkeys(key[part] for key in lines)) for part in (0, 1))
    reach = [scale * y for line in lines.values() for y in line["y"]]
    plots = []
    for who in protocols:
        drawn = [
            svg.Line(system, k, lines[system, who]["x"], [scale * y for y in lines[system, who]["y"]])
            for k, system in enumerate(systems)
            if (system, who) in lines
        ]
        head = f"{words}{who and ': ' + _WORDS[who]}"
        plots.append(svg.lines(head, head, drawn, str(numbers["x"]), head, reach=reach))
    return _Drawn(plots, [(system, k) for k, system in enumerate(systems)], "paper" in protocols)


def percent(measure: str) -> tuple[float, str]:
    """By what a measure is shown larger, and its name then: metrics are in % on the pages."""
    return (100.0, f"{measure}, %") if "@" in measure else (1.0, measure)


def split(name: str) -> tuple[str, str]:
    """ "FedRAP [paper]" -> ("FedRAP", "paper")"""
    system, _, who = name.removesuffix("]").partition(" [")
    return system, who


def _clouds(numbers: Mapping[str, Any]) -> _Drawn:
    plots = []
    for name, place in numbers["points"].items():
        spots = list(zip(place["x"], place["y"], strict=True))
        marked = [k < numbers["rated"] for k in range(len(spots))]  # those she rated stand first
        plots.append(svg.cloud(name, f"{name}: the items she rated dark", spots, marked))
    return _Drawn(plots, [], any(split(name)[1] == "paper" for name in numbers["points"]))
