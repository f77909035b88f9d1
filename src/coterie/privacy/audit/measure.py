"""How good an attack is: AUC, precision at the number of positives, true positives at 1 % false ones, for each user."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Quality(NamedTuple):
    auc: np.ndarray  # float64[u]; NaN where a user has only positives or only negatives among the candidates
    precision: np.ndarray  # float64[u]: at |positives|
    caught: np.ndarray  # float64[u]: share of positives above the 99th percentile of negatives


def auc(scores: np.ndarray, truth: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
    """float64[u]: the chance that a positive of hers scores above a negative; ties count half."""
    from scipy.stats import rankdata

    if candidates is not None:
        scores, truth = np.where(candidates, scores, -np.inf), truth & candidates
    ranks = rankdata(scores, axis=1)
    left_out = np.zeros(len(scores)) if candidates is None else (~candidates).sum(axis=1)
    positives = truth.sum(axis=1)
    negatives = scores.shape[1] - left_out - positives
    total = (ranks * truth).sum(axis=1) - left_out * positives - positives * (positives + 1) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        found: np.ndarray = np.where((positives > 0) & (negatives > 0), total / (positives * negatives), np.nan)
    return found


def quality(scores: np.ndarray, truth: np.ndarray, candidates: np.ndarray | None = None, seed: int = 0) -> Quality:
    area = auc(scores, truth, candidates)
    usable = np.full(truth.shape, True) if candidates is None else candidates
    shuffled = np.random.default_rng(seed).permutation(truth.shape[1])  # ties are broken at random
    values = np.where(usable, scores, -np.inf)[:, shuffled]
    right = (truth & usable)[:, shuffled]
    order = np.argsort(-values, axis=1, kind="stable")
    sorted_right = np.take_along_axis(right, order, axis=1)
    positives = right.sum(axis=1)
    hits = np.cumsum(sorted_right, axis=1)
    rows = np.arange(len(truth))
    precision = np.where(positives > 0, hits[rows, np.maximum(positives, 1) - 1] / np.maximum(positives, 1), np.nan)
    negatives = usable.sum(axis=1) - positives
    allowed = np.floor(0.01 * negatives)
    wrong = np.cumsum(~sorted_right, axis=1) <= allowed[:, None]
    caught = np.where(positives > 0, (sorted_right & wrong).sum(axis=1) / np.maximum(positives, 1), np.nan)
    return Quality(area, precision, caught)


def interval(values: np.ndarray, seed: int = 0, times: int = 2000) -> tuple[float, float, float]:
    """(mean, low, high): a 95 % bootstrap interval over users."""
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan"), float("nan")
    draw = np.random.default_rng(seed)
    means = np.empty(times)
    for first in range(0, times, 200):
        picks = draw.integers(len(known), size=(min(200, times - first), len(known)))
        means[first : first + len(picks)] = known[picks].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(known.mean()), float(low), float(high)
