"""What a paper's page shows: every figure of a record is drawn, at its place, and says what it is."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from coterie.protocol.rules import PAPER_WARNING
from coterie.report import svg
from coterie.report.pictures import pictures

SVG = "{http://www.w3.org/2000/svg}"


def drawn(entry: dict[str, Any], figures: dict[str, Any] | None = None, of: str = "fedrap", **values: Any) -> Any:
    """The one picture of an entry; `values` are clean and paper figures by row."""
    entry = {"title": "A <title>", "datasets": ["ml-100k"], "metrics": ["HR@10"], "percent": True} | entry
    found = {
        (entry["id"], row, who): {"values": {"HR@10": {"mean": mean, "low": mean - 1, "high": mean + 1}}}
        for who, rows in values.items()
        for row, mean in rows.items()
    }
    made = pictures({"name": of, "entries": [entry]}, "ml-100k", {"figures": figures or {}}, found)
    return made.get(entry["id"])


def words(picture: Any) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(picture.text).iter(f"{SVG}text")]


def places(picture: Any, tag: str, which: str) -> list[float]:
    """Of all plots together: of marks that stand for a value, without those of the legend."""
    root = ElementTree.fromstring(picture.text)
    plots = [one for one in root.findall(f"{SVG}svg") if one.get("class") == "plot"]
    return [float(one.get(which, "nan")) for plot in plots for one in plot.iter(f"{SVG}{tag}")]


ROWS = [{"system": "A", "published": {"ml-100k": [{"value": 50.0}]}}, {"system": "B & C"}, {"system": "never run"}]


def test_a_table_has_a_mark_for_each_figure_where_it_belongs() -> None:
    picture = drawn({"id": "table 3", "rows": ROWS}, clean={"A": 25.0, "B & C": 100.0}, paper={"A": 75.0})
    assert picture.file == "ml-100k-table-3.svg" and PAPER_WARNING in picture.about
    said = words(picture)
    assert {"A", "B & C", "published", "clean protocol", "paper's protocol", PAPER_WARNING} <= set(said)
    assert "never run" not in said
    a, b = places(picture, "circle", "cx")  # clean
    assert (b - 10) / (a - 10) == pytest.approx(4.0, abs=0.02)  # from 0 at 10 on
    assert PAPER_WARNING not in drawn({"id": "table 2", "rows": ROWS}, clean={"A": 25.0}).text


def test_rows_that_differ_by_a_number_become_a_curve() -> None:
    rows = [{"system": f"noise {x}"} for x in (0, 0.1, 0.4)]
    picture = drawn({"id": "table 6", "rows": rows}, clean={f"noise {x}": 50.0 for x in (0, 0.1, 0.4)},
                    paper={f"noise {x}": 60.0 for x in (0, 0.1, 0.4)})  # fmt: skip
    root = ElementTree.fromstring(picture.text)
    lines = [one for one in root.iter(f"{SVG}path") if one.get("fill") == "none" and "L" in one.get("d", "")]
    assert len(lines) == 2 and len(list(root.findall(f"{SVG}svg[@class='plot']"))) == 1
    xs = [float(point.split()[0]) for point in lines[0].get("d", "")[1:].split("L")]
    assert (xs[2] - xs[0]) / (xs[1] - xs[0]) == pytest.approx(4.0, abs=0.02)
    graphs = [f"{kind} graph, {share} % of pairs" for share in (10, 50) for kind in ("BA", "WS")]
    several = drawn({"id": "table 7", "rows": [{"system": one} for one in graphs]},
                    clean=dict.fromkeys(graphs, 50.0), paper=dict.fromkeys(graphs, 60.0))  # fmt: skip
    assert {"BA graph", "WS graph", "% of pairs", "HR@10, %: clean protocol"} <= set(words(several))


def test_curves_by_round_share_their_scale_and_carry_the_warning() -> None:
    lines = {"A [paper]": {"x": [5, 10], "y": [0.2, 0.9]}, "A [clean]": {"x": [5, 10], "y": [0.2, 0.3]},
             "flat [clean]": {"x": [1], "y": [0.1]}}  # fmt: skip
    entry = {"id": "figure 3", "draw": "convergence"}
    picture = drawn(entry, {"figure 3": {"lines": lines, "x": "round", "y": "HR@10"}})
    said = words(picture)
    assert said.count("80") == 2 and PAPER_WARNING in said and {"A", "flat"} <= set(said)
    assert (
        drawn(entry, {"figure 3": {"lines": lines, "x": "round", "y": "HR@10"}}, "federank").text.count("held-out") == 0
    )
    assert drawn(entry) is None


def test_maps_and_curves_of_sharing_are_drawn() -> None:
    spots = {"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 0.5]}
    numbers = {"points": {"D [paper]": spots, "D [clean]": spots}, "rated": 1, "unrated": 2, "apart": {}}
    picture = drawn({"id": "figure 6", "draw": "item-map"}, {"figure 6": numbers})
    assert PAPER_WARNING in words(picture)
    dots = [
        one.get("d", "") for one in ElementTree.fromstring(picture.text).iter(f"{SVG}path") if one.get("class") == "dot"
    ]
    assert [one.count("h0") for one in dots] == [2, 1, 2, 1]  # the others, then those she rated
    points = [{"T": T, "pi": pi, "test": {"F1@10": pi / 2}} for T in ("average", 1) for pi in (0.0, 0.5, 1.0)]
    curve = drawn({"id": "figure 1", "draw": "federank-curve"}, {"figure 1": {"points": points}}, "federank")
    assert {"T average", "T 1", "F1@10", "pi"} <= set(words(curve)) and PAPER_WARNING not in curve.text
    shares = [{"T": 1, "pi": pi, "share_of_first": {"10": pi}} for pi in (0.0, 1.0)]
    share = drawn({"id": "figure 2", "draw": "federank-updates"}, {"figure 2": {"shares": shares}}, "federank")
    assert "share of the first 10" in words(share)


def test_no_two_of_sixteen_styles_are_alike() -> None:
    assert len({svg.swatch(style) for style in range(16)}) == 16
