"""`coterie reproduce`: a paper's tables beside what comes out here, under its protocol and under the clean one.

Runs are kept in a cache under the hash of spec, data and algorithm, so nothing is done twice, and a command that was
stopped goes on. What was measured is written as one JSON file for each data set; the page is made from those alone.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie import __version__
from coterie.data import load
from coterie.data.interactions import Interactions
from coterie.errors import CoterieError, unknown_name
from coterie.evaluate.statistics import bootstrap_intervals, over_seeds
from coterie.report.drawings import draw, study
from coterie.report.plan import (
    PROTOCOLS,
    Cell,
    cells,
    chosen_entries,
    part_name,
    part_of,
    read_paper,
    with_rows,
    write_part,
)
from coterie.report.sweep_display import Remaining
from coterie.runs import tensors
from coterie.runs.directory import RunDirectory
from coterie.runs.drive import Interrupted
from coterie.runs.identity import algorithm_version, available_cores, hardware, question_key, run_key
from coterie.runs.spec import DataSpec, RunSpec
from coterie.runs.workers import Event, Job, Workers, cpu_seconds, diverged, finished


def reproduce(
    paper: str,
    *,
    tables: Sequence[str] = (),
    figures: Sequence[str] = (),
    rows: Sequence[str] = (),
    data: Sequence[str] = (),
    seeds: int = 1,
    protocol: str = "both",
    out: Path | None = None,
    cache: Path = Path("runs/reproduce"),
    jobs: int | None = None,
    data_dir: Path | None = None,
    collect: bool = False,
    reuse: Sequence[Path] = (),
    quiet: bool = True,
) -> list[Path]:
    """Run what is missing, then write `<data>.json` and README.md in `out` (papers/NAME). `collect`: run nothing.

    `rows`: only these, by the names they have in the tables; what the records hold of the others stays.

    `reuse`: folders with runs made elsewhere. Where one answers the same question it is taken instead of a run, and the
    record says so, since nothing tells which state of the code made it.
    """
    from coterie.report.pages import write_page

    described = read_paper(paper)
    narrowed = with_rows(described, rows)
    entries = chosen_entries(narrowed, tables, figures)
    protocols = PROTOCOLS if protocol == "both" else (protocol,)
    if protocol not in ("both", *PROTOCOLS):
        raise unknown_name("protocol", protocol, ["both", *PROTOCOLS])
    if seeds < 1:
        raise CoterieError(f"--seeds is {seeds}; give 1 or more")
    for name in data:
        if name not in described["datasets"]:
            raise unknown_name(f"data set of {paper}", name, list(described["datasets"]))
    out = Path("papers") / paper if out is None else out
    work = _Work(narrowed, entries, seeds, protocols, cache, data_dir, quiet, elsewhere(reuse))
    sets = work.read(list(data) or list(described["datasets"]), asked=bool(data))
    stopped = None
    if not collect:
        try:
            work.run(available_cores() if jobs is None else jobs)
            work.studies(sets)
        except (Interrupted, KeyboardInterrupt) as problem:
            stopped = problem
    out.mkdir(parents=True, exist_ok=True)
    written = [work.record(name, found, out) for name, found in sets.items()]
    written.append(write_page(described, out))
    if stopped is not None:
        raise CoterieError(f"stopped; what is finished is in {out}, and the same command goes on where it was")
    return written


class _Work:
    def __init__(
        self,
        paper: dict[str, Any],
        entries: list[dict[str, Any]],
        seeds: int,
        protocols: Sequence[str],
        cache: Path,
        data_dir: Path | None,
        quiet: bool,
        reused: dict[str, Path],
    ) -> None:
        self.reused = reused
        self.paper, self.entries, self.seeds, self.protocols = paper, entries, seeds, protocols
        self.cache, self.data_dir, self.quiet = cache, data_dir, quiet
        self.cells: dict[str, list[Cell]] = {}
        self.missing: dict[str, str] = {}
        self.sizes: dict[str, int] = {}  # interactions by hash, to guess how long a run takes
        self.parts: dict[str, float] = {}  # sparsity of the parts that were made

    def read(self, names: Sequence[str], asked: bool) -> dict[str, Interactions]:
        """The data sets at hand, and the cells they serve; the others are listed as missing."""
        found: dict[str, Interactions] = {}
        for name in names:
            entries = [one for one in self.entries if name in one["datasets"]]
            try:
                if name in self.paper.get("missing", {}):
                    raise CoterieError(self.paper["missing"][name])
                data = load(name, data_dir=self.data_dir)
            except CoterieError as problem:
                if asked:
                    raise
                self.missing[name] = "not at hand" if "missing" not in self.paper else str(problem).splitlines()[0]
                continue
            if not entries:
                continue
            found[name] = data
            where = {name: self._spec(name, data)}
            for row in (row for one in entries for row in one.get("rows", []) if "subset" in row):
                where |= self._part(name, data, row["subset"])
            self.cells[name] = [
                cell for one in entries for cell in cells(self.paper, one, where, name, self.protocols, self.seeds)
            ]
        return found

    def _spec(self, source: str, data: Interactions) -> DataSpec:
        self.sizes[data.sha256] = len(data)
        folder = None if self.data_dir is None else str(self.data_dir)
        return DataSpec(source=source, data_dir=folder, sha256=data.sha256)

    def _part(self, name: str, data: Interactions, subset: dict[str, Any]) -> dict[str, DataSpec]:
        called = part_name(name, subset)
        file = self.cache / "data" / f"{called}.tsv"
        rows, sparsity = part_of(data, subset)
        self.parts[called] = sparsity
        if not file.exists():
            write_part(data, rows, file)
        part = load(file)
        self.sizes[part.sha256] = len(part)
        return {called: DataSpec(source=str(file), sha256=part.sha256)}

    def place(self, spec: RunSpec) -> Path:
        assert spec.data.sha256 is not None
        mine = self.cache / f"{spec.algorithm}-{run_key(spec, spec.data.sha256)}"
        return mine if finished(mine) else self.reused.get(question_key(spec), mine)

    def run(self, at_once: int) -> None:
        """All runs that are not in the cache, several side by side, with the time left."""
        todo: dict[Path, tuple[Job, float]] = {}
        known = 0
        for cell in (cell for some in self.cells.values() for cell in some):
            for spec in (spec for some in cell.specs for spec in some):
                place = self.place(spec)
                if finished(place):
                    known += place not in todo
                    continue
                size = self.sizes[spec.data.sha256 or ""] / 100_000
                todo[place] = (Job(place, spec), max(0.5, cell.cost * size))
        cheap_first = sorted(todo.values(), key=lambda one: one[1])
        jobs, costs = [job for job, _ in cheap_first], [cost for _, cost in cheap_first]
        progress = _Progress(jobs, costs, at_once, self.quiet)
        progress.say(f"{self.paper['name']}: {len(jobs)} runs to do, {known} found in {self.cache}")
        with Workers(at_once, go_on=True) as workers:
            workers.work(jobs, progress.heard)

    def studies(self, sets: dict[str, Interactions]) -> None:
        for name, data in sets.items():
            for entry in (one for one in self.entries if str(one.get("draw", "")).startswith("federank-")):
                if name in entry["datasets"]:
                    study(entry, data, self.cache, (lambda _: None) if self.quiet else _aside)

    def record(self, name: str, data: Interactions, out: Path) -> Path:
        """What is finished, over what the file already holds."""
        file = out / f"{name}.json"
        before = json.loads(file.read_text()) if file.exists() else {"cells": [], "figures": {}}
        kept = {(one["entry"], one["row"], one["protocol"]): one for one in before["cells"]}
        for cell in self.cells[name]:
            entry = next(one for one in self.entries if one["id"] == cell.entry)
            if "rows" not in entry:
                continue
            measured = self._measured(cell, entry)
            key = (cell.entry, cell.row, cell.protocol)
            if measured is not None and len(measured["seeds"]) >= len(kept.get(key, {"seeds": []})["seeds"]):
                kept[key] = measured
        figures = before.get("figures", {})
        for entry in (one for one in self.entries if "draw" in one and name in one["datasets"]):
            places = {
                (cell.row, cell.protocol): self.place(cell.specs[0][0])
                for cell in self.cells[name]
                if cell.entry == entry["id"] and RunDirectory(self.place(cell.specs[0][0])).summary_file.exists()
            }
            drawn = draw(entry, data, places, self.cache)
            if drawn is not None:
                figures[entry["id"]] = _over(figures.get(entry["id"], {}), drawn)
        about = {
            "coterie": __version__, "paper": self.paper["name"], "data": name, "data_sha256": data.sha256,
            "users": data.n_users, "items": data.n_items, "interactions": len(data), "hardware": hardware(),
            "parts": self.parts, "cells": [kept[key] for key in sorted(kept)], "figures": figures,
        }  # fmt: skip
        tensors.write_json(file, about)
        return file

    def _measured(self, cell: Cell, entry: dict[str, Any]) -> dict[str, Any] | None:
        places = [[self.place(spec) for spec in some] for some in cell.specs]
        if not all(finished(one) for some in places for one in some):
            return None
        best, why = _choose(places, entry["kind"])
        spec = cell.specs[best or 0][0]
        reused = sum(one.parent != self.cache for some in places for one in some)
        found: dict[str, Any] = {
            "entry": cell.entry, "row": cell.row, "protocol": cell.protocol, "rules": spec.protocol.name,
            "algorithm": spec.algorithm, "behaviour": spec.behaviour,
            "version": None if reused else algorithm_version(spec.algorithm),
            "settings": spec.settings, "rounds": spec.resolved().rounds, "evaluate_every": spec.evaluate_every,
            "privacy": None if spec.privacy is None else spec.privacy.model_dump(mode="json", exclude_defaults=True),
            "seeds": [one.seed for one in cell.specs[0]], "warning": spec.protocol.warning,
            "tried": [dict(one) for one in cell.candidates] if len(cell.candidates) > 1 else None,
            "reused": reused,
            "cpu_seconds": round(sum(cpu_seconds(one) for some in places for one in some), 1),
        }  # fmt: skip
        if best is None:
            return found | {"diverged": why, "values": None}
        summaries = [RunDirectory(one).summary() for one in places[best]]
        part = "last" if entry.get("last") else "metrics"
        items = summaries[0]["data"]["items"]  # those the protocol kept
        found["best_rounds"] = [one["best_round"] for one in summaries]
        found["round"] = "last" if entry.get("last") else "best on validation"
        found["values"] = {
            metric: _figure([one[part]["test"] for one in summaries], places[best], entry, metric, items)
            for metric in entry["metrics"]
        }
        if "best_test" in summaries[0]:  # what the released code would have picked
            kind = entry["kind"]
            found["best_test"] = {
                metric: float(np.mean([one["best_test"]["test"][kind][metric] for one in summaries]))
                for metric in entry["metrics"]
            }
        return found


def _over(before: dict[str, Any], drawn: dict[str, Any]) -> dict[str, Any]:
    """A drawing over the one before: lines whose runs are not at hand now stay as they were."""
    kept = {part: before[part] | drawn[part] for part in ("lines", "last") if part in before and part in drawn}
    return drawn | kept


def elsewhere(folders: Sequence[Path]) -> dict[str, Path]:
    """Finished runs below these folders, by the question they answer."""
    found: dict[str, Path] = {}
    for folder in folders:
        for summary in sorted(folder.rglob("summary.json")):
            place = summary.parent
            try:
                spec = RunDirectory(place).spec()
                if spec.continued is None:
                    found.setdefault(question_key(spec), place)
            except CoterieError:  # of another version, or damaged: nothing to reuse
                continue
    return found


def _choose(places: list[list[Path]], kind: str) -> tuple[int | None, str]:
    """Which candidate is best on validation, by what its protocol selects rounds by; None if all diverged."""
    best, top, why = None, -math.inf, ""
    for number, some in enumerate(places):
        bad = next((text for one in some if (text := diverged(one)) is not None), None)
        if bad is not None:
            why = bad
            continue
        summaries = [RunDirectory(one).summary() for one in some]
        rules = summaries[0]["protocol"]
        value = np.mean([one["metrics"]["validation"][rules["select_by"]][rules["select_metric"]] for one in summaries])
        if value > top:
            best, top = number, float(value)
    return best, why


def _figure(
    tests: list[dict[str, Any]], places: list[Path], entry: dict[str, Any], metric: str, items: int
) -> dict[str, Any]:
    """Mean over seeds with an interval: Student's t over seeds, or, of one seed, the bootstrap over users."""
    kind, scale, key = entry["kind"], 100.0 if entry["percent"] else 1.0, metric
    if metric == "ItemCoverage@10":
        key, scale = "Coverage@10", float(items)
    values = [one[kind][key] * scale for one in tests]
    found: dict[str, Any] = {"mean": float(np.mean(values)), "seeds": values}
    if len(values) > 1:
        spread = over_seeds(values)
        return found | {"deviation": spread.deviation, "low": spread.low, "high": spread.high, "over": "seeds"}
    import polars as pl

    table = pl.read_parquet(RunDirectory(places[0]).users_file)
    column = f"test.{kind}.{metric}"
    if column not in table.columns or entry.get("last"):  # no figure of a single person, or of another round
        return found
    mine = table[column].to_numpy().astype(np.float64)
    one = bootstrap_intervals({metric: mine[~np.isnan(mine)]})[metric]
    return found | {"low": one.low * scale, "high": one.high * scale, "over": "users"}


def _aside(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Progress:
    """One line for each run that ends: what it was, and the time left for all."""

    def __init__(self, jobs: Sequence[Job], costs: Sequence[float], at_once: int, quiet: bool) -> None:
        self.jobs, self.costs, self.quiet, self.ended = jobs, costs, quiet, 0
        self.left, self.share = Remaining(sum(costs), 1 / at_once), [0.0] * len(jobs)
        self._told = time.monotonic()

    def heard(self, event: Event) -> None:
        spec = self.jobs[event.job].spec
        share = min(event.round / (spec.resolved().rounds or 1), 1.0) if event.kind == "round" else 1.0
        self.left.done += (share - self.share[event.job]) * self.costs[event.job]
        self.share[event.job] = share
        name = f"{spec.algorithm} {spec.behaviour}, {spec.protocol.name}, seed {spec.seed}"
        if event.kind == "round":
            if time.monotonic() - self._told > 60:
                self.say(f"{self.ended} of {len(self.jobs)} runs done, {self.left}; {name}: round {event.round}")
            return
        self.ended += 1
        ended = f"{cpu_seconds(self.jobs[event.job].place):.0f} CPU-s" if event.kind == "done" else event.why
        self.say(f"{self.ended} of {len(self.jobs)} ({self.left}): {name}: {ended}")

    def say(self, text: str) -> None:
        self._told = time.monotonic()
        if not self.quiet:
            _aside(text)
