"""The audit bites where nothing protects, and finds nothing where nothing is left to find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.algorithms import make
from coterie.errors import CoterieError
from coterie.privacy import view
from coterie.privacy.audit import bound
from coterie.privacy.audit.evidence import moved
from coterie.privacy.audit.measure import auc, interval, quality
from coterie.privacy.audit.report import figure, render
from coterie.privacy.audit.run import audit
from coterie.privacy.spec import PrivacySpec


def _audited(tmp_path: Path, algorithm: Any, rounds: int = 3, **privacy: Any) -> dict[str, Any]:
    run = coterie.run(
        algorithm, "synthetic:users=80,items=100", rounds=rounds, evaluate_every=rounds, out=tmp_path / "run",
        threads=1,
        privacy=PrivacySpec(record_view=True, **privacy),
    )  # fmt: skip
    found = audit(run.path, run.algorithm, run.summary)
    json.dumps(found, allow_nan=False)
    return found


def test_plain_fedmf_shows_everything(tmp_path: Path) -> None:
    found = _audited(tmp_path, make("fedmf", dim=8))
    best = found["strongest"]
    assert best["auc"] >= 0.99 and best["precision_at_positives"] >= 0.95
    assert best["uplift_interval"][0] > 0.2
    assert found["baselines"]["shuffled labels"]["worst"] < 0.06  # 80 users; on real data 0.02
    for name in ("support", "frequency", "absence", "rank-1 sign", "row norm", "shadow", "membership"):
        assert 0.0 <= found["attacks"][name]["auc"] <= 1.0
    assert found["attacks"]["membership"]["auc"] > 0.8
    assert found["epsilon"] is None and "nothing bounds" in found["statement"]["why"]
    assert "rank-1 sign" in str(render(found).columns[0]._cells)
    assert "plotly" in figure([found])


def test_local_noise_hides_it(tmp_path: Path) -> None:
    found = _audited(tmp_path, make("fedmf", dim=8), rounds=2, mechanism="local-gaussian", clip=0.2, noise=1.0)
    # Each 95 % interval misses 0 once in twenty, and which noise is drawn differs between processors in the last bit:
    # 80 users are too few to ask for 0 itself. A hundredth of the noise gives more than 0.1 below.
    for name in ("shadow + popularity", "shadow that knows popularity"):
        assert found["attacks"][name]["uplift_interval"][0] <= 0.03, name
        assert found["attacks"][name]["uplift_interval"][1] >= -0.05, name
    assert found["attacks"]["support"]["auc"] == pytest.approx(0.5), "every row comes"
    assert found["attacks"]["rank-1 sign"]["auc"] < 0.6
    assert found["epsilon_server"] > 0
    assert found["empirical"]["epsilon_lower_bound"] <= found["empirical"]["epsilon_claimed"]


def test_too_little_local_noise_is_found_out(tmp_path: Path) -> None:
    """The same mechanism with a hundredth of the noise: a gate that could not fail would show nothing here."""
    found = _audited(tmp_path, make("fedmf", dim=8), rounds=2, mechanism="local-gaussian", clip=0.2, noise=0.01)
    assert found["strongest"]["uplift_interval"][0] > 0.1
    assert found["attacks"]["shadow that knows popularity"]["uplift_interval"][0] > 0.1


def test_the_view_of_a_secure_sum_is_masked(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    found = _audited(tmp_path, make("fedmf", dim=3), rounds=2, secure_sum=True, neighbours=4, view_users=40)
    assert found["masked"] and found["users"] == 40
    for name in ("support", "frequency", "rank-1 sign", "row norm", "shadow"):
        assert abs(found["attacks"][name]["auc"] - 0.5) < 0.06, name
    seen = next(view.rounds(tmp_path / "run"))
    assert seen.masked and seen.total is not None and seen.upload.values.shape == (40 * 100, 5)


def test_federank_per_round_shows_by_absence_and_a_fixed_subset_does_not(tmp_path: Path) -> None:
    per_round = _audited(tmp_path / "a", make("federank", dim=4, pi=0.0), rounds=25)
    assert per_round["attacks"]["absence"]["auc"] > 0.95
    fixed = _audited(tmp_path / "b", make("federank", dim=4, pi=0.0, sharing="fixed-subset"), rounds=25)
    for name in ("support", "frequency", "absence"):
        assert fixed["attacks"][name]["uplift_interval"][0] <= 0.02, name  # not above popularity
        assert fixed["attacks"][name]["auc"] < 0.7, name
    assert 0.0 <= fixed["attacks"]["rank-1 score"]["auc"] <= 1.0


def test_whole_tables_are_attacked_by_how_they_moved(tmp_path: Path) -> None:
    """GPFedRec sends tables, not movements: the server takes away what it had sent."""
    found = _audited(tmp_path, make("gpfedrec", dim=4, hidden="8"), rounds=2)
    assert found["strongest"]["auc"] > 0.9
    table = np.ones((5, 3), np.float32)
    rows, change = np.arange(5), np.full((5, 3), 0.1, np.float32)
    np.testing.assert_allclose(moved(rows, table + change, table), change, rtol=1e-5)
    np.testing.assert_array_equal(moved(rows, change, table), change)


def test_without_a_view_the_error_says_how_to_have_one(tmp_path: Path) -> None:
    run = coterie.run("mostpop", "synthetic:users=20,items=30", out=tmp_path / "run", threads=1)
    with pytest.raises(CoterieError, match="--record-server-view"):
        audit(run.path, run.algorithm, run.summary)


def test_auc_and_precision_against_sklearn_and_by_hand() -> None:
    from sklearn.metrics import roc_auc_score

    draw = np.random.default_rng(0)
    scores, truth = draw.integers(0, 9, size=(7, 40)).astype(float), draw.random((7, 40)) < 0.3
    expected = [roc_auc_score(t, s) for t, s in zip(truth, scores, strict=True)]
    np.testing.assert_allclose(auc(scores, truth), expected)
    some = draw.random((7, 40)) < 0.7
    expected = [roc_auc_score(t[c], s[c]) for t, s, c in zip(truth, scores, some, strict=True)]
    np.testing.assert_allclose(auc(scores, truth, some), expected)
    one = quality(np.array([[4.0, 3.0, 2.0, 1.0]]), np.array([[True, False, True, False]]))
    assert one.precision[0] == 0.5 and one.caught[0] == 0.5 and one.auc[0] == 0.75


def test_the_interval_covers_the_mean() -> None:
    draw, inside = np.random.default_rng(1), 0
    for seed in range(60):
        _, low, high = interval(draw.normal(0.3, 1.0, size=80), seed, times=400)
        inside += low <= 0.3 <= high
    assert inside >= 50


@pytest.mark.parametrize(
    ("mechanism", "noise", "sampling"),
    [("central", 1.0, 1.0), ("central", 0.7, 0.5), ("local-gaussian", 2.0, None), ("local-laplace", 2.0, None)],
)
def test_the_empirical_bound_never_exceeds_the_claim(mechanism: Any, noise: float, sampling: float | None) -> None:
    spec = PrivacySpec(mechanism=mechanism, clip=0.5, noise=noise, sampling=sampling, delta=1e-5)
    for rounds in (1, 3):
        found = bound.experiment(spec, trials=1500, rounds=rounds)
        assert found is not None and found["epsilon_lower_bound"] <= found["epsilon_claimed"]
    assert found["epsilon_lower_bound"] > 0.05, "the attack is not idle"


def test_the_bound_sees_noise_that_is_too_small() -> None:
    """A mechanism that adds a fifth of what it claims is caught."""
    draw = np.random.default_rng(0)
    inside, outside = 1.0 + 0.2 * draw.normal(size=4000), 0.2 * draw.normal(size=4000)
    from coterie.privacy.accountant import gaussian_epsilon

    assert bound.lower_bound(inside, outside, 1e-5) > 4.0
    honest_in, honest_out = 1.0 + draw.normal(size=4000), draw.normal(size=4000)
    assert bound.lower_bound(honest_in, honest_out, 1e-5) <= gaussian_epsilon(1.0, 1e-5)
