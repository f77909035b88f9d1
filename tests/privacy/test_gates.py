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
    privacy, users = PrivacySpec(record_view=True, **options.pop("privacy", {})), options.pop("users", None)
    run = coterie.run(
        algorithm, "ml-100k", rounds=rounds, evaluate_every=rounds, out=tmp_path / "run", keep="nothing", threads=1,
        privacy=privacy, **options,
    )  # fmt: skip
    return audit(run.path, run.algorithm, run.summary, users=users)


def test_plain_fedmf_is_an_open_book(real_data: Path, tmp_path: Path) -> None:
    found = _audited(tmp_path, make("fedmf", dim=32, negatives=4, epochs=1), 3)
    assert found["strongest"]["auc"] >= 0.99
    assert found["strongest"]["precision_at_positives"] >= 0.95
    assert found["baselines"]["popularity"]["auc"] == pytest.approx(0.87, abs=0.02)
    assert found["baselines"]["shuffled labels"]["worst"] <= 0.02


def _local(tmp_path: Path, noise: float) -> dict[str, Any]:
    said = {"mechanism": "local-gaussian", "clip": 0.5, "noise": noise, "view_users": 300}
    found = _audited(tmp_path, make("fedmf", dim=32, negatives=4), 3, privacy=said)
    assert found["baselines"]["shuffled labels"]["worst"] <= 0.02
    assert found["empirical"]["epsilon_lower_bound"] <= found["empirical"]["epsilon_claimed"]
    return found


def test_local_noise_leaves_popularity_only(real_data: Path, tmp_path: Path) -> None:
    found = _local(tmp_path, 1.0)
    # The strongest of a dozen attacks, each with a 95 % interval: 0 itself may lie just outside by chance, and which
    # noise is drawn differs between processors in the last bit. A thousandth of the noise gives more than 0.01 below.
    low, high = found["strongest"]["uplift_interval"]
    assert low <= 0.003 and high >= -0.003
    # The attack above may fall back on popularity alone; this one has to weigh its evidence and gains nothing.
    assert found["attacks"]["shadow that knows popularity"]["uplift_interval"][0] <= 0.003
    assert 0.48 <= found["attacks"]["shadow"]["auc"] <= 0.53


def test_a_thousandth_of_the_noise_is_found_out(real_data: Path, tmp_path: Path) -> None:
    """So that the gate above is known to be able to fail."""
    found = _local(tmp_path, 0.001)
    assert found["strongest"]["uplift_interval"][0] > 0.01


@pytest.mark.parametrize("sharing", ["per-round", "fixed-subset"])
def test_federank_at_pi_0(sharing: str, real_data: Path, tmp_path: Path) -> None:
    found = _audited(tmp_path, make("federank", pi=0.0, sharing=sharing), 100, cohort=50, users=300)
    attacks, popular = found["attacks"], found["baselines"]["popularity"]["auc"]
    assert found["uploads_per_user"] <= 101  # a round is an epoch in which each person comes about once
    if sharing == "per-round":
        assert attacks["absence"]["auc"] > 0.95
    else:
        for name in ("support", "frequency", "absence"):
            assert attacks[name]["auc"] <= popular, name
        assert 0.0 <= attacks["rank-1 score"]["auc"] <= 1.0  # reported
