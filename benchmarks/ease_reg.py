"""EASE's ridge by validation alone: the curve, and the rule that picks the default.

    python -m benchmarks.ease_reg docs/findings/ease-reg.json

Clean protocol, seed 0. The yardstick's four figures (HR and NDCG@10, sampled and full) are measured on validation for
each ridge. The rule, fixed before the curve was drawn: each figure as a share of the best one on the grid for that data
set; the ridge with the greatest sum of shares over four figures and two data sets is the default. The test is not read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from coterie.algorithms.central.ease import EASE, Server, binary, solve
from coterie.data.load import load
from coterie.evaluate.metrics import averages, per_user
from coterie.evaluate.ranks import Task, rank
from coterie.protocol import Prepared, prepare, resolve

GRID = (100.0, 200.0, 300.0, 400.0, 600.0, 800.0, 1000.0, 1500.0)
DATA = ("ml-100k", "ml-1m")
METRICS = ("HR@10", "NDCG@10")


def validated(prepared: Prepared, reg: float, gram: Any) -> dict[str, float]:
    server, history = Server(solve(gram, reg)), prepared.history
    tasks = {
        "full": Task(prepared.validation, (prepared.train,), top=0),
        "sampled": Task(prepared.validation, (), prepared.validation_candidates, top=0),
    }
    ranks = rank(
        lambda users: EASE().score(server, (), history, users), prepared.users, history.n_items, list(tasks.values()), 1
    )
    found = {}
    for kind, one in zip(tasks, ranks, strict=True):
        every = averages(per_user(one, (10,)))
        found |= {f"{kind} {metric}": every[metric] for metric in METRICS}
    return found


def main(out: Path) -> None:
    curves: dict[str, dict[str, dict[str, float]]] = {}
    for name in DATA:
        prepared = prepare(load(name), resolve("clean"), 0)
        owners = binary(prepared.history)
        gram = (owners.T @ owners).toarray()
        curves[name] = {f"{reg:g}": validated(prepared, reg, gram) for reg in GRID}
    figures = list(curves[DATA[0]][f"{GRID[0]:g}"])
    best = {(name, key): max(one[key] for one in curves[name].values()) for name in DATA for key in figures}
    shares = {
        f"{reg:g}": sum(curves[name][f"{reg:g}"][key] / top for (name, key), top in best.items()) / len(best)
        for reg in GRID
    }
    chosen = max(shares, key=lambda reg: shares[reg])
    out.write_text(json.dumps({"chosen": float(chosen), "mean_share": shares, "validation": curves}, indent=1) + "\n")
    print(json.dumps(shares, indent=1), "chosen:", chosen)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
