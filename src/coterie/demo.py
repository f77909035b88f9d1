"""`coterie demo`: the whole of it in half a minute, on data that is made here."""

from __future__ import annotations

import time
from pathlib import Path

SYSTEMS = ("mostpop", "ease", "fedmf", "fedrap")


def demo(out: Path | None = None, seed: int = 0) -> list[Path]:
    """Train two federated systems beside two central yardsticks; print table, recommendations and what to type next."""
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
    runs = [run(make(name), data, out=folder / name, seed=seed, evaluate_every=10, quiet=False) for name in SYSTEMS]
    console.print(render(compare(runs)))
    user = data.user_ids[0]
    console.print(recommendations(f"top 10 for {user}, from fedrap on her own device", runs[-1].recommend(user, n=10)))
    console.print(f"\nRun directories: {', '.join(str(one.path) for one in runs)}")
    console.print("Type next:")
    for line in (
        f"coterie recommend {runs[-1].path} --user {data.user_ids[1]}",
        f"coterie similar {runs[-1].path} --item {data.item_ids[0]}",
        "coterie algorithms fedrap",
        "coterie run --algorithm fedmf --data my-history.csv",
    ):
        console.print(f"  .venv/bin/{line}", highlight=False)
    return [one.path for one in runs]
