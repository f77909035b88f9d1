"""What the leak gives to people whom a graph of raw histories leaves without neighbours, beside everybody else.

    python -m benchmarks.alone_in_the_graph RUNS docs/findings/gpfedrec-alone.json

RUNS is the cache of `coterie reproduce gpfedrec --table 7`. Euclidean distance links short histories to one another and
leaves long ones alone, so those people's view is their own table. The same people in a random graph of the same density
are the comparison: they have as long histories, and neighbours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import coterie
from coterie.algorithms.graph_sources import fixed_graph

METRIC = "test.sampled.HR@10"


def _last_round(run: coterie.Run) -> float:
    return round(100 * float(run.summary["last"]["test"]["sampled"]["HR@10"]), 1)


def figures(run: coterie.Run) -> dict[str, Any]:
    """HR@10 in % of one run: all, at its last round too, those who are alone in the Euclidean graph, the others."""
    history, density = run.prepared.history, run.spec.settings["density"]
    links = fixed_graph("oracle-euclidean", history.n_clients, density, run.spec.seed, history)
    assert links is not None
    alone = links.sum(1) == 1  # herself
    hits = 100 * pl.read_parquet(run.path / "users.parquet")[METRIC].to_numpy()
    return {
        "graph": run.spec.settings["graph"], "density": density, "protocol": run.spec.protocol.name,
        "seed": run.spec.seed, "best_round": run.summary["best_round"], "HR@10": round(float(np.nanmean(hits)), 1),
        "HR@10 at the last round": _last_round(run), "people alone": int(alone.sum()),
        "items of theirs, median": float(np.median(history.lengths[alone])),
        "HR@10 of people alone": round(float(np.nanmean(hits[alone])), 1),
        "HR@10 of the others": round(float(np.nanmean(hits[~alone])), 1),
    }  # fmt: skip


def main(runs: Path, out: Path) -> None:
    """Figures of these runs, and those on record of runs that are elsewhere."""
    known = json.loads(out.read_text())["runs"] if out.exists() else []
    found = {_key(one): one for one in known}
    for place in sorted(one.parent for one in runs.glob("*/summary.json")):
        settings = json.loads((place / "spec.json").read_text())["settings"]
        if settings.get("graph", "uploads") != "uploads":
            mine = figures(coterie.open(place))
            found[_key(mine)] = mine
    command = "python -m benchmarks.alone_in_the_graph runs/reproduce docs/findings/gpfedrec-alone.json"
    about = {"command": command, "data": "ml-100k", "runs": [found[key] for key in sorted(found)]}
    out.write_text(json.dumps(about, indent=1) + "\n")


def _key(one: dict[str, Any]) -> tuple[str, float, str, int]:
    return one["graph"], one["density"], one["protocol"], one["seed"]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
