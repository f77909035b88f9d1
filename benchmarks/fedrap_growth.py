"""FedRAP as released on MovieLens-1M against MovieLens-100K: seconds a round against training interactions.

On two threads, as a person would run it; wall-clock is meaningful on an otherwise idle machine (`load_average`), and
CPU-seconds, which neighbours on the machine disturb less, stand beside it. So does what there is to do: a step walks
the distinct rows of its batch, and the fewer items a catalogue has, the more often a negative is drawn twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks import histories
from coterie.algorithms import negatives
from coterie.algorithms.fedrap import FedRAP
from coterie.algorithms.interface import History
from coterie.engine.simulate import simulate, start

_SKIPPED, _ROUNDS = 2, 10  # the first rounds also ask the system for memory


def run() -> dict[str, Any]:
    found = {name: histories.named(name) for name in ("ml-100k", "ml-1m")}
    small, large = found["ml-100k"], found["ml-1m"]
    if small is None or large is None:
        return {"ratio": 0.0, "what": "not measured: ml-100k and ml-1m are not both at hand"}
    # In turns, the same round of each: rounds differ in how early devices stop, and another process on the machine
    # slows both down. The mean of five runs of the small one
    # stands against one of the large, which takes about twice as long as they.
    slow, quick = _rounds(large), [_rounds(small) for _ in range(5)]
    pairs = []
    for _ in range(_SKIPPED + _ROUNDS):
        little = [next(one) for one in quick]
        pairs.append(([mean(one[clock] for one in little) for clock in (0, 1)], next(slow)))
    pairs = pairs[_SKIPPED:]
    more = len(large.items) / len(small.items)
    wall, cpu = (
        {"ml-100k": mean(one[0][clock] for one in pairs), "ml-1m": mean(one[1][clock] for one in pairs)}
        for clock in (0, 1)
    )
    grown = wall["ml-1m"] / wall["ml-100k"]
    return {
        "ratio": grown / more,
        "what": "as many seconds an interaction on ml-1m as on ml-100k, two threads",
        "interactions_grow": more,
        "rows_stepped_on_grow": _rows(large) / _rows(small),
        "seconds_grow": grown,
        "seconds_grow_median_of_pairs": median(one[1][0] / one[0][0] for one in pairs),
        "cpu_seconds_grow": cpu["ml-1m"] / cpu["ml-100k"],
        "seconds_a_round": wall,
        "cpu_seconds_a_round": cpu,
    }


def _rows(history: History) -> int:
    """Distinct rows over all batches of one local pass of everybody."""
    algorithm, everybody = FedRAP(**FedRAP.behaviours["as_released"]), np.arange(history.n_clients)
    drawn, chance, found = negatives.draw(history, everybody, algorithm.negatives, 0, 1), np.random.default_rng(0), 0
    for i in everybody:
        hers = np.concatenate([history.items[history.indptr[i] : history.indptr[i + 1]], drawn.of(i)])
        shuffled = chance.permutation(hers)
        found += sum(len(np.unique(shuffled[a : a + algorithm.batch])) for a in range(0, len(hers), algorithm.batch))
    return found


def _rounds(history: History) -> Iterator[tuple[float, float]]:
    """Wall-clock and CPU-seconds of one round after the other."""
    algorithm = FedRAP(**FedRAP.behaviours["as_released"])
    state = start(algorithm, history, 0)
    rounds = simulate(algorithm, history, state, range(1, 1000), 0, threads=2)
    while True:
        began, spent = time.perf_counter(), time.process_time()
        next(rounds)
        yield time.perf_counter() - began, time.process_time() - spent
