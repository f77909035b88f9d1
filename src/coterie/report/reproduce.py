"""`coterie reproduce`: a paper's tables beside what comes out here, under its protocol and under the clean one.

Runs are kept in a cache under the hash of spec, data and algorithm, so nothing is done twice, and a command that was
stopped goes on. What was measured is written as one JSON file for each data set; the page is made from those alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coterie import __version__
from coterie.data import load
from coterie.data.interactions import Interactions
from coterie.errors import CoterieError, unknown_name
from coterie.report.drawings import draw, has_study, models_to_train, study
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
from coterie.report.reproduce_display import Progress
from coterie.report.sweep_display import duration
from coterie.report.words import aside
from coterie.runs import tensors
from coterie.runs.directory import RunDirectory
from coterie.runs.drive import Interrupted
from coterie.runs.identity import available_cores, question_key, run_key
from coterie.runs.spec import DataSpec, RunSpec
from coterie.runs.workers import Job, Workers, finished


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
    work.tell_kept()
    if stopped is not None:
        raise CoterieError(f"stopped; what is finished is in {work.out}, and the same command goes on where it was")
    if work.failed:
        raise CoterieError(
            f"{len(work.failed)} runs failed, the first with: {work.failed[0]}\nWhat is finished is in {work.out}; the "
            "same command tries the others again"
        )
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
        self.sets: dict[str, Interactions] = {}  # those at hand
        self.missing: dict[str, str] = {}  # why others are not
        self.sizes: dict[str, int] = {}  # interactions by hash, to guess how long a run takes
        self.parts: dict[str, float] = {}  # sparsity of the parts that were made
        self.failed: list[str] = []  # why runs came to nothing
        self.kept = 0  # rows on record with more seeds than were asked for: they stay

    def read(self) -> dict[str, Interactions]:
        """The data sets at hand, and the cells they serve; those that nobody named and are not there are missing."""
        for name in self.data or self.paper["datasets"]:
            entries = [one for one in self.entries if name in one["datasets"]]
            try:
                if name in self.paper.get("missing", {}):
                    raise CoterieError(self.paper["missing"][name])
                data = load(name, data_dir=self.data_dir)
            except CoterieError as problem:
                if self.data:
                    raise
                self.missing[name] = str(problem)
                continue
            if not entries:
                if self.data:
                    raise CoterieError(self._elsewhere(name))
                continue
            self.sets[name] = data
            self.before[name], self.figures[name] = self._recorded(name)
            where = {name: self._spec(name, data)}
            for row in (row for one in entries for row in one.get("rows", []) if "subset" in row):
                where |= self._part(name, data, row["subset"])
            self.cells[name] = [
                cell for one in entries for cell in cells(self.paper, one, where, name, self.protocols, self.seeds)
            ]
        self._leave_out()
        if self.missing and not self.sets:
            raise CoterieError("none of the paper's data sets is at hand\n" + "\n".join(self.missing.values()))
        for name, why in self.missing.items():
            self._say(f"left out: {why.splitlines()[0] if name in why else f'{name}: {why}'}")
        return self.sets

    def _elsewhere(self, name: str) -> str:
        """What was asked for is on other data sets than this one."""
        places = (f"{one['id']} is on {', '.join(one['datasets'])}" for one in self.entries)
        return f"nothing of what was asked for is on {name}: {'; '.join(places)}"

    def _leave_out(self) -> None:
        """Rows that cannot be started here, for want of a package: said, and the others go on."""
        first, why = None, {}
        for name, some in self.cells.items():
            able = []
            for cell in some:
                try:
                    cell.specs[0][0].resolved()
                except CoterieError as problem:
                    first = first or problem
                    why[cell.row] = str(problem)
                else:
                    able.append(cell)
            self.cells[name] = able
        if first is not None and not self._all():
            raise first
        for row, said in why.items():
            self._say(f"left out: {row}: {said}")

    def _say(self, text: str) -> None:
        if not self.quiet:
            aside(text)

    def tell_kept(self) -> None:
        if self.kept:
            self._say(
                f"{self.kept} rows stay as {self.out} has them, of more seeds than these {self.seeds}; --out FOLDER "
                "shows this command's own"
            )

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
                progress = Progress(jobs, costs, sum(self._later(self._all())), at_once, self.quiet)
                if jobs or not tried:
                    progress.say(f"{self.paper['name']}: {len(jobs)} runs to do, {known} found in {self.cache}")
                if not jobs:
                    return
                workers.work(jobs, progress.heard)
                self.failed += progress.failed
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
                there = self._todo(mine, self._models(entry, name)) if name in self.cells else None
                missing = self.paper.get("missing", {}).get(name, "not at hand")
                lines.append(f"{'':9s} {name}: {there or missing}")
        studied = [cost for entry in self.entries for name in self.cells for cost in self._models(entry, name)]
        return "\n".join([*lines, f"in all    {self._todo(self._all(), studied)}; one run may serve several of these"])

    def _models(self, entry: Mapping[str, Any], name: str) -> list[float]:
        """What the models will cost that a drawing with a study of its own has still to train."""
        if not has_study(entry) or name not in entry["datasets"]:
            return []
        data = self.sets[name]
        return [entry["cost"] * len(data) / 100_000] * models_to_train(data, self.cache)

    def _todo(self, cells: Sequence[Cell], studied: Sequence[float] = ()) -> str:
        costs = [cost for _, cost in self._missing(cells).values()] + self._later(cells) + list(studied)
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
            for entry in filter(has_study, self.entries):
                if name in entry["datasets"]:
                    study(entry, data, self.cache, (lambda _: None) if self.quiet else aside)

    def record(self, name: str, data: Interactions) -> Path:
        """What is finished, over what the file already holds."""
        kept, figures = self._recorded(name)  # read again: another command may have added to it meanwhile
        for cell in self.cells[name]:
            entry = next(one for one in self.entries if one["id"] == cell.entry)
            if "rows" not in entry:
                continue
            found = self._measured(cell, entry)
            key = (cell.entry, cell.row, cell.protocol)
            if found is None:
                continue
            if len(found["seeds"]) >= len(kept.get(key, {"seeds": []})["seeds"]):
                kept[key] = found
            else:
                self.kept += 1
        for entry in (one for one in self.entries if "draw" in one and name in one["datasets"]):
            places = {
                (cell.row, cell.protocol): self.place(cell.specs[0][0])
                for cell in self.cells[name]
                if cell.entry == entry["id"] and RunDirectory(self.place(cell.specs[0][0])).summary_file.exists()
            }
            drawn = draw(entry, data, places, self.cache, self.cache / "figures" / self.paper["name"] / name)
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
    parts = [part for part in ("lines", "last", "runs") if part in before and part in drawn]
    return drawn | {part: before[part] | drawn[part] for part in parts}


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
