"""A classifier trained on other users' uploads: an attacker who knows some people's histories asks for the others'."""

from __future__ import annotations

import numpy as np

from coterie.privacy.audit import attacks
from coterie.privacy.audit.evidence import Evidence

_ROWS = 60_000  # examples to train on; more make no difference to a handful of features


def features(seen: Evidence) -> list[np.ndarray]:
    """float32[u, m] each; scaled within a user where their unit is hers."""
    came = np.maximum(seen.came, 1)
    norm, last = seen.norm / came, seen.last / came
    sign = seen.sign / np.maximum(seen.uploads, 1)[:, None]
    frequency = attacks.frequency(seen)
    side = _scaled(sign)
    return [frequency, seen.first, _scaled(norm), _scaled(last), side, np.abs(side), _scaled(seen.score)]


def _scaled(values: np.ndarray) -> np.ndarray:
    deviation = values.std(axis=1, keepdims=True)
    found: np.ndarray = (values - values.mean(axis=1, keepdims=True)) / np.maximum(deviation, 1e-12)
    return found


def predict(seen: Evidence, truth: np.ndarray, seed: int, popular: np.ndarray | None = None) -> np.ndarray:
    """float64[u, m]: log-odds of each pair, by a model trained on the other half of the users (two folds).

    With `popular` the model weighs popularity and evidence itself, also where the evidence is noise.
    """
    columns = features(seen) + ([] if popular is None else [_scaled(np.log1p(popular))])
    draw = np.random.default_rng(seed)
    fold = draw.permutation(len(truth)) % 2
    found = np.zeros(truth.shape)
    for part in (0, 1):
        known, target = np.flatnonzero(fold == part), np.flatnonzero(fold != part)
        if not len(known) or not len(target) or not truth[known].any():
            continue
        user, item = _sample(truth[known], draw)
        weights = _fit(_expanded([one[known[user], item] for one in columns]), truth[known[user], item])
        for chunk in np.array_split(target, max(len(target) // 100, 1)):
            there = _expanded([one[chunk].ravel() for one in columns])
            found[chunk] = (there @ weights).reshape(len(chunk), truth.shape[1])
    return found


def _expanded(columns: list[np.ndarray]) -> np.ndarray:
    """float64[r, f]: one, the features (cut at five deviations), their squares and products."""
    plain = [np.clip(one.astype(np.float64), -5.0, 5.0) for one in columns]
    more = [a * b for place, a in enumerate(plain) for b in plain[place:]]
    return np.stack([np.ones(len(plain[0])), *plain, *more], axis=1)


def _fit(x: np.ndarray, y: np.ndarray, ridge: float = 1.0, steps: int = 12) -> np.ndarray:
    """Logistic regression by Newton's method with a little ridge."""
    weights = np.zeros(x.shape[1])
    for _ in range(steps):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ weights, -30.0, 30.0)))
        gradient = x.T @ (y - p) - ridge * weights
        curvature = (x * (p * (1.0 - p))[:, None]).T @ x + ridge * np.eye(x.shape[1])
        step = np.linalg.solve(curvature, gradient)
        weights = weights + step
        if np.abs(step).max() < 1e-6:
            break
    found: np.ndarray = weights
    return found


def _sample(truth: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(user, item) pairs to train on: all of them, or as many as are enough."""
    pairs = np.arange(truth.size) if truth.size <= _ROWS else draw.choice(truth.size, _ROWS, replace=False)
    user, item = np.divmod(pairs, truth.shape[1])
    return user, item


def with_popularity(shadow: np.ndarray, popular: np.ndarray, truth: np.ndarray, seed: int) -> np.ndarray:
    """float64[u, m]: popularity, and the shadow's opinion as much as it helped on the other half of the users.

    The weight is chosen among a few, zero among them: an opinion that is noise must not spoil what is known anyway.
    """
    from coterie.privacy.audit.measure import auc

    base: np.ndarray = np.log1p(popular)
    draw = np.random.default_rng(seed)
    fold = draw.permutation(len(truth)) % 2
    found = base.copy()
    for part in (0, 1):
        known, target = fold == part, fold != part
        if not known.any() or not target.any():
            continue
        best, weight = -np.inf, 0.0
        plain = auc(base[known], truth[known])
        for one in (0.0, 0.1, 0.5, 2.0, 10.0):
            values = auc(base[known] + one * shadow[known], truth[known])
            gain = np.nanmean(values - plain)
            error = np.nanstd(values - plain) / max(np.sqrt(known.sum()), 1)
            if (one == 0.0 or gain > 2 * error) and gain > best:  # only what surely helps
                best, weight = gain, one
        found[target] = base[target] + weight * shadow[target]
    return found
