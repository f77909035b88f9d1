"""The leak canary's arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import CoterieError
from coterie.evaluate.canary import Canary, canary
from coterie.ragged import ragged


def test_a_spared_item_is_always_found() -> None:
    result = canary(np.zeros(50, int), np.full((50, 99), 3))
    assert result == Canary(1.0, pytest.approx(0.1), pytest.approx(0.0))
    assert result.leaks


def test_equal_counts_are_chance_exactly() -> None:
    result = canary(np.full(50, 3), np.full((50, 99), 3))
    assert result.hr == result.chance == pytest.approx(0.1) and result.standard_error == 0
    assert not result.leaks


def test_ties_by_hand() -> None:
    # K = 2. First: one candidate drawn less often, two as often: (2 - 1) / 3. Second: two less often: nothing left.
    # Third: none less often, three as often: 2 / 4. Chance is 2 / 5, 2 / 4 and 2 / 4 (candidates 4, 3, 3).
    candidates = ragged([[0, 1, 1, 5], [0, 0, 1], [2, 2, 2]])
    result = canary(np.array([1, 1, 2]), candidates, cutoff=2)
    assert result.hr == pytest.approx((1 / 3 + 0 + 1 / 2) / 3)
    assert result.chance == pytest.approx((2 / 5 + 1 / 2 + 1 / 2) / 3)
    # differences -1/15, -1/2, 0: mean -17/90, squares around it 121/8100 + 784/8100 + 289/8100 = 1194/8100
    assert result.standard_error == pytest.approx(math.sqrt(1194 / 8100 / 2) / math.sqrt(3))
    assert not result.leaks


def test_fewer_candidates_than_the_cutoff() -> None:
    assert canary(np.array([9, 0]), ragged([[0, 0], []])) == Canary(1.0, 1.0, 0.0)  # three or fewer always fit in 10


def test_four_standard_errors() -> None:
    assert Canary(0.5001, 0.1, 0.1).leaks
    assert not Canary(0.4999, 0.1, 0.1).leaks
    assert not Canary(0.1, 0.1, 0.0).leaks
    assert not Canary(0.1, 0.3, 0.01).leaks  # below chance is odd, but no leak


def test_too_few_users_give_no_verdict() -> None:
    assert not canary(np.array([0]), np.full((1, 99), 3)).leaks
    assert canary(np.array([], int), np.empty((0, 99), int)) == Canary(0.0, 0.0, 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_honest_draws_stay_at_chance(seed: int) -> None:
    counts = np.random.default_rng(seed).poisson(2.0, (900, 100))
    result = canary(counts[:, 0], counts[:, 1:])
    assert not result.leaks
    assert abs(result.hr - result.chance) < 4 * result.standard_error


def test_a_partial_leak_is_found() -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(2.0, (900, 100))
    counts[::5, 0] = 0  # every fifth user's item is spared
    assert canary(counts[:, 0], counts[:, 1:]).leaks


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(1, 6), st.integers(0, 4))
def test_expected_value_over_all_orders_of_equals(others: list[int], cutoff: int, held: int) -> None:
    better, equal = sum(o < held for o in others), sum(o == held for o in others)
    expected = np.mean([better + place < cutoff for place in range(equal + 1)])  # each place among equals alike
    assert canary(np.array([held]), ragged([others]), cutoff).hr == pytest.approx(expected)


def test_lengths_must_agree() -> None:
    with pytest.raises(CoterieError, match="3 held-out items and candidates for 2"):
        canary(np.zeros(3, int), np.zeros((2, 5), int))
