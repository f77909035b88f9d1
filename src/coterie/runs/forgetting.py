"""Unlearning: a new run without one person, exactly (trained again from the start) or approximately (corrected).

*exact*: the same spec on the same data without her, from the start: what the run would have been. Everybody else draws
the same random numbers as before, since those follow from a person's own id.
*approximate*: her private state is dropped, the shared state is kept, and some more rounds are trained without her. How
close this comes is measured; against the exact model too, if asked (that costs the replay).

The old directory still holds her: delete it once the new one stands.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from coterie.engine.simulate import State, start
from coterie.errors import CoterieError
from coterie.privacy import forget as measures
from coterie.protocol import prepare
from coterie.runs.api import run_spec
from coterie.runs.continuing import _last, _plant, carry
from coterie.runs.directory import RunDirectory
from coterie.runs.display import shown
from coterie.runs.drive import drive
from coterie.runs.run import Run, load_data
from coterie.runs.spec import RunSpec


def forget(
    old: str | Path,
    user: str,
    method: str = "exact",
    rounds: int = 5,
    compare: bool = False,
    out: str | Path | None = None,
    threads: int | None = None,
    delete_old: bool = False,
) -> dict[str, Any]:
    """Make a run without `user` and say how close it comes to never having seen her."""
    if method not in ("exact", "approximate"):
        raise CoterieError(f"--method {method}: expected exact (replay without her) or approximate (correction rounds)")
    before = Run(old)
    if before.spec.exchange == "local-only":
        raise CoterieError(f"{before.path}: a local-only run shares nothing, so deleting her own state is all there is")
    number = before._user(user)
    where = Path(out) if out is not None else before.path.with_name(f"{before.path.name}-without-{user}")
    hers = np.array(before.prepared.train.of(number))
    spec = _without(before.spec, user)
    done = before.spec.rounds
    assert done is not None
    if method == "exact":
        after, replayed = run_spec(spec, out=where, threads=threads), done
        exact: Run | None = after
    else:
        after, replayed, exact = _corrected(before, spec, rounds, where, threads), rounds, None
        if compare:
            as_long = spec.model_copy(update={"rounds": done + rounds})
            exact = run_spec(as_long, out=where.with_name(f"{where.name}-exact"), threads=threads)
    found = {
        "user": user,
        "method": method,
        "directory": str(after.path),
        "old_directory": f"{before.path} still holds her: delete it once you are content",
        "rounds_replayed": replayed,
        "closeness": _closeness(before, after, exact, hers),
        "metrics": {
            name: {key: one.metrics["test"]["full"][key] for key in ("HR@10", "NDCG@10")}
            for name, one in (("before", before), ("after", after), ("exact", exact))
            if one is not None
        },
    }
    if delete_old:
        shutil.rmtree(before.path)
        found["old_directory"] = f"{before.path} was deleted"
    return found


def _without(spec: RunSpec, user: str) -> RunSpec:
    if spec.data.source is None:
        raise CoterieError("this run's data was handed over in memory; leave her out of it and run again")
    data = spec.data.model_copy(update={"without": [*spec.data.without, user], "sha256": None})
    return spec.model_copy(update={"data": data, "continued": None, "keep": "all"})


def _corrected(before: Run, spec: RunSpec, rounds: int, where: Path, threads: int | None) -> Run:
    """The state without her row, and `rounds` rounds of training on."""
    state, done = _last(before)
    data = load_data(spec.data)
    prepared = prepare(data, spec.protocol, spec.seed)
    where_from = spec.data.model_copy(update={"sha256": data.sha256})
    spec = spec.model_copy(update={"data": where_from, "rounds": done + rounds})
    template = start(before.algorithm, prepared.history, spec.seed)
    carried: State = carry(state, template, before.prepared, prepared)
    directory = RunDirectory(where)
    with directory.locked():
        directory.create(spec)
        _plant(directory, carried, done, prepared, before.algorithm.draws_negatives)
    shown(drive(spec, data, directory, threads, resume=True), spec, True)
    return Run(directory.path, data)


def _closeness(before: Run, after: Run, exact: Run | None, hers: np.ndarray) -> dict[str, Any]:
    """Distances of tables and lists, and whether she is still recognised. `exact` is what never saw her."""
    algorithm, m = before.algorithm, before.prepared.data.n_items
    runs = {"before": before, "after": after} | ({"exact": exact} if exact is not None else {})
    found: dict[str, Any] = {}
    last = {name: _last(one)[0] for name, one in runs.items()}
    for name, state in last.items():
        found[f"her_other_half_auc_{name}"] = measures.recognised(algorithm, state.server, hers, m, before.spec.seed)
    found["table_distance_before_to_after"] = measures.table_distance(last["before"].server, last["after"].server)
    if exact is not None:
        found["table_distance_before_to_exact"] = measures.table_distance(last["before"].server, last["exact"].server)
        found["table_distance_after_to_exact"] = measures.table_distance(last["after"].server, last["exact"].server)
        history = exact.prepared.history
        found["top10_overlap_after_and_exact"] = measures.overlap(algorithm, last["after"], last["exact"], history)
        same = carry(last["before"], start(algorithm, history, before.spec.seed), before.prepared, exact.prepared)
        found["top10_overlap_before_and_exact"] = measures.overlap(algorithm, same, last["exact"], history)
    return found
