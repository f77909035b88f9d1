"""The figures of the central yardsticks: run what is missing in a folder, and gather all into one JSON.

    python -m benchmarks.central_figures RUNS docs/findings/central.json [NAME ...]

RUNS is a folder of run directories; a finished one is not run again. Names pick some of the runs. A run that was
stopped is gone on with if it is named, and otherwise listed with `finished: false` and its best round so far. What the
JSON already holds stays unless RUNS has that run, finished or not known before: a few rows can be measured anew alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BEYOND = ("Precision@10", "Recall@10", "F1@10", "Coverage@10", "1-Gini@10")
LIGHT = "--algorithm lightgcn --data ml-100k"
DECAY = "--set reg=0.0001"  # the default when the leaks were measured
LEAK = f"{LIGHT} {DECAY}"
AIV = f"--algorithm lightgcn {DECAY} --data amazon-instant-video"
WIDE = "--set dim=256 --set reg=0 --set layers=1 --set batch=8192 --rounds 40 --evaluate-every 20"
OWN = "--set own_lr=0.5 --set batch=8192 --rounds 100 --evaluate-every 25"
# four negatives for each positive in 100 epochs, as FedRAP draws: so many that each user's cover the items
FOUR = "--set negatives=4 --set batch=8192 --rounds 100 --evaluate-every 25"
WIDE_FOUR = f"--set dim=256 --set reg=0 --set layers=1 {FOUR}"
OWN_FOUR = f"--set own_lr=0.5 {FOUR}"
OWN_TEN = f"--set own_lr=10 {FOUR}"
POINTS = f"--set loss=points {OWN_FOUR}"
BOTH = "--set graph=everything --set positives=everything"

RUNS = {
    # clean, shipped defaults
    "als-ml-100k": "--algorithm als --data ml-100k",
    "lightgcn-ml-100k": LIGHT,
    "ease-ml-100k": "--algorithm ease --data ml-100k",
    "ease-ml-1m": "--algorithm ease --data ml-1m",
    "ease-300-ml-100k": "--algorithm ease --data ml-100k --set reg=300",
    "ease-300-ml-1m": "--algorithm ease --data ml-1m --set reg=300",
    "ease-600-ml-1m": "--algorithm ease --data ml-1m --set reg=600",
    "ease-auto-ml-100k": "--algorithm ease --data ml-100k --set reg=auto",
    "ease-auto-ml-1m": "--algorithm ease --data ml-1m --set reg=auto",
    "als-ml-1m": "--algorithm als --data ml-1m",
    "itemknn-ml-100k": "--algorithm itemknn --data ml-100k",
    "itemknn-ml-1m": "--algorithm itemknn --data ml-1m",
    "userknn-ml-100k": "--algorithm userknn --data ml-100k",
    "userknn-ml-1m": "--algorithm userknn --data ml-1m",
    "centrap-ml-100k": "--algorithm centrap --data ml-100k --evaluate-every 10",
    "sgl-ml-100k": "--algorithm sgl --data ml-100k",
    "bpr-ml-100k": "--algorithm bpr --data ml-100k",
    "multvae-ml-100k": "--algorithm multvae --data ml-100k",
    "mf-ml-100k": "--algorithm mf --data ml-100k",
    "ncf-ml-100k": "--algorithm ncf --rounds 30 --data ml-100k",
    # the papers' protocols
    "mf-ml-100k-gpfedrec": "--algorithm mf --data ml-100k --protocol paper:gpfedrec",
    "ncf-ml-100k-gpfedrec": "--algorithm ncf --rounds 30 --data ml-100k --protocol paper:gpfedrec",
    "sgl-ml-100k-gpfedrec": "--algorithm sgl --data ml-100k --protocol paper:gpfedrec",
    "ncf-ml-100k-fedrap": "--algorithm ncf --rounds 30 --data ml-100k --protocol paper:fedrap",
    "mf-ml-1m-gpfedrec": "--algorithm mf --data ml-1m --protocol paper:gpfedrec",
    "ncf-ml-1m-gpfedrec": "--algorithm ncf --rounds 30 --data ml-1m --protocol paper:gpfedrec",
    "sgl-ml-1m-gpfedrec": "--algorithm sgl --data ml-1m --protocol paper:gpfedrec",
    # what makes LightGCN's 99 %
    "lightgcn-leak-train": f"{LEAK} --protocol paper:fedrap",
    "lightgcn-leak-graph": f"{LEAK} --protocol paper:fedrap --set graph=everything",
    "lightgcn-leak-both": f"{LEAK} --protocol paper:fedrap {BOTH}",
    "lightgcn-wide-clean": f"{LIGHT} {WIDE}",
    "lightgcn-wide-train": f"{LIGHT} --protocol paper:fedrap {WIDE}",
    "lightgcn-wide-graph": f"{LIGHT} --protocol paper:fedrap --set graph=everything {WIDE}",
    "lightgcn-wide-both": f"{LIGHT} --protocol paper:fedrap {BOTH} {WIDE}",
    "lightgcn-four-clean": f"{LEAK} {FOUR}",
    "lightgcn-four-train": f"{LEAK} --protocol paper:fedrap {FOUR}",
    "lightgcn-wide-four-clean": f"{LIGHT} {WIDE_FOUR}",
    "lightgcn-wide-four-train": f"{LIGHT} --protocol paper:fedrap {WIDE_FOUR}",
    "lightgcn-own-four-clean": f"{LEAK} {OWN_FOUR}",
    "lightgcn-own-four-train": f"{LEAK} --protocol paper:fedrap {OWN_FOUR}",
    "lightgcn-own-ten-train": f"{LEAK} --protocol paper:fedrap {OWN_TEN}",
    "lightgcn-points-clean": f"{LEAK} {POINTS}",
    "lightgcn-points-train": f"{LEAK} --protocol paper:fedrap {POINTS}",
    "lightgcn-leak-both-aiv": f"{AIV} --protocol paper:fedrap {BOTH}",
    "lightgcn-leak-both-lastfm": f"--algorithm lightgcn {DECAY} --data lastfm-2k --protocol paper:fedrap {BOTH}",
    "lightgcn-own-clean": f"{LEAK} {OWN}",
    "lightgcn-own-train": f"{LEAK} --protocol paper:fedrap {OWN}",
    "lightgcn-own-clean-aiv": f"{AIV} --min-interactions 10 {OWN}",
    "lightgcn-own-train-aiv": f"{AIV} --protocol paper:fedrap {OWN}",
    "lightgcn-own-train-lastfm": f"--algorithm lightgcn {DECAY} --data lastfm-2k --protocol paper:fedrap {OWN}",
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


def merged(before: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What stood there and what is new; a run that was stopped never takes the place of a finished one."""
    kept = {name: one for name, one in new.items() if one["finished"] or not before.get(name, {}).get("finished")}
    whole = before | kept
    order = {name: place for place, name in enumerate(RUNS)}
    return {name: whole[name] for name in sorted(whole, key=lambda one: (order.get(one, len(order)), one))}


def main(folder: Path, out: Path, names: list[str]) -> None:
    for name in names:
        coterie, run = [sys.executable, "-m", "coterie.cli"], folder / name
        if (run / "summary.json").exists():
            continue
        if (run / "checkpoints").exists():
            subprocess.run([*coterie, "resume", str(run), "--quiet"], check=True)
        else:
            asked = [*RUNS[name].split(), "--quiet", "--keep", "nothing", "--out", str(run)]
            subprocess.run([*coterie, "run", *asked], check=True)
    new = {}
    for name, arguments in RUNS.items():
        path, command = folder / name / "summary.json", f"coterie run {arguments}"
        one = gather(json.loads(path.read_text()), command) if path.exists() else so_far(folder / name, command)
        if one is not None:
            new[name] = one
    found = merged(json.loads(out.read_text()) if out.exists() else {}, new)
    out.write_text(json.dumps(found, indent=1) + "\n")
    done = sum(one["finished"] for one in found.values())
    print(f"{len(new)} gathered; {done} finished and {len(found) - done} stopped runs stand in {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [name for name in sys.argv[3:] if name in RUNS])
