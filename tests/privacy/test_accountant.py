"""Epsilon against an independent accountant and against closed forms."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import pytest

from coterie.errors import CoterieError
from coterie.privacy import accountant


def test_the_reference_setting() -> None:
    assert accountant.epsilon(0.1, 1.0, 100, 1e-5) == pytest.approx(7.05, abs=0.02)


@pytest.mark.parametrize(
    ("rate", "noise", "rounds", "delta"),
    [
        (0.1, 1.0, 100, 1e-5),
        (0.01, 0.8, 300, 1e-6),
        (0.3, 2.0, 50, 1e-5),
        (0.05, 1.5, 1000, 1e-7),
        (0.5, 4.0, 20, 1e-5),
    ],
)
def test_inside_the_bracket_of_prv_accountant(rate: float, noise: float, rounds: int, delta: float) -> None:
    prv = pytest.importorskip("prv_accountant")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = prv.PRVAccountant(
            prvs=[prv.PoissonSubsampledGaussianMechanism(rate, noise)],
            max_self_compositions=[rounds],
            eps_error=0.01,
            delta_error=delta / 1000,
        )
        low, _, high = other.compute_epsilon(delta=delta, num_self_compositions=[rounds])
    # Ours is an upper bound by at most the grid's 0.001, on top of what is between the two ends.
    assert low - 1e-3 <= accountant.epsilon(rate, noise, rounds, delta) <= high + 2e-3


def test_full_participation_is_one_gaussian() -> None:
    assert accountant.epsilon(1.0, 1.0, 100, 1e-5) == pytest.approx(91.8, abs=0.1)
    from dp_accounting.pld import privacy_loss_distribution as pld

    theirs = pld.from_gaussian_mechanism(2.0, value_discretization_interval=1e-3).self_compose(10)
    assert accountant.epsilon(1.0, 2.0, 10, 1e-5) == pytest.approx(theirs.get_epsilon_for_delta(1e-5), abs=2e-3)


def test_fixed_size_cohorts_count_half_the_noise() -> None:
    assert accountant.fixed_size_epsilon(2.0, 10, 1e-5) == accountant.epsilon(1.0, 1.0, 10, 1e-5)


@pytest.mark.parametrize(("rate", "rounds", "target"), [(0.1, 100, 8.0), (0.2, 10, 1.0), (1.0, 30, 4.0)])
def test_calibrated_noise_meets_its_target(rate: float, rounds: int, target: float) -> None:
    z = accountant.calibrate(rate, rounds, 1e-5, target)
    reached = accountant.epsilon(rate, z, rounds, 1e-5)
    assert 0.99 * target <= reached <= target


def test_affordable_rounds_are_the_last_that_fit() -> None:
    fit = accountant.affordable(0.1, 1.0, 200, 1e-5, 5.0)
    assert accountant.epsilon(0.1, 1.0, fit, 1e-5) <= 5.0 < accountant.epsilon(0.1, 1.0, fit + 1, 1e-5)


def test_the_plan_says_noise_against_signal() -> None:
    found = accountant.plan(943, 0.1, 100, 1682 * 32, 1e-5, noise=1.0)
    assert found.noise_to_signal == pytest.approx(2.46, abs=0.01)
    assert found.epsilon < found.epsilon_server
    assert 10 < found.busiest <= 100
    with pytest.raises(CoterieError, match="not both"):
        accountant.plan(943, 0.1, 100, 100, 1e-5, noise=1.0, target=8.0)
    with pytest.raises(CoterieError, match="not a share"):
        accountant.plan(943, 1.5, 100, 100, 1e-5, noise=1.0)


def test_the_command_prints_json() -> None:
    command = [sys.executable, "-m", "coterie.cli", "privacy", "plan", "--users", "943", "--noise", "1", "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert said["epsilon"] == pytest.approx(7.05, abs=0.02)
    assert said["delta"] == 1e-5
