"""The page: every section is there, everything is escaped, nothing is fetched, plots have words and numbers."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import coterie
from coterie.cli import app
from coterie.errors import CoterieError
from coterie.report import markup, svg
from coterie.report.people_sections import flat_places

SECTIONS = (
    "What was run", "Results", "Curves by round", "Communication against quality", "Coverage and popularity",
    "How it spreads over people", "Sparsity of the shared table C", "A map of the items", "What left each device",
)  # fmt: skip
VOID = {"meta", "link", "path", "circle", "br"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """fedrap, fedmf (two seeds) and mostpop on a small world, fedrap under the paper's protocol."""
    root = tmp_path_factory.mktemp("runs")
    data = coterie.load("synthetic:users=60,items=80")
    coterie.run("fedrap", data, rounds=4, evaluate_every=2, out=root / "fedrap", threads=1)
    for seed in (0, 1):
        coterie.run("fedmf", data, rounds=4, evaluate_every=2, seed=seed, out=root / f"fedmf{seed}", threads=1)
    coterie.run("mostpop", data, out=root / "mostpop", threads=1)
    coterie.run("fedrap", data, protocol="paper", rounds=4, out=root / "paper", threads=1)
    return [root / name for name in ("fedrap", "fedmf0", "fedmf1", "mostpop", "paper")]


@pytest.fixture(scope="module")
def written(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return coterie.report(folders, tmp_path_factory.mktemp("page") / "report.html").read_text()


class Tags(HTMLParser):
    """Every element with its attributes; fails on elements that are closed in the wrong order or never."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag


def test_every_section_is_there_for_each_kind_of_measurement(written: str) -> None:
    for name in SECTIONS:
        assert len(re.findall(f"<h3>{name}", written)) == 2, name
    for name in ("fedrap", "fedmf", "mostpop", "fedrap [paper:fedrap]"):
        assert name in written
    assert "epsilon" not in written.split("<footer>")[0].split("What left each device")[0], "nobody made noise"


def test_the_paper_protocol_is_in_plain_sight(written: str) -> None:
    words = "paper protocol: held-out items shape the negatives"
    top, clean, paper = written.split("<h2")
    assert f'<p class="warning" role="note">{words}' in top and "cannot be compared with each other" in top
    assert words not in clean
    figures = re.findall(r"<figcaption>.*?</figcaption>", paper)
    assert len(figures) >= 6 and all(words in one for one in figures)


def test_the_page_is_well_formed_and_fetches_nothing(written: str) -> None:
    found = Tags(written).seen
    assert not [tag for tag, _ in found if tag in ("script", "img", "iframe", "object", "embed", "base")]
    assert [attrs["href"] for _, attrs in found if "href" in attrs] == ["data:,"]
    assert not [attrs for _, attrs in found if "src" in attrs or "onload" in attrs]
    assert "http://" not in written and "https://" not in written and "url(" not in written and "@import" not in written
    assert "default-src &#x27;none&#x27;" in written


def test_each_plot_has_words_and_each_figure_its_numbers(written: str) -> None:
    plots = re.findall(r'<svg class="plot".*?</svg>', written)
    assert len(plots) > 20
    for one in plots:
        tree = ET.fromstring(one)
        assert tree.get("role") == "img" and tree.get("viewBox", "").startswith("0 0 360 ")
        title, about = tree.find("title"), tree.find("desc")
        assert title is not None and title.text and about is not None and len(about.text or "") > 20
        places = [float(n) for path in tree.iter("path") for n in re.findall(r"-?\d+\.?\d*", path.get("d", ""))]
        assert np.isfinite(places).all() and "nan" not in one and "inf" not in re.sub(r"<(title|desc)>.*?</", "", one)
    figures = re.findall(r"<figure>.*?</figure>", written)
    assert figures and all("<details" in one and "<table>" in one and one.count("<tr>") > 1 for one in figures)


def test_numbers_on_the_page_are_those_of_compare(folders: list[Path], written: str) -> None:
    for row in coterie.compare(folders):
        value = row["full.NDCG@10"]
        assert f"{value['mean']:.3f}" in written and f"[{value['low']:.3f}, {value['high']:.3f}]" in written
        assert f"{row['Coverage@10']:.4g}" in written


def test_titles_and_ids_cannot_break_out(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    rows = [f"u{u}\"'><b>,i{i}{evil},{10 * u + i}" for u in range(12) for i in range(10) if (u + i) % 3]
    source = tmp_path / "evil<i>.csv"
    source.write_text("user_id,item_id,timestamp\n" + "\n".join(row.replace('"', "") for row in rows) + "\n")
    coterie.run("fedrap", source, rounds=2, out=tmp_path / "run&<x>", threads=1)
    out = coterie.report([tmp_path / "run&<x>"], tmp_path / "r.html", title=f"A {evil} & more")
    text = out.read_text()
    assert "<script" not in text and "<b>" not in text and "<i>" not in text and "<x>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text and "A &lt;script&gt;" in text
    Tags(text)


def test_a_run_that_kept_no_model_says_so_instead(tmp_path: Path) -> None:
    data = coterie.load("synthetic:users=40,items=60")
    found = coterie.run("fedrap", data, rounds=2, out=tmp_path / "a", keep="nothing", threads=1)
    text = coterie.report([found], tmp_path / "r.html").read_text()
    assert "no map:" in text and "the run kept no model" in text and "rows not counted" in text
    assert "None of these runs has a shared and a private table" not in text


def test_the_page_leaves_a_run_as_it_was(tmp_path: Path) -> None:
    data = coterie.load("synthetic:users=40,items=60")
    found = coterie.run("fedrap", data, rounds=2, out=tmp_path / "a", threads=1)
    before = found.recommend(data.user_ids[3], n=10)
    one = coterie.report([found], tmp_path / "r.html").read_bytes()
    assert found.recommend(data.user_ids[3], n=10) == before
    assert coterie.report([tmp_path / "a"], tmp_path / "r2.html", user=data.user_ids[3]).read_bytes() != one


def test_the_map_is_of_the_person_asked_for(folders: list[Path], tmp_path: Path) -> None:
    answer = CliRunner().invoke(
        app, ["report", str(folders[0]), str(folders[3]), "-o", str(tmp_path / "deep" / "r.html"), "--user", "u07"]
    )
    assert answer.exit_code == 0, answer.output
    text = (tmp_path / "deep" / "r.html").read_text()
    prepared = coterie.open(folders[0]).prepared
    hers = len(prepared.train.of(prepared.data.user_number["u07"]))
    assert f"person u07 sees them (t-SNE), dark the {hers} she trained on" in text
    assert "nothing is fetched" in answer.stdout


def test_somebody_unknown_is_an_error_if_no_run_knows_her(folders: list[Path], tmp_path: Path) -> None:
    words = ["report", str(folders[0]), str(folders[3]), "-o", str(tmp_path / "r.html"), "--user"]
    problem = CliRunner().invoke(app, [*words, "nobody"]).exception
    assert isinstance(problem, CoterieError) and "user 'nobody' is not among the 60 users" in str(problem)
    assert not (tmp_path / "r.html").exists()
    coterie.run("fedrap", "synthetic:users=70,items=80", rounds=2, out=tmp_path / "more", threads=1)
    text = coterie.report([folders[0], tmp_path / "more"], tmp_path / "r.html", user="u65").read_text()
    assert "as the device of person u65 sees them" in text and "no map: user &#x27;u65&#x27; is not among" in text


def test_that_nobody_has_two_tables_is_said_only_where_it_is_so(folders: list[Path], tmp_path: Path) -> None:
    words = "None of these runs has a shared and a private table"
    assert words in coterie.report([folders[1], folders[3]], tmp_path / "r.html").read_text()
    rows = [f"u{u},i{i},{10 * u + i}" for u in range(12) for i in range(10) if (u + i) % 3]
    source = tmp_path / "gone.csv"
    source.write_text("user_id,item_id,timestamp\n" + "\n".join(rows) + "\n")
    coterie.run("fedrap", source, rounds=2, out=tmp_path / "run", threads=1)
    source.unlink()
    for user in (None, "u1"):
        text = coterie.report([tmp_path / "run"], tmp_path / "r.html", user=user).read_text()
        assert words not in text and re.search(r"fedrap: no map: [^<]*gone\.csv", text)


def test_the_map_needs_no_record_of_single_users(folders: list[Path], tmp_path: Path) -> None:
    table = pl.read_parquet(folders[0] / "users.parquet").sort("history", "user_id")
    ordinary = f"as the device of person {table['user_id'][len(table) // 2]} sees them"
    assert ordinary in coterie.report([folders[0]], tmp_path / "r.html").read_text()
    bare = shutil.copytree(folders[0], tmp_path / "bare")
    (bare / "users.parquet").unlink()
    assert ordinary in coterie.report([bare], tmp_path / "r.html").read_text()


def test_a_page_that_cannot_be_written_there_is_refused(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(CoterieError, match=r"is a folder; say which file .*report\.html"):
        coterie.report([folders[3]], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CoterieError, match=r"file is a file, so nothing can be written in it"):
        coterie.report([folders[3]], tmp_path / "file" / "r.html")


def test_a_paper_protocols_canary_does_not_stand_beside_a_plain_yes(written: str) -> None:
    clean, paper = written.split("<h2")[1:]
    assert "<td>by its protocol</td>" in paper and "<td>yes</td>" not in paper.split("<h3>Results")[0]
    assert "<td>yes</td>" in clean.split("<h3>Results")[0] and "by its protocol" not in clean
    assert '<td>valid</td><td class="text">no: held-out items could be told' in written


def test_one_is_not_several(folders: list[Path], tmp_path: Path) -> None:
    text = coterie.report([folders[0], folders[3]], tmp_path / "r.html").read_text()
    assert "corrected by Holm for 1 comparison on this page" in text and "2 runs of 2 systems" in text
    assert "1 run of 1 system;" in coterie.report([folders[3]], tmp_path / "r.html").read_text()


def test_what_is_of_one_seed_says_so(written: str) -> None:
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", written)
    for words in ("What a sparse exchange could leave out", "sees them (t-SNE)", "Item rows in one upload"):
        mine = [one for one in captions if words in one]
        assert mine and all("first seed" in one for one in mine), words


def test_without_scikit_learn_the_map_is_of_principal_components(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    draw = np.random.default_rng(0)
    table = draw.normal(size=(40, 8)) * np.array([9.0, 4.0, *([0.1] * 6)])
    assert flat_places(table)[1] == "t-SNE"
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    places, how = flat_places(table)
    assert "pip install 'coterie[report]'" in how
    for k in (0, 1):
        assert abs(np.corrcoef(places[:, k], table[:, k])[0, 1]) > 0.99


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_round_and_inside(low: float, span: float) -> None:
    found = svg.ticks(low, low + span)
    assert 2 <= len(found) <= 7
    assert all(low - 1e-9 * abs(low) - 1e-9 * span <= one <= low + span + 1e-9 * (abs(low) + span) for one in found)


def test_a_curve_lies_where_its_numbers_say() -> None:
    tree = ET.fromstring(svg.lines("t", "a", [svg.Line("one", 0, [0, 10], [0.0, 1.0])], "x", "y"))
    curve = next(p for p in tree.iter("path") if p.get("stroke-width") == "2").get("d", "")
    (x0, y0), (x1, y1) = (tuple(map(float, pair.split())) for pair in curve[1:].split("L"))
    assert (x0, x1) == (svg.LEFT, svg.WIDTH - svg.RIGHT) and y0 == 244 - svg.BOTTOM
    assert y1 == pytest.approx(y0 - (y0 - svg.TOP) / 1.04, abs=0.06)


def test_bars_are_as_long_as_their_values_and_intervals_stand_right() -> None:
    text = svg.bars("t", "a", [svg.Bar("<b>", 0, 0.5, 0.25, 1.0), svg.Bar("two", 1, 0.25)])
    first, ends, second = (p.get("d", "") for p in ET.fromstring(text).iter("path"))
    assert float(first.split("H")[1].split("v")[0]) == 4 + 352 * 0.5
    assert float(second.split("H")[1].split("v")[0]) == 4 + 352 * 0.25
    assert ends.startswith("M92 ") and "M356 " in ends
    assert "&lt;b&gt;" in text


def test_powers_of_ten_on_an_axis() -> None:
    assert svg.powers(3.0, 6.0) == [3.0, 4.0, 5.0, 6.0]
    assert [round(10**one) for one in svg.powers(3.0, 4.0)] == [1000, 2000, 5000, 10000]


def test_cells_are_escaped_and_missing_ones_shown() -> None:
    assert markup.table(["<h>"], [["<b>"], [None], [True], [0.123456]]).count("<td") == 4
    assert "&lt;h&gt;" in markup.table(["<h>"], []) and "0.1235" in markup.table(["h"], [[0.123456]])
