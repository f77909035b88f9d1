"""What a table or figure of a paper needs, from its description (papers/*.json) to specs of runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coterie.data.interactions import Interactions
from coterie.errors import CoterieError, unknown_name
from coterie.protocol import resolve
from coterie.runs.spec import DataSpec, RunSpec

PAPERS = ("fedrap", "federank", "gpfedrec")
PROTOCOLS = ("paper", "clean")
_HERE = Path(__file__).parent / "papers"


class Cell(NamedTuple):
    """One row of a table on one data set under one protocol: runs for every candidate setting and seed."""

    data: str  # the data set's name
    entry: str  # "table 3"
    row: str
    protocol: str  # "paper" or "clean"
    candidates: tuple[dict[str, Any], ...]  # settings to choose from by validation; one, empty, where nothing is chosen
    specs: tuple[tuple[RunSpec, ...], ...]  # [candidate][seed]
    cost: float  # CPU-seconds of one run for each 100,000 interactions, roughly: for the time left only


def read_paper(name: str) -> dict[str, Any]:
    if name not in PAPERS:
        raise unknown_name("paper", name, list(PAPERS))
    found: dict[str, Any] = json.loads((_HERE / f"{name}.json").read_text())
    return found


def chosen_entries(paper: Mapping[str, Any], tables: Sequence[str], figures: Sequence[str]) -> list[dict[str, Any]]:
    """Those asked for, or, asked for nothing, all that are not marked as too dear for that."""
    entries: list[dict[str, Any]] = list(paper["entries"])
    asked = [f"table {one}" for one in tables] + [f"figure {one}" for one in figures]
    known = [one["id"] for one in entries]
    for one in asked:
        if one not in known:
            raise unknown_name(f"part of {paper['name']}", one, known)
    return [one for one in entries if (one["id"] in asked if asked else one.get("default", True))]


def with_rows(paper: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The paper with these rows alone, in whichever tables and drawings have them; all of it if none is named."""
    if not names:
        return dict(paper)
    of = {entry["id"]: _rows(paper, entry) for entry in paper["entries"]}
    known = dict.fromkeys(label(row) for rows in of.values() for row in rows)
    for name in names:
        if name not in known:
            raise unknown_name(f"row of {paper['name']}", name, list(known))
    entries = []
    for entry in paper["entries"]:
        kept = [row for row in of[entry["id"]] if label(row) in names]
        if kept:
            rows = {"rows": kept} if "rows" in entry else {} if "of" in entry else {"systems": list(map(label, kept))}
            entries.append(entry | rows | {"default": True})
    return {**paper, "entries": entries}


def label(row: Mapping[str, Any]) -> str:
    return str(row.get("label", row["system"]))


def cells(
    paper: Mapping[str, Any],
    entry: Mapping[str, Any],
    where: Mapping[str, DataSpec],
    name: str,
    protocols: Sequence[str],
    seeds: int,
) -> Iterator[Cell]:
    """The cells of a table on one data set; `where` also has the parts of it that rows name."""
    for row in _rows(paper, entry):
        system = paper["systems"][row["system"]]
        for protocol in protocols:
            if protocol not in system.get("protocols", PROTOCOLS):
                continue
            grid = system.get("choose", {})
            candidates = tuple(dict(zip(grid, one, strict=True)) for one in itertools.product(*grid.values()))
            data = where[part_name(name, row["subset"]) if "subset" in row else name]
            specs = tuple(
                tuple(_spec(paper, system, data, protocol, chosen, seed) for seed in range(seeds))
                for chosen in candidates
            )
            yield Cell(name, entry["id"], label(row), protocol, candidates, specs, _cost(system, name))


def _cost(system: Mapping[str, Any], data: str) -> float:
    """One number, or one for each data set where time does not grow with the interactions; the first for all others."""
    cost = system.get("cost", 30)
    return float(cost.get(data, next(iter(cost.values()))) if isinstance(cost, Mapping) else cost)


def _rows(paper: Mapping[str, Any], entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of a table, or the systems a drawing needs."""
    if "rows" in entry:
        return list(entry["rows"])
    if "of" in entry:
        return next(list(one["rows"]) for one in paper["entries"] if one["id"] == entry["of"])
    names = entry.get("systems", [entry["system"]] if "system" in entry else [])
    return [{"system": one} for one in names]


def _spec(
    paper: Mapping[str, Any],
    system: Mapping[str, Any],
    data: DataSpec,
    protocol: str,
    chosen: dict[str, Any],
    seed: int,
) -> RunSpec:
    rules = paper["protocols"][protocol]
    return RunSpec(
        algorithm=system["algorithm"], behaviour=system.get("behaviour", "coterie"),
        settings={**system.get("settings", {}), **chosen}, data=data,
        protocol=resolve(rules["name"], paper["name"], rules.get("split")), rounds=system.get("rounds"),
        evaluate_every=system.get("evaluate_every", 5), privacy=system.get("privacy"), seed=seed,
        keep=system.get("keep", "nothing"),
    )  # fmt: skip


def part_name(data: str, subset: Mapping[str, Any]) -> str:
    what = "users" if "users" in subset else "items"
    return f"{data}-{subset[what]}-{what}-{subset['sparsity']}"


def part_of(data: Interactions, subset: Mapping[str, Any]) -> tuple[np.ndarray, float]:
    """Rows of a part of the data with so many users (or items), and its sparsity in percent.

    Users are put in order of activity, items of popularity; of all stretches of so many neighbours in that order, the
    one whose sparsity is nearest to the one asked for is taken.
    """
    owner = np.repeat(np.arange(data.n_users), np.diff(data.indptr))
    by, other = (owner, data.n_items) if "users" in subset else (data.items.astype(np.int64), data.n_users)
    count = int(subset["users" if "users" in subset else "items"])
    sizes = np.bincount(by)
    if count > len(sizes):
        raise CoterieError(f"{data.name} has {len(sizes)} of them, fewer than {count}")
    order = np.argsort(-sizes, kind="stable")
    sums = np.concatenate([[0], np.cumsum(sizes[order])])
    sparsity = 100.0 * (1.0 - (sums[count:] - sums[:-count]) / (count * other))
    first = int(np.argmin(np.abs(sparsity - float(subset["sparsity"]))))
    taken = np.zeros(len(sizes), bool)
    taken[order[first : first + count]] = True
    return np.flatnonzero(taken[by]), float(sparsity[first])


def write_part(data: Interactions, rows: np.ndarray, path: Path) -> None:
    """Rows as a file that `load` reads, in the order they had."""
    owner = np.repeat(np.arange(data.n_users), np.diff(data.indptr))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("w") as file:
        file.write("user_id\titem_id\trating\ttimestamp\n")
        for row in rows:
            when = 0 if data.times is None else data.times[row]
            file.write(
                f"{data.user_ids[owner[row]]}\t{data.item_ids[data.items[row]]}\t{data.ratings[row]:g}\t{when}\n"
            )
    part.replace(path)
