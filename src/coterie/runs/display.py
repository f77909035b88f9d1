"""Progress of a run in the terminal: the round, what it costs and brings, and how long it will still take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coterie.runs.spec import RunSpec


def shown(records: Iterator[dict[str, Any]], spec: RunSpec, quiet: bool) -> None:
    """Go through all rounds, showing them unless `quiet`."""
    if quiet:
        for _ in records:
            pass
        return
    from rich import progress as bar
    from rich.console import Console

    console = Console(stderr=True)
    if spec.protocol.warning:
        console.print(f"[bold yellow]{spec.protocol.warning}[/]")
    columns = (
        bar.TextColumn("{task.description}"), bar.BarColumn(bar_width=24), bar.MofNCompleteColumn(),
        bar.TimeElapsedColumn(), bar.TextColumn("left"), bar.TimeRemainingColumn(),
        bar.TextColumn("{task.fields[said]}"),
    )  # fmt: skip
    with bar.Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task(f"{spec.algorithm} on {spec.data.source}", total=spec.rounds, said="starting")
        measured = ""
        record: dict[str, Any] = {"round": 0}
        for record in records:
            if "validation" in record:
                full = record["validation"]["full"]["NDCG@10"]
                sampled = record["validation"]["sampled"]["HR@10"]
                measured = f"validation NDCG@10 {full:.4f} full, HR@10 {sampled:.3f} sampled"
                if not console.is_terminal:
                    console.print(
                        f"{spec.algorithm} round {record['round']}/{spec.rounds}  {_said(record)}  {measured}",
                        soft_wrap=True,
                    )
            progress.update(task, completed=record["round"], said=f"{_said(record)}  {measured}")
    most = None if spec.privacy is None else spec.privacy.max_epsilon
    if most is not None and spec.rounds is not None and record["round"] < spec.rounds:
        console.print(f"stopped after round {record['round']} of {spec.rounds}: one more would exceed epsilon {most:g}")


def _said(record: dict[str, Any]) -> str:
    parts = [] if record["loss"] is None else [f"loss {record['loss']:.4f}"]
    parts.append(f"{record['seconds']:.2f} s")
    if record["bytes"]["up"]:
        parts.append(f"{size(record['bytes']['up'])} up {size(record['bytes']['down'])} down")
    if "epsilon" in record.get("privacy", {}):
        spent = record["privacy"]
        parts.append(f"epsilon {spent['epsilon']:.2f}, server {spent['epsilon_server']:.2f}")
    if "encrypted" in record.get("privacy", {}):
        cost = record["privacy"]["encrypted"]
        parts.append(f"encrypted: {cost['encrypt_seconds']:.2f} s and {size(cost['bytes_up'])} a client")
    if record.get("privacy", {}).get("rejected"):
        parts.append("rejected so far: " + ", ".join(f"{n} {why}" for why, n in record["privacy"]["rejected"].items()))
    return "  ".join(parts)


def size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
