"""Unlearning: a new run without one person, exactly (replayed) or approximately (corrected).

*exact*: the same spec on the same data without her: what the run would have been, bit for bit. Everybody else draws the
same random numbers as before, since those follow from a person's own id. The replay begins at the last kept checkpoint
from before she first took part (`--keep history` keeps them), or at the start if there is none. A run that was
continued begins where the earlier one ended; if she was in that too, that one is replayed first.
*approximate*: her private state is dropped, the shared state is kept, and some more rounds are trained without her. How
close this comes is measured; against the exact model too, if asked (that costs the replay).

The old directory still holds her: delete it once the new one stands.
"""

from __future__ import annotations

import os
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
from coterie.runs.replay import Beginning, beginning, best_is_certain, earlier, plant
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
    begin: Beginning | None = None
    if method == "exact":
        after, begin = _exact(before, spec, user, where, threads)
        replayed, exact = done - begin.after, after
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
        **({} if begin is None else {"replayed_after_round": begin.after, "replayed_from": said(begin)}),
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
    keep = "history" if spec.keep == "history" else "all"
    return spec.model_copy(update={"data": data, "continued": None, "keep": keep})


def said(begin: Beginning) -> str:
    """For people."""
    where = f"the checkpoint of round {begin.after}" if begin.after else "the start"
    return f"{where}: {begin.why}"


def _exact(before: Run, spec: RunSpec, user: str, where: Path, threads: int | None) -> tuple[Run, Beginning]:
    """The run as it would have been without her, and where its replay began."""
    data, some = load_data(spec.data), threads or os.cpu_count() or 1
    prepared = prepare(data, spec.protocol, spec.seed)
    begin, own = beginning(before, prepared, some), before.spec.continued
    base = earlier(before) if own else None
    since_then = base is not None and user in base.prepared.data.user_number
    if own is None and not begin.after:
        return run_spec(spec, out=where, threads=threads), begin
    spec = spec.model_copy(update={"data": spec.data.model_copy(update={"sha256": data.sha256}), "continued": own})
    directory = RunDirectory(where)
    if own is None or (begin.after > own["after"] and not since_then):
        with directory.locked():
            directory.create(spec)
            plant(before, spec, prepared, directory, begin.after, some)
        shown(drive(spec, data, directory, threads, resume=True), spec, True)
        after = Run(where, data)
        if best_is_certain(before, after):
            return after, begin
        shutil.rmtree(where)  # an earlier round may have been the best one: its state is not there, so all is replayed
        first = own["after"] if own else 0
        begin = begin._replace(after=first, why=f"{begin.why}, but a round before it may have been the best one")
        if own is None:
            return run_spec(spec, out=where, threads=threads), begin
    assert own is not None and base is not None
    if since_then:
        other = where.with_name(f"{where.name}-before")
        base, inner = _exact(base, _without(base.spec, user), user, other, threads)
        begin = begin._replace(after=inner.after, why=f"she was in {own['from']} too, replayed into {other}")
    state, done = _last(base)
    template = start(before.algorithm, prepared.history, spec.seed)
    spec = spec.model_copy(update={"continued": {**own, "from": str(base.path)}})
    with directory.locked():
        directory.create(spec)
        carried = carry(state, template, base.prepared, prepared)
        _plant(directory, carried, done, prepared, before.algorithm.draws_negatives)
    shown(drive(spec, data, directory, threads, resume=True), spec, True)
    return Run(where, data), begin


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
