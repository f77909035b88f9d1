"""What the commands behind docs/findings/central*.json keep, and how they cut histories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from benchmarks import central_figures, central_rows
from coterie.protocol import prepare, resolve
from tests.worlds import interactions


def test_a_few_runs_measured_anew_keep_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"one": "--algorithm als --data x", "two": "--algorithm bpr --data x", "three": "--algorithm mf --data x"}
    monkeypatch.setattr(central_figures, "RUNS", named)
    data, runs, out = coterie.synthetic(users=40, items=30, seed=1), tmp_path / "runs", tmp_path / "figures.json"
    out.write_text(json.dumps({"two": {"finished": True, "rounds": 7}, "an older name": {"finished": True}}))
    found = coterie.run(coterie.algorithms.make("als"), data, rounds=2, out=runs / "one", keep="nothing")
    (runs / "two").mkdir()  # stopped on the way: the finished figure stays
    (runs / "two" / "spec.json").write_bytes((runs / "one" / "spec.json").read_bytes())
    (runs / "two" / "rounds.jsonl").write_bytes((runs / "one" / "rounds.jsonl").read_bytes())
    central_figures.main(runs, out, [])
    kept: dict[str, Any] = json.loads(out.read_text())
    assert list(kept) == ["one", "two", "an older name"] and kept["two"] == {"finished": True, "rounds": 7}
    assert kept["one"]["test"]["full"]["NDCG@10"] == found.metrics["test"]["full"]["NDCG@10"]
    assert kept["one"]["command"] == "coterie run --algorithm als --data x"
    out.unlink()
    central_figures.main(runs, out, [])
    assert not json.loads(out.read_text())["two"]["finished"]


def test_the_last_fifth_rounded_to_the_nearest() -> None:
    lengths = [20, 22, 23, 27, 28]  # a fifth: 4, 4.4, 4.6, 5.4, 5.6
    prepared = prepare(interactions([list(range(n)) for n in lengths]), resolve("paper:federank", "federank"), 0)
    cut = central_rows.nearest(prepared)
    np.testing.assert_array_equal(prepared.test.lengths, [4, 4, 4, 5, 5])
    np.testing.assert_array_equal(cut.test.lengths, [4, 4, 5, 5, 6])
    for user, n in enumerate(lengths):
        np.testing.assert_array_equal(cut.test.of(user), np.arange(n - cut.test.lengths[user], n))
        np.testing.assert_array_equal(cut.validation.of(user), np.arange(n - cut.test.lengths[user]))
    assert not len(cut.train.items)
