"""FedRAP with its private table against FedMF, shipped defaults, clean protocol: the figures of docs/findings.

    python -m benchmarks.private_table FOLDER_FOR_RUNS [DATA ...]   # writes docs/findings/private-table-shipped.json

Runs that are already in the folder are read, not repeated; systems on record with the same settings stay.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import coterie
from coterie.algorithms import make
from coterie.report.studies import cached_run

_PAGE = Path("docs/findings/private-table-shipped.json")
_SYSTEMS = {"fedmf": make("fedmf"), "fedrap": make("fedrap")}
_SEEDS = range(3)


def row(run: Any) -> dict[str, Any]:
    test, validation = run.metrics["test"], run.metrics["validation"]
    return {
        "seed": run.summary["seed"],
        "best_round": run.summary["best_round"],
        "validation full NDCG@10": validation["full"]["NDCG@10"],
        "test full NDCG@10": test["full"]["NDCG@10"],
        "test sampled HR@10": test["sampled"]["HR@10"],
        "train_seconds": run.summary["seconds"]["train"],
        "total_seconds": run.summary["seconds"]["total"],
        "peak_rss_bytes": run.summary["peak_rss_bytes"],
    }


def main(folder: Path, names: list[str]) -> None:
    found: dict[str, Any] = json.loads(_PAGE.read_text()) if _PAGE.exists() else {"data": {}}
    found |= {"command": "python -m benchmarks.private_table RUNS", "coterie": coterie.__version__}
    for name in names:
        data = coterie.load(name)
        systems: dict[str, Any] = found["data"].get(name, {})
        for label, algorithm in _SYSTEMS.items():
            if systems.get(label, {}).get("settings") == repr(algorithm):
                continue
            runs = [row(cached_run(algorithm, data, folder, print, seed=s, evaluate_every=10)) for s in _SEEDS]
            keys = ("validation full NDCG@10", "test full NDCG@10", "test sampled HR@10")
            systems[label] = {
                "settings": repr(algorithm),
                **{key: [float(np.mean(v := [r[key] for r in runs])), float(np.std(v, ddof=1))] for key in keys},
                "runs": runs,
            }
            print(name, label, {key: f"{systems[label][key][0]:.4f}" for key in keys}, flush=True)
            found["data"][name] = systems
            _PAGE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or ["ml-100k", "ml-1m"])
