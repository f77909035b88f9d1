"""`coterie data ...` and what `inspect` shows."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from coterie.data import inspect, load, parse_columns, render_inspection
from coterie.data.commands import app
from coterie.data.inspection import bar
from coterie.errors import CoterieError


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    Path("a.csv").write_bytes(b"who,what,stars,time\na,x,5,9\na,y,4,9\na,x,3,7\nb,x,1,2\nc,y,1,1\nc,x,2,1\nc,z,2,5\n")
    return tmp_path


COLUMNS = "user=who,item=what,rating=stars,timestamp=4"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_counts_by_hand(small: Path) -> None:
    data = load("a.csv", columns={"user": "1", "item": "2", "rating": "3", "timestamp": "4"})
    report = inspect(data)
    assert (report["users"], report["items"], report["interactions"], report["repeated_pairs"]) == (3, 3, 7, 1)
    assert report["sparsity"] == pytest.approx(1 - 7 / 9)
    assert report["histories"]["plot"] == [("1", 1), ("2 to 3", 2)]
    assert report["popularity"]["most"] == 4 and sum(
        share for _, share in report["popularity"]["plot"]
    ) == pytest.approx(1)
    assert report["times"] == {"first": "1970-01-01", "last": "1970-01-01", "tied_rows": 2, "users_with_tied_last": 1}
    assert report["papers"] == []


def test_picture(small: Path) -> None:
    out = io.StringIO()
    data = load("a.csv", columns=parse_columns("user=who,item=what"))
    Console(file=out, width=120).print(render_inspection(inspect(data)))
    shown = out.getvalue()
    assert "7, of which 1 repeat an earlier pair" in shown and "none: order in the file is the only clock" in shown
    assert "in 7 = kept 7 + quarantined 0" in shown
    assert "█" * 36 in shown and "█" * 18 in shown


def test_bars_are_exact() -> None:
    assert [bar(share, 2) for share in (0, 1 / 16, 0.5, 15 / 16, 1, 7)] == ["", "▏", "█", "█▉", "██", "██"]


def test_list(small: Path) -> None:
    shown = run("list", "--data-dir", "here")
    assert "synthetic" in shown and "lastfm-2k-tags" in shown and "Looked in: here" in shown


def test_inspect_and_convert(small: Path) -> None:
    report = json.loads(run("inspect", "a.csv", "--columns", COLUMNS, "--json"))
    assert report["interactions"] == 7
    assert "users by length of history" in run("inspect", "synthetic:users=20,items=30")
    assert "Written: out" in run("convert", "a.csv", "out", "--columns", COLUMNS)
    assert json.loads(run("inspect", "out", "--json"))["sha256"] == report["sha256"]


def test_quarantine_from_the_command_line(small: Path) -> None:
    Path("b.csv").write_bytes(b"user,item,rating\na,x,1\nb,y,bad\n")
    shown = run("inspect", "b.csv", "--on-bad-row", "quarantine", "--quarantine", "aside.tsv")
    assert "in 2 = kept 1 + quarantined 1" in shown and Path("aside.tsv").is_file()


def test_fetch_asks_for_the_terms(small: Path) -> None:
    with pytest.raises(CoterieError, match="its terms must be accepted once"):
        run("fetch", "ml-100k")


@pytest.mark.parametrize("text", ["user", "user=", "user=a,item"])
def test_columns_as_text(text: str) -> None:
    with pytest.raises(CoterieError, match="expected role=name or role=number"):
        parse_columns(text)


def test_importing_is_cheap() -> None:
    heavy = ("polars", "rich", "typer", "urllib.request")
    code = f"import sys, coterie.data; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert done.stdout.strip() == "[]"


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
