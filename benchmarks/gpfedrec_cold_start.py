"""GPFedRec's cold start: people held out of training, a handful of interactions each, with and without the graph.

`python -m benchmarks.gpfedrec_cold_start`. A fifth of ml-100k's users never takes part in training. Afterwards each of
them gets only her first `known` training items, trains on her own device against the finished server, and is tested on
her held-out item (clean protocol). "placed": the server looks up her neighbours and sends her their view, which is what
`coterie recommend DIR --history ...` does. "shared table alone": the same training, but pulled to the shared table, as
if the server knew no graph.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.measure import save
from coterie.algorithms import make
from coterie.algorithms.interface import History
from coterie.data.load import load
from coterie.engine.simulate import simulate, start
from coterie.evaluate.metrics import per_user
from coterie.evaluate.ranks import Task, rank
from coterie.protocol.prepare import Prepared, prepare
from coterie.protocol.rules import resolve
from coterie.ragged import Ragged, ragged


def subset(history: History, users: np.ndarray, most: int | None = None) -> History:
    """These users' histories alone, each cut to `most` items, taken evenly over her list."""
    own = Ragged(history.indptr, history.items)
    kept = [own.of(u) for u in users]
    if most is not None:
        kept = [one[np.linspace(0, len(one) - 1, min(most, len(one))).astype(int)] for one in kept]
    lists = ragged(kept)
    ones = np.ones(len(lists.items), np.float32)
    return History(lists.indptr, lists.items, ones, ones, lists, history.keys[users], history.n_items)


def run(behaviour: str = "coterie", rounds: int = 40, **settings: Any) -> dict[str, Any]:
    prepared = prepare(load("ml-100k"), resolve("clean"), 0)
    history = prepared.history
    out = np.random.default_rng(0).permutation(prepared.users)[: len(prepared.users) // 5]
    out.sort()
    inside = np.setdiff1d(np.arange(history.n_clients), out)
    algorithm = make("gpfedrec", behaviour, **settings)
    trained = subset(history, inside)
    state = start(algorithm, trained, 0)
    for one in simulate(algorithm, trained, state, range(1, rounds + 1), 0):
        state = one.state
    nobody = state.server._replace(graph=state.server.graph._replace(known=np.zeros_like(state.server.graph.known)))
    found: dict[str, Any] = {"behaviour": behaviour, "settings": settings, "rounds": rounds, "held_out": len(out)}
    for known in (5, 10, 20):
        few = subset(history, out, known)
        values = {
            name: _measure(algorithm, state.server, server, few, prepared, out)
            for name, server in (("placed", state.server), ("shared table alone", nobody))
        }
        row: dict[str, Any] = {}
        for metric in ("HR@10", "NDCG@10"):
            pair = [values[name][metric] for name in values]
            gap = pair[0] - pair[1]
            row[metric] = {
                "placed": pair[0].mean(), "shared_table_alone": pair[1].mean(), "gain": gap.mean(),
                "standard_error_of_gain": gap.std(ddof=1) / np.sqrt(len(gap)),
            }  # fmt: skip
        found[f"{known} interactions"] = row
    return found


def _measure(
    algorithm: Any, server: Any, told: Any, few: History, prepared: Prepared, out: np.ndarray
) -> dict[str, Any]:
    clients = algorithm.newcomer(told, few, 0)

    def score(users: np.ndarray) -> np.ndarray:
        scores: np.ndarray = algorithm.score(server, clients, few, users)
        return scores

    held = ragged([prepared.test.of(u) for u in out])
    candidates = ragged([prepared.test_candidates.of(u) for u in out])
    (ranks,) = rank(score, np.arange(len(out)), few.n_items, [Task(held, candidates=candidates)], 1)
    return per_user(ranks)


if __name__ == "__main__":
    behaviour = sys.argv[1] if len(sys.argv) > 1 else "coterie"
    result = run(behaviour)
    print(result)
    print(save(f"gpfedrec_cold_start_{behaviour}", result))
