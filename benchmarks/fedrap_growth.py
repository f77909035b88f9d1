"""FedRAP as released on MovieLens-1M against MovieLens-100K: CPU-seconds a round against training interactions."""

from __future__ import annotations

import time
from typing import Any

from benchmarks import histories
from coterie.algorithms.fedrap import FedRAP
from coterie.algorithms.interface import History
from coterie.engine.simulate import simulate, start

_FIRST, _LAST = 3, 10  # the first rounds also ask the system for memory


def run() -> dict[str, Any]:
    found = {name: histories.named(name) for name in ("ml-100k", "ml-1m")}
    small, large = found["ml-100k"], found["ml-1m"]
    if small is None or large is None:
        return {"ratio": 0.0, "what": "not measured: ml-100k and ml-1m are not both at hand"}
    seconds = {"ml-100k": _round(small), "ml-1m": _round(large)}
    more = len(large.items) / len(small.items)
    grown = seconds["ml-1m"] / seconds["ml-100k"]
    return {
        "ratio": grown / more,
        "what": "as much CPU time an interaction on ml-1m as on ml-100k",
        "interactions_grow": more,
        "cpu_seconds_grow": grown,
        "cpu_seconds_a_round": seconds,
    }


def _round(history: History) -> float:
    algorithm = FedRAP(**FedRAP.behaviours["as_released"])
    state, began = start(algorithm, history, 0), 0.0
    for one in simulate(algorithm, history, state, range(1, _LAST + 1), 0, threads=1):
        if one.number == _FIRST - 1:
            began = time.process_time()
    return (time.process_time() - began) / (_LAST - _FIRST + 1)
