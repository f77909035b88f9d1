"""`coterie share`, and the questions of the FedeRank paper under `coterie study`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coterie.report.federank_study import Study

Data = Annotated[str, typer.Option(help="A named data set, a file, or `synthetic`.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder for what was measured, JSON and HTML.")]
Behaviour = Annotated[str, typer.Option(help="coterie, as_published or as_released.")]
Epochs = Annotated[int, typer.Option(help="Epochs of training; the best on validation counts.")]
Triples = Annotated[list[str] | None, typer.Option("--triples", help="T, repeatable; default: average and 1.")]
Rates = Annotated[list[float] | None, typer.Option("--lr", help="Rates to choose from on validation, repeatable.")]
Protocol = Annotated[str, typer.Option(help="paper:federank, or clean.")]
Seed = Annotated[int, typer.Option(help="Every random number follows from it.")]
Every = Annotated[int, typer.Option(help="Epochs between validations.")]
Threads = Annotated[int, typer.Option(help="Threads of the evaluation.")]


def register(app: typer.Typer, study: typer.Typer) -> None:
    app.command("share")(share)
    study.command("federank-pi")(curve)
    study.command("federank-updates")(updates)
    study.command("federank-recommended")(recommended)
    study.command("federank-table")(table)
    study.command("federank-row")(row)


def share(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    user: Annotated[str, typer.Option(help="Whose device.")],
    pi: Annotated[float | None, typer.Option(help="What if she shared this part? Default: as in the run.")] = None,
    never: Annotated[str | None, typer.Option(help="Item ids she never shares, by commas.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What would leave one person's device in the next round, what stays, item by item, and the bytes."""
    from coterie.report.share import render, would_share
    from coterie.runs.run import Run

    found = would_share(Run(directory), user, pi, () if never is None else never.split(","))
    if as_json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    (Console() if sys.stdout.isatty() else Console(width=140)).print(render(found))


def curve(
    data: Data = "synthetic", out: Out = Path("runs/study-federank"), behaviour: Behaviour = "coterie",
    epochs: Epochs = 20, triples: Triples = None, lr: Rates = None, protocol: Protocol = "paper:federank",
    seed: Seed = 0, threads: Threads = 2, every: Every = 1,
) -> None:  # fmt: skip
    """F1, precision, recall, coverage and 1 - Gini by pi from 0.0 to 1.0, for each T (the paper's figure 1)."""
    study = _study(data, out, behaviour, epochs, triples, lr, protocol, seed, threads, every)
    _print_points(study.curve())


def updates(
    data: Data = "synthetic", out: Out = Path("runs/study-federank"), behaviour: Behaviour = "coterie",
    epochs: Epochs = 20, triples: Triples = None, lr: Rates = None, protocol: Protocol = "paper:federank",
    seed: Seed = 0, threads: Threads = 2, every: Every = 1,
) -> None:  # fmt: skip
    """How often the server gets an update of each item: the 1,000 most updated, by pi (the paper's figure 2)."""
    study = _study(data, out, behaviour, epochs, triples, lr, protocol, seed, threads, every)
    for one in study.updates()["lines"]:
        print(f"T {one['T']!s:8} pi {one['pi']:.1f}  first {one['y'][0]:.2e}  last shown {one['y'][-1]:.2e}")


def recommended(
    data: Data = "synthetic", out: Out = Path("runs/study-federank"), behaviour: Behaviour = "coterie",
    epochs: Epochs = 20, triples: Triples = None, lr: Rates = None, protocol: Protocol = "paper:federank",
    seed: Seed = 0, threads: Threads = 2, every: Every = 1,
) -> None:  # fmt: skip
    """How often each of the 250 most popular items is recommended, against its popularity (the paper's figure 3)."""
    study = _study(data, out, behaviour, epochs, triples, lr, protocol, seed, threads, every)
    for one in study.recommended()["lines"]:
        print(f"T {one['T']!s:8} pi {one['pi']:.1f}  share of all recommendations {sum(one['y']):.3f}")


def table(
    data: Data = "synthetic", out: Out = Path("runs/study-federank"), behaviour: Behaviour = "coterie",
    epochs: Epochs = 20, triples: Triples = None, lr: Rates = None, protocol: Protocol = "paper:federank",
    seed: Seed = 0, threads: Threads = 2, every: Every = 1,
) -> None:  # fmt: skip
    """The paper's table: rate and pi chosen on validation; beside it the same trained again on validation too."""
    study = _study(data, out, behaviour, epochs, triples, lr, protocol, seed, threads, every)
    for row in study.table()["rows"]:
        print(
            f"T {row['T']!s:8} lr {row['lr']:g} pi {row['pi']:.1f} epoch {row['epoch']:2d}  "
            f"P@10 {row['test']['Precision@10']:.5f}  "
            f"R@10 {row['test']['Recall@10']:.5f}  trained on 80 %: P@10 {row['refit']['Precision@10']:.5f}"
        )


def row(
    algorithm: Annotated[str, typer.Option(help="Any system; `coterie algorithms` lists them.")],
    data: Data = "synthetic", out: Out = Path("runs/federank-rows"),
    grid: Annotated[list[str] | None, typer.Option(help="field=a,b,c: values to choose from, repeatable.")] = None,
    behaviour: Behaviour = "coterie",
    epochs: Annotated[int | None, typer.Option(help="Epochs (rounds) of training; default: the system's.")] = None,
    every: Every = 1, protocol: Protocol = "paper:federank", seed: Seed = 0, threads: Threads = 2,
) -> None:  # fmt: skip
    """One row of the paper's table for any system: chosen on validation, trained on 64 % and again on 80 %."""
    from coterie.data import load
    from coterie.report.federank_rows import Rows
    from coterie.runs.spec import parse_setting

    asked = {}
    for one in grid or ():
        field, _, values = one.partition("=")
        asked[field] = [parse_setting(algorithm, f"{field}={value}")[1] for value in values.split(",")]
    found = Rows(load(data), out, protocol, seed, threads, print).row(algorithm, asked, epochs, every, behaviour)
    for label, figures in (("64 %", found["test"]), ("80 %", found["refit"])):
        print(
            f"{algorithm} on {label} of {data}: " + "  ".join(f"{name} {value:.5f}" for name, value in figures.items())
        )


def _study(
    data: str, out: Path, behaviour: str, epochs: int, triples: list[str] | None, lr: list[float] | None,
    protocol: str, seed: int, threads: int, every: int,
) -> Study:  # fmt: skip
    from coterie.data import load
    from coterie.report.federank_study import Study

    asked = tuple(int(one) if one.isdecimal() else one for one in triples or ("average", "1"))
    rates = None if lr is None else tuple(lr)
    return Study(load(data), out, behaviour, epochs, asked, rates, protocol, seed, threads, print, every)


def _print_points(found: dict[str, Any]) -> None:
    for one in found["points"]:
        test = one["test"]
        print(
            f"T {one['T']!s:8} pi {one['pi']:.1f}  F1 {test['F1@10']:.5f}  P {test['Precision@10']:.5f}  "
            f"R {test['Recall@10']:.5f}  "
            f"coverage {test['Coverage@10']:.4f}  1-Gini {test['1-Gini@10']:.5f}  epoch {one['epoch']}"
        )
    for line in found["found"]:
        print(line)
