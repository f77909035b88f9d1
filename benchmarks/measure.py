"""Timing, and what must stand beside a figure: commit, hardware, versions, and how busy the machine was."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def best(action: Callable[[], Any], times: int, clock: Callable[[], float] = time.process_time) -> float:
    """The least seconds of several runs: what else the machine does can only add. CPU-seconds unless told otherwise."""
    least = float("inf")
    for _ in range(times):
        began = clock()
        action()
        least = min(least, clock() - began)
    return least


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> str:
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "../src", "."], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+changes" if changed.strip() else "")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def save(name: str, result: dict[str, Any]) -> Path:
    """Write a result with its circumstances; the last ones of other processors stay beside it."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    former = json.loads(path.read_text()) if path.exists() else {}
    others = former.pop("elsewhere", {})
    if former:
        others[former["hardware"]["cpu"]] = former
    others.pop(_processor(), None)
    circumstances = {
        "commit": _commit(),
        "hardware": {"cpu": _processor(), "cores": os.cpu_count()},
        "load_average": round(os.getloadavg()[0], 1),
        "versions": {"python": platform.python_version()}
        | {package: _version(package) for package in ("coterie", "numpy", "numba", "torch")},
    }
    elsewhere = {"elsewhere": others} if others else {}
    path.write_text(json.dumps(result | circumstances | elsewhere, indent=2) + "\n")
    return path
