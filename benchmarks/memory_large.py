"""Peak memory of whole FedRAP runs, as released, in processes of their own, against the dense private table.

MovieLens-1M (all rows get touched: the store must not cost more than it saves), Amazon Instant Video (few are), and a
made-up set of QB-article's size whose dense table would not fit into memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_DIM = 32
_RUNS = {
    "ml-1m": ("ml-1m", 100, 10),
    # one pass: with histories of three items the released rates diverge after some rounds of ten; memory is the same
    "amazon-instant-video": ("amazon-instant-video", 20, 1),
    "qb-article-size": ("synthetic:users=24516,items=7455,shortest=5,longest=28", 20, 1),
}


def run() -> dict[str, Any]:
    found = {name: _measure(*how) for name, how in _RUNS.items() if _at_hand(how[0])}
    largest = found["qb-article-size"]
    return {
        "ratio": largest["dense_table_bytes"] / largest["peak_rss_bytes"],
        "what": "less peak memory than the dense private table alone, at QB-article's size, 20 rounds",
        **{f"{name} {key}": value for name, one in found.items() for key, value in one.items()},
    }


def _at_hand(data: str) -> bool:
    folder = os.environ.get("COTERIE_DATA")
    return data.startswith("synthetic") or bool(folder and Path(folder, data).is_dir())


def _measure(data: str, rounds: int, passes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [
            sys.executable, "-m", "coterie.cli", "run", "--algorithm", "fedrap", "--behaviour", "as_released",
            "--data", data, "--rounds", str(rounds), "--evaluate-every", str(rounds), "--checkpoint-every", str(rounds),
            "--set", f"epochs={passes}", "--quiet", "--out", str(out),
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        summary = json.loads((out / "summary.json").read_text())
        stored = sum(file.stat().st_size for file in (out / "model").glob("clients.own*"))
    dense = summary["data"]["users"] * summary["data"]["items"] * _DIM * 4
    measured = {
        "rounds": rounds,
        "local_passes": passes,
        "users": summary["data"]["users"],
        "items": summary["data"]["items"],
        "interactions": summary["data"]["interactions"],
        "dense_table_bytes": dense,
        "peak_rss_bytes": summary["peak_rss_bytes"],
        "peak_over_dense": summary["peak_rss_bytes"] / dense,
        "stored_rows_over_dense": stored / dense,
        "train_seconds": summary["seconds"]["train"],
    }
    print(data, measured, flush=True)
    return measured
