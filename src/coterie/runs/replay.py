"""Where a run without one person may begin: at the last kept checkpoint from before anything went otherwise for her.

Up to her first round everything happened as if she had not been there, provided that the others were drawn as they
would have been, began as they would have begun, and that no step looks at people who take no part. The first two are
compared number by number; the last is tried by training one round with her data in the world and one without. Where
any of this fails, or no such checkpoint was kept (`--keep history`), the replay begins at the start.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coterie.algorithms.interface import Central, History
from coterie.algorithms.rowstore import RowStore
from coterie.engine.simulate import State, cohort, simulate, start
from coterie.errors import CoterieError
from coterie.protocol import CanaryWatch, Prepared
from coterie.ragged import Ragged
from coterie.runs import tensors
from coterie.runs.continuing import carry
from coterie.runs.directory import Progress, RunDirectory, link_tree
from coterie.runs.measure import measure
from coterie.runs.run import Run
from coterie.runs.spec import RunSpec


class Beginning(NamedTuple):
    after: int  # the replay begins after this round; 0: at the start
    differs: int | None  # the first round that goes otherwise without her; None: none does
    why: str  # for people


def beginning(before: Run, after: Prepared, threads: int) -> Beginning:
    """The last kept checkpoint that is the same with and without her. Never beyond what can be shown to be so."""
    first = before.spec.continued["after"] if before.spec.continued else 0  # the round this run itself began after
    if before.spec.privacy is not None:
        return Beginning(first, first + 1, "noise, keys and the server's view are drawn anew for the whole run")
    differs = _differs(before, after, first)
    kept = [one for one in before.directory.kept() if first <= one < (math.inf if differs is None else differs)]
    when = "she never took part" if differs is None else f"round {differs} is the first that goes otherwise without her"
    if differs == first + 1:
        return Beginning(first, differs, when)
    if not kept or kept[-1] == first:
        return Beginning(first, differs, f"{when}, but no checkpoint from before it was kept (--keep history does)")
    if not _same_start(before, after) or not _same_round(before, after, first, threads):
        why = f"{when}, but the others do not begin or go on alike: {before.spec.algorithm} looks at who is enrolled"
        return Beginning(first, differs, why)
    return Beginning(kept[-1], differs, when)


def _places(before: Prepared, after: Prepared) -> np.ndarray:
    """int64[n]: each old user's new number, -1 where she is gone."""
    return np.array([after.data.user_number.get(one, -1) for one in before.data.user_ids])


def _differs(before: Run, after: Prepared, first: int) -> int | None:
    """The first round whose cohort is not the same people without her; the first of all if that cannot be said."""
    spec, algorithm, old, new = before.spec, before.algorithm, before.prepared.history, after.history
    assert spec.rounds is not None and spec.cohort is not None
    place = _places(before.prepared, after)
    if isinstance(algorithm, Central) or not _same_people(old, new, place):
        return first + 1
    for number in range(first + 1, spec.rounds + 1):
        plans = [algorithm.plan(one, spec.cohort, spec.seed, number) for one in (old, new)]
        if plans[0] is not None:
            drawn, wanted = plans[0].items, plans[1].items
            same = np.array_equal(plans[0].indptr, plans[1].indptr)
        else:
            drawn, wanted = (
                cohort(one, spec.cohort, spec.dropout, spec.seed, number, algorithm.never_twice_running)
                for one in (old, new)
            )
            same = True
        if not same or not np.array_equal(place[drawn], wanted):
            return number
    return None


def _same_people(old: History, new: History, place: np.ndarray) -> bool:
    """Everybody else has the same history, in the same order, with the same random numbers."""
    stay = place >= 0
    if old.n_items != new.n_items or not np.array_equal(place[stay], np.arange(new.n_clients)):
        return False
    if old.sharing is not None or new.sharing is not None:
        return False  # people's own choices: not compared, so not relied upon
    rows = np.repeat(stay, old.lengths)
    pairs = [
        (old.keys[stay], new.keys), (old.lengths[stay], new.lengths), (old.items[rows], new.items),
        (old.counts[rows], new.counts), (old.ratings[rows], new.ratings),
        (old.forbidden.lengths[stay], new.forbidden.lengths),
        (old.forbidden.items[np.repeat(stay, old.forbidden.lengths)], new.forbidden.items),
    ]  # fmt: skip
    return all(np.array_equal(one, other) for one, other in pairs)


def _same_start(before: Run, after: Prepared) -> bool:
    algorithm, seed = before.algorithm, before.spec.seed
    with_her = start(algorithm, before.prepared.history, seed)
    fresh = start(algorithm, after.history, seed)
    carried = carry(with_her, start(algorithm, after.history, seed), before.prepared, after)
    return _equal(carried, fresh)


def _same_round(before: Run, after: Prepared, first: int, threads: int) -> bool:
    """One round from the start, she being in the world and not in the cohort, and one without her."""
    spec, algorithm = before.spec, before.algorithm
    assert spec.cohort is not None
    ends = []
    for prepared in (before.prepared, after):
        state = start(algorithm, prepared.history, spec.seed)
        rounds = simulate(
            algorithm, prepared.history, state, [first + 1], spec.seed, spec.cohort, spec.dropout, threads
        )
        ends.append(next(iter(rounds)).state)
    template = start(algorithm, after.history, spec.seed)
    return _equal(carry(ends[0], template, before.prepared, after), ends[1])


def _equal(one: State, other: State) -> bool:
    """Bit for bit, as they would be on disk."""
    mine, theirs = list(tensors.leaves(one)), list(tensors.leaves(other))
    return len(mine) == len(theirs) and all(
        name == same and _as_bytes(a) == _as_bytes(b) for (name, a), (same, b) in zip(mine, theirs, strict=True)
    )


def _as_bytes(value: Any) -> list[bytes]:
    if isinstance(value, RowStore):
        return [array.tobytes() for shard in value.shards() for array in shard.values()]
    return [str(value.dtype).encode(), str(value.shape).encode(), value.tobytes()]


def plant(before: Run, spec: RunSpec, after: Prepared, directory: RunDirectory, last: int, threads: int) -> None:
    """The record and the kept checkpoints up to round `last`, without her: from there the new run is simply resumed.

    Training up to then never saw her, so losses and bytes stand as they are. Figures counted her, so they are measured
    again where the state is there and left out where it is not.
    """
    algorithm = before.algorithm
    measured: dict[int, dict[str, Any]] = {}
    best: tuple[float, Path] | None = None
    for number, old in before.directory.kept().items():
        if number > last:
            break
        template = start(algorithm, before.prepared.history, spec.seed)
        fresh = start(algorithm, after.history, spec.seed)
        state = carry(tensors.load(old / "last", template), fresh, before.prepared, after)
        folder, about = directory.checkpoints / f"round-{number:06d}", tensors.read_manifest(old / "last")
        said = {"round": number, "version": about["version"]}
        tensors.save(folder / "last", state, said)
        progress = Progress(_canary(before, after, old), np.zeros(4))
        tensors.save(folder / "progress", progress, said)
        if number % spec.evaluate_every == 0 or number == spec.rounds:
            found = measure(algorithm, state, after, threads).metrics
            measured[number] = found
            value = float(found["validation"][spec.protocol.select_by][spec.protocol.select_metric])
            if best is None or value > best[0]:
                best = value, folder / "last"
    if best is not None:
        link_tree(best[1], directory.checkpoints / f"round-{last:06d}" / "best")
    for record in before.rounds:
        if record["round"] <= last:
            bare = {key: value for key, value in record.items() if key not in ("validation", "test")}
            directory.append_round(bare | measured.get(record["round"], {}))


def best_is_certain(before: Run, after: Run) -> bool:
    """Whether no round that was left unmeasured could have been the best one.

    One person of n moves a mean of numbers between 0 and 1 to at most n / (n - 1) times what it was.
    """
    protocol = after.spec.protocol

    def value(record: dict[str, Any]) -> float:
        return float(record["validation"][protocol.select_by][protocol.select_metric])

    now = {one["round"]: one for one in after.rounds}
    unknown = [one for one in before.rounds if "validation" in one and "validation" not in now.get(one["round"], {})]
    n = int((before.prepared.validation.lengths > 0).sum())
    most = max((value(one) * n / max(n - 1, 1) for one in unknown), default=-1.0)
    return most < max(value(one) for one in now.values() if "validation" in one)


def _canary(before: Run, after: Prepared, checkpoint: Path) -> np.ndarray:
    """The canary's counts of those who stay; somebody watched only now begins at none, which tells nothing."""
    if not before.algorithm.draws_negatives:
        return np.zeros(0, np.int64)
    old, new = CanaryWatch(before.prepared), CanaryWatch(after)
    counts = tensors.load(checkpoint / "progress", Progress(old.counts, np.zeros(4))).canary
    place = _places(before.prepared, after)
    row = {int(place[user]): number for number, user in enumerate(old.users)}
    for number, user in enumerate(new.users):
        at = row.get(int(user))
        if at is not None and np.array_equal(_of(old.lists, at), _of(new.lists, number)):
            new.counts[new.lists.indptr[number] : new.lists.indptr[number + 1]] = counts[
                old.lists.indptr[at] : old.lists.indptr[at + 1]
            ]
    return new.counts


def _of(lists: Ragged, number: int) -> np.ndarray:
    return lists.items[lists.indptr[number] : lists.indptr[number + 1]]


def earlier(before: Run) -> Run:
    """The run this one was continued from."""
    assert before.spec.continued is not None
    folder = Path(before.spec.continued["from"])
    if not RunDirectory(folder).spec_file.exists():
        raise CoterieError(
            f"{before.path} was continued from {folder}, which is gone, so it cannot be replayed exactly; bring that "
            "folder back, or use --method approximate"
        )
    return Run(folder)
