"""How far to believe a figure: intervals over users, paired tests, cold and warm users, seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from coterie.errors import CoterieError

_DRAWS = 1 << 22  # users drawn at a time in the bootstrap: 32 MB


class Interval(NamedTuple):
    mean: float
    low: float
    high: float


class Comparison(NamedTuple):
    """One system against the baseline, over the same users."""

    name: str
    difference: float  # mean over users of system - baseline
    t: float  # paired t statistic
    p_t: float  # two-sided
    p_wilcoxon: float  # two-sided, users without a difference left out
    p_t_holm: float  # corrected for all comparisons of the same call
    p_wilcoxon_holm: float


class Group(NamedTuple):
    name: str
    shortest: int  # history lengths in the group
    longest: int
    members: np.ndarray  # int64[g] rows of the evaluated users


class Seeds(NamedTuple):
    """Several runs that differ in their seed only."""

    n: int
    mean: float
    deviation: float  # n - 1 in the denominator; NaN for one seed
    low: float  # Student's t interval of the mean; NaN for one seed
    high: float


def bootstrap_intervals(
    values: Mapping[str, np.ndarray], confidence: float = 0.95, samples: int = 2000, seed: int = 0
) -> dict[str, Interval]:
    """Percentile bootstrap over users of several metrics at once.

    The metrics share the draws, so that drawing, the dear part, is done once and intervals of two metrics (or systems)
    may be compared.
    """
    if not 0 < confidence < 1:
        raise CoterieError(f"confidence is {confidence}, expected between 0 and 1, for example 0.95.")
    if not values:
        return {}
    table = np.column_stack([np.asarray(one, np.float64) for one in values.values()])  # [e, metrics]
    e = len(table)
    if e == 0:
        return {name: Interval(math.nan, math.nan, math.nan) for name in values}
    rng = np.random.default_rng(seed)
    means = np.empty((samples, table.shape[1]))
    rows = max(1, _DRAWS // e)
    for start in range(0, samples, rows):
        b = min(rows, samples - start)
        # How often each user was drawn; the product with the table then does all metrics.
        drawn = rng.integers(0, e, (b, e)) + np.arange(b)[:, None] * e
        times = np.bincount(drawn.reshape(-1), minlength=b * e).reshape(b, e)
        means[start : start + b] = times.astype(np.float64) @ table / e
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return {name: Interval(float(table[:, k].mean()), float(low[k]), float(high[k])) for k, name in enumerate(values)}


def bootstrap_interval(values: np.ndarray, confidence: float = 0.95, samples: int = 2000, seed: int = 0) -> Interval:
    """Percentile bootstrap of the mean over users of one metric."""
    return bootstrap_intervals({"": values}, confidence, samples, seed)[""]


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's step-down correction: the k-th smallest of n times (n - k + 1), never below the one before, at most 1."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted


def _paired_t(difference: np.ndarray) -> tuple[float, float]:
    from scipy import stats  # half a second to import, and only comparisons need it

    mean = float(difference.mean())
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference))
    if error <= 1e-14 * abs(mean):  # the same difference for everybody (up to rounding), or none at all
        return (math.copysign(math.inf, mean), 0.0) if mean else (0.0, 1.0)
    return mean / error, float(2 * stats.t.sf(abs(mean / error), len(difference) - 1))


def _wilcoxon(difference: np.ndarray) -> float:
    from scipy import stats

    changed = difference[difference != 0]
    return float(stats.wilcoxon(changed).pvalue) if len(changed) else 1.0


def paired_tests(baseline: np.ndarray, others: Mapping[str, np.ndarray]) -> list[Comparison]:
    """Each system against the baseline: paired t and Wilcoxon over users, Holm-corrected over all systems given.

    The arrays are per-user values of one metric for the same users in the same order. With several seeds, average a
    user's values over the seeds first: the same user twice is not two observations.
    """
    base = np.asarray(baseline, np.float64)
    if len(base) < 2:
        raise CoterieError(f"paired tests need at least 2 users, got {len(base)}.")
    rows = []
    for name, values in others.items():
        if len(values) != len(base):
            raise CoterieError(
                f"{name!r} has values for {len(values)} users, the baseline for {len(base)}. Paired tests need the "
                f"same users in the same order: select those that both runs evaluated."
            )
        # Metrics are sums of floats: a difference in the last digit is none, but Wilcoxon would rank it.
        difference = np.round(np.asarray(values, np.float64) - base, 12)
        rows.append((name, float(difference.mean()), *_paired_t(difference), _wilcoxon(difference)))
    t_holm, w_holm = holm([row[3] for row in rows]), holm([row[4] for row in rows])
    return [Comparison(*row, float(t_holm[k]), float(w_holm[k])) for k, row in enumerate(rows)]


def history_groups(
    lengths: np.ndarray,
    quantiles: Sequence[float] = (0.25, 0.75),
    names: Sequence[str] = ("cold", "middle", "warm"),
) -> list[Group]:
    """Evaluated users by the length of their training history, cut at quantiles: by default the shortest quarter is
    cold, the longest warm.

    Equal lengths are never parted, so groups may differ from their quantile, and empty ones are left out; if all have
    the same length there is one group, "all".
    """
    lengths = np.asarray(lengths)
    if len(names) != len(quantiles) + 1:
        raise CoterieError(f"{len(quantiles)} quantiles make {len(quantiles) + 1} groups, but {len(names)} names came.")
    if len(lengths) == 0:
        return []
    if lengths.min() == lengths.max():
        return [Group("all", int(lengths[0]), int(lengths[0]), np.arange(len(lengths)))]
    edges = np.quantile(lengths, quantiles, method="inverted_cdf")  # lengths that occur, not between two
    label = np.searchsorted(edges, lengths, side="left")  # at most the first edge: the first group
    groups = []
    for k, name in enumerate(names):
        members = np.flatnonzero(label == k)
        if len(members):
            groups.append(Group(name, int(lengths[members].min()), int(lengths[members].max()), members))
    return groups


def group_averages(values: Mapping[str, np.ndarray], groups: Sequence[Group]) -> dict[str, dict[str, float]]:
    """The mean of each metric within each group: {"cold": {"HR@10": ...}, ...}."""
    return {g.name: {name: float(one[g.members].mean()) for name, one in values.items()} for g in groups}


def over_seeds(values: Sequence[float] | np.ndarray, confidence: float = 0.95) -> Seeds:
    """Mean, deviation and Student's t interval of a figure over seeds."""
    one = np.asarray(values, np.float64)
    n = len(one)
    if n < 2:
        return Seeds(n, float(one[0]) if n else math.nan, math.nan, math.nan, math.nan)
    from scipy import stats

    mean, deviation = float(one.mean()), float(one.std(ddof=1))
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * deviation / math.sqrt(n)
    return Seeds(n, mean, deviation, mean - half, mean + half)
