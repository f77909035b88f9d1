"""Two threads against one, wall-clock, same round. Meaningful on an otherwise idle machine: see `load_average`."""

from __future__ import annotations

import time
from typing import Any

from benchmarks import histories
from benchmarks.measure import best
from coterie.algorithms.fedrap import FedRAP
from coterie.engine.simulate import simulate, start


def run() -> dict[str, Any]:
    data, history = histories.small()
    algorithm = FedRAP(**FedRAP.behaviours["as_released"] | {"tolerance": 0.0})
    rounds = {
        n: simulate(algorithm, history, start(algorithm, history, 0), range(1, 999), 0, threads=n) for n in (1, 2)
    }
    seconds = {1: float("inf"), 2: float("inf")}
    for one in rounds.values():
        next(one)
    for _ in range(12):  # in turns, so that both meet the same neighbours
        for n, one in rounds.items():
            seconds[n] = min(seconds[n], best(lambda one=one: next(one), 2, time.perf_counter))
    cpu = {n: best(lambda one=one: next(one), 5) for n, one in rounds.items()}
    return {
        "ratio": seconds[1] / seconds[2],
        "what": "faster on two threads than on one, wall-clock",
        "data": data,
        "one_thread_seconds": seconds[1],
        "two_threads_seconds": seconds[2],
        "one_thread_cpu_seconds": cpu[1],
        "two_threads_cpu_seconds": cpu[2],  # more than on one thread is what sharing costs
    }
