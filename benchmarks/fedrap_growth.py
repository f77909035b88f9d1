"""FedRAP as released on MovieLens-1M against MovieLens-100K: CPU-seconds a round against training interactions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import mean, median
from typing import Any

from benchmarks import histories
from coterie.algorithms.fedrap import FedRAP
from coterie.algorithms.interface import History
from coterie.engine.simulate import simulate, start

_SKIPPED, _ROUNDS = 2, 8  # the first rounds also ask the system for memory


def run() -> dict[str, Any]:
    found = {name: histories.named(name) for name in ("ml-100k", "ml-1m")}
    small, large = found["ml-100k"], found["ml-1m"]
    if small is None or large is None:
        return {"ratio": 0.0, "what": "not measured: ml-100k and ml-1m are not both at hand"}
    # In turns, the same round of each: rounds differ in how early devices stop, and another process on the machine
    # slows both down. The mean of five runs of the small one
    # stands against one of the large, which takes about twice as long as they.
    slow, quick = _rounds(large), [_rounds(small) for _ in range(5)]
    pairs = [(mean(next(one) for one in quick), next(slow)) for _ in range(_SKIPPED + _ROUNDS)][_SKIPPED:]
    seconds = {name: sum(pair[at] for pair in pairs) / _ROUNDS for at, name in enumerate(("ml-100k", "ml-1m"))}
    more = len(large.items) / len(small.items)
    grown = seconds["ml-1m"] / seconds["ml-100k"]
    return {
        "ratio": grown / more,
        "what": "as much CPU time an interaction on ml-1m as on ml-100k",
        "interactions_grow": more,
        "cpu_seconds_grow": grown,
        "cpu_seconds_grow_median_of_pairs": median(pair[1] / pair[0] for pair in pairs),
        "cpu_seconds_a_round": seconds,
    }


def _rounds(history: History) -> Iterator[float]:
    """CPU-seconds of one round after the other."""
    algorithm = FedRAP(**FedRAP.behaviours["as_released"])
    state = start(algorithm, history, 0)
    rounds = simulate(algorithm, history, state, range(1, 1000), 0, threads=1)
    while True:
        began = time.process_time()
        next(rounds)
        yield time.process_time() - began
