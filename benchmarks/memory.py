"""The store of touched private rows against a plain table of clients x items x dim, after some rounds of FedRAP."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import histories
from coterie.algorithms.fedrap import FedRAP
from coterie.algorithms.interface import History
from coterie.engine.simulate import simulate, start

_ROUNDS = (1, 10)


def run() -> dict[str, Any]:
    data, history = histories.small()
    out: dict[str, Any] = {"ratio": 0.0, "what": "", "data": data, **_touched(history)}
    sparse = histories.named("amazon-instant-video")
    if sparse is not None:
        out |= {f"amazon_instant_video_{key}": value for key, value in _touched(sparse).items()}
    share = out[f"store_share_after_{_ROUNDS[-1]}"]
    return out | {
        "ratio": 1.0 / share,
        "what": f"less memory for private tables than dense ones, after {_ROUNDS[-1]} rounds",
    }


def _touched(history: History) -> dict[str, float]:
    algorithm = FedRAP(**FedRAP.behaviours["as_released"] | {"epochs": 1})
    state = start(algorithm, history, 0)
    dense = history.n_clients * history.n_items * algorithm.dim * np.dtype(np.float32).itemsize
    out = {"dense_bytes": float(dense)}
    for one in simulate(algorithm, history, state, range(1, _ROUNDS[-1] + 1), 0, threads=1):
        if one.number in _ROUNDS:
            out[f"store_share_after_{one.number}"] = one.state.clients.own.nbytes / dense
    return out
