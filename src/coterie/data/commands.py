"""`coterie data list|fetch|inspect|convert`: each verb is one public function."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer

from coterie.data.catalogue import CATALOGUE, Entry
from coterie.data.dialect import parse_columns
from coterie.data.load import data_folders, is_here, load

app = typer.Typer(help="Data sets: list, fetch, inspect, convert.", no_args_is_help=True)


class OnBadRow(StrEnum):
    """What to do with a row that cannot be read."""

    error = "error"
    quarantine = "quarantine"


# typer reads these annotations at run time
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of named data sets; else COTERIE_DATA, else what was fetched.")
]
Columns = Annotated[Optional[str], typer.Option(help="Columns by name or number: user=who,item=what,rating=3.")]  # noqa: UP045
BadRow = Annotated[OnBadRow, typer.Option(help="Refuse the file, or set bad rows aside.")]
Aside = Annotated[Optional[Path], typer.Option(help="File for rows set aside; default: beside the source.")]  # noqa: UP045
Items = Annotated[Optional[Path], typer.Option(help="File of titles, with the columns item_id and title.")]  # noqa: UP045


@app.command("list")
def list_sets(data_dir: DataDir = None) -> None:
    """The data sets of the papers, and which of them are here."""
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "what it is", "here", "terms", box=None)
    table.add_row("synthetic", "made-up world with tastes, any size", "built in", "none")
    for entry in CATALOGUE.values():
        table.add_row(entry.name, entry.title, "yes" if is_here(entry, data_dir) else "no", entry.terms)
    console = Console()
    console.print(table)
    console.print(f"Looked in: {', '.join(map(str, data_folders(data_dir)))}", soft_wrap=True)


@app.command("fetch")
def fetch_set(
    name: Annotated[str, typer.Argument(help="A name from `coterie data list`.")],
    data_dir: DataDir = None,
    accept_terms: Annotated[bool, typer.Option("--accept-terms", help="Accept the terms without being asked.")] = False,
    address: Annotated[Optional[str], typer.Option(help="Another address of the same official file.")] = None,  # noqa: UP045
) -> None:
    """Download a data set from its official address and convert it."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from coterie.data.fetching import fetch

    def ask(entry: Entry) -> bool:
        if accept_terms or not sys.stdin.isatty():
            return accept_terms
        return typer.confirm(f"{entry.title}: {entry.terms}. See {entry.homepage}. Do you accept?")

    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), transient=True
    )
    task = bars.add_task(name, total=None)

    def show(done: int, total: int | None) -> None:
        bars.start()  # only now: the question about the terms comes first
        bars.update(task, completed=done, total=total)

    try:
        folder = fetch(name, data_dir, accept_terms=ask, address=address, progress=show)
    finally:
        bars.stop()
    typer.echo(f"{name} is in {folder}. Next: coterie data inspect {name}")


@app.command("inspect")
def inspect_source(
    source: Annotated[str, typer.Argument(help="A name, a file, or synthetic[:users=...,items=...,seed=...].")],
    data_dir: DataDir = None,
    columns: Columns = None,
    on_bad_row: BadRow = OnBadRow.error,
    quarantine: Aside = None,
    items: Items = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Counts, plots, duplicates, ties, and the filters that reach the papers' figures."""
    from rich.console import Console

    from coterie.data.inspection import inspect, render_inspection

    data = load(
        source,
        columns=parse_columns(columns),
        data_dir=data_dir,
        on_bad_row=on_bad_row.value,
        quarantine=quarantine,
        items=items,
    )
    report = inspect(data)
    if as_json:
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        Console().print(render_inspection(report))


@app.command("convert")
def convert_source(
    source: Annotated[str, typer.Argument(help="Any readable file, a name, or an official archive with --as.")],
    target: Annotated[Path, typer.Argument(help="New folder for interactions.tsv.gz and items.tsv.gz.")],
    official: Annotated[Optional[str], typer.Option("--as", help="SOURCE is the official archive of this set.")] = None,  # noqa: UP045
    data_dir: DataDir = None,
    columns: Columns = None,
    on_bad_row: BadRow = OnBadRow.error,
    quarantine: Aside = None,
    items: Items = None,
) -> None:
    """Write the prepared layout."""
    from coterie.data.prepared import convert

    folder = convert(
        source,
        target,
        official=official,
        columns=parse_columns(columns),
        data_dir=data_dir,
        on_bad_row=on_bad_row.value,
        quarantine=quarantine,
        items=items,
    )
    typer.echo(f"Written: {folder}. Next: coterie data inspect {folder}")
