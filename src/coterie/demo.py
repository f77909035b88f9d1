"""`coterie demo`: the whole of it in half a minute, on data that is made here."""

from __future__ import annotations

import time
from pathlib import Path

# folder, algorithm, behaviour, protocol
SYSTEMS = (
    ("mostpop", "mostpop", "coterie", "clean"),
    ("ease", "ease", "coterie", "clean"),
    ("fedmf", "fedmf", "coterie", "clean"),
    ("fedrap", "fedrap", "as_released", "clean"),
    ("fedrap-leak", "fedrap", "as_released", "paper"),
)


def demo(out: Path | None = None, seed: int = 0) -> list[Path]:
    """Train federated systems beside two central yardsticks, one of them as published too; print what came of it."""
    from rich.console import Console

    from coterie.algorithms import make
    from coterie.data import load
    from coterie.report.compare import compare, render
    from coterie.report.lists import recommendations
    from coterie.runs.api import run

    console = Console()
    folder = out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    data = load("synthetic")
    console.print(
        f"[bold]Synthetic data:[/] {data.n_users} people, {data.n_items} films, {len(data):,} interactions. "
        "Each person is one client; her last film is held out for the test, the one before for validation.\n"
    )
    runs = {
        place: run(
            make(name, behaviour),
            data,
            out=folder / place,
            seed=seed,
            protocol=protocol,
            evaluate_every=10,
            quiet=False,
        )
        for place, name, behaviour, protocol in SYSTEMS
    }
    console.print(render(compare(list(runs.values()))))
    honest, leaked = (runs[one].metrics["test"]["sampled"]["HR@10"] for one in ("fedrap", "fedrap-leak"))
    console.print(
        f"\nThe last two rows are the same code, FedRAP as its authors released it: HR@10 {leaked:.3f} where held-out "
        f"items are kept out of the training negatives, as they did, and {honest:.3f} where they are not (chance is "
        "0.100). The canary only counts how often an item was drawn as a negative: it has learnt nothing, and knows "
        "the answers.\n"
    )
    own, user = runs["fedmf"], data.user_ids[0]
    console.print(recommendations(f"top 10 for {user}, from fedmf on her own device", own.recommend(user, n=10)))
    console.print(f"\nRun directories: {', '.join(str(one.path) for one in runs.values())}")
    console.print("Type next:")
    for line in (
        f"coterie recommend {own.path} --user {data.user_ids[1]}",
        f"coterie similar {own.path} --item {data.item_ids[0]}",
        f"coterie report {folder}/* -o report.html",
        "coterie algorithms fedrap",
        "coterie run --algorithm fedmf --data my-history.csv",
    ):
        console.print(f"  .venv/bin/{line}", highlight=False, soft_wrap=True)  # whole, to be copied
    return [one.path for one in runs.values()]
