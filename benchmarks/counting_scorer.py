"""The leak alone: a scorer that learns nothing and counts how often an item was drawn as a negative for a user.

    python -m benchmarks.counting_scorer docs/findings/counting.json

FedRAP's protocol (negatives avoid everything a user ever touched), 4 negatives for each positive, redrawn in each of
100 rounds. HR and NDCG@10 on the sampled test candidates, equal counts at their expected value, beside LightGCN as
published.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from coterie.algorithms import negatives
from coterie.algorithms.interface import Report
from coterie.data.load import load
from coterie.protocol import CanaryWatch, prepare, resolve

PUBLISHED = {  # FedRAP, tables 3 and 4: LightGCN, HR@10 and NDCG@10 in per cent
    "ml-100k": (99.54, 91.52),
    "ml-1m": (99.43, 90.43),
    "amazon-instant-video": (51.60, 32.64),
    "lastfm-2k": (28.56, 14.32),
}
ROUNDS, NEGATIVES, CUTOFF = 100, 4, 10


def count(name: str) -> dict[str, float]:
    prepared = prepare(load(name), resolve("paper:fedrap"), 0)
    watch, everybody = CanaryWatch(prepared), np.arange(prepared.history.n_clients)
    for round_ in range(1, ROUNDS + 1):
        drawn = negatives.draw(prepared.history, everybody, NEGATIVES, 0, round_)
        watch.observe(everybody, Report(np.zeros(len(everybody)), drawn.lengths, drawn))
    held, lists, counts = watch.draws()
    row = np.repeat(np.arange(len(held)), lists.lengths)
    before = np.bincount(row[counts < held[row]], minlength=len(held))
    equal = np.bincount(row[counts == held[row]], minlength=len(held))
    gain = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, CUTOFF + 2)))])  # of the first k places together
    last, first = (np.minimum(one, CUTOFF) for one in (before + equal + 1, before))
    return {
        "HR@10": float(np.mean((last - first) / (equal + 1))),
        "NDCG@10": float(np.mean((gain[last] - gain[first]) / (equal + 1))),
        "never_drawn_share_of_candidates": float(np.mean(counts == 0)),
        "users_watched": len(held),
    }


if __name__ == "__main__":
    found = {
        name: count(name) | {"published_lightgcn_percent": list(published)} for name, published in PUBLISHED.items()
    }
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
