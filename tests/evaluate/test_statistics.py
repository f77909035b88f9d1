"""Intervals, paired tests, groups and seeds against scipy and by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coterie.errors import CoterieError
from coterie.evaluate import statistics as module
from coterie.evaluate.statistics import (
    Interval,
    bootstrap_interval,
    bootstrap_intervals,
    group_averages,
    history_groups,
    holm,
    over_seeds,
    paired_tests,
)


def test_bootstrap_against_scipy() -> None:
    values = np.random.default_rng(1).gamma(2.0, size=400)
    ours = bootstrap_interval(values, samples=5000)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=5000, method="percentile", rng=9).confidence_interval
    width = theirs.high - theirs.low
    assert ours.mean == values.mean()
    assert abs(ours.low - theirs.low) < 0.1 * width and abs(ours.high - theirs.high) < 0.1 * width


def test_bootstrap_is_seeded_shared_and_pieced(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    values = {"HR@10": rng.integers(0, 2, 50).astype(float), "NDCG@10": rng.random(50)}
    both = bootstrap_intervals(values, seed=3)
    assert both == bootstrap_intervals(values, seed=3) != bootstrap_intervals(values, seed=4)
    assert both["NDCG@10"] == pytest.approx(bootstrap_interval(values["NDCG@10"], seed=3))  # the same draws alone
    monkeypatch.setattr(module, "_DRAWS", 170)  # three samples at a time
    assert bootstrap_intervals(values, seed=3)["HR@10"] == pytest.approx(both["HR@10"])


def test_bootstrap_edges() -> None:
    assert bootstrap_interval(np.full(9, 0.5)) == Interval(0.5, 0.5, 0.5)
    assert all(math.isnan(x) for x in bootstrap_interval(np.array([])))
    assert bootstrap_intervals({}) == {}
    with pytest.raises(CoterieError, match="confidence is 95"):
        bootstrap_interval(np.ones(3), confidence=95)


def test_holm_by_hand() -> None:
    # sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.04 -> the last may not fall below 0.06
    np.testing.assert_allclose(holm([0.04, 0.01, 0.03, 0.02]), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.6, 0.9]), [1.0, 1.0])
    assert len(holm([])) == 0


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_nothing_and_bonferroni(p: list[float]) -> None:
    adjusted = holm(p)
    assert np.all(adjusted >= p) and np.all(adjusted <= np.minimum(1, np.array(p) * len(p)))
    assert np.all(np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0)


def test_paired_tests_against_scipy() -> None:
    rng = np.random.default_rng(8)
    base = rng.random(200)
    others = {"a": base + rng.normal(0.03, 0.1, 200), "b": base + rng.normal(0, 0.1, 200)}
    a, b = paired_tests(base, others)
    for one, values in ((a, others["a"]), (b, others["b"])):
        t = stats.ttest_rel(values, base)
        assert one.difference == pytest.approx((values - base).mean())
        assert (one.t, one.p_t) == pytest.approx((t.statistic, t.pvalue))
        assert one.p_wilcoxon == pytest.approx(stats.wilcoxon(values, base).pvalue)
    assert a.p_t_holm == pytest.approx(2 * a.p_t) and b.p_t_holm == pytest.approx(b.p_t)
    assert a.p_wilcoxon_holm == pytest.approx(2 * a.p_wilcoxon) and a.name == "a"


def test_wilcoxon_by_hand() -> None:
    # Four users, all better, without ties: of the 16 signings of ranks 1 to 4 only two are as extreme: p = 2/16.
    # A fifth user without a difference is left out.
    (one,) = paired_tests(np.zeros(5), {"x": np.array([0.1, 0.2, 0.3, 0.4, 0.0])})
    assert one.p_wilcoxon == pytest.approx(0.125)


def test_rounding_is_no_difference() -> None:
    base = np.array([0.1 + 0.2, 0.5, 0.7])
    (one,) = paired_tests(base, {"same": np.array([0.3, 0.5, 0.7])})
    assert (one.t, one.p_t, one.p_wilcoxon, one.p_t_holm) == (0, 1, 1, 1)


def test_same_difference_for_everybody() -> None:
    (one,) = paired_tests(np.zeros(10), {"x": np.full(10, -0.1)})
    assert (one.t, one.p_t) == (-math.inf, 0)


def test_hits_and_misses() -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 2, 500).astype(float)  # 0/1 values, mostly equal: what HR looks like
    other = np.where(rng.random(500) < 0.1, 1.0, base)
    (one,) = paired_tests(base, {"x": other})
    # n users gained one hit, nobody lost one: n equal ranks of sign +, so the rank sum lies sqrt(n) deviations out.
    gained = int((other - base).sum())
    assert one.difference == pytest.approx(gained / 500)
    assert one.p_wilcoxon == pytest.approx(2 * stats.norm.sf(math.sqrt(gained)))


def test_paired_errors() -> None:
    with pytest.raises(CoterieError, match="'x' has values for 3 users, the baseline for 4"):
        paired_tests(np.zeros(4), {"x": np.zeros(3)})
    with pytest.raises(CoterieError, match="at least 2 users"):
        paired_tests(np.zeros(1), {"x": np.zeros(1)})
    assert paired_tests(np.zeros(4), {}) == []


def test_groups_by_hand() -> None:
    lengths = np.array([8, 1, 2, 3, 4, 5, 6, 7])
    cold, middle, warm = history_groups(lengths)
    assert (cold.name, cold.shortest, cold.longest, cold.members.tolist()) == ("cold", 1, 2, [1, 2])
    assert (middle.shortest, middle.longest) == (3, 6)
    assert (warm.name, warm.members.tolist()) == ("warm", [0, 7])
    means = group_averages({"HR@10": lengths.astype(float)}, [cold, warm])
    assert means == {"cold": {"HR@10": 1.5}, "warm": {"HR@10": 7.5}}


def test_equal_histories_stay_together() -> None:
    groups = history_groups(np.array([5, 5, 5, 5, 5, 9]))
    assert [(g.name, len(g.members)) for g in groups] == [("cold", 5), ("warm", 1)]
    assert [g.name for g in history_groups(np.full(4, 3))] == ["all"]
    assert history_groups(np.array([], int)) == []
    with pytest.raises(CoterieError, match="1 quantiles make 2 groups, but 3 names"):
        history_groups(np.arange(4), (0.5,))


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=60))
def test_groups_part_everybody_once(lengths: list[int]) -> None:
    groups = history_groups(np.array(lengths))
    assert sorted(np.concatenate([g.members for g in groups]).tolist()) == list(range(len(lengths)))
    assert all(a.longest < b.shortest for a, b in itertools.pairwise(groups))


def test_seeds() -> None:
    # 1, 2, 3, 4, 5: deviation sqrt(10/4), half width t(0.975, 4) * deviation / sqrt(5) = 2.776 * 0.7071
    result = over_seeds([1, 2, 3, 4, 5])
    assert (result.n, result.mean, result.deviation) == pytest.approx((5, 3, math.sqrt(2.5)))
    expected = stats.t.interval(0.95, 4, loc=3, scale=math.sqrt(2.5 / 5))
    assert (result.low, result.high) == pytest.approx(expected)
    assert result.high == pytest.approx(3 + 2.7764451 * math.sqrt(0.5))
    one = over_seeds([0.4])
    assert one.mean == 0.4 and math.isnan(one.deviation) and math.isnan(one.low)
    assert math.isnan(over_seeds([]).mean)
