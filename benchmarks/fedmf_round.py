"""One round of FedMF with the shipped defaults: the simulator against a NumPy loop over clients."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import histories
from benchmarks.measure import best
from coterie.algorithms.fedmf import FedMF
from coterie.algorithms.interface import History
from coterie.algorithms.negatives import draw
from coterie.engine.simulate import simulate, start
from coterie.ragged import Ragged


def run() -> dict[str, Any]:
    data, history = histories.small()
    algorithm = FedMF()
    ours = _ours(algorithm, history, 8)
    drawn = draw(history, np.arange(history.n_clients), algorithm.negatives, 0, 1)
    state = start(algorithm, history, 0)
    theirs = best(lambda: _numpy_round(algorithm, history, drawn, state.server.table, state.clients.user), 3)
    large = histories.named("ml-1m")
    return {
        "ratio": theirs / ours,
        "what": "fewer CPU-seconds than vectorised NumPy, a client at a time, one thread",
        "data": data,
        "coterie_cpu_seconds": ours,
        "numpy_cpu_seconds": theirs,
        "examples_per_cpu_second": (history.lengths.sum() + len(drawn.items)) / ours,
        "ml_1m_cpu_seconds": None if large is None else _ours(algorithm, large, 3),
    }


def _ours(algorithm: FedMF, history: History, times: int) -> float:
    rounds = simulate(algorithm, history, start(algorithm, history, 0), range(1, 100), 0, threads=1)
    next(rounds)
    return best(lambda: next(rounds), times)


def _numpy_round(a: FedMF, history: History, drawn: Ragged, table: np.ndarray, user: np.ndarray) -> None:
    moved = np.zeros_like(table)
    for i in range(history.n_clients):
        own = history.items[history.indptr[i] : history.indptr[i + 1]]
        others, times = np.unique(drawn.of(i), return_counts=True)
        rows, weight = np.concatenate([own, others]), np.concatenate([np.ones(len(own)), times]).astype(np.float32)
        u, C = user[i], table[rows]
        x = C[:, : a.dim] @ u + (C[:, a.dim] if a.item_bias else 0.0)
        error = weight / (1.0 + np.exp(-x))
        error[: len(own)] -= 1.0
        step = a.reg_item * C
        step[:, : a.dim] += error[:, None] * u
        if a.item_bias:
            step[:, a.dim] += error
        moved[rows] -= a.lr_item * step
        rate = a.lr_user / np.sqrt(len(own))
        user[i] = u - rate * (error @ C[:, : a.dim] + a.reg_user * u)
