"""The figures of GPFedRec and of the other federated systems: run what is missing in a folder, gather it into JSON.

    python -m benchmarks.federated_figures RUNS gpfedrec|others docs/findings/NAME.json [NAME ...]

RUNS is a folder of run directories; a finished one is not run again. Names pick runs (all of the group: `all`). A run
that was stopped is listed with `finished: false` and its best evaluated round so far.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.central_figures import gather, so_far

PAPER, RELEASED = "--data ml-100k --protocol paper:gpfedrec", "--behaviour as_released"
GP = f"--algorithm gpfedrec {RELEASED} --rounds 100"

GROUPS: dict[str, dict[str, str]] = {
    "gpfedrec": {
        "pfedrec-paper": f"--algorithm pfedrec {RELEASED} --rounds 100 {PAPER}",
        "pfedrec-clean": f"--algorithm pfedrec {RELEASED} --rounds 100 --data ml-100k",
        "gpfedrec-paper": f"{GP} {PAPER}",
        "gpfedrec-cosine-paper": f"{GP} --set similarity=cosine {PAPER}",
        "gpfedrec-clean": f"{GP} --data ml-100k",
        "gpfedrec-cosine-clean": f"{GP} --set similarity=cosine --data ml-100k",
        "light-gpfedrec-paper": f"--algorithm light-gpfedrec {RELEASED} --rounds 100 {PAPER}",
    },
    "others": {
        "fedncf-paper": f"--algorithm fedncf --rounds 100 {PAPER}",
        "fedncf-as-published-paper": f"--algorithm fedncf --behaviour as_published --rounds 100 {PAPER}",
    },
}


def main(folder: Path, group: str, out: Path, names: list[str]) -> None:
    runs = GROUPS[group]
    for name in runs if names == ["all"] else names:
        if not (folder / name / "summary.json").exists():
            command = [sys.executable, "-m", "coterie.cli", "run", *runs[name].split()]
            subprocess.run([*command, "--quiet", "--keep", "nothing", "--out", str(folder / name)], check=True)
    found: dict[str, Any] = {}
    for name, arguments in runs.items():
        path, command = folder / name / "summary.json", f"coterie run {arguments}"
        one = gather(json.loads(path.read_text()), command) if path.exists() else so_far(folder / name, command)
        if one is not None:
            found[name] = one
    out.write_text(json.dumps(found, indent=1) + "\n")
    done = sum(one["finished"] for one in found.values())
    print(f"{done} of {len(runs)} runs finished, {len(found) - done} stopped on the way: {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
