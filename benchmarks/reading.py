"""Reading a file: CPU-seconds for a million rows, and peak memory for twenty million against the arrays that stay."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_BLOCK = 1_000_000
_LOAD = """
import json, resource, sys, time
from coterie.data import load
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
load("synthetic:users=20,items=40")
before, began = peak(), time.process_time()
data = load(sys.argv[1])
bare = data.indptr.nbytes + data.items.nbytes + data.ratings.nbytes + data.times.nbytes
print(json.dumps({"rows": len(data), "users": data.n_users, "items": data.n_items, "bare_bytes": bare,
    "cpu_seconds": time.process_time() - began, "peak_rss_bytes": peak(), "rss_before_bytes": before}))
"""


def run() -> dict[str, Any]:
    small, large = _measure(1), _measure(20)
    return {
        "ratio": large["peak_rss_bytes"] / large["bare_bytes"],
        "what": "the bare arrays is the peak memory of reading 20 million rows (the whole process)",
        "million_rows_cpu_seconds": small["cpu_seconds"],
        **{f"20_million_{key}": value for key, value in large.items()},
    }


def _measure(millions: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.csv"
        _write(path, millions)
        said = subprocess.run([sys.executable, "-c", _LOAD, str(path)], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def _write(path: Path, millions: int) -> None:
    """Rows like MovieLens-20M's: 138,493 people, a long tail of items, half stars, seconds."""
    import polars as pl

    draw = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(b"userId,movieId,rating,timestamp\n")
        for _ in range(millions):
            block = pl.DataFrame(
                {
                    "user": draw.integers(1, 138_494, _BLOCK),
                    "item": (131_262 * draw.random(_BLOCK) ** 3).astype(np.int64) // 5,
                    "rating": draw.integers(1, 11, _BLOCK) / 2,
                    "time": draw.integers(789_652_009, 1_427_784_002, _BLOCK),
                }
            )
            file.write(block.write_csv(include_header=False).encode())
