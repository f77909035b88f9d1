"""Seconds per round and server memory of a real federation on this machine, by nodes and users.

    python -m benchmarks.federation [--cases 1x1000 4x10000 ...] [--rounds 4] [--out benchmarks/results/federation.json]

A case is NODESxUSERS. Everything is on loopback without TLS: what is measured is Flower and Coterie, not a network.
`compute` is what the slowest node spent inside its step; `beyond` is the rest of the round. CPU seconds are per round,
all processes together: on a shared machine they say more than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import coterie
from coterie.algorithms import make
from coterie.engine.flower.federation import NodeProcesses, Server
from coterie.engine.flower.processes import Processes, descendants
from coterie.engine.flower.setup import found, shards
from coterie.engine.flower.spec import Terms
from coterie.engine.flower.store import NodeStore

TICK = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """CPU seconds of a process and its dead children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICK


def peak(pid: int) -> int:
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return 0 if found is None else int(found[1]) * 1024


def everything(processes: Processes) -> list[int]:
    return [pid for one in processes.running.values() for pid in (one.pid, *descendants(one.pid))]


def case(nodes: int, users: int, items: int, rounds: int) -> dict[str, Any]:
    data = coterie.synthetic(users=users, items=items, seed=0, shortest=15, longest=60)
    algorithm = make("fedmf", dim=32, negatives=4)
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder) / "logs") as processes:
        home = Path(folder)
        terms = Terms(rounds=rounds, min_nodes=nodes, start_with=nodes, deadline=300, evaluate_every=0)
        ledger = found(home / "server", algorithm, data.item_ids, data.titles, terms)
        server = Server(ledger, processes, tls=False)
        server.start()
        for number, path in enumerate(shards(data, nodes, home / "shards")):
            store = NodeStore.create(home / f"node-{number}", path)
            NodeProcesses(store, processes, f"node-{number}", server.address, None).start()
        server.submit()
        marks: list[tuple[int, float]] = []
        peaks = {"superlink": 0, "serverapp": 0}

        def look() -> None:
            pids = everything(processes)
            done = len(ledger.rounds())
            if not marks or marks[-1][0] < done:
                marks.append((done, sum(map(cpu, pids))))
            for pid in pids:
                try:
                    said = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                for kind, word in (("superlink", b"runtime\0superlink"), ("serverapp", b"runtime\0rounds")):
                    if word in said:
                        peaks[kind] = max(peaks[kind], peak(pid))

        summary = server.wait(900, look)
        logs = [(home / f"node-{n}" / "node.log").read_text() for n in range(nodes)]
    compute = [
        max(float(re.search(rf"round {r}: .*? ([\d.]+) s$", log, re.M)[1]) for log in logs)  # type: ignore[index]
        for r in range(1, rounds + 1)
    ]
    seconds = summary["seconds"]
    spent = [(b[1] - a[1]) / max(b[0] - a[0], 1) for a, b in pairwise(marks) if a[0] >= 1]
    return {
        "nodes": nodes, "users": users, "items": items, "rounds": rounds,
        "seconds_per_round": statistics.median(seconds[1:] or seconds),
        "compute": statistics.median(compute[1:] or compute),
        "beyond": statistics.median([a - b for a, b in zip(seconds, compute, strict=True)][1:]),
        "cpu_seconds_per_round": statistics.median(spent) if spent else None, "server_peak_bytes": peaks,
        "bytes_up_per_round": summary["bytes"]["up"] / rounds,
        "bytes_down_per_round": summary["bytes"]["down"] / rounds,
        "load": os.getloadavg()[0],
    }  # fmt: skip


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--cases", nargs="+", default=["1x1000", "2x1000", "4x1000", "8x1000", "4x10000", "4x100000"])
    flags.add_argument("--items", type=int, default=2000)
    flags.add_argument("--rounds", type=int, default=4)
    flags.add_argument("--out", type=Path, default=Path("benchmarks/results/federation.json"))
    asked = flags.parse_args()
    results = []
    for one in asked.cases:
        nodes, users = map(int, one.split("x"))
        began = time.perf_counter()
        results.append(case(nodes, users, asked.items, asked.rounds))
        print(json.dumps(results[-1]), f"({time.perf_counter() - began:.0f} s in all)", flush=True)
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        about = {
            "command": "python -m benchmarks.federation", "commit": commit, "cores": os.cpu_count(),
            "machine": platform.processor() or platform.machine(), "python": platform.python_version(),
            "flwr": __import__("flwr").__version__, "results": results,
        }  # fmt: skip
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(about, indent=1) + "\n")
    write_table(results, Path("docs/scale.md"))


def write_table(results: list[dict[str, Any]], page: Path) -> None:
    """The table in docs/scale.md, between its two marks."""
    lines = [
        "| nodes | people | s a round | compute | beyond | CPU-s | SuperLink MB | server MB | MB up | MB down |",
        "|" + " --- |" * 10,
    ]
    for one in results:
        peaks = one["server_peak_bytes"]
        lines.append(
            f"| {one['nodes']} | {one['users']:,} | {one['seconds_per_round']:.1f} | {one['compute']:.2f} | "
            f"{one['beyond']:.1f} | {one['cpu_seconds_per_round'] or 0:.1f} | {peaks['superlink'] / 1e6:.0f} | "
            f"{peaks['serverapp'] / 1e6:.0f} | {one['bytes_up_per_round'] / 1e6:.2f} | "
            f"{one['bytes_down_per_round'] / 1e6:.2f} |"
        )
    before, rest = page.read_text().split("<!-- table -->\n", 1)
    after = rest.split("<!-- end -->\n", 1)[1]
    page.write_text(before + "<!-- table -->\n" + "\n".join(lines) + "\n<!-- end -->\n" + after)


if __name__ == "__main__":
    main()
