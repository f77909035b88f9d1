"""What `coterie reproduce` says while runs are under way: a line for each that ends, and the time left for all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import final

from coterie.report.sweep_display import SILENCE, Remaining
from coterie.report.words import aside
from coterie.runs.workers import Event, Job, cpu_seconds


@final
class Progress:
    """One line for each run that ends: what it was, and the time left for all."""

    def __init__(self, jobs: Sequence[Job], costs: Sequence[float], later: float, at_once: int, quiet: bool) -> None:
        """`later`: what is known to come after these jobs."""
        self.jobs, self.costs, self.quiet, self.ended = jobs, costs, quiet, 0
        self.left, self.share = Remaining(sum(costs) + later, 1 / at_once), [0.0] * len(jobs)
        self.failed: list[str] = []  # why runs came to nothing
        self._told = time.monotonic()

    def heard(self, event: Event) -> None:
        spec = self.jobs[event.job].spec
        share = min(event.round / (spec.resolved().rounds or 1), 1.0) if event.kind == "round" else 1.0
        self.left.done += (share - self.share[event.job]) * self.costs[event.job]
        self.share[event.job] = share
        name = f"{spec.algorithm} {spec.behaviour}, {spec.protocol.name}, seed {spec.seed}"
        if event.kind == "round":
            if time.monotonic() - self._told > SILENCE:
                self.say(f"{self.ended} of {len(self.jobs)} runs done, {self.left}; {name}: round {event.round}")
            return
        self.ended += 1
        if event.kind == "failed":
            self.failed.append(f"{name}: {event.why}")
        ended = f"{cpu_seconds(self.jobs[event.job].place):.0f} CPU-s" if event.kind == "done" else event.why
        self.say(f"{self.ended} of {len(self.jobs)} ({self.left}): {name}: {ended}")

    def say(self, text: str) -> None:
        self._told = time.monotonic()
        if not self.quiet:
            aside(text)
