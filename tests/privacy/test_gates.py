"""The audit's gates on MovieLens-100K."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.algorithms import make
from coterie.privacy.audit.run import audit
from coterie.privacy.spec import PrivacySpec

pytestmark = pytest.mark.slow


def _audited(tmp_path: Path, algorithm: Any, rounds: int, **options: Any) -> dict[str, Any]:
    privacy = PrivacySpec(record_view=True, **options.pop("privacy", {}))
    run = coterie.run(
        algorithm, "ml-100k", rounds=rounds, evaluate_every=rounds, out=tmp_path / "run", keep="nothing",
        privacy=privacy, **options,
    )  # fmt: skip
    return audit(run.path, run.algorithm, run.summary)


def test_plain_fedmf_is_an_open_book(real_data: Path, tmp_path: Path) -> None:
    found = _audited(tmp_path, make("fedmf", dim=32, negatives=4), 3)
    assert found["strongest"]["auc"] >= 0.99
    assert found["strongest"]["precision_at_positives"] >= 0.95
    assert found["baselines"]["popularity"]["auc"] == pytest.approx(0.87, abs=0.02)
    assert found["baselines"]["shuffled labels"]["worst"] <= 0.02


def test_local_noise_leaves_popularity_only(real_data: Path, tmp_path: Path) -> None:
    local = {"mechanism": "local-gaussian", "clip": 0.5, "noise": 1.0}
    found = _audited(tmp_path, make("fedmf", dim=32, negatives=4), 2, privacy=local)
    low, high = found["strongest"]["uplift_interval"]
    assert low <= 0.0 <= high
    assert found["empirical"]["epsilon_lower_bound"] <= found["empirical"]["epsilon_claimed"]


@pytest.mark.parametrize("sharing", ["per-round", "fixed-subset"])
def test_federank_at_pi_0(sharing: str, real_data: Path, tmp_path: Path) -> None:
    found = _audited(tmp_path, make("federank", pi=0.0, sharing=sharing, lr=0.01), 100, cohort=50)
    attacks = found["attacks"]
    if sharing == "per-round":
        assert attacks["absence"]["auc"] > 0.95
    else:
        for name in ("support", "frequency", "absence"):
            assert attacks[name]["auc"] <= found["baselines"]["popularity"]["auc"]
        assert 0.0 <= attacks["rank-1 score"]["auc"] <= 1.0  # reported
