"""`coterie study privacy`: tables, findings and drawing are made from runs, and say what is not guaranteed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from coterie.cli import app
from coterie.data import load
from coterie.report import privacy_audit, privacy_tables

SMALL = "synthetic:users=40,items=60"


def test_the_rows_are_the_papers() -> None:
    rows = privacy_tables.fedrap_rows(1682)
    assert len(rows) == 4 * 2 * 3 and {row.protocol for row in rows} == {"paper:fedrap", "clean"}
    noised = [row for row in rows if row.noise == "as the paper has it"]
    assert all(row.privacy == {"mechanism": "fedrap-noise", "clip": 0.1, "noise": 1.0} for row in noised)
    real = next(row for row in rows if row.system == "pfedrec" and row.noise == "local Gaussian")
    assert real.privacy["clip"] == pytest.approx(8.0 * 1682 * 0.1)
    table6 = privacy_tables.gpfedrec_rows()
    assert [row.privacy.get("noise", 0.0) for row in table6[:6]] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert {row.privacy.get("mechanism") for row in table6} == {None, "gpfedrec-noise", "local-laplace"}


def test_a_table_says_what_each_row_guarantees(tmp_path: Path) -> None:
    rows = [row for row in privacy_tables.fedrap_rows(60) if row.system == "fedmf" and row.protocol == "paper:fedrap"]
    data, said = load(SMALL), []
    for _ in range(2):  # the second time nothing is run
        measured = privacy_tables.measure(rows, data, tmp_path, 1, 0, 1, 1, said.append)
    assert sum(one.startswith("running") for one in said) == 3
    none, paper, real = (one["guarantees"] for one in measured)
    assert none["epsilon"] is None and paper["epsilon"] is None and "guarantees nothing" in paper["why"]
    assert real["epsilon_server"] > 0 and real["private"] and not paper["private"]
    assert all("held-out items shape" in one["warning"] for one in measured)
    found = {"title": "T", "about": "A", "rows": measured, "mechanisms": {"x": "y"}, "notes": ["n"], "command": "c"}
    text = privacy_tables.page(json.loads(json.dumps(found)))
    assert "none (for who sees the mean alone" in text and "62.57 / 34.51" in text and "held-out items shape" in text


def test_findings_and_drawing_come_from_audits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ("fedmf, nothing", "fedmf, local Gaussian z=0.1", "fedmf, central z=1, server trusted")
    some = tuple(one for one in privacy_audit.SETTINGS if one.name in wanted)
    monkeypatch.setattr(privacy_audit, "SETTINGS", some)
    out, html = tmp_path / "privacy.json", tmp_path / "plot.html"
    flags = ["--data", SMALL, "--runs", str(tmp_path / "runs"), "--out", str(out), "--rounds", "2", "--users", "20"]
    done = CliRunner().invoke(app, ["study", "privacy", "audit", *flags, "--html", str(html)])
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    plain, local, trusted = found["settings"]
    assert plain["strongest"]["auc"] > 0.99 and plain["epsilon_server"] is None
    assert local["users"] == 20 and local["epsilon_server"] > 0
    assert trusted["epsilon"] > 0 and trusted["epsilon_server"] is None, "the server sees each upload"
    assert not list((tmp_path / "runs").glob("*/server-view")), "views are large: deleted once audited"
    assert "fedmf, local Gaussian z=0.1" in out.with_suffix(".md").read_text() and "Plotly" in html.read_text()
    drawn = ElementTree.fromstring(out.with_suffix(".svg").read_text())
    titles = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [name for one in found["settings"] for name in (one["name"],) * 2]


def test_a_row_that_diverged_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(privacy_tables.SETTINGS, "fedmf", {"lr_item": 1e6})
    rows = privacy_tables.fedrap_rows(60)[:1]
    assert rows[0].system == "fedmf" and rows[0].noise == "none"
    for _ in range(2):  # a folder left behind by the first time is no hindrance
        (measured,) = privacy_tables.measure(rows, load(SMALL), tmp_path, 3, 0, 1, 1, lambda _: None)
    assert "diverged" in measured["diverged"] and str(tmp_path) not in measured["diverged"]
    assert measured["last"] is None and measured["rounds_published"] == 200 and measured["settings"]["lr_item"] == 1e6
    assert measured["guarantees"]["epsilon"] is None and "held-out items shape" in measured["warning"]
    found = {"title": "T", "about": "A", "rows": [measured], "mechanisms": {}, "notes": [], "command": "c"}
    assert "| 65.05 / 38.40 | diverged | diverged | diverged | none |" in privacy_tables.page(found)


def test_what_is_said_of_hidden_items_is_what_was_measured() -> None:
    names = ("support", "frequency", "absence", "frequency + popularity", "row norm", "rank-1 score",
             "shadow that knows popularity")  # fmt: skip

    def row(name: str, auc: float) -> dict[str, Any]:
        one = {"auc": auc, "uplift": auc - 0.75, "uplift_interval": [auc - 0.76, auc - 0.74]}
        return {"name": name, "attacks": dict.fromkeys(names, one)}

    hard, even = row("federank fixed-subset, pi=0", 0.777), row("federank fixed-subset, pi=0, even negatives", 0.505)
    first, second = privacy_audit.hidden_items([hard, even])
    assert "AUC 0.777" in first and "falls to 0.505" in first and "+0.0270 [+0.0170, +0.0370]" in first
    assert "is +0.027 from popularity" in first and "AUC 0.505 with even draws (0.777" in second
    assert privacy_audit.hidden_items([hard]) == []
