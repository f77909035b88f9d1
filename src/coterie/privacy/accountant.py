"""How much a run reveals: epsilon of user-level differential privacy, by privacy loss distributions.

Unit: one user. Neighbours: add or remove one user. Mechanism: Gaussian noise on a sum of clipped uploads. Sampling:
Poisson. The accountant is `dp_accounting`'s PLD (pessimistic: what it prints is an upper bound, here within 0.001).
Opacus' GDP accountant is not used: it gives 6.01 where the truth lies between 7.037 and 7.057.

Two adversaries, so two numbers. Who sees the models only does not know who took part: sampling helps. The server chose
the clients and does know: for it a user's loss is that of the rounds she took part in, unsampled.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from coterie.errors import CoterieError

_GRID = 1e-3  # of privacy losses; the result is above the truth by less than this
_SMALLEST, _LARGEST = 0.05, 4096.0  # noise multipliers that are looked at


@lru_cache(maxsize=32)
def _one_round(noise: float, rate: float) -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:
        raise CoterieError(
            "epsilon is computed with dp-accounting, which is not here: pip install 'coterie[privacy]'"
        ) from None
    return pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=_GRID)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """delta of a Gaussian mechanism with sensitivity / deviation = mu, exactly (Balle and Wang 2018, theorem 8)."""
    from scipy.special import log_ndtr

    first = float(np.exp(log_ndtr(mu / 2 - epsilon / mu)))
    second = float(np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))
    return max(first - second, 0.0)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """epsilon of the analytic Gaussian mechanism: the smallest with that delta."""
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(high, mu) > delta:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, mu) > delta else (low, middle)
    return high


@lru_cache(maxsize=4096)
def epsilon(rate: float, noise: float, rounds: int, delta: float) -> float:
    """epsilon after `rounds` rounds with Poisson sampling at `rate` and noise of deviation `noise` x the clip norm."""
    _check(rate, delta)
    if rounds == 0:
        return 0.0
    if noise <= 0:
        return math.inf
    if rate == 1.0:  # n Gaussians are one Gaussian: no grid needed
        return gaussian_epsilon(math.sqrt(rounds) / noise, delta)
    return float(_one_round(noise, rate).self_compose(rounds).get_epsilon_for_delta(delta))


def known_epsilon(noise: float, took_part: int, delta: float) -> float:
    """epsilon of a user who is known to have taken part in so many rounds: no amplification by sampling."""
    return epsilon(1.0, noise, took_part, delta)


def calibrate(rate: float, rounds: int, delta: float, target: float) -> float:
    """The least noise multiplier whose epsilon after `rounds` is at most `target`, and within 0.5 % of it."""
    _check(rate, delta)
    if target <= 0:
        raise CoterieError(f"a target epsilon of {target} cannot be met; give a number above 0, for example 8")
    low, high = 1.0, 1.0  # in the end epsilon(low) > target >= epsilon(high)
    while epsilon(rate, high, rounds, delta) > target:
        low, high = high, high * 2
        if high > _LARGEST:
            raise CoterieError(
                f"epsilon {target} over {rounds} rounds at rate {rate} needs noise above {_LARGEST:.0f} clip norms; "
                " fewer rounds, a lower rate or a larger epsilon"
            )
    while epsilon(rate, low, rounds, delta) <= target:
        low, high = low / 2, low
        if low < _SMALLEST:
            return high
    for _ in range(60):
        if epsilon(rate, high, rounds, delta) >= 0.995 * target:
            break
        above, below = epsilon(rate, low, rounds, delta), epsilon(rate, high, rounds, delta)
        middle = _between(low, high, above, below, 0.9975 * target)
        low, high = (middle, high) if epsilon(rate, middle, rounds, delta) > target else (low, middle)
    return high


def _between(low: float, high: float, above: float, below: float, wanted: float) -> float:
    """Where a straight line in logarithms meets `wanted`, kept off the ends of the bracket."""
    share = math.log(above / wanted) / math.log(above / max(below, 1e-9))
    return float(low * (high / low) ** min(max(share, 0.05), 0.95))


def affordable(rate: float, noise: float, rounds: int, delta: float, most: float) -> int:
    """How many of `rounds` rounds keep epsilon at or below `most`."""
    low, high = 0, rounds + 1  # low is affordable, high is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon(rate, noise, middle, delta) <= most else (low, middle)
    return low


def most_rounds(users: int, rate: float, rounds: int) -> int:
    """In how many rounds the busiest of `users` users takes part, but for a chance of one in a thousand."""
    from scipy.stats import binom

    if rate >= 1.0:
        return rounds
    return int(min(binom.isf(1e-3 / users, rounds, rate), rounds))


def fixed_size_epsilon(noise: float, rounds: int, delta: float) -> float:
    """Fixed-size cohorts and replace-one neighbours: one user's change moves the sum by 2 S, so the noise counts half.

    Amplification by sampling without replacement is not claimed.
    """
    return epsilon(1.0, noise / 2, rounds, delta)


class Plan(NamedTuple):
    """What a setting costs and what it drowns, before anything is run."""

    users: int
    rate: float  # Poisson sampling rate q
    rounds: int
    numbers: int  # in one upload: items x width
    delta: float
    noise: float  # z: deviation of the noise on the sum, in clip norms
    epsilon: float  # against those who see the models
    epsilon_server: float  # against the server, which knows who took part
    busiest: int  # rounds the busiest user takes part in (but for a chance of 1/1000)
    cohort: float  # q N, the fixed divisor
    noise_to_signal: float  # norm of the noise on the mean over the largest norm of the mean itself
    per_number: float  # deviation of the noise on one number of the mean, in clip norms


def plan(
    users: int,
    rate: float,
    rounds: int,
    numbers: int,
    delta: float | None = None,
    noise: float | None = None,
    target: float | None = None,
) -> Plan:
    """z or epsilon -> the other, and how loud the noise is beside the signal."""
    if (noise is None) == (target is None):
        raise CoterieError("give either the noise multiplier or the epsilon, not both: the other one follows")
    if users < 1 or rounds < 1 or numbers < 1:
        raise CoterieError(f"users {users}, rounds {rounds}, numbers {numbers}: each must be 1 or more")
    delta = delta if delta is not None else default_delta(users)
    _check(rate, delta)
    z = noise if noise is not None else calibrate(rate, rounds, delta, float(target or 0.0))
    busiest = most_rounds(users, rate, rounds)
    cohort = rate * users
    return Plan(
        users, rate, rounds, numbers, delta, z, epsilon(rate, z, rounds, delta), known_epsilon(z, busiest, delta),
        busiest, cohort, z * math.sqrt(numbers) / cohort, z / cohort,
    )  # fmt: skip


def default_delta(users: int) -> float:
    """A tenth of one over the users, or 1e-5 if that is smaller."""
    return min(1e-5, 0.1 / users)


def _check(rate: float, delta: float) -> None:
    if not 0.0 < rate <= 1.0:
        raise CoterieError(f"a sampling rate of {rate} is not a share; give a number above 0 and at most 1")
    if not 0.0 < delta < 1.0:
        raise CoterieError(f"delta is {delta}; give a small number such as 1e-5, below one over the number of users")
