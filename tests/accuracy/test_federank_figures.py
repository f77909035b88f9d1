"""FedeRank's and FCF's figures with shipped defaults, the paper's split. About two CPU-minutes in all.

What is recorded in docs/findings/federank.json must come out again, and stay above the floors reached there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.algorithms import make
from coterie.engine.simulate import simulate, start
from coterie.evaluate.ranks import Task
from coterie.protocol import Prepared, prepare, resolve
from coterie.report.federank_rows import measure, refitted

pytestmark = pytest.mark.slow

FOUND: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "findings" / "federank.json").read_text())


def _prepared(data: str) -> Prepared:
    return prepare(coterie.load(data), resolve("paper:federank"), 0)


def test_the_published_popularity_row_is_that_of_80_percent(real_data: Path) -> None:
    prepared = _prepared("ml-1m")
    found = refitted(make("mostpop"), prepared, 1, 0, threads=1)
    assert round(found["Coverage@10"] * prepared.data.n_items) == 118
    assert found["1-Gini@10"] == pytest.approx(0.00569, abs=5e-6)


@pytest.mark.parametrize(("name", "least_f1"), [("federank", 0.051), ("fcf", 0.049)])
def test_on_64_percent_of_ml_1m_both_are_above_popularity(name: str, least_f1: float, real_data: Path) -> None:
    recorded, prepared, algorithm = FOUND["runs"][f"{name}-ml-1m"], _prepared("ml-1m"), make(name)
    assert recorded["settings"]["dim"] == algorithm.dim and recorded["settings"]["lr"] == algorithm.lr
    state = start(algorithm, prepared.history, 0)
    rounds = range(1, recorded["best_round"] + 1)
    for one in simulate(algorithm, prepared.history, state, rounds, 0, algorithm.default_cohort):
        state = one.state
    task = Task(prepared.test, (prepared.train, prepared.validation))
    found, _ = measure(algorithm, state, prepared, task, 1)
    assert found["Precision@10"] == pytest.approx(recorded["test"]["Precision@10"], rel=0.02)
    assert found["F1@10"] >= least_f1 > FOUND["rows"]["mostpop-ml-1m"]["test"]["F1@10"]


@pytest.mark.parametrize(("data", "published"), [("amazon-digital-music", 0.0142), ("ml-1m", 0.1160)])
def test_trained_on_80_percent_it_is_at_least_the_published(data: str, published: float, real_data: Path) -> None:
    recorded = FOUND["rows"][f"federank-{data}"]
    assert recorded["settings"] == repr(make("federank")), "the findings are of other defaults: measure them again"
    found = refitted(make("federank"), _prepared(data), recorded["chosen"]["epoch"], 0, threads=1)
    assert found["Precision@10"] == pytest.approx(recorded["refit"]["Precision@10"], rel=0.02)
    assert found["Precision@10"] >= published > FOUND["rows"][f"mostpop-{data}"]["refit"]["Precision@10"]
