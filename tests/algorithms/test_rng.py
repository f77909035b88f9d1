"""Random numbers are a function of seed, round, user and purpose, and look random."""

from __future__ import annotations

import itertools

import numpy as np
from numba import njit
from scipy.stats import chisquare, kstest

from coterie import rng

GOLDEN_KEY = "b4bbe448fde336bb"  # the first 8 bytes of SHA-256 of "196"
GOLDEN_NEGATIVES = [1443, 715, 1075, 189, 763, 940]  # by the formulas of rng.py in Python's whole numbers
GOLDEN_UNIFORMS = [0.6985296704224074, 0.02297352343710224]


@njit
def _numbers(seed, round_, key, purpose, count, n):  # type: ignore[no-untyped-def]
    state = rng.stream(seed, round_, key, purpose)
    out = np.empty(count, np.int64)
    for i in range(count):
        state = rng.after(state)
        out[i] = rng.below(state, n)
    return out


def test_mix_is_splitmix64() -> None:
    """The first outputs of SplitMix64 with seed 1234567, as published with its reference code."""
    state, got = np.uint64(1234567), []
    for _ in range(3):
        state = np.uint64(rng.after(state))
        got.append(int(rng.mix(state)))
    assert got == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_golden_streams() -> None:
    """Saved runs resume only while these hold."""
    key = rng.user_keys(["196"])[0]
    assert int(key) == int.from_bytes(bytes.fromhex(GOLDEN_KEY), "little")
    assert _numbers(0, 1, key, rng.NEGATIVES, 6, 1682).tolist() == GOLDEN_NEGATIVES
    np.testing.assert_allclose(rng.uniforms(3, 2, rng.user_keys(["a", "b"]), rng.COHORT), GOLDEN_UNIFORMS, rtol=1e-12)


def test_streams_differ_by_each_of_the_four() -> None:
    a, b = rng.user_keys(["a", "b"])
    streams = {
        tuple(_numbers(*one, 8, 1 << 30).tolist())
        for one in itertools.product((0, 1, 2), (1, 2, 3), (a, b), (rng.NEGATIVES, rng.SHUFFLE, rng.COHORT))
    }
    assert len(streams) == 3 * 3 * 2 * 3


def test_the_secret_of_a_node_changes_its_keys() -> None:
    assert rng.user_keys(["a"], b"s")[0] != rng.user_keys(["a"])[0] == rng.user_keys(["b", "a"])[1]


def test_whole_numbers_are_uniform_and_in_range() -> None:
    for n in (1, 2, 7, 100):
        drawn = _numbers(5, 1, np.uint64(99), rng.NEGATIVES, 20_000, n)
        assert drawn.min() == 0 and drawn.max() == n - 1
        if n > 1:
            assert chisquare(np.bincount(drawn, minlength=n)).pvalue > 0.001


def test_uniforms_and_normals_over_users() -> None:
    keys = rng.user_keys([str(i) for i in range(5000)])
    draws = rng.uniforms(1, 1, keys, rng.COHORT)
    assert draws.min() >= 0 and draws.max() < 1 and kstest(draws, "uniform").pvalue > 0.001
    out = np.empty((5000, 3), np.float32)
    rng.fill_normal(out, 2.0, 1, keys, rng.USER_START)
    assert kstest(out.ravel() / 2.0, "norm").pvalue > 0.001
    alone = np.empty((1, 3), np.float32)
    rng.fill_normal(alone, 2.0, 1, keys[41:42], rng.USER_START)
    np.testing.assert_array_equal(alone[0], out[41])


def test_generator_is_a_function_of_seed_and_purpose() -> None:
    first = rng.generator(1, rng.ITEM_START).standard_normal(4)
    np.testing.assert_array_equal(first, rng.generator(1, rng.ITEM_START).standard_normal(4))
    assert not np.array_equal(first, rng.generator(1, rng.USER_START).standard_normal(4))
    assert not np.array_equal(first, rng.generator(2, rng.ITEM_START).standard_normal(4))
