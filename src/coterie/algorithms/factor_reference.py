"""The local training of `factor.py` in plain NumPy: one client, whole tables, every example its own row.

Slow and readable: what the kernel is tested against. Nothing is folded, gathered or remembered as a scalar: an item
drawn three times is three examples, and weight decay walks over every row it acts on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coterie import rng
from coterie.algorithms.factor import L1, L2, SOFT_THRESHOLD, Local


class Model(NamedTuple):
    """What one client trains, in float64."""

    shared: np.ndarray  # [m, k (+ 1)]: C, and the item's bias in the last column if there is one
    own: np.ndarray  # [m, k]: D
    user: np.ndarray  # [k]: u
    bias: float  # b


class Batch(NamedTuple):
    items: np.ndarray  # int64[B]: repeats are repeated
    labels: np.ndarray  # float64[B]: 1 for a positive, 0 for a negative
    weights: np.ndarray  # float64[B]


def recency(ages: np.ndarray, half_life: float, oldest: float) -> np.ndarray:
    """What positives of these ages (each from 0 on, once) weigh, 1 in the mean."""
    if half_life == 0:
        return np.ones(len(ages))
    weights = np.maximum(0.5 ** (ages / half_life), oldest)
    found: np.ndarray = weights / weights.mean()
    return found


def examples(items: np.ndarray, counts: np.ndarray, negatives: np.ndarray, weights: np.ndarray) -> Batch:
    """All examples of a client: her positives, then her negatives, equal ones together in the order they first came."""
    distinct, first, repeats = np.unique(negatives, return_index=True, return_counts=True)
    order = np.argsort(first)
    rows = np.concatenate([np.repeat(items, counts.astype(int)), np.repeat(distinct[order], repeats[order])])
    labels = np.zeros(len(rows))
    labels[: int(counts.sum())] = 1.0
    each = np.concatenate([np.repeat(weights, counts.astype(int)), np.ones(len(negatives))])
    return Batch(rows.astype(np.int64), labels, each)


def logits(model: Model, items: np.ndarray, s: Local) -> np.ndarray:
    """<u, C[j] + D[j]> + biases."""
    k = len(model.user)
    x = np.full(len(items), model.bias if s.user_bias else 0.0)
    if s.shared:
        x += model.shared[items, :k] @ model.user
    if s.private:
        x += model.own[items] @ model.user
    if s.shared and s.item_bias:
        x += model.shared[items, k]
    return x


def losses(model: Model, batch: Batch, s: Local) -> np.ndarray:
    """Each example's loss, weighted."""
    x, y = logits(model, batch.items, s), batch.labels
    each: np.ndarray = 0.5 * (x - y) ** 2 if s.squared else np.logaddexp(0.0, x) - y * x
    return each * batch.weights


def penalty(model: Model, batch: Batch, s: Local) -> float:
    """-lambda (D - C)^2 + mu |C| (or C^2), summed over every item, or over the batch's rows with repeats counted."""
    k = len(model.user)
    items = np.arange(len(model.shared)) if s.whole else batch.items
    weights = (np.ones(len(items)) if s.whole else batch.weights)[:, None]
    c = model.shared[items, :k] if s.shared else np.zeros((len(items), k))
    total = s.sparse * (weights * (c**2 if s.penalty == L2 else np.abs(c))).sum()
    if s.private:
        total -= s.apart * (weights * (model.own[items] - c) ** 2).sum()
    return float(total / (len(batch.items) * k) if s.mean else total)


def gradient(model: Model, batch: Batch, s: Local) -> Model:
    """Of loss, penalty and weight decay. A soft threshold is no gradient and is not in here."""
    k, m = len(model.user), len(model.shared)
    size = len(batch.items)
    x = logits(model, batch.items, s)
    error = batch.weights * ((x if s.squared else 1.0 / (1.0 + np.exp(-x))) - batch.labels)
    g = error / size if s.mean else error
    to_shared, to_own = np.zeros_like(model.shared), np.zeros_like(model.own)
    to_user = np.zeros(k)
    for one, j in zip(g, batch.items, strict=True):
        if s.shared:
            to_shared[j, :k] += one * model.user
            to_user += one * model.shared[j, :k]
        if s.shared and s.item_bias:
            to_shared[j, k] += one
        if s.private:
            to_own[j] += one * model.user
            to_user += one * model.own[j]
    per_row = 1.0 / (size * k) if s.mean else 1.0
    times = np.ones(m) if s.whole else np.bincount(batch.items, batch.weights, m)  # how much each row counts
    for j, weight in enumerate(per_row * times):
        c = model.shared[j, :k] if s.shared else np.zeros(k)
        if s.private:
            to_shared[j, :k] += weight * 2.0 * s.apart * (model.own[j] - c)
            to_own[j] -= weight * 2.0 * s.apart * (model.own[j] - c)
        if s.penalty == L1:
            to_shared[j, :k] += weight * s.sparse * np.sign(c)
        if s.penalty == L2:
            to_shared[j, :k] += weight * s.sparse * 2.0 * c
    decayed = np.arange(m) if s.everywhere or s.whole else np.unique(batch.items)
    to_shared[decayed] += s.decay_item * model.shared[decayed]
    to_own[decayed] += s.decay_own * model.own[decayed]
    to_user += s.decay_user * model.user
    return Model(to_shared, to_own, to_user, float(g.sum() + s.decay_user * model.bias))


def step(model: Model, batch: Batch, rate_user: float, fade: float, s: Local) -> Model:
    """One simultaneous step on everything that is there."""
    g = gradient(model, batch, s)
    k = len(model.user)
    shared, own, bias = model.shared, model.own, model.bias
    if s.shared:
        shared = shared - s.rate_item * fade * g.shared
        if s.penalty == SOFT_THRESHOLD:
            per_row = 1.0 / (len(batch.items) * k) if s.mean else 1.0
            times = np.ones(len(shared)) if s.whole else np.bincount(batch.items, batch.weights, len(shared))
            theta = (s.rate_item * fade * s.sparse * per_row * times)[:, None]
            shared[:, :k] = np.sign(shared[:, :k]) * np.maximum(np.abs(shared[:, :k]) - theta, 0.0)
    if s.private:
        own = own - s.rate_own * fade * g.own
    if s.user_bias:
        bias = bias - rate_user * fade * g.bias
    return Model(shared, own, model.user - rate_user * fade * g.user, bias)


def train(
    model: Model, everything: Batch, rate_user: float, s: Local, seed: int, round_: int, key: np.uint64
) -> tuple[Model, float]:
    """All local passes of one client, and the mean loss of the first of them."""
    size = len(everything.items)
    order = np.arange(size)
    state = np.uint64(rng.stream(seed, round_, key, rng.SHUFFLE))
    fade, first_loss, running, seen, before = 1.0, 0.0, 0.0, 0, 0.0
    for sweep in range(s.passes):
        if size > s.batch:
            for e in range(size - 1, s.batch - 1, -1):  # what is left is the first batch, in any order
                state = np.uint64(rng.after(state))
                other = rng.below(state, e + 1)
                order[e], order[other] = order[other], order[e]
        for a in range(0, size, s.batch):
            batch = Batch(*(field[order[a : a + s.batch]] for field in everything))
            loss = float(losses(model, batch, s).sum())
            running += loss + penalty(model, batch, s) * (len(batch.items) if s.mean else 1)
            seen += len(batch.items)
            if sweep == 0:
                first_loss += loss
            model = step(model, batch, rate_user, fade, s)
            fade *= s.step_decay
        if s.tolerance > 0 and seen:
            now = running / seen
            if sweep > 0 and before and abs(now - before) / abs(before) < s.tolerance:
                break
            before = now
    return model, first_loss / max(size, 1)
