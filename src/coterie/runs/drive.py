"""Driving a run: rounds from the engine, evaluation, record, checkpoints; and going on where it stopped."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from coterie.algorithms.interface import Federated, History
from coterie.data.interactions import Interactions
from coterie.engine.exchange import LocalOnly, system
from coterie.engine.simulate import Channel, Diverged, State, simulate, start
from coterie.errors import CoterieError
from coterie.privacy.channel import Guard
from coterie.protocol import CanaryWatch, Prepared, prepare
from coterie.ragged import Ragged
from coterie.runs import tensors
from coterie.runs.directory import Keeper, Progress, RunDirectory
from coterie.runs.measure import measure
from coterie.runs.spec import DataSpec, RunSpec
from coterie.runs.summary import summarise, users_table

_CHECKPOINT_SHARE = 30  # a checkpoint waits until training took so many times as long as the last one
_FIRST_GUESS = 4e8  # bytes a second: how fast a large state's first checkpoint is thought to be written
_LARGE = 1 << 24  # bytes: larger arrays are looked at for NaN only before they are evaluated or kept


class Interrupted(CoterieError):
    """Ctrl-C: the round was finished, the state is safe."""


class Clock:
    """Where the seconds went."""

    def __init__(self, spent: dict[str, float] | None = None) -> None:
        self.spent = {"compile": 0.0, "train": 0.0, "evaluate": 0.0, "total": 0.0} | (spent or {})
        self._began = time.perf_counter() - self.spent["total"]

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.spent[what] += time.perf_counter() - began

    def so_far(self) -> dict[str, float]:
        return {**self.spent, "total": time.perf_counter() - self._began}


def drive(
    spec: RunSpec, data: Interactions, directory: RunDirectory, threads: int | None = None, resume: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the record of each round as it ends; the summary is on disk when the iterator is done."""
    threads = threads or os.cpu_count() or 1
    spec = spec.resolved()
    check_data(spec.data, data)
    with directory.locked():
        if not resume:
            directory.create(spec)
        elif directory.summary_file.exists():
            raise CoterieError(f"{directory.path}: the run is finished; there is nothing to resume")
        try:
            yield from _drive(spec, data, directory, threads)
        except OSError as problem:  # a full disk, a folder that went away
            found = directory.latest_checkpoint()
            kept = "there is no checkpoint yet" if found is None else f"{found} is kept"
            raise CoterieError(
                f"{directory.path}: writing failed: {problem}; {kept}. "
                f"Make room, then `coterie resume {directory.path}`"
            ) from problem


def check_data(spec: DataSpec, data: Interactions) -> None:
    """A run goes on with the data it began with, or not at all."""
    if spec.sha256 is not None and spec.sha256 != data.sha256:
        raise CoterieError(
            f"{data.name}: the data's hash is {data.sha256[:12]}..., the run was made with {spec.sha256[:12]}...; "
            "bring back the same data, or start a new run"
        )


def _drive(spec: RunSpec, data: Interactions, directory: RunDirectory, threads: int) -> Iterator[dict[str, Any]]:
    algorithm = spec.build()
    prepared = prepare(data, spec.protocol, spec.seed)
    watch = CanaryWatch(prepared) if algorithm.draws_negatives else None
    state = start(algorithm, prepared.history, spec.seed)
    history = spec.keep == "history"  # then every checkpoint is due, whatever it costs
    done, keeper, clock = 0, Keeper(directory, history=history), Clock()
    found = directory.latest_checkpoint()
    if found is not None:
        state, so_far = _load(found, state, watch)
        done = int(tensors.read_manifest(found / "last")["round"])
        clock = Clock(dict(zip(("compile", "train", "evaluate", "total"), so_far.seconds.tolist(), strict=True)))
        best = found / "best"
        keeper = Keeper(
            directory,
            int(tensors.check(best)["round"]) if best.exists() else 0,
            best if best.exists() else None,
            history,
        )
    records = directory.cut_rounds(done)
    with clock.on("compile"):
        warm_up(system(algorithm), threads)
    best_value = max((_select(spec, one) for one in records if "validation" in one), default=-math.inf)
    assert spec.rounds is not None and spec.cohort is not None  # resolved
    guard: Guard | None = None
    if spec.privacy is not None:
        taking_part = spec.cohort if isinstance(spec.cohort, int) else math.ceil(spec.cohort * data.n_users)
        guard = Guard(spec.privacy, algorithm, prepared.history, taking_part, directory.path, spec.seed)
        spec = spec.model_copy(update={"rounds": guard.rounds(spec.rounds)})  # as many as the budget allows
    assert spec.rounds is not None and spec.cohort is not None
    observe, todo = watch.observe if watch else None, range(done + 1, spec.rounds + 1)
    if isinstance(algorithm, LocalOnly):
        if watch:
            watch.counts[:] = 0  # going on, everybody is trained anew
        rounds = algorithm.simulate(
            prepared.history, todo, spec.seed, spec.cohort, spec.dropout, threads, observe, spec.evaluate_every
        )
    else:
        rounds = simulate(
            algorithm, prepared.history, state, todo, spec.seed, spec.cohort, spec.dropout, threads,
            guard.path if guard else None, observe, guard.channel if guard else Channel(),
        )  # fmt: skip
    cost = tensors.nbytes(state) / _FIRST_GUESS if tensors.nbytes(state) > _LARGE else 0.0
    last_written, since = done, time.perf_counter()

    def progress() -> Progress:
        counts = watch.counts if watch else np.zeros(0, np.int64)
        return Progress(counts, np.array(list(clock.so_far().values())))

    def look(at: State, number: int, largest: int | None = None) -> None:
        bad = tensors.finite(at, largest)
        if bad is not None:
            problem = Diverged(f"round {number}: {bad} holds numbers that are not finite")
            raise Diverged(_diverged(problem, directory, last_written))

    with _finish_round_on_interrupt() as interrupted:
        while True:
            try:
                with clock.on("train"):
                    current = next(rounds, None)
            except Diverged as problem:
                raise Diverged(_diverged(problem, directory, last_written)) from None
            if current is None:
                break
            sent, state = state.server, current.state
            last = current.number == spec.rounds
            evaluated = last or current.number % spec.evaluate_every == 0
            due = current.number % spec.checkpoint_every == 0 and (
                history or time.perf_counter() - since > _CHECKPOINT_SHARE * cost
            )
            look(state, current.number, None if evaluated or due else _LARGE)
            record: dict[str, Any] = {
                "round": current.number, "loss": current.loss, "participants": current.participants,
                "bytes": {"up": current.bytes_up, "down": current.bytes_down}, "seconds": current.seconds,
            }  # fmt: skip
            record |= algorithm.record(state.server)
            if guard is not None:
                record["privacy"] = guard.round_over(current.number, sent)
                if guard.bytes_up is not None:
                    record["bytes"]["up"] = guard.bytes_up
            if evaluated:
                with clock.on("evaluate"):
                    record |= measure(algorithm, state, prepared, threads).metrics
                if _select(spec, record) > best_value:
                    best_value = _select(spec, record)
                    keeper.improved(state, current.number, progress())
            records.append(record)
            directory.append_round(record)
            if last or due:
                began = time.perf_counter()
                keeper.checkpoint(state, current.number, progress())
                since = time.perf_counter()
                last_written, cost = current.number, since - began
            yield record
            if interrupted and not last:
                look(state, current.number)
                keeper.checkpoint(state, current.number, progress())
                raise Interrupted(
                    f"stopped after round {current.number} of {spec.rounds}; `coterie resume {directory.path}` goes on"
                )
    _finish(spec, algorithm, prepared, state, directory, keeper, clock, records, watch, threads, guard)


def _diverged(problem: Diverged, directory: RunDirectory, last_written: int) -> str:
    kept = f"the checkpoint of round {last_written} is kept" if last_written else "there is no checkpoint yet"
    return f"{problem} ({kept} in {directory.path})"


def _select(spec: RunSpec, record: dict[str, Any]) -> float:
    return float(record["validation"][spec.protocol.select_by][spec.protocol.select_metric])


def _load(found: Path, template: State, watch: CanaryWatch | None) -> tuple[State, Progress]:
    state = tensors.load(found / "last", template)
    counts = watch.counts if watch else np.zeros(0, np.int64)
    progress: Progress = tensors.load(found / "progress", Progress(counts, np.zeros(4)))
    if watch is not None:
        watch.counts[:] = progress.canary
    return state, progress


def _finish(
    spec: RunSpec,
    algorithm: Any,
    prepared: Prepared,
    state: State,
    directory: RunDirectory,
    keeper: Keeper,
    clock: Clock,
    records: list[dict[str, Any]],
    watch: CanaryWatch | None,
    threads: int,
    guard: Guard | None,
) -> None:
    checkpoint = directory.latest_checkpoint()
    assert checkpoint is not None and spec.rounds is not None
    best_hash, last_hash = keeper.finish(checkpoint, spec.keep)
    with clock.on("evaluate"):
        last = measure(algorithm, state, prepared, threads)
        best = last
        if keeper.best_round != spec.rounds:
            best_state = tensors.load(checkpoint / "best", state)
            best = measure(algorithm, best_state, prepared, threads)
    users_table(best, prepared).write_parquet(directory.users_file)
    summary = summarise(spec, algorithm, prepared, keeper.best_round, records, watch, best, last, threads)
    summary |= {"seconds": clock.so_far(), "model_sha256": best_hash, "last_model_sha256": last_hash}
    if guard is not None:
        summary["privacy"] = guard.statement(spec.rounds)
    tensors.write_json(directory.summary_file, summary)
    keeper.tidy(spec.keep)


def warm_up(algorithm: Any, threads: int) -> None:
    """One round on a toy, so that compiling is not counted as training."""
    n, m = 4, 30
    items = np.arange(n * 3, dtype=np.int32) % m
    own = Ragged(np.arange(0, 3 * n + 1, 3), items)
    ones = np.ones(len(items), np.float32)
    toy = History(own.indptr, own.items, ones, ones, own, np.arange(n, dtype=np.uint64), m)
    state = start(algorithm, toy, 0)
    ids = np.arange(n)
    if isinstance(algorithm, Federated):
        size = 0.5 if algorithm.never_twice_running else algorithm.default_cohort
        with suppress(Diverged):  # wild rates show here already; the run itself will say so
            for one in simulate(algorithm, toy, state, range(1, 2), 0, size):
                state = one.state
    algorithm.score(state.server, state.clients, toy, ids)


@contextmanager
def _finish_round_on_interrupt() -> Iterator[list[bool]]:
    """The first Ctrl-C asks for an orderly stop after the round; a second one stops at once."""
    asked: list[bool] = []

    def ask(signum: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not in the main thread: nobody to interrupt
        yield asked
        return
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
