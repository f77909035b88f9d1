"""The figures of GPFedRec and of the other federated systems: run what is missing in a folder, gather it into JSON.

    python -m benchmarks.federated_figures RUNS gpfedrec|others OUT.json [NAME ... | all]

RUNS is a folder of run directories; a finished one is not run again. Without names nothing runs, what is there is
gathered. A run that was stopped is listed with `finished: false` and its best evaluated round so far. Of runs among
which one is chosen (CHOICES), the test figures of the chosen one alone are written: the choice is by validation.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.central_figures import gather, so_far

CLEAN, PAPER = "--data ml-100k", "--data ml-100k --protocol paper:gpfedrec"
RELEASED = "--behaviour as_released --rounds 100"
META = f"--algorithm metamf {PAPER}"
EPOCHS = "--cohort 118 --rounds 800 --evaluate-every 40"  # an eighth of the people: 800 rounds are 100 epochs
ALONE = "--rounds 20 --exchange local-only"
ADAM = (
    "--set aggregate=adam --set mean_loss=false --set batch=100000 --set start=0.1 --set lr_user=0.05 "
    "--set lr_item=0.01 --set rate_by_items=false --set lr_network=0.001"
)

GROUPS: dict[str, dict[str, str]] = {
    "gpfedrec": {
        "pfedrec-paper": f"--algorithm pfedrec {RELEASED} {PAPER}",
        "pfedrec-clean": f"--algorithm pfedrec {RELEASED} {CLEAN}",
        "gpfedrec-paper": f"--algorithm gpfedrec {RELEASED} {PAPER}",
        "gpfedrec-cosine-paper": f"--algorithm gpfedrec {RELEASED} --set similarity=cosine {PAPER}",
        "gpfedrec-clean": f"--algorithm gpfedrec {RELEASED} {CLEAN}",
        "gpfedrec-cosine-clean": f"--algorithm gpfedrec {RELEASED} --set similarity=cosine {CLEAN}",
        "light-gpfedrec-paper": f"--algorithm light-gpfedrec {RELEASED} {PAPER}",
        "gpfedrec-local-only": f"--algorithm gpfedrec {CLEAN} --behaviour as_released {ALONE}",
        "gpfedrec-server-only": f"--algorithm gpfedrec {RELEASED} --exchange server-only {CLEAN}",
        "pfedrec-local-only": f"--algorithm pfedrec {CLEAN} --behaviour as_released {ALONE}",
        "pfedrec-server-only": f"--algorithm pfedrec {RELEASED} --exchange server-only {CLEAN}",
    },
    "others": {
        "ease": f"--algorithm ease {CLEAN}",
        "fedease": f"--algorithm fedease {CLEAN}",
        "fedrecon-paper": f"--algorithm fedrecon --rounds 100 {PAPER}",
        "fedncf-paper": f"--algorithm fedncf --rounds 100 {PAPER}",
        "fedncf-as-published-paper": f"--algorithm fedncf --behaviour as_published --rounds 100 {PAPER}",
        "metamf-lr.01": f"{META} --rounds 100 --set lr=0.01 --set reg=1",
        "metamf-lr.02": f"{META} --rounds 100 --set lr=0.02 --set reg=1",
        "metamf-eighths-lr.003": f"{META} {EPOCHS} --set lr=0.003 --set reg=1",
        "metamf-eighths-lr.01": f"{META} {EPOCHS} --set lr=0.01 --set reg=1",
        "metamf-eighths-lr.003-reg3": f"{META} {EPOCHS} --set lr=0.003 --set reg=3",
        "fedlightgcn-paper": f"--algorithm fedlightgcn --rounds 100 {PAPER}",
        "fedlightgcn-as-published-paper": f"--algorithm fedlightgcn --behaviour as_published --rounds 100 {PAPER}",
        "fedpergnn-as-published-paper": "--algorithm fedpergnn --behaviour as_published --rounds 3 --evaluate-every 1 "
        + PAPER,
        "fedpergnn-noise-free-paper": f"--algorithm fedpergnn --rounds 100 {PAPER}",
        "fedncf-local-only": f"--algorithm fedncf {CLEAN} {ALONE}",
        "fedncf-clean-lr.1": f"--algorithm fedncf --rounds 100 --set lr_network=0.1 {CLEAN}",
        "fedncf-clean-lr1": f"--algorithm fedncf --rounds 100 --set lr_network=1 {CLEAN}",
        "fedncf-clean-adam": f"--algorithm fedncf --rounds 100 {ADAM} {CLEAN}",
        "fedrecon-local-only": f"--algorithm fedrecon {CLEAN} {ALONE}",
        "fedlightgcn-local-only": f"--algorithm fedlightgcn {CLEAN} {ALONE}",
    },
}

# the best by validation, in the metric by which the protocol picks a round too
CHOICES = {
    "fedncf": ["fedncf-paper", "fedncf-as-published-paper"],
    "fedncf clean": ["fedncf-clean-lr.1", "fedncf-clean-lr1", "fedncf-clean-adam"],
    "metamf": [name for name in GROUPS["others"] if name.startswith("metamf-")],
}


def figures(folder: Path, arguments: str) -> dict[str, Any] | None:
    """What a table needs of one run, with the validation figure that picked its round."""
    command = f"coterie run {arguments}"
    if not (folder / "summary.json").exists():
        return so_far(folder, command)
    summary = json.loads((folder / "summary.json").read_text())
    protocol = json.loads((folder / "spec.json").read_text())["protocol"]
    kind, metric = protocol["select_by"], protocol["select_metric"]
    value = summary["metrics"]["validation"][kind][metric]
    cost = {key: summary[key] for key in ("bytes_up", "bytes_down", "train_seconds", "exchange") if key in summary}
    cost["last_loss"] = json.loads((folder / "rounds.jsonl").read_text().splitlines()[-1])["loss"]
    return gather(summary, command) | {"selected_by": f"validation {kind} {metric}", "validation": value} | cost


def main(folder: Path, group: str, out: Path, names: list[str]) -> None:
    runs = GROUPS[group]
    for name in runs if names == ["all"] else names:
        if not (folder / name / "summary.json").exists():
            command = [sys.executable, "-m", "coterie.cli", "run", *runs[name].split()]
            subprocess.run([*command, "--quiet", "--keep", "nothing", "--out", str(folder / name)], check=True)
    found = {name: one for name, arguments in runs.items() if (one := figures(folder / name, arguments)) is not None}
    for candidates in CHOICES.values():
        there = [name for name in candidates if name in found and found[name]["finished"]]
        for name in there:
            found[name]["chosen"] = name == max(there, key=lambda one: found[one]["validation"])
            if not found[name]["chosen"]:
                for key in ("test", "full", "best_test_sampled_HR@10"):
                    del found[name][key]
    out.write_text(json.dumps(found, indent=1) + "\n")
    done = sum(one["finished"] for one in found.values())
    print(f"{done} of {len(runs)} runs finished, {len(found) - done} stopped on the way: {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
