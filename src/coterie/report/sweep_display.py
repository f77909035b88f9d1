"""A sweep in the terminal: what is being tried, how long it will still take, and the table at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, final

from coterie.report.words import number
from coterie.runs.spec import RunSpec
from coterie.runs.workers import Event, Job

SILENCE = 60.0  # seconds without a line after which a log, where no bar is seen, is told how far the work is


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


@final
class Remaining:
    """Time left, from the work done since this beginning; work done before it counts as done, not as quick.

    `pace`, the seconds a unit should take, counts as a minute already seen: the first run of all also compiles, and by
    its first round alone a day's work would be told as a week's.
    """

    def __init__(self, total: float, pace: float | None = None) -> None:
        self.total, self.done, self.before, self._began = total, 0.0, 0.0, time.monotonic()
        self._seen = (0.0, 0.0) if pace is None else (60.0, 60.0 / pace)  # seconds, units

    def seconds(self) -> float | None:
        spent, units = time.monotonic() - self._began + self._seen[0], self.done + self._seen[1]
        return spent / units * max(self.total - self.before - self.done, 0.0) if units > 0 else None

    def __str__(self) -> str:
        left = self.seconds()
        return "time left unknown yet" if left is None else f"about {duration(left)} left"


@final
class Display:
    def __init__(self, quiet: bool, bases: Mapping[str, RunSpec], trials: int, seeds: int) -> None:
        self.quiet, self.trials = quiet, trials
        rounds = [one.resolved().rounds or 1 for one in bases.values()]
        self._a_trial = float(sum(rounds) * seeds)
        self.left = Remaining(self._a_trial * trials)
        self._ended, self._at = 0, dict[Path, int]()
        self._bar: Any = None
        self._task: Any = None
        self._told = time.monotonic()

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            from rich import progress as bar
            from rich.console import Console

            columns = (bar.TextColumn("{task.description}"), bar.BarColumn(bar_width=24), bar.TimeElapsedColumn(),
                       bar.TextColumn("{task.fields[said]}"))  # fmt: skip
            self._bar = bar.Progress(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("sweep", total=self.left.total, said="starting")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def finished(self, count: int) -> None:
        """So many trials were done in an earlier sitting."""
        self._ended, self.left.before = count, count * self._a_trial
        if count and not self.quiet:
            self._say(f"{count} of {self.trials} trials were done before")

    def heard(self, event: Event, job: Job) -> None:
        rounds = job.spec.resolved().rounds or 1
        now = event.round if event.kind == "round" else max(rounds, self._at.get(job.place, 0))
        if event.kind == "round" and job.place not in self._at:
            self.left.before += now - 1  # a run that goes on
            self._at[job.place] = now - 1
        self.left.done += now - self._at.get(job.place, 0)
        self._at[job.place] = now
        said = f"trial {self._ended + 1} of {self.trials}, {self.left}"
        if self._bar is not None:
            self._bar.update(self._task, completed=self.left.done + self.left.before, said=said)
        elif not self.quiet and time.monotonic() - self._told > SILENCE:
            self._say(f"{said}; seed {job.spec.seed}: round {now} of {rounds}")

    def trial(self, number: int, settings: dict[str, Any], values: dict[str, dict[str, float]] | None) -> None:
        self._ended += 1
        if self.quiet:
            return
        told = "  ".join(f"{field}={shown(value)}" for field, value in settings.items())
        figures = (
            "diverged"
            if values is None
            else "  ".join(
                f"{name} {metric} {value:.4f}" for name, mine in values.items() for metric, value in mine.items()
            )
        )
        self._say(f"trial {number} ({self._ended} of {self.trials}, {self.left}): {told}: validation {figures}")

    def _say(self, text: str) -> None:
        self._told = time.monotonic()
        if self._bar is not None:
            self._bar.console.print(text, soft_wrap=True, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(record: dict[str, Any]) -> Any:
    """All trials, the best first, by the validation figures that chose; test figures have no column."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    fields, metrics, names = list(record["space"]), record["metrics"], list(record["data"])
    budget, best = record["budget"], record["best"]["number"]
    title = f"{record['algorithm']} on {', '.join(names)}, {record['protocol']['name']}: validation, best first"
    grid = Table(title=title, title_justify="left")
    grid.add_column("trial", justify="right")
    for field in fields:
        grid.add_column(field, justify="right")
    for name in names:
        for metric in metrics:
            grid.add_column(f"{metric}\n{name}", justify="right")
    several = len(names) * len(metrics) > 1
    if several:
        grid.add_column("relative\nto best", justify="right")
    grid.add_column("best\nround", justify="right")
    grid.add_column("CPU s", justify="right")
    for one in sorted(record["trials"], key=lambda t: (t["score"] is None, -(t["score"] or 0.0), t["number"])):
        values = one["values"]
        figures = [
            "diverged" if values is None else f"{values[name][metric]:.4f}" for name in names for metric in metrics
        ]
        if several:
            figures.append("" if one["score"] is None else f"{one['score']:.4f}")
        rounds = "/".join("-" if r is None else str(r) for r in one["best_rounds"])
        settings = [shown(one["settings"][field]) for field in fields]
        style = "bold" if one["number"] == best else None
        grid.add_row(str(one["number"]), *settings, *figures, rounds, f"{one['cpu_seconds']:.1f}", style=style)
    cost = (
        f"budget: {number(budget['trials'], 'trial')} ({record['method']}), {number(record['seeds'], 'seed')} each, "
        f"{number(budget['runs'], 'run')}, "
        f"{budget['diverged']} diverged, {budget['cpu_seconds']:.0f} CPU-seconds; chosen by {record['chosen_by']}"
    )
    notes = [Text(record["warning"], "yellow")] if record.get("warning") else []
    return Group(grid, Text(cost), *notes)
