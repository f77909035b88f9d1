"""What the trained central systems share: an extra that may be missing, Adam kept in arrays, examples of an epoch.

State is plain NumPy between rounds; tensors live only inside one round, on one thread, so that a run that was stopped
goes on to the same bytes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from coterie import rng
from coterie.algorithms import negatives
from coterie.algorithms.interface import History
from coterie.errors import CoterieError
from coterie.ragged import Ragged

_NEWTON_STEPS = 20


def need(module: str, extra: str, who: str) -> None:
    """Refuse at once, with the line that mends it, if an optional library is not here."""
    if find_spec(module) is None:
        raise CoterieError(f"{who} needs {module}, which is not installed: pip install 'coterie[{extra}]'")


@contextmanager
def one_thread() -> Iterator[Any]:
    """Torch on one thread: sums then always run in the same order."""
    torch = import_module("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield torch
    finally:
        torch.set_num_threads(before)


@contextmanager
def implicit_model(module: str) -> Iterator[Any]:
    """A module of implicit, with BLAS on one thread (its own advice, and the same bytes each time) and without warnings
    about what it converts inside itself."""
    limits = import_module("threadpoolctl").threadpool_limits
    found = import_module(module)
    with limits(1, "blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", import_module("implicit.utils").ParameterWarning)
        yield found


class Fit(NamedTuple):
    """Parameters and Adam's memory of them."""

    now: Any  # the parameters: a NamedTuple of float32 arrays
    first: Any  # the running mean of their gradients
    second: Any  # and of the squares
    steps: np.ndarray  # int64[1]: steps taken


def fresh(parameters: Any) -> Fit:
    """Parameters before the first step."""
    kind = type(parameters)
    now = kind(*(np.ascontiguousarray(one, np.float32) for one in parameters))
    first, second = (kind(*(np.zeros_like(one) for one in now)) for _ in range(2))
    return Fit(now, first, second, np.zeros(1, np.int64))


def opened(torch: Any, fit: Fit, lr: float) -> tuple[Any, Any]:
    """The parameters as tensors (copies) in the same NamedTuple, and their Adam as it was left."""
    tensors = type(fit.now)(*(torch.tensor(one, requires_grad=True) for one in fit.now))
    adam = torch.optim.Adam(list(tensors), lr=lr, fused=True)
    for one, first, second in zip(tensors, fit.first, fit.second, strict=True):
        adam.state[one] = {
            "step": torch.tensor(float(fit.steps[0])),
            "exp_avg": torch.tensor(first),
            "exp_avg_sq": torch.tensor(second),
        }
    return tensors, adam


def closed(tensors: Any, adam: Any) -> Fit:
    """Back to arrays."""
    kind = type(tensors)
    memory = [adam.state[one] for one in tensors]
    first, second = (kind(*(one[key].numpy() for one in memory)) for key in ("exp_avg", "exp_avg_sq"))
    return Fit(kind(*(one.detach().numpy() for one in tensors)), first, second, np.array([int(memory[0]["step"])]))


def positives(history: History) -> tuple[np.ndarray, np.ndarray]:
    """int64[p], int64[p]: user and item of every positive row, repeated pairs as often as they stand in the data."""
    times = history.counts.astype(np.int64)
    owner = np.repeat(np.arange(history.n_clients), history.lengths)
    return np.repeat(owner, times), np.repeat(history.items.astype(np.int64), times)


def pairs(
    history: History, seed: int, round_: int, per_positive: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Ragged]:
    """User, positive, drawn negative: each positive as often as it has negatives, shuffled; and the draws by user."""
    drawn = negatives.draw(history, np.arange(history.n_clients), per_positive, seed, round_)
    user, item = positives(history)
    times = np.minimum(per_positive, history.n_items - history.forbidden.lengths)[user]  # none left: no triple
    user, item = np.repeat(user, times), np.repeat(item, times)
    order = rng.generator(seed, rng.SHUFFLE, round_).permutation(len(user))
    return user[order], item[order], drawn.items.astype(np.int64)[order], drawn


def points(
    history: History, per_positive: int, seed: int, round_: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Ragged]:
    """User, item and label (1 positive, 0 drawn negative), shuffled; and the draws by user."""
    drawn = negatives.draw(history, np.arange(history.n_clients), per_positive, seed, round_)
    user, item = positives(history)
    users = np.concatenate([user, np.repeat(np.arange(history.n_clients), drawn.lengths)])
    items = np.concatenate([item, drawn.items.astype(np.int64)])
    labels = np.zeros(len(users), np.float32)
    labels[: len(user)] = 1.0
    order = rng.generator(seed, rng.SHUFFLE, round_).permutation(len(users))
    return users[order], items[order], labels[order], drawn


def normal(seed: int, purpose: int, shape: tuple[int, ...], scale: float) -> np.ndarray:
    """float32: the start of a table that belongs to no single user."""
    found: np.ndarray = np.float32(scale) * rng.generator(seed, purpose).standard_normal(shape, np.float32)
    return found


def user_start(history: History, dim: int, scale: float, seed: int) -> np.ndarray:
    """float32[n, dim]: each user's first vector, a function of her key."""
    user = np.empty((history.n_clients, dim), np.float32)
    rng.fill_normal(user, scale, seed, history.keys, rng.USER_START)
    return user


def logistic(rows: np.ndarray, offset: np.ndarray, labels: np.ndarray, ridge: float) -> np.ndarray:
    """float32[k]: w that minimises sum of BCE(sigma(rows w + offset), labels) + ridge/2 |w|^2, by Newton's method."""
    rows = rows.astype(np.float64)
    w = np.zeros(rows.shape[1])
    for _ in range(_NEWTON_STEPS):
        p = 1.0 / (1.0 + np.exp(-np.clip(rows @ w + offset, -30, 30)))
        slope = rows.T @ (p - labels) + ridge * w
        curve = (rows * (p * (1 - p))[:, None]).T @ rows
        curve[np.diag_indices_from(curve)] += ridge
        step = np.linalg.solve(curve, slope)
        w -= step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))  # a bounded step cannot overshoot far
        if np.abs(step).max() < 1e-6:
            break
    return w.astype(np.float32)
