"""LightGCN's published row as LightGCN that also knows what was drawn: fewest draws first, its own score among equals.

    python -m benchmarks.lightgcn_counting docs/findings/lightgcn-counting.json [DATA ...]

A user's item score is minus how often it was drawn as a negative for her (4 for each positive, 100 epochs, as FedRAP
draws), and, between items drawn equally often, LightGCN's (shipped defaults, `EPOCHS` epochs). With FedRAP's negatives,
which avoid all that she ever touched, and with negatives that avoid her training items only, all else being FedRAP's
protocol. HR and NDCG@10 on the sampled test candidates, in per cent; the held-out item is last among equals. Nothing is
chosen: epochs are fixed. What the JSON holds of other data sets stays.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.counting_scorer import NEGATIVES, PUBLISHED, ROUNDS
from coterie.algorithms import make, negatives
from coterie.data.load import load
from coterie.engine.simulate import simulate, start
from coterie.evaluate.metrics import averages, per_user
from coterie.evaluate.ranks import Task, rank
from coterie.protocol import Prepared, prepare, resolve

EPOCHS = {"ml-100k": 20, "amazon-instant-video": 20, "lastfm-2k": 20, "ml-1m": 3}  # ml-1m has ten times the triples


def drawn(prepared: Prepared) -> np.ndarray:
    """float32[n, m]: how often each item was a negative of each user."""
    history = prepared.history
    everybody, counts = np.arange(history.n_clients), np.zeros(history.n_clients * history.n_items, np.int32)
    for round_ in range(1, ROUNDS + 1):
        found = negatives.draw(history, everybody, NEGATIVES, 0, round_)
        counts += np.bincount(
            np.repeat(everybody, found.lengths) * history.n_items + found.items, minlength=len(counts)
        ).astype(np.int32)
    return counts.reshape(history.n_clients, history.n_items).astype(np.float32)


def measured(name: str, avoid: str) -> dict[str, list[float]]:
    prepared = prepare(load(name), resolve("paper:fedrap").model_copy(update={"negatives_avoid": avoid}), 0)
    algorithm, history = make("lightgcn", reg=1e-4), prepared.history
    state = start(algorithm, history, 0)
    for one in simulate(algorithm, history, state, range(1, EPOCHS[name] + 1), 0):
        state = one.state
    counts = drawn(prepared)

    def liked(users: np.ndarray) -> np.ndarray:
        """LightGCN's score, squeezed between 0 and 1."""
        found: np.ndarray = algorithm.score(state.server, state.clients, history, users)
        return (0.5 + np.arctan(found) / np.pi).astype(np.float32)

    task = Task(prepared.test, (), prepared.test_candidates, top=0)
    scorers = {
        "lightgcn": liked,
        "draws": lambda users: -counts[users],
        "draws, then lightgcn": lambda users: liked(users) - counts[users],
    }
    figures = {}
    for kind, scorer in scorers.items():
        every = averages(per_user(rank(scorer, prepared.users, history.n_items, [task], 1)[0], (10,)))
        figures[kind] = [100 * every["HR@10"], 100 * every["NDCG@10"]]
        print(name, avoid, kind, [round(one, 2) for one in figures[kind]], flush=True)
    return figures


if __name__ == "__main__":
    out = Path(sys.argv[1])
    whole = json.loads(out.read_text()) if out.exists() else {}
    for data in sys.argv[2:] or PUBLISHED:
        row = {f"negatives avoid {avoid}": measured(data, avoid) for avoid in ("everything", "train")}
        whole[data] = {"published_lightgcn": PUBLISHED[data], "epochs": EPOCHS[data]} | row
        out.write_text(json.dumps(whole, indent=1) + "\n")
