"""Several runs side by side; runs that differ in their seed only become one row with mean and deviation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import CoterieError
from coterie.runs.run import Run

COLUMNS = (("sampled", "HR@10"), ("sampled", "NDCG@10"), ("full", "HR@10"), ("full", "NDCG@10"))


def compare(runs: Sequence[Run | str | Path]) -> list[dict[str, Any]]:
    """One row for each system, setting and protocol: test metrics at the best validation round."""
    opened = [one if isinstance(one, Run) else Run(one) for one in runs]
    if not opened:
        raise CoterieError("compare needs at least one run directory")
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in opened:
        summary = one.summary
        key = json.dumps(
            [summary["algorithm"], summary["behaviour"], summary["settings"], summary["data"]["sha256"],
             summary["protocol"]["name"], summary["protocol"]["split"], summary["rounds"], summary["cohort"],
             summary.get("exchange", "full")]
        )  # fmt: skip
        groups.setdefault(key, []).append(summary)
    return [_row(group) for group in groups.values()]


def _row(group: list[dict[str, Any]]) -> dict[str, Any]:
    first = group[0]
    row: dict[str, Any] = {
        "algorithm": first["algorithm"], "behaviour": first["behaviour"],
        "exchange": first.get("exchange", "full"), "data": first["data"]["name"],
        "data_sha256": first["data"]["sha256"], "protocol": first["protocol"]["name"],
        "split": first["protocol"]["split"], "seeds": [one["seed"] for one in group],
        "best_round": [one["best_round"] for one in group], "rounds": first["rounds"],
        "warning": next((one["warning"] for one in group if one.get("warning")), None),
        "valid": all(one["valid"] for one in group), "sends": first["sends"],
    }  # fmt: skip
    for kind, metric in COLUMNS:
        values = [one["metrics"]["test"][kind][metric] for one in group]
        row[f"{kind}.{metric}"] = {
            "mean": float(np.mean(values)),
            "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        }
    canaries = [one["canary"] for one in group if one["canary"]]
    row["canary"] = {key: float(np.mean([one[key] for one in canaries])) for key in canaries[0]} if canaries else None
    for key in ("up", "down"):
        row[f"bytes_{key}"] = float(np.mean([one["bytes"][key] for one in group]))
    row["train_seconds"] = float(np.mean([one["seconds"]["train"] for one in group]))
    row["peak_rss_bytes"] = max(one["peak_rss_bytes"] for one in group)
    return row


def render(rows: list[dict[str, Any]]) -> Any:
    """The rows as a terminal table, with what one has to know to believe it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from coterie.runs.display import size

    datasets = {row["data_sha256"]: row["data"] for row in rows}
    table = Table(
        title=f"{', '.join(datasets.values())}: test metrics at the best validation round", title_justify="left"
    )
    table.add_column("system")
    for heading in ("HR@10\nsampled", "NDCG@10\nsampled", "HR@10\nfull", "NDCG@10\nfull", "canary\n/chance",
                    "sent up\na round", "train"):  # fmt: skip
        table.add_column(heading, justify="right")
    for row in rows:
        name = row["algorithm"] + ("" if row["behaviour"] == "coterie" else f" {row['behaviour']}")
        if row["exchange"] != "full":
            name += f" {row['exchange']}"
        if row["protocol"] != "clean":
            name += f" [{row['protocol']}]"
        if len(datasets) > 1:
            name += f" on {row['data']}"
        canary = "" if row["canary"] is None else f"{row['canary']['HR@10']:.2f}/{row['canary']['chance']:.2f}"
        cells = [_figure(row[f"{kind}.{metric}"]) for kind, metric in COLUMNS]
        up = size(row["bytes_up"]) if row["bytes_up"] else "central" if "central" in row["sends"] else "-"
        mark = "" if row["valid"] else " INVALID"
        table.add_row(Text(name + mark), *cells, canary, up, f"{row['train_seconds']:.1f} s")
    notes = [
        Text(f"{row['algorithm']} [{row['protocol']}]: {row['warning']}", "yellow") for row in rows if row["warning"]
    ]
    if len(datasets) > 1:
        notes.append(Text("these runs are on different data: the rows cannot be compared with each other", "yellow"))
    return Group(table, *notes)


def _figure(value: dict[str, Any]) -> str:
    spread = "" if value["deviation"] is None else f" ±{value['deviation']:.3f}"
    return f"{value['mean']:.3f}{spread}"


def counted(summary: dict[str, Any]) -> str:
    """What became of the rows that were read, and how the protocol cut them: sums that always hold."""
    rules, c = summary["protocol"], summary["protocol"]["counts"]
    read = c["rows"] + c["quarantined"]
    gone = {
        "quarantined": c["quarantined"], "below the rating threshold": c["below_threshold"],
        f"of users with fewer than {rules['min_interactions']}": c["in_dropped_users"], "merged repeats": c["merged"],
    }  # fmt: skip
    taken = "".join(f" - {count:,} {why}" for why, count in gone.items() if count)
    lines = [
        f"{read:,} rows read{taken} = {c['interactions']:,} interactions; {c['users']:,} users, {c['items']:,} items",
        f"{rules['split']}: {c['train']:,} train, {c['validation']:,} validation, {c['test']:,} test; "
        f"{c['users_tested']:,} users tested, {c['users_training_only']:,} only train"
        + (f"; {c['set_aside']:,} rows set aside" if c["set_aside"] else ""),
    ]
    if c["test_with_later_training"]:
        share = c["test_with_later_training"] / c["test"]
        lines.append(f"{share:.1%} of the test interactions have training rows of the same item from their future")
    if c["users_with_few_candidates"]:
        lines.append(f"{c['users_with_few_candidates']:,} users have fewer sampled candidates than asked for")
    return "\n".join(lines)
