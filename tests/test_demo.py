"""What a newcomer sees first: the demo tells the leak by its figures, and what it says to type next works."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import coterie
from coterie.demo import demo


def test_the_demo_shows_the_leak_and_what_to_type_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = {one.name: coterie.open(one) for one in demo(tmp_path / "demo")}
    hits = {name: run.metrics["test"]["sampled"]["HR@10"] for name, run in places.items()}
    assert hits["fedrap-leak"] > 0.9 and hits["fedrap"] < 0.25 < hits["fedmf"]
    canaries = {name: places[name].summary["canary"]["HR@10"] for name in ("fedrap", "fedrap-leak")}
    assert canaries["fedrap-leak"] == 1.0 and canaries["fedrap"] < 0.2
    said = capsys.readouterr().out
    assert "paper protocol: held-out items shape the" in " ".join(said.split())
    typed = [
        line.strip() for line in said.replace("\n", "\0").split("\0") if line.strip().startswith(".venv/bin/coterie")
    ]
    assert len(typed) == 5
    folder = shlex.split(typed[0])[2]  # recommend FOLDER --user ...
    assert Path(folder) == tmp_path / "demo" / "fedmf"
    words = [sys.executable, "-c", "from coterie.cli import app; app()", *shlex.split(typed[0])[1:]]
    assert "u002" in subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout
