"""Going on with new interactions, new users and new items: the old state is carried over, the rest starts fresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from coterie import __version__
from coterie.algorithms.rowstore import RowStore
from coterie.data import load
from coterie.data.interactions import Interactions
from coterie.data.joined import joined
from coterie.engine.simulate import State, start
from coterie.errors import CoterieError
from coterie.privacy.forget import left_out
from coterie.protocol import CanaryWatch, Prepared, prepare
from coterie.runs import tensors
from coterie.runs.directory import Progress, RunDirectory, new_directory
from coterie.runs.display import shown
from coterie.runs.drive import drive
from coterie.runs.run import Run, load_data


def continue_run(
    old: str | Path,
    new: Interactions | str | Path,
    rounds: int | None = None,
    out: str | Path | None = None,
    threads: int | None = None,
    quiet: bool = True,
    data: Interactions | None = None,
) -> Run:
    """A new run that begins where `old` ended, on the old interactions and the new ones together.

    `rounds` more rounds are trained (default: as many as the old run had). What changed is in the spec and the summary.
    """
    before = Run(old, data)
    if before.spec.exchange == "local-only":
        raise CoterieError(f"{before.path}: a local-only run keeps scores, not models; run it anew on all the data")
    source = str(new) if not isinstance(new, Interactions) else None
    fresh = new if isinstance(new, Interactions) else load(new)
    together = left_out(joined(load_data(before.spec.data, data), fresh), before.spec.data.without)
    state, done = _last(before)
    prepared = prepare(together, before.spec.protocol, before.spec.seed)
    changes = _changes(before.prepared, prepared)
    where = before.spec.data.model_copy(
        update={
            "also": [*before.spec.data.also, source] if source else before.spec.data.also,
            "source": before.spec.data.source if source else None,  # in memory: it must be handed over again
            "sha256": together.sha256,
        }
    )
    assert before.spec.rounds is not None
    more = rounds if rounds is not None else before.spec.rounds
    spec = before.spec.model_copy(
        update={"data": where, "rounds": done + more, "continued": {"from": str(before.path), "after": done, **changes}}
    )
    template = start(before.algorithm, prepared.history, spec.seed)
    carried = carry(state, template, before.prepared, prepared)
    directory = RunDirectory(new_directory(None if out is None else Path(out), spec))
    with directory.locked():
        directory.create(spec)
        _plant(directory, carried, done, prepared, before.algorithm.draws_negatives)
    if not quiet:
        print(said(changes, done))
    shown(drive(spec, together, directory, threads, resume=True), spec, quiet)
    return Run(directory.path, together)


def said(changes: dict[str, int], done: int) -> str:
    return (
        f"going on after round {done}: {changes['new_interactions']:,} new interactions, {changes['new_users']:,} new "
        f"users, {changes['new_items']:,} new items; {changes['users_with_news']:,} known users have news"
    )


def _last(run: Run) -> tuple[State, int]:
    """The state the old run ended with, or its best if that is all it kept."""
    template = start(run.algorithm, run.prepared.history, run.spec.seed)
    checkpoint = run.directory.latest_checkpoint()
    folder = checkpoint / "last" if checkpoint is not None else run.directory.model
    if not folder.exists():
        raise CoterieError(f"{run.path}: neither a checkpoint nor a model is left to go on from (--keep nothing?)")
    found: State = tensors.load(folder, template)
    return found, int(tensors.read_manifest(folder)["round"])


def _changes(before: Prepared, after: Prepared) -> dict[str, int]:
    old, new = before.data, after.data
    longer = sum(
        len(new.items[new.indptr[n] : new.indptr[n + 1]]) > old.indptr[o + 1] - old.indptr[o]
        for o, n in ((o, new.user_number.get(one)) for o, one in enumerate(old.user_ids))
        if n is not None
    )
    trained = 0
    for user in after.users:
        o = old.user_number.get(new.user_ids[user])
        if o is not None:
            known = {old.item_ids[i] for i in before.train.of(o)}
            held = np.concatenate([after.validation.of(user), after.test.of(user)])
            trained += sum(new.item_ids[i] in known for i in held)
    return {
        "new_interactions": len(new) - len(old),
        "new_users": sum(one not in old.user_number for one in new.user_ids),
        "new_items": sum(one not in old.item_number for one in new.item_ids),
        "users_with_news": int(longer),
        "held_out_but_trained_before": trained,
    }


def carry(state: State, template: State, before: Prepared, after: Prepared) -> State:
    """Old values at their places in arrays of the new sizes; new users and items keep the template's start."""
    old, new = before.data, after.data
    users = np.array([new.user_number.get(one, -1) for one in old.user_ids])
    items = np.array([new.item_number.get(one, -1) for one in old.item_ids])
    sizes = {"users": (old.n_users, new.n_users, users), "items": (old.n_items, new.n_items, items)}
    values = dict(tensors.leaves(state))
    found: dict[str, Any] = {}
    for name, fresh in tensors.leaves(template):
        order = ("users", "items") if name.startswith("clients") else ("items", "users")
        if isinstance(fresh, RowStore):
            found[name] = _carry_rows(values[name], fresh, users, items)
        else:
            found[name] = _carry_array(name, values[name], fresh, [sizes[one] for one in order])
    rebuilt: State = tensors.rebuild(template, found)
    return rebuilt


def _carry_array(name: str, old: np.ndarray, fresh: np.ndarray, sizes: list[Any]) -> np.ndarray:
    if old.ndim != fresh.ndim:
        raise CoterieError(f"{name} has changed its shape from {old.shape} to {fresh.shape}: it cannot be carried over")
    take, put = [], []
    for have, want in zip(old.shape, fresh.shape, strict=True):
        for before, after, places in sizes:
            if have == before and want == after:
                take.append(np.flatnonzero(places >= 0))
                put.append(places[places >= 0])
                break
        else:
            if have != want:
                raise CoterieError(
                    f"{name} grew from {old.shape} to {fresh.shape} in a way that is neither users nor items"
                )
            take.append(np.arange(have))
            put.append(np.arange(have))
    carried = fresh.copy()
    carried[np.ix_(*put)] = old[np.ix_(*take)]
    return carried


def _carry_rows(old: RowStore, fresh: RowStore, users: np.ndarray, items: np.ndarray) -> RowStore:
    fresh.start[items[items >= 0]] = old.start[items >= 0]
    n_old, n_new = len(old.start), len(fresh.start)
    for client, place in enumerate(users):
        if place < 0:
            continue
        mine = np.flatnonzero((old.slot[client] >= 0) & (items >= 0))
        mine = mine[np.argsort(old.slot[client, mine])]  # in the order in which she first touched them
        fresh.slot[place, items[mine]] = np.arange(len(mine))
        fresh.used[place], fresh.scale[place] = len(mine), old.scale[client]
        fresh.pool[place * n_new : place * n_new + len(mine)] = old.pool[client * n_old + old.slot[client, mine]]
    return fresh


def _plant(directory: RunDirectory, state: State, done: int, prepared: Prepared, draws: bool) -> None:
    """The carried state as a checkpoint, from which the new run is simply resumed."""
    folder = directory.checkpoints / f"round-{done:06d}"
    tensors.save(folder / "last", state, {"round": done, "version": __version__})
    counts = np.zeros(len(CanaryWatch(prepared).counts) if draws else 0, np.int64)
    tensors.save(folder / "progress", Progress(counts, np.zeros(4)), {"round": done, "version": __version__})
