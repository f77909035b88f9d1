"""Which table GPFedRec should score with once nothing leaks: her own, her neighbours' view, or the shared one.

    python -m benchmarks.gpfedrec_scored OUT.json

The three differ after training only, so one training on ml-100k (clean protocol, similarity=cosine, 100 rounds) serves
all. The choice is by the best validation NDCG@10 under full ranking; test figures are written for the chosen alone.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.algorithms import make
from coterie.data.load import load
from coterie.engine.simulate import simulate, start
from coterie.protocol.prepare import prepare
from coterie.protocol.rules import resolve
from coterie.runs.measure import measure

ROUNDS, EVERY = 100, 10
WAYS = ("own", "view", "shared")


def run() -> dict[str, Any]:
    prepared = prepare(load("ml-100k"), resolve("clean"), 0)
    algorithm = make("gpfedrec", "as_released", similarity="cosine", scored="own")
    state = start(algorithm, prepared.history, 0)
    best: dict[str, tuple[float, int, Any]] = {way: (-1.0, 0, None) for way in WAYS}
    curve: dict[str, list[float]] = {way: [] for way in WAYS}
    for one in simulate(algorithm, prepared.history, state, range(1, ROUNDS + 1), 0, threads=1):
        state = one.state
        if one.number % EVERY:
            continue
        for way in WAYS:
            found = measure(replace(algorithm, scored=way), state, prepared, 1).metrics
            value = found["validation"]["full"]["NDCG@10"]
            curve[way].append(value)
            best[way] = max(best[way], (value, one.number, found), key=lambda entry: entry[0])
    chosen = max(WAYS, key=lambda way: best[way][0])
    test = best[chosen][2]["test"]
    return {
        "rounds": ROUNDS,
        "evaluated_every": EVERY,
        "validation_full_NDCG@10_by_round": curve,
        "best_validation": {way: {"value": best[way][0], "round": best[way][1]} for way in WAYS},
        "chosen": chosen,
        "test": {kind: {key: test[kind][key] for key in ("HR@10", "NDCG@10")} for kind in ("sampled", "full")},
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(run(), indent=1) + "\n")
