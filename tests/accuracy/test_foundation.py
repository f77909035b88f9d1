"""The figures the first systems stand for, on real data. `make test-slow`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.algorithms import make

pytestmark = pytest.mark.slow

# HR@10 in % by round: FedRAP as released, MovieLens-100K, the papers' protocol
ANCHORS = {1: 13.4, 5: 35.6, 10: 61.6, 20: 85.7, 30: 93.1, 50: 98.8, 100: 100.0}


def _mean_of_seeds(name: str, data: str, tmp_path: Path, seeds: int, **options: int) -> tuple[float, float]:
    interactions = coterie.load(data)
    found = [
        coterie.run(make(name), interactions, seed=seed, out=tmp_path / str(seed), keep="nothing", **options).metrics
        for seed in range(seeds)
    ]
    sampled = float(np.mean([one["test"]["sampled"]["HR@10"] for one in found]))
    return sampled, float(np.mean([one["test"]["full"]["NDCG@10"] for one in found]))


def test_fedrap_as_released_repeats_the_published_curve_under_the_leak(tmp_path: Path, real_data: Path) -> None:
    run = coterie.run(
        make("fedrap", "as_released"), "ml-100k", protocol="paper", evaluate_every=1, out=tmp_path / "a", keep="nothing"
    )
    by_round = {one["round"]: 100 * one["test"]["sampled"]["HR@10"] for one in run.rounds}
    for round_, anchor in ANCHORS.items():
        assert by_round[round_] == pytest.approx(anchor, abs=4), round_
    assert run.summary["last"]["test"]["sampled"]["HR@10"] >= 0.97
    assert run.summary["canary"]["HR@10"] > 0.97, "the counting scorer alone finds the held-out items"


def test_fedrap_as_released_without_the_leak(tmp_path: Path, real_data: Path) -> None:
    run = coterie.run(make("fedrap", "as_released"), "ml-100k", evaluate_every=50, out=tmp_path / "a", keep="nothing")
    assert 0.20 <= run.summary["last"]["test"]["sampled"]["HR@10"] <= 0.31
    canary = run.summary["canary"]
    assert abs(canary["HR@10"] - canary["chance"]) < 4 * canary["standard_error"] and run.summary["valid"]


def test_fedmf_on_ml_100k(tmp_path: Path, real_data: Path) -> None:
    sampled, full = _mean_of_seeds("fedmf", "ml-100k", tmp_path, 3)
    assert sampled >= 0.65 and full >= 0.068


def test_fedmf_on_ml_1m(tmp_path: Path, real_data: Path) -> None:
    sampled, full = _mean_of_seeds("fedmf", "ml-1m", tmp_path, 3, evaluate_every=10)
    assert sampled >= 0.68 and full >= 0.040


def test_ease_on_ml_100k(tmp_path: Path, real_data: Path) -> None:
    sampled, full = _mean_of_seeds("ease", "ml-100k", tmp_path, 3)
    assert sampled >= 0.62 and full >= 0.068
