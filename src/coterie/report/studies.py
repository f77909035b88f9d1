"""Studies of FedRAP as one call each: variants, curricula, quality against bytes. Runs are kept and reused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from coterie.algorithms import make
from coterie.algorithms.curriculum import weight
from coterie.data.interactions import Interactions
from coterie.report.figures import Figure, ablation, convergence, curricula, sparsity, sparsity_table
from coterie.runs.api import resume, run
from coterie.runs.run import Run

VARIANTS = (
    "fedrap", "fedrap-c", "fedrap-d", "fedrap-no", "fedrap-l2", "fedrap-fixed", "fedrap-sin", "fedrap-square",
    "fedrap-frac",
)  # fmt: skip
Say = Callable[[str], None]


def cached_run(algorithm: Any, data: Interactions, folder: Path, say: Say = lambda _: None, **options: Any) -> Run:
    """The run of this very spec: opened if it is there, gone on with if it was interrupted, made if there is none."""
    key = json.dumps([algorithm.name, repr(algorithm), data.sha256, options], sort_keys=True, default=str)
    place = folder / f"{algorithm.name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if (place / "summary.json").exists():
        return Run(place, data)
    say(f"running {place.name}")
    if (place / "spec.json").exists():
        return resume(place, data, options.get("threads"))
    options = {"keep": "nothing", **options}
    return run(algorithm, data, out=place, **options)


def variants(
    data: Interactions,
    folder: Path,
    behaviour: str = "as_released",
    protocol: str = "paper",
    seeds: Sequence[int] = (0,),
    rounds: int = 100,
    evaluate_every: int = 5,
    names: Iterable[str] = VARIANTS,
    say: Say = lambda _: None,
) -> list[Figure]:
    """FedRAP and its variants side by side: bars of the last round, curves by round (figures 3 and 4), sparsity of C.

    fedrap itself runs with the tanh curriculum applied, as the paper says; fedrap-fixed is the one without.
    """
    runs: dict[str, list[Run]] = {}
    for name in names:
        settings = (
            {"curriculum": "tanh"} if name in ("fedrap", "fedrap-c", "fedrap-d", "fedrap-no", "fedrap-l2") else {}
        )
        algorithm = make(name, behaviour, **settings)
        runs[name] = [
            cached_run(
                algorithm, data, folder, say, protocol=protocol, seed=seed, rounds=rounds, evaluate_every=evaluate_every
            )
            for seed in seeds
        ]
    firsts = {name: some[0] for name, some in runs.items()}
    with_c = {name: one for name, one in firsts.items() if one.rounds[-1].get("shares")}
    shrinking = sparsity(with_c)
    shrinking.numbers["last round"] = sparsity_table(runs)
    return [ablation(runs), ablation(runs, "NDCG@10"), convergence(firsts), shrinking]


def curriculum_shapes(rounds: int = 100, form: str = "published") -> Figure:
    """The weights of all curricula by round."""
    names = ("fixed", "tanh", "sin", "square", "frac")
    return curricula({name: [weight(name, form, a) for a in range(1, rounds + 1)] for name in names})  # type: ignore[arg-type]


def quality_against_bytes(
    data: Interactions,
    folder: Path,
    behaviour: str = "coterie",
    protocol: str = "clean",
    thresholds: Sequence[float] = (0.0, 1e-3, 1e-2, 3e-2, 1e-1),
    rounds: int = 100,
    seed: int = 0,
    evaluate_every: int = 10,
    say: Say = lambda _: None,
) -> Figure:
    """FedRAP with ever less of C on the wire: each threshold as entries, in four bytes a number and in two."""
    lines: dict[str, Any] = {}
    points = []
    for half in (False, True):
        label = "float16" if half else "float32"
        line: dict[str, list[float]] = {"x": [], "y": []}
        for threshold in thresholds:
            form = "entries" if threshold else "best"
            algorithm = make("fedrap", behaviour, send_above=threshold, send_as=form, send_half=half)
            one = cached_run(
                algorithm, data, folder, say, protocol=protocol, seed=seed, rounds=rounds, evaluate_every=evaluate_every
            )
            sent, test = one.summary["bytes"], one.summary["metrics"]["test"]
            line["x"].append(sent["up"] + sent["down"])
            line["y"].append(test["full"]["NDCG@10"])
            points.append(
                {"threshold": threshold, "half": half, "bytes": sent, "full NDCG@10": test["full"]["NDCG@10"],
                 "sampled HR@10": test["sampled"]["HR@10"]}
            )  # fmt: skip
        lines[label] = line
    numbers = {"lines": lines, "points": points, "x": "bytes a client a round, both ways", "y": "test NDCG@10, full"}
    return Figure("quality-against-bytes", f"FedRAP on {data.name}: what sparse exchange costs", "lines", numbers)
