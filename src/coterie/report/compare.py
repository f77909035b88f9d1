"""Several runs side by side; runs that differ in their seed only become one row, with all that makes it believable.

Every row has mean, deviation over seeds and bootstrap interval over users, a paired test against the baseline, the
spread over people, cold and warm users, bytes, seconds, memory and what may be said of privacy. Rows on other data or
under another protocol are told apart (`comparable`), never tested against each other, and warned of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import CoterieError, unknown_name
from coterie.evaluate.statistics import (
    Comparison,
    bootstrap_intervals,
    group_averages,
    history_groups,
    holm,
    paired_tests,
)
from coterie.report import asked
from coterie.report.names import label, names
from coterie.report.tables import render
from coterie.report.words import aside, counted, statement, warnings
from coterie.runs.run import Run

__all__ = ["COLUMNS", "collect", "compare", "counted", "render", "warnings"]

COLUMNS = (("sampled", "HR@10"), ("sampled", "NDCG@10"), ("full", "HR@10"), ("full", "NDCG@10"))
BEYOND = ("Coverage@10", "1-Gini@10", "AvgPopularity@10", "Novelty@10")
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def compare(
    runs: Sequence[Run | str | Path],
    metrics: Sequence[str] = ("HR@10", "NDCG@10"),
    on: str = "full.NDCG@10",
    baseline: str | None = None,
    confidence: float = 0.95,
    say: Callable[[str], None] = aside,
) -> list[dict[str, Any]]:
    """One row for each system, setting and protocol: test metrics at the best validation round.

    Arguments:
        metrics: `HR@10` is shown sampled and under full ranking, as `row["full.HR@10"]`; `full.HR@10` there alone.
        on: what the paired tests, the spread over people and the cold and warm users are about.
        baseline: the row (its `name`, or its algorithm's) that the others of its kind are tested against; without it
            the first.
        say: told what was left out where several were given: other folders, and runs that are not finished.
    """
    return collect(runs, metrics, on, baseline, confidence, say)[0]


def collect(
    runs: Sequence[Run | str | Path],
    metrics: Sequence[str] = ("HR@10", "NDCG@10"),
    on: str = "full.NDCG@10",
    baseline: str | None = None,
    confidence: float = 0.95,
    say: Callable[[str], None] = aside,
) -> tuple[list[dict[str, Any]], list[list[Run]]]:
    """The rows of `compare`, and the runs behind each of them."""
    shown, on = asked.columns(metrics), asked.column(on)
    groups: dict[str, list[Run]] = {}
    for one in asked.finished(runs, say):
        group = groups.setdefault(json.dumps(_identity(one), sort_keys=True), [])
        if one.path.resolve() not in [other.path.resolve() for other in group]:
            group.append(one)
    members = list(groups.values())
    people = [_people(group) for group in members]
    rows = [_row(group, who, shown, on, confidence) for group, who in zip(members, people, strict=True)]
    for row, name in zip(rows, names(rows, [_identity(group[0]) for group in members]), strict=True):
        row["name"] = name
    _comparable(rows, members)
    _test(rows, people, on, baseline)
    return rows, members


def _identity(run: Run) -> dict[str, Any]:
    """What two runs must share to be one row: all but the seed and what changes no number."""
    said = run.spec.model_dump(mode="json", exclude={"seed", "keep", "checkpoint_every", "data"})
    return {**said, "data": {"sha256": run.summary["data"]["sha256"], "sharing": run.spec.data.sharing}}


def _people(group: Sequence[Run]) -> Any:
    """A polars table of the tested users, each metric averaged over the seeds: twice the same user is one observation.

    None where the record has no single users.
    """
    import polars as pl

    if not all(run.directory.users_file.exists() for run in group):
        return None
    tables = [run.directory.users() for run in group]
    table = tables[0] if len(tables) == 1 else pl.concat(tables, how="diagonal_relaxed")
    together = table.group_by("user_id", maintain_order=True).agg(
        pl.len().alias("_seeds"), pl.all().exclude("user_id").mean()
    )
    tested = pl.col("test.full.HR@10")
    together = together.filter((pl.col("_seeds") == len(group)) & tested.is_not_null() & tested.is_not_nan())
    return together.drop("_seeds").sort("user_id")


def _row(group: list[Run], people: Any, shown: Sequence[tuple[str, str]], on: str, confidence: float) -> dict[str, Any]:
    said = [one.summary for one in group]
    first = said[0]
    row: dict[str, Any] = {
        "algorithm": first["algorithm"], "behaviour": first["behaviour"],
        "exchange": first.get("exchange", "full"), "data": first["data"]["name"],
        "data_sha256": first["data"]["sha256"], "protocol": first["protocol"]["name"],
        "split": first["protocol"]["split"], "seeds": [one["seed"] for one in said],
        "best_round": [one["best_round"] for one in said], "rounds": first["rounds"],
        "warning": next((one["warning"] for one in said if one.get("warning")), None),
        "valid": all(one["valid"] for one in said), "sends": first["sends"],
        "versions": sorted({one["coterie"] for one in said}), "runs": [str(one.path) for one in group],
        "confidence": confidence, "on": on,
    }  # fmt: skip
    values = {} if people is None else {f"{kind}.{metric}": _numbers(people, kind, metric) for kind, metric in shown}
    bounds = bootstrap_intervals({key: one for key, one in values.items() if one is not None}, confidence)
    for kind, metric in shown:
        mine = [one["metrics"]["test"][kind].get(metric, math.nan) for one in said]
        if all(map(math.isnan, mine)):
            raise CoterieError(f"{group[0].path}: its summary.json has no test figure {kind}.{metric}; ask for another")
        interval = bounds.get(f"{kind}.{metric}")
        row[f"{kind}.{metric}"] = {
            **_over_seeds(mine),
            "low": None if interval is None else interval.low, "high": None if interval is None else interval.high,
        }  # fmt: skip
    for metric in BEYOND:
        row[metric] = _over_seeds([one["metrics"]["test"]["full"][metric] for one in said])["mean"]
    canaries = [one["canary"] for one in said if one["canary"]]
    row["canary"] = {key: float(np.mean([one[key] for one in canaries])) for key in canaries[0]} if canaries else None
    row["people"] = None if people is None else _spread(group, on)
    row["groups"] = {} if people is None else _cold_and_warm(people, on)
    return row | _cost(group) | {"privacy": first.get("privacy"), "statement": statement(first)}


def _numbers(people: Any, kind: str, metric: str) -> np.ndarray | None:
    name = f"test.{kind}.{metric}"
    return people[name].to_numpy().astype(np.float64) if name in people.columns else None


def _over_seeds(values: Sequence[float]) -> dict[str, Any]:
    return {
        "mean": float(np.mean(values)),
        "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None,
    }


def _spread(group: Sequence[Run], on: str) -> dict[str, Any]:
    """How the metric lies over people: the mean over seeds of each seed's share and quantiles.

    Not those of the users' means: with more seeds fewer would stand at 0, whatever the system.
    """
    found = []
    for run in group:
        values = run.directory.users([f"test.{on}"]).to_series().to_numpy()
        values = values[~np.isnan(values)].astype(np.float64)
        found.append([len(values), (values > 0).mean(), *np.quantile(values, QUANTILES)])
    users, above, *cuts = np.mean(found, axis=0).tolist()
    return {
        "users": round(users), "above_zero": above,
        **{f"q{round(100 * q):02d}": cut for q, cut in zip(QUANTILES, cuts, strict=True)},
    }  # fmt: skip


def _cold_and_warm(people: Any, on: str) -> dict[str, Any]:
    groups = history_groups(people["history"].to_numpy())
    means = group_averages({"mean": people[f"test.{on}"].to_numpy().astype(np.float64)}, groups)
    return {
        one.name: {"shortest": one.shortest, "longest": one.longest, "users": len(one.members), **means[one.name]}
        for one in groups
    }


def _cost(group: Sequence[Run]) -> dict[str, Any]:
    """Bytes of a client a round and in all, seconds, memory: means over the seeds, of memory the largest."""
    said, spent, visits = [one.summary for one in group], [], []
    for one in group:
        rounds = one.rounds
        parts = [record["participants"] for record in rounds]
        sent = sum(
            n * (record["bytes"]["up"] + record["bytes"]["down"]) for n, record in zip(parts, rounds, strict=True)
        )
        spent.append(sent / max(one.summary["data"]["users"], 1))
        visits.append(max(sum(parts), 1))
    seconds = [one["seconds"]["train"] for one in said]
    threads = [one.get("threads", 1) for one in said]
    return {
        "bytes_up": float(np.mean([one["bytes"]["up"] for one in said])),
        "bytes_down": float(np.mean([one["bytes"]["down"] for one in said])),
        "bytes_a_client": float(np.mean(spent)),  # both ways, all rounds
        "train_seconds": float(np.mean(seconds)),
        "total_seconds": float(np.mean([one["seconds"]["total"] for one in said])),
        # At most: idle threads and the server's share are in it.
        "client_seconds": float(np.mean([s * t / v for s, t, v in zip(seconds, threads, visits, strict=True)])),
        "peak_rss_bytes": max(one["peak_rss_bytes"] for one in said),
    }


def _comparable(rows: list[dict[str, Any]], members: Sequence[Sequence[Run]]) -> None:
    """Number the kinds of measurement, and say in each row how its kind differs from the first."""
    keys: list[dict[str, Any]] = []
    for row, group in zip(rows, members, strict=True):
        protocol = {key: value for key, value in group[0].summary["protocol"].items() if key != "counts"}
        key = {"data": row["data"], "data_sha256": row["data_sha256"], **protocol}
        if key not in keys:
            keys.append(key)
        row["comparable"] = keys.index(key) + 1
        first = keys[0]
        row["differs"] = {name: [first[name], value] for name, value in key.items() if first[name] != value}


def _test(rows: list[dict[str, Any]], people: Sequence[Any], on: str, baseline: str | None) -> None:
    """Paired tests within each kind of measurement, corrected over all of them together."""
    if baseline is not None and all(_baseline([row], baseline) is None for row in rows):
        raise unknown_name("row for --baseline", baseline, [row["name"] for row in rows])
    found: list[tuple[dict[str, Any], Comparison, str, int]] = []
    for row in rows:
        row["baseline"], row["test"] = False, None
    for kind in sorted({row["comparable"] for row in rows}):
        mine = [k for k, row in enumerate(rows) if row["comparable"] == kind and people[k] is not None]
        if len(mine) < 2:
            continue
        base = _baseline([rows[k] for k in mine], baseline) or 0
        rows[mine[base]]["baseline"] = True
        for k in mine:
            if k == mine[base]:
                continue
            values = _paired(people[mine[base]], people[k], f"test.{on}")
            if len(values[0]) >= 2:
                one = paired_tests(values[0], {rows[k]["name"]: values[1]})[0]
                found.append((rows[k], one, rows[mine[base]]["name"], len(values[0])))
    t, w = holm([one.p_t for _, one, _, _ in found]), holm([one.p_wilcoxon for _, one, _, _ in found])
    for k, (row, one, against, users) in enumerate(found):
        row["test"] = {
            "against": against, "users": users, "difference": one.difference,
            "t": one.t if math.isfinite(one.t) else None,  # JSON has no infinity
            "p_t": one.p_t, "p_wilcoxon": one.p_wilcoxon,
            "p_t_holm": float(t[k]), "p_wilcoxon_holm": float(w[k]), "comparisons": len(found),
        }  # fmt: skip


def _baseline(rows: Sequence[dict[str, Any]], wanted: str | None) -> int | None:
    ways: tuple[Callable[[dict[str, Any]], Any], ...] = (lambda row: row["name"], label, lambda row: row["algorithm"])
    for way in ways:
        for k, row in enumerate(rows):
            if wanted is not None and way(row) == wanted:
                return k
    return None


def _paired(one: Any, other: Any, column: str) -> tuple[np.ndarray, np.ndarray]:
    both = one.select("user_id", column).join(other.select("user_id", column), on="user_id", how="inner", suffix="_b")
    return both[column].to_numpy().astype(np.float64), both[f"{column}_b"].to_numpy().astype(np.float64)
