"""`coterie compare` and `coterie report`: from run directories to a table or a page one can believe."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Directories = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")]
Baseline = Annotated[
    str | None, typer.Option(help="The row the others are tested against, by its name; default the first.")
]
On = Annotated[str, typer.Option(help="The metric of the tests and of the spread over people.")]


class Format(StrEnum):
    table = "table"
    csv = "csv"
    latex = "latex"
    json = "json"


def compare(
    directories: Directories,
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.table,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", help="Repeatable: HR@10, or full.HR@10 alone; default HR@10, NDCG@10."),
    ] = None,
    on: On = "full.NDCG@10",
    baseline: Baseline = None,
    confidence: Annotated[float, typer.Option(help="Of the bootstrap intervals.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Runs side by side, with intervals and paired tests; seeds of the same spec become one row."""
    from coterie.report import tables
    from coterie.report.compare import compare as side_by_side
    from coterie.report.words import aside, warnings

    rows = side_by_side(directories, metrics or ("HR@10", "NDCG@10"), on, baseline, confidence)
    if form is Format.table and not as_json:
        from rich.console import Console

        (Console() if sys.stdout.isatty() else Console(width=140)).print(tables.whole(rows))
        return
    for line in warnings(rows):  # beside what a program reads, not in it
        aside(line)
    if as_json or form is Format.json:
        print(json.dumps(rows, indent=1))
    else:
        print(tables.as_csv(rows) if form is Format.csv else tables.as_latex(rows), end="")


def report(
    directories: Directories,
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Its title.")] = None,
    user: Annotated[
        str | None, typer.Option(help="Whose view of the items is drawn; default: somebody ordinary.")
    ] = None,
    on: On = "full.NDCG@10",
    baseline: Baseline = None,
) -> None:
    """One self-contained HTML page about these runs: it opens offline, on a phone and on paper."""
    from coterie.report.html import report as write

    found = write(directories, out, title=title, user=user, on=on, baseline=baseline)
    print(f"{found} ({found.stat().st_size / 1e3:.0f} kB); open it in a browser, nothing is fetched")


def register(app: typer.Typer) -> None:
    app.command("compare")(compare)
    app.command("report")(report)
