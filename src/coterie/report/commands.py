"""`coterie study`: a paper's question as one command, answered in numbers (JSON) and a drawing (HTML)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.report.privacy_commands import app as privacy_app

app = typer.Typer(no_args_is_help=True)
app.add_typer(privacy_app, name="privacy")

Data = Annotated[str, typer.Option(help="A named data set, a file, or `synthetic`.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder for runs, JSON and HTML.")]
Seeds = Annotated[int, typer.Option(help="How many seeds.")]
Rounds = Annotated[int, typer.Option(help="Rounds of training.")]
Protocol = Annotated[str, typer.Option(help="clean or paper.")]
Behaviour = Annotated[str, typer.Option(help="coterie, as_published or as_released.")]


@app.command()
def fedrap(
    data: Data = "synthetic",
    out: Out = Path("runs/study-fedrap"),
    protocol: Protocol = "paper",
    behaviour: Behaviour = "as_released",
    seeds: Seeds = 1,
    rounds: Rounds = 100,
) -> None:
    """FedRAP's eight variants side by side, and the shapes of its curricula."""
    from coterie.data import load
    from coterie.report.studies import curriculum_shapes, variants

    made = variants(load(data), out / "runs", behaviour, protocol, range(seeds), rounds, say=print)
    for figure in [*made, curriculum_shapes(rounds)]:
        print("\n".join(str(path) for path in figure.save(out)))
    for figure in made[:2]:
        for name, bar in figure.numbers["bars"].items():
            spread = "" if bar["deviation"] is None else f" ± {bar['deviation']:.4f}"
            print(f"{name:14s} {figure.numbers['y']} {bar['mean']:.4f}{spread}")
    for name, shares in made[3].numbers["last round"].items():
        print(f"{name:14s} share of |C| above " + "  ".join(f"{key}: {value:.4f}" for key, value in shares.items()))


@app.command()
def exchange(
    data: Data = "synthetic",
    out: Out = Path("runs/study-exchange"),
    protocol: Protocol = "clean",
    behaviour: Behaviour = "coterie",
    rounds: Rounds = 100,
) -> None:
    """FedRAP's quality against the bytes of C that are exchanged."""
    from coterie.data import load
    from coterie.report.studies import quality_against_bytes

    figure = quality_against_bytes(load(data), out / "runs", behaviour, protocol, rounds=rounds, say=print)
    print("\n".join(str(path) for path in figure.save(out)))
    for one in figure.numbers["points"]:
        total = one["bytes"]["up"] + one["bytes"]["down"]
        form = "float16" if one["half"] else "float32"
        print(f"|C| >= {one['threshold']:<6g} {form}  {total / 1e3:8.1f} kB  NDCG@10 full {one['full NDCG@10']:.4f}")
