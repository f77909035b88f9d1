"""Run all benchmarks, or those named."""

from __future__ import annotations

import sys

from benchmarks import (
    federank_epoch,
    fedmf_round,
    fedrap_growth,
    fedrap_round,
    gpfedrec_round,
    lightgcn_epoch,
    memory,
    memory_large,
    neighbour_sums,
    ranking,
    reading,
    threads,
)
from benchmarks.measure import save

BENCHMARKS = {
    "fedrap_round": fedrap_round.run,
    "fedrap_growth": fedrap_growth.run,
    "threads": threads.run,
    "fedmf_round": fedmf_round.run,
    "ranking": ranking.run,
    "reading": reading.run,
    "memory": memory.run,
    "memory_large": memory_large.run,
    "lightgcn_epoch": lightgcn_epoch.run,
    "federank_epoch": federank_epoch.run,
    "gpfedrec_round": gpfedrec_round.run,
    "neighbour_sums": neighbour_sums.run,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark is called {unknown[0]!r}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        result = BENCHMARKS[name]()
        print(f"{name}: {result['ratio']:.1f} x {result['what']}", flush=True)
        for key, value in result.items():
            if key not in ("ratio", "what"):
                print(f"    {key}: {f'{value:.4g}' if isinstance(value, float) else value}", flush=True)
        print(f"    in {save(name, result)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
