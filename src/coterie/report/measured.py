"""What the runs behind one row of a table say, as it goes on record; and which seeds on record more may be added to."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.evaluate.statistics import bootstrap_intervals, over_seeds
from coterie.report.plan import Cell
from coterie.runs.directory import RunDirectory
from coterie.runs.identity import algorithm_version, hardware
from coterie.runs.workers import cpu_seconds, diverged

SAME_BYTES = "same-bytes.json"  # beside the records: changes of code that were shown to change no byte of a run


def validation(place: Path) -> float:
    """What a run's protocol selects rounds by; the worst there is if it diverged."""
    if diverged(place) is not None:
        return -math.inf
    summary = RunDirectory(place).summary()
    rules = summary["protocol"]
    return float(summary["metrics"]["validation"][rules["select_by"]][rules["select_metric"]])


def question(cell: Cell, candidate: int) -> dict[str, Any]:
    """What was asked, and the code that answers: where all of it is equal, figures of several seeds belong together."""
    spec = cell.specs[candidate][0]
    return {
        "rules": spec.protocol.name, "algorithm": spec.algorithm, "behaviour": spec.behaviour,
        "version": algorithm_version(spec.algorithm), "settings": spec.settings, "rounds": spec.resolved().rounds,
        "evaluate_every": spec.evaluate_every,
        "privacy": None if spec.privacy is None else spec.privacy.model_dump(mode="json", exclude_defaults=True),
        "tried": [dict(one) for one in cell.candidates] if len(cell.candidates) > 1 else None,
    }  # fmt: skip


def same_bytes(folder: Path) -> dict[tuple[str, str], str]:
    """(algorithm, version) -> the version that came after it and gives the same bytes (benchmarks/same_bytes.py)."""
    file = folder / SAME_BYTES
    changes = json.loads(file.read_text())["changes"] if file.exists() else []
    return {(one["algorithm"], one["before"]): one["now"] for one in changes}


def brought_up(before: Mapping[str, Any], same: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """A row on record as if the last of the versions that give its bytes had made it; those before are kept by name."""
    version, earlier = before["version"], list(before.get("earlier_versions", []))
    while (after := same.get((before["algorithm"], version))) is not None and after not in earlier:
        earlier.append(version)
        version = after
    return {**before, "version": version} | ({"earlier_versions": earlier} if earlier else {})


def candidate_on_record(cell: Cell, before: Mapping[str, Any] | None) -> int | None:
    """Which candidate a record is of, if it answers the same question by the same code; else None."""
    if before is None or before["reused"] or before["values"] is None:
        return None
    asked = (question(cell, one) for one in range(len(cell.specs)))
    return next((one for one, said in enumerate(asked) if all(before[key] == said[key] for key in said)), None)


def measured(
    cell: Cell,
    entry: Mapping[str, Any],
    candidate: int,
    runs: Mapping[int, Path],
    others: Sequence[Path],
    reused: int,
    before: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The record of a row: `runs` by seed, and `others` that were tried; after the seeds of `before`, if given."""
    spec, earlier = cell.specs[candidate][0], before or {}
    found: dict[str, Any] = {
        "entry": cell.entry, "row": cell.row, "protocol": cell.protocol, **question(cell, candidate),
        "seeds": [*earlier.get("seeds", []), *runs], "warning": spec.protocol.warning,
        "reused": reused,
        "hardware": [*(one for one in earlier.get("hardware", []) if one != hardware()), hardware()],
        "cpu_seconds": round(sum(map(cpu_seconds, [*runs.values(), *others]), earlier.get("cpu_seconds", 0.0)), 1),
    }  # fmt: skip
    if "earlier_versions" in earlier:  # other code that made some of these seeds, shown to give the same bytes
        found["earlier_versions"] = earlier["earlier_versions"]
    if reused:
        found["version"] = None
    why = next((text for one in runs.values() if (text := diverged(one)) is not None), None)
    if why is not None:
        return found | {"diverged": why, "values": None}
    summaries = [RunDirectory(one).summary() for one in runs.values()]
    part = "last" if entry.get("last") else "metrics"
    found["best_rounds"] = [*earlier.get("best_rounds", []), *(one["best_round"] for one in summaries)]
    found["round"] = "last" if entry.get("last") else "best on validation"
    kind = entry["kind"]
    found["values"] = {}
    for metric in entry["metrics"]:
        key, scale = metric, 100.0 if entry["percent"] else 1.0
        if metric == "ItemCoverage@10":
            key, scale = "Coverage@10", float(summaries[0]["data"]["items"])  # those the protocol kept
        values = [one[part]["test"][kind][key] * scale for one in summaries]
        values = [*(earlier["values"][metric]["seeds"] if earlier else []), *values]
        one_run = None if entry.get("last") else next(iter(runs.values()))
        found["values"][metric] = _figure(values, one_run, f"test.{kind}.{metric}", scale)
    if "best_test" in summaries[0]:  # what the released code would have picked
        found["best_test"] = {
            metric: _mean_with([one["best_test"]["test"][kind][metric] for one in summaries], before, metric)
            for metric in entry["metrics"]
        }
    return found


def _mean_with(values: Sequence[float], before: Mapping[str, Any] | None, metric: str) -> float:
    if before is None:
        return float(np.mean(values))
    seen = len(before["seeds"])
    return float((before["best_test"][metric] * seen + sum(values)) / (seen + len(values)))


def _figure(values: list[float], one_run: Path | None, column: str, scale: float) -> dict[str, Any]:
    """Mean over seeds with an interval: Student's t over seeds; where those agree, or there is one, over users."""
    found: dict[str, Any] = {"mean": float(np.mean(values)), "seeds": values}
    if len(set(values)) > 1:
        spread = over_seeds(values)
        return found | {"deviation": spread.deviation, "low": spread.low, "high": spread.high, "over": "seeds"}
    if one_run is None:
        return found
    table = RunDirectory(one_run).users()
    if column not in table.columns:  # no figure of a single person
        return found
    mine = table[column].to_numpy().astype(np.float64)
    one = bootstrap_intervals({column: mine[~np.isnan(mine)]})[column]
    return found | {"low": one.low * scale, "high": one.high * scale, "over": "users"}
