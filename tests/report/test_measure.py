"""Benchmarks' results keep what other machines said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import measure


def test_a_result_stands_beside_the_last_ones_of_other_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    for processor, ratio in (("A", 1), ("B", 2), ("A", 3), ("C", 4), ("C", 5)):
        monkeypatch.setattr(measure, "_processor", lambda named=processor: named)
        path = measure.save("sums", {"ratio": ratio})
    found = json.loads(path.read_text())
    assert (found["hardware"]["cpu"], found["ratio"]) == ("C", 5)
    assert {name: one["ratio"] for name, one in found["elsewhere"].items()} == {"A": 3, "B": 2}
    assert not any("elsewhere" in one for one in found["elsewhere"].values())
