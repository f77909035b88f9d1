"""The yardsticks' figures on MovieLens-100K under the clean protocol. Minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.algorithms import make


def _run(name: str, tmp_path: Path, protocol: str = "clean", rounds: int | None = None, **settings: Any) -> Any:
    data, out = coterie.load("ml-100k"), tmp_path / "run"
    return coterie.run(make(name, **settings), data, protocol=protocol, rounds=rounds, out=out, keep="nothing")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sampled", "full"),
    [
        ("als", (0.62, 0.365), (0.13, 0.063)),
        ("lightgcn", (0.62, 0.355), (0.12, 0.06)),
        ("mf", (0.61, 0.35), (0.11, 0.055)),
    ],
)
def test_clean_figures(
    name: str, sampled: tuple[float, float], full: tuple[float, float], real_data: Path, tmp_path: Path
) -> None:
    test = _run(name, tmp_path).metrics["test"]
    for kind, least in (("sampled", sampled), ("full", full)):
        assert test[kind]["HR@10"] >= least[0] and test[kind]["NDCG@10"] >= least[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rounds", "published"),
    [("mf", None, (0.6448, 0.3861)), ("ncf", 30, (0.6421, 0.3713)), ("sgl", None, (0.6490, 0.4002))],
)
def test_published_central_rows(
    name: str, rounds: int | None, published: tuple[float, float], real_data: Path, tmp_path: Path
) -> None:
    """GPFedRec's table 3, its protocol: within 4 points."""
    sampled = _run(name, tmp_path, "paper:gpfedrec", rounds).metrics["test"]["sampled"]
    assert sampled["HR@10"] == pytest.approx(published[0], abs=0.04)
    assert sampled["NDCG@10"] == pytest.approx(published[1], abs=0.04)


@pytest.mark.slow
def test_training_on_the_test_items_makes_the_published_99_percent(real_data: Path, tmp_path: Path) -> None:
    wide: dict[str, Any] = {"dim": 256, "reg": 0.0, "layers": 1, "batch": 8192}
    both: dict[str, Any] = {"graph": "everything", "positives": "everything"}
    honest = _run("lightgcn", tmp_path / "train", "paper:fedrap", 40, **wide).metrics["test"]["sampled"]
    leaky = _run("lightgcn", tmp_path / "everything", "paper:fedrap", 40, **wide, **both).metrics["test"]["sampled"]
    assert leaky["HR@10"] > 0.98 and leaky["NDCG@10"] > 0.88 and honest["HR@10"] < 0.75


@pytest.mark.slow
def test_held_out_edges_in_the_graph_help_and_are_labelled(real_data: Path, tmp_path: Path) -> None:
    honest = _run("lightgcn", tmp_path / "train", "paper:fedrap")
    leaky = _run("lightgcn", tmp_path / "everything", "paper:fedrap", graph="everything")
    assert "held-out items" in leaky.summary["warning"]
    assert leaky.metrics["test"]["full"]["NDCG@10"] > honest.metrics["test"]["full"]["NDCG@10"]
