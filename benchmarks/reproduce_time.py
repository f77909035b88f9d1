"""How long a paper takes from an empty cache, wall-clock: the promise is a quarter of an hour for FedRAP on ml-100k.

    python -m benchmarks.reproduce_time 1 [FOLDER]     # one seed; benchmarks/results/reproduce_fedrap_1.json

FOLDER keeps the runs. Meaningful on an otherwise idle machine. Kernels may be compiled already; an installation pays
for that once.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import save

PAPER, DATA = "fedrap", "ml-100k"


def run(seeds: int, folder: Path) -> dict[str, Any]:
    """One command, in a folder of its own, as a person would type it."""
    cache, out = folder / "runs", folder / "papers"
    asked = ["reproduce", PAPER, "--data", DATA, "--seeds", str(seeds)]
    code = "from coterie.cli import app; app()"
    before, began = _cpu(), time.perf_counter()
    subprocess.run([sys.executable, "-c", code, *asked, "--cache", cache, "--out", out], check=True)
    return {
        "command": f"coterie {' '.join(asked)}", "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(_cpu() - before, 1), "runs": len(list(cache.glob("*/summary.json"))),
    }  # fmt: skip


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(seeds: int = 1, kept: Path | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = run(seeds, Path(folder) if kept is None else kept)
    print(f"{found['command']}: {found['seconds'] / 60:.1f} minutes, {found['runs']} runs")
    print(save(f"reproduce_{PAPER}_{seeds}", found))


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((int, Path), sys.argv[1:], strict=False)))
