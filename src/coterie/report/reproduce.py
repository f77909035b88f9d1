"""`coterie reproduce`: a paper's tables beside what comes out here, under its protocol and under the clean one.

Runs are kept in a cache under the hash of spec, data and algorithm, so nothing is done twice, and a command that was
stopped goes on. What was measured is written as one JSON file for each data set; the page is made from those alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coterie import __version__
from coterie.data import load
from coterie.data.interactions import Interactions
from coterie.errors import CoterieError, unknown_name
from coterie.report.drawings import draw, study
from coterie.report.measured import brought_up, candidate_on_record, measured, same_bytes, validation
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
from coterie.report.sweep_display import SILENCE, Remaining, duration
from coterie.runs import tensors
from coterie.runs.directory import RunDirectory
from coterie.runs.drive import Interrupted
from coterie.runs.identity import available_cores, question_key, run_key
from coterie.runs.spec import DataSpec, RunSpec
from coterie.runs.workers import Event, Job, Workers, cpu_seconds, finished


class Asked(NamedTuple):
    """What of a paper is meant, and where its runs and records are."""

    tables: Sequence[str] = ()
    figures: Sequence[str] = ()
    rows: Sequence[str] = ()  # only these, by their names in the tables; what the records hold of the others stays
    data: Sequence[str] = ()
    seeds: int = 1
    protocol: str = "both"
    out: Path | None = None  # folder of records and page; papers/NAME
    cache: Path = Path("runs/reproduce")
    data_dir: Path | None = None
    reuse: Sequence[Path] = ()  # folders with runs made elsewhere, taken where they answer the same question
    add_seeds: bool = False  # seeds that the records hold, of the same settings and code, are not run again


def reproduce(
    paper: str, *, jobs: int | None = None, collect: bool = False, quiet: bool = True, **asked: Any
) -> list[Path]:
    """Run what is missing, then write `<data>.json` and README.md in `out`. `collect`: run nothing. `asked`: see Asked.

    A record says how many of its runs were made elsewhere (`reuse`): nothing tells which state of the code made those.
    """
    from coterie.report.pages import write_page

    work = _Work(paper, Asked(**asked), quiet)
    sets = work.read()
    stopped = None
    if not collect:
        try:
            work.run(available_cores() if jobs is None else jobs)
            work.studies(sets)
        except (Interrupted, KeyboardInterrupt) as problem:
            stopped = problem
    work.out.mkdir(parents=True, exist_ok=True)
    written = [work.record(name, found) for name, found in sets.items()]
    written.append(write_page(read_paper(paper), work.out))
    if stopped is not None:
        raise CoterieError(f"stopped; what is finished is in {work.out}, and the same command goes on where it was")
    return written


def outlook(paper: str, **asked: Any) -> str:
    """What `reproduce` would run for the same `asked`: each table and figure, also those only run when asked for."""
    work = _Work(paper, Asked(**asked), quiet=True, dear=True)
    work.read()
    return work.outlook()


class _Work:
    def __init__(self, paper: str, asked: Asked, quiet: bool, dear: bool = False) -> None:
        """`dear`: asked for no table or figure, those are meant too that are otherwise only run by name."""
        self.paper = with_rows(read_paper(paper), asked.rows)
        self.entries = chosen_entries(self.paper, asked.tables, asked.figures)
        if dear and not asked.tables and not asked.figures:
            self.entries = self.paper["entries"]
        if asked.protocol not in ("both", *PROTOCOLS):
            raise unknown_name("protocol", asked.protocol, ["both", *PROTOCOLS])
        if asked.seeds < 1:
            raise CoterieError(f"--seeds is {asked.seeds}; give 1 or more")
        for name in asked.data:
            if name not in self.paper["datasets"]:
                raise unknown_name(f"data set of {paper}", name, list(self.paper["datasets"]))
        self.protocols = PROTOCOLS if asked.protocol == "both" else (asked.protocol,)
        self.out = Path("papers") / paper if asked.out is None else asked.out
        self.data, self.seeds, self.add_seeds = asked.data, asked.seeds, asked.add_seeds
        self.cache, self.data_dir, self.quiet = asked.cache, asked.data_dir, quiet
        self.reused, self.same = elsewhere(asked.reuse), same_bytes(self.out)
        self.cells: dict[str, list[Cell]] = {}
        self.before: dict[str, dict[tuple[str, str, str], dict[str, Any]]] = {}  # rows on record, by data set
        self.figures: dict[str, dict[str, Any]] = {}  # drawings on record
        self.missing: dict[str, str] = {}
        self.sizes: dict[str, int] = {}  # interactions by hash, to guess how long a run takes
        self.parts: dict[str, float] = {}  # sparsity of the parts that were made

    def read(self) -> dict[str, Interactions]:
        """The data sets at hand, and the cells they serve; those that nobody named and are not there are missing."""
        found: dict[str, Interactions] = {}
        for name in self.data or self.paper["datasets"]:
            entries = [one for one in self.entries if name in one["datasets"]]
            try:
                if name in self.paper.get("missing", {}):
                    raise CoterieError(self.paper["missing"][name])
                data = load(name, data_dir=self.data_dir)
            except CoterieError as problem:
                if self.data:
                    raise
                self.missing[name] = "not at hand" if "missing" not in self.paper else str(problem).splitlines()[0]
                continue
            if not entries:
                continue
            found[name] = data
            self.before[name], self.figures[name] = self._recorded(name)
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

    def needs(self, cell: Cell) -> list[RunSpec]:
        """All seeds; of several candidates the first seed each, and once those are there the others of the best.

        A drawing shows the first seed; where seeds are only added, it stays as it is on record.
        """
        if self._drawn(cell):
            drawn = self.figures[cell.data].get(cell.entry) if self.add_seeds else None
            there = drawn is not None and f"{cell.row} [{cell.protocol}]" in drawn.get("lines", [])
            return [] if there else [cell.specs[0][0]]
        before = self._on_record(cell)
        if before is not None:
            return [one for one in cell.specs[self.best(cell)] if one.seed not in before["seeds"]]
        first = [some[0] for some in cell.specs]
        if not all(finished(self.place(one)) for one in first):
            return first if len(first) > 1 else list(cell.specs[0])
        return first + list(cell.specs[self.best(cell)][1:])

    def best(self, cell: Cell) -> int:
        """Which candidate is on record, or whose first seed is best on validation."""
        on_record = candidate_on_record(cell, self._on_record(cell))
        if on_record is not None or len(cell.specs) == 1:
            return on_record or 0
        return max(range(len(cell.specs)), key=lambda one: validation(self.place(cell.specs[one][0])))

    def _on_record(self, cell: Cell) -> dict[str, Any] | None:
        """The row as it is on record, if seeds are to be added to it and it was made by this code."""
        before = self.before[cell.data].get((cell.entry, cell.row, cell.protocol)) if self.add_seeds else None
        before = None if before is None else brought_up(before, self.same)
        return before if candidate_on_record(cell, before) is not None else None

    def run(self, at_once: int) -> None:
        """All runs that are not in the cache, several side by side, with the time left."""
        tried: set[Path] = set()
        with Workers(at_once, go_on=True) as workers:
            while True:
                todo = {place: job for place, job in self._missing(self._all()).items() if place not in tried}
                known = len({self.place(one) for cell in self._all() for one in self.needs(cell)}) - len(todo)
                # every row's first seed before anybody's second, and cheap ones first: a stop leaves an even record
                in_turn = sorted(todo.values(), key=lambda one: (one[0].spec.seed, one[1]))
                jobs, costs = [job for job, _ in in_turn], [cost for _, cost in in_turn]
                progress = _Progress(jobs, costs, sum(self._later(self._all())), at_once, self.quiet)
                if jobs or not tried:
                    progress.say(f"{self.paper['name']}: {len(jobs)} runs to do, {known} found in {self.cache}")
                if not jobs:
                    return
                workers.work(jobs, progress.heard)
                tried |= todo.keys()  # a run that failed is not tried again; what it decides may bring others

    def _all(self) -> list[Cell]:
        return [cell for some in self.cells.values() for cell in some]

    def _size(self, cell: Cell) -> float:
        return self.sizes[cell.specs[0][0].data.sha256 or ""] / 100_000

    def _drawn(self, cell: Cell) -> bool:
        return any(one["id"] == cell.entry and "draw" in one for one in self.entries)

    def _open(self, cell: Cell) -> bool:
        """Whether one of its candidates is still to be chosen."""
        return len(cell.specs) > 1 and not all(finished(self.place(some[0])) for some in cell.specs)

    def _later(self, cells: Sequence[Cell]) -> list[float]:
        """What runs will cost that can only be named once the first seeds have chosen a candidate."""
        unchosen = {  # by their candidates: two tables may have the same row, and a drawing is of first seeds alone
            tuple(self.place(some[0]) for some in cell.specs): cell.cost * self._size(cell)
            for cell in cells
            if self._open(cell) and not self._drawn(cell)
        }
        return [cost for cost in unchosen.values() for _ in range(self.seeds - 1)]

    def outlook(self) -> str:
        """Each table and figure with the runs it would take on each data set, and all of them together."""
        lines = []
        for entry in self.entries:
            lines.append(f"{entry['id']:9s} {entry['title']}{'' if entry.get('default', True) else ' (if asked for)'}")
            for name in (one for one in entry["datasets"] if one in self.cells or one in self.missing):
                mine = [cell for cell in self.cells.get(name, []) if cell.entry == entry["id"]]
                lines.append(f"{'':9s} {name}: {self.missing.get(name) or self._todo(mine)}")
        return "\n".join([*lines, f"in all    {self._todo(self._all())}; one run may serve several of these"])

    def _todo(self, cells: Sequence[Cell]) -> str:
        costs = [cost for _, cost in self._missing(cells).values()] + self._later(cells)
        return f"{len(costs)} runs to do, about {duration(sum(costs))} of CPU" if costs else "nothing to run"

    def _missing(self, cells: Sequence[Cell]) -> dict[Path, tuple[Job, float]]:
        """Runs that are needed and not there, by their place, with what each may cost."""
        return {
            place: (Job(place, spec), max(0.5, cell.cost * self._size(cell)))
            for cell in cells
            for spec in self.needs(cell)
            if not finished(place := self.place(spec))
        }

    def studies(self, sets: dict[str, Interactions]) -> None:
        for name, data in sets.items():
            for entry in (one for one in self.entries if str(one.get("draw", "")).startswith("federank-")):
                if name in entry["datasets"]:
                    study(entry, data, self.cache, (lambda _: None) if self.quiet else _aside)

    def record(self, name: str, data: Interactions) -> Path:
        """What is finished, over what the file already holds."""
        kept, figures = self._recorded(name)  # read again: another command may have added to it meanwhile
        for cell in self.cells[name]:
            entry = next(one for one in self.entries if one["id"] == cell.entry)
            if "rows" not in entry:
                continue
            found = self._measured(cell, entry)
            key = (cell.entry, cell.row, cell.protocol)
            if found is not None and len(found["seeds"]) >= len(kept.get(key, {"seeds": []})["seeds"]):
                kept[key] = found
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
            "users": data.n_users, "items": data.n_items, "interactions": len(data),
            "parts": self.parts, "cells": [kept[key] for key in sorted(kept)], "figures": figures,
        }  # fmt: skip
        file = self.out / f"{name}.json"
        tensors.write_json(file, about)
        return file

    def _recorded(self, name: str) -> tuple[dict[tuple[str, str, str], dict[str, Any]], dict[str, Any]]:
        """Rows and drawings on record."""
        file = self.out / f"{name}.json"
        record = json.loads(file.read_text()) if file.exists() else {"cells": [], "figures": {}}
        return {(one["entry"], one["row"], one["protocol"]): one for one in record["cells"]}, record["figures"]

    def _measured(self, cell: Cell, entry: dict[str, Any]) -> dict[str, Any] | None:
        """What goes on record of the seeds that are done; None if nothing is new or settings are still to be chosen."""
        before = self._on_record(cell)
        if before is None and self._open(cell):
            return None
        done = [spec for spec in self.needs(cell) if finished(self.place(spec))]
        places, best = [self.place(spec) for spec in done], self.best(cell)
        runs = {spec.seed: self.place(spec) for spec in cell.specs[best] if spec in done}
        if not runs:
            return None
        others = [one for one in places if one not in runs.values()]
        reused = sum(one.parent != self.cache for one in places)
        return measured(cell, entry, best, runs, others, reused, before)


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


def _aside(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Progress:
    """One line for each run that ends: what it was, and the time left for all."""

    def __init__(self, jobs: Sequence[Job], costs: Sequence[float], later: float, at_once: int, quiet: bool) -> None:
        """`later`: what is known to come after these jobs."""
        self.jobs, self.costs, self.quiet, self.ended = jobs, costs, quiet, 0
        self.left, self.share = Remaining(sum(costs) + later, 1 / at_once), [0.0] * len(jobs)
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
        ended = f"{cpu_seconds(self.jobs[event.job].place):.0f} CPU-s" if event.kind == "done" else event.why
        self.say(f"{self.ended} of {len(self.jobs)} ({self.left}): {name}: {ended}")

    def say(self, text: str) -> None:
        self._told = time.monotonic()
        if not self.quiet:
            _aside(text)
