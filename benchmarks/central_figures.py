"""The figures of the central yardsticks: run what is missing in a folder, and gather all into one JSON.

    python -m benchmarks.central_figures RUNS docs/findings/central.json [NAME ...]

RUNS is a folder of run directories; a finished one is not run again. Names pick some of the runs. A run that was
stopped is listed with `finished: false` and its best evaluated round so far; `coterie resume` goes on with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BEYOND = ("Precision@10", "Recall@10", "F1@10", "Coverage@10", "1-Gini@10")
WIDE = "--set dim=256 --set reg=0 --set layers=1 --set batch=8192 --rounds 60 --evaluate-every 15"

RUNS = {
    # clean, shipped defaults
    "als-ml-100k": "--algorithm als --data ml-100k",
    "lightgcn-ml-100k": "--algorithm lightgcn --data ml-100k",
    "ease-ml-1m": "--algorithm ease --data ml-1m",
    "ease-600-ml-1m": "--algorithm ease --data ml-1m --set reg=600",
    "als-ml-1m": "--algorithm als --data ml-1m",
    "mf-ml-100k": "--algorithm mf --data ml-100k",
    "ncf-ml-100k": "--algorithm ncf --rounds 30 --data ml-100k",
    "sgl-ml-100k": "--algorithm sgl --data ml-100k",
    # the papers' protocols
    "mf-ml-100k-gpfedrec": "--algorithm mf --data ml-100k --protocol paper:gpfedrec",
    "ncf-ml-100k-gpfedrec": "--algorithm ncf --rounds 30 --data ml-100k --protocol paper:gpfedrec",
    "sgl-ml-100k-gpfedrec": "--algorithm sgl --data ml-100k --protocol paper:gpfedrec",
    "ncf-ml-100k-fedrap": "--algorithm ncf --rounds 30 --data ml-100k --protocol paper:fedrap",
    "ncf-aiv-fedrap": "--algorithm ncf --rounds 30 --data amazon-instant-video --protocol paper:fedrap",
    # what makes LightGCN's 99 %
    "lightgcn-leak-train": "--algorithm lightgcn --data ml-100k --protocol paper:fedrap",
    "lightgcn-leak-everything": "--algorithm lightgcn --data ml-100k --protocol paper:fedrap --set graph=everything",
    "lightgcn-aiv-train": "--algorithm lightgcn --data amazon-instant-video --protocol paper:fedrap",
    "lightgcn-aiv-everything": "--algorithm lightgcn --data amazon-instant-video --protocol paper:fedrap "
    "--set graph=everything",
    "lightgcn-wide-paper": f"--algorithm lightgcn --data ml-100k --protocol paper:fedrap {WIDE}",
    "lightgcn-wide-everything": "--algorithm lightgcn --data ml-100k --protocol paper:fedrap --set graph=everything "
    + WIDE,
    "lightgcn-wide-clean": f"--algorithm lightgcn --data ml-100k {WIDE}",
    # FedeRank's table
    "userknn-adm-federank": "--algorithm userknn --data amazon-digital-music --protocol paper:federank",
    "itemknn-adm-federank": "--algorithm itemknn --data amazon-digital-music --protocol paper:federank",
    "bpr-adm-federank": "--algorithm bpr --data amazon-digital-music --protocol paper:federank --rounds 60 "
    "--evaluate-every 10",
    "multvae-adm-federank": "--algorithm multvae --data amazon-digital-music --protocol paper:federank --rounds 40 "
    "--evaluate-every 10",
    "userknn-ml-1m-federank": "--algorithm userknn --data ml-1m --protocol paper:federank",
    "itemknn-ml-1m-federank": "--algorithm itemknn --data ml-1m --protocol paper:federank",
    "bpr-ml-1m-federank": "--algorithm bpr --data ml-1m --protocol paper:federank --rounds 60 --evaluate-every 10",
    "multvae-ml-1m-federank": "--algorithm multvae --data ml-1m --protocol paper:federank --rounds 60 "
    "--evaluate-every 10",
}


def gather(summary: dict[str, Any], command: str) -> dict[str, Any]:
    """What a table needs of a run's summary."""
    test, selected = summary["metrics"]["test"], summary["metrics"]["validation"]
    return {
        "command": command,
        "finished": True,
        "best_round": summary["best_round"],
        "rounds": summary["rounds"],
        "test": {kind: {key: test[kind][key] for key in ("HR@10", "NDCG@10")} for kind in ("sampled", "full")},
        "validation_full_NDCG@10": selected["full"]["NDCG@10"],
        "full": {key: test["full"][key] for key in BEYOND},
        "best_test_sampled_HR@10": summary.get("best_test", {}).get("test", {}).get("sampled", {}).get("HR@10"),
        "canary": summary["canary"],
        "valid": summary["valid"],
        "warning": summary.get("warning"),
        "settings": summary["settings"],
        "seed": summary["seed"],
    }


def so_far(run: Path, command: str) -> dict[str, Any] | None:
    """The best evaluated round of a run that was stopped, by the protocol's own rule."""
    if not (run / "rounds.jsonl").exists():
        return None
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    measured = [one for one in lines if "validation" in one]
    if not measured:
        return None
    spec = json.loads((run / "spec.json").read_text())
    kind, metric = spec["protocol"]["select_by"], spec["protocol"]["select_metric"]
    best = max(measured, key=lambda one: one["validation"][kind][metric])
    return {
        "command": command,
        "finished": False,
        "rounds_done": lines[-1]["round"],
        "rounds": spec["rounds"],
        "best_round": best["round"],
        "test": {key: {name: best["test"][key][name] for name in ("HR@10", "NDCG@10")} for key in ("sampled", "full")},
        "full": {name: best["test"]["full"][name] for name in BEYOND},
    }


def main(folder: Path, out: Path, names: list[str]) -> None:
    for name in names:
        if not (folder / name / "summary.json").exists():
            command = [sys.executable, "-m", "coterie.cli", "run", *RUNS[name].split()]
            subprocess.run([*command, "--quiet", "--keep", "nothing", "--out", str(folder / name)], check=True)
    found = {}
    for name, arguments in RUNS.items():
        path, command = folder / name / "summary.json", f"coterie run {arguments}"
        one = gather(json.loads(path.read_text()), command) if path.exists() else so_far(folder / name, command)
        if one is not None:
            found[name] = one
    out.write_text(json.dumps(found, indent=1) + "\n")
    done = sum(one["finished"] for one in found.values())
    print(f"{done} of {len(RUNS)} runs finished, {len(found) - done} stopped on the way: {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [name for name in sys.argv[3:] if name in RUNS])
