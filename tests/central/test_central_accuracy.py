"""The yardsticks' figures on MovieLens-100K under the clean protocol. Minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.algorithms import make


def _run(name: str, tmp_path: Path, protocol: str = "clean", **settings: Any) -> Any:
    data = coterie.load("ml-100k")
    return coterie.run(make(name, **settings), data, protocol=protocol, out=tmp_path / "run", keep="nothing")


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
def test_held_out_edges_in_the_graph_help_and_are_labelled(real_data: Path, tmp_path: Path) -> None:
    honest = _run("lightgcn", tmp_path / "train", "paper:fedrap")
    leaky = _run("lightgcn", tmp_path / "everything", "paper:fedrap", graph="everything")
    assert "held-out items" in leaky.summary["warning"]
    assert leaky.metrics["test"]["full"]["NDCG@10"] > honest.metrics["test"]["full"]["NDCG@10"]
