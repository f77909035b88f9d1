"""All clients in one process: the client step over chunks of the cohort, on all cores, one round at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from coterie import rng
from coterie.algorithms import memory
from coterie.algorithms.interface import Central, Collected, Download, Federated, History, Report, Sum, Upload
from coterie.algorithms.server import Refused, add, empty_sum, merge
from coterie.errors import CoterieError
from coterie.ragged import Ragged

UploadPath = Callable[[Upload, np.ndarray, int], Upload]  # (uploads, client ids, round) -> what the server gets
Observer = Callable[[np.ndarray, Report], None]  # sees what stays on the devices: for the leak canary, never the server


class Channel(NamedTuple):
    """What may stand between the clients and the server's step, beside the `UploadPath`; each part is optional."""

    draw: Callable[[History, int], np.ndarray] | None = None  # who takes part in a round, instead of a cohort of `size`
    gather: Callable[[Collected, int], Sum | None] | None = None  # single uploads -> their sum; None: round abandoned
    release: Callable[[Any, int], Any] | None = None  # what was received -> what the server's step gets


_NOTHING_BETWEEN = Channel()


class State(NamedTuple):
    server: Any  # what the server holds
    clients: Any  # what never leaves the devices


class Round(NamedTuple):
    number: int  # from 1
    state: State
    loss: float | None  # mean over the round's examples, before the round changed anything; None: nothing to lose
    participants: int  # different clients
    bytes_up: float  # per participating client, over all her exchanges of this round
    bytes_down: float
    seconds: float
    touched: np.ndarray | None = None  # int64[m]: how often each item's row reached the server, where it gets sums


class Diverged(CoterieError):
    """Training produced numbers that are not finite."""


def cohort(
    history: History, size: float | int, dropout: float, seed: int, round_: int, rests: bool = False
) -> np.ndarray:
    """int64[c]: who takes part in this round, ascending. A share (0..1] or a number of clients, less those who drop.

    If who took part `rests` in the next round, a round's cohort follows from all cohorts before it.
    """
    n = history.n_clients
    wanted = size if isinstance(size, int) else int(np.ceil(size * n))
    if not 1 <= wanted <= n:
        raise CoterieError(f"a cohort of {size} out of {n} clients cannot be formed; give a share in (0, 1] or 1..{n}")
    ids = np.arange(n)
    if rests and 2 * wanted > n:
        raise CoterieError(f"nobody takes part twice running, so a cohort is at most half of {n} clients, not {wanted}")
    if wanted < n:
        resting = np.zeros(n, bool)
        for number in range(1 if rests else round_, round_ + 1):
            draws = rng.uniforms(seed, number, history.keys, rng.COHORT)
            draws[resting] = 2.0  # after everybody who may come
            ids = np.sort(np.argsort(draws, kind="stable")[:wanted])
            if rests:
                resting[:] = False
                resting[ids] = True
    if dropout > 0:
        ids = ids[rng.uniforms(seed, round_, history.keys[ids], rng.DROPOUT) >= dropout]
    return ids


def start(algorithm: Federated | Central, history: History, seed: int) -> State:
    """The state before the first round."""
    if isinstance(algorithm, Central):
        return State(algorithm.init(history, seed), ())
    server = algorithm.enrol(algorithm.init_server(history.n_items, seed), history.n_clients, history)
    return State(server, algorithm.init_clients(history, seed))


def simulate(
    algorithm: Federated | Central,
    history: History,
    state: State,
    rounds: Iterable[int],
    seed: int,
    size: float | int = 1.0,
    dropout: float = 0.0,
    threads: int = 1,
    path: UploadPath | None = None,
    observe: Observer | None = None,
    channel: Channel = _NOTHING_BETWEEN,
) -> Iterator[Round]:
    """Yield each round as it ends. `path` is what happens to uploads on their way to the server, `channel` to all."""
    if isinstance(algorithm, Central):
        yield from _central(algorithm, history, state, rounds, seed, observe)
        return
    with ThreadPoolExecutor(threads) as pool, _memory_released():
        for number in rounds:
            began = time.perf_counter()
            plan = algorithm.plan(history, size, seed, number) if channel.draw is None else None
            if plan is not None:
                done = _epoch(
                    algorithm, history, state, plan, number, seed, dropout, threads, pool, path, observe, channel
                )
                state = done.state
                yield done
                continue
            if channel.draw is not None:
                ids = channel.draw(history, number)
            else:
                ids = cohort(history, size, dropout, seed, number, algorithm.never_twice_running)
            received, losses, examples, up, down = _round(
                algorithm, history, state, ids, number, seed, threads, pool, path, observe, channel
            )
            server = state.server if received is None else _server_step(algorithm, state.server, received, number)
            state = State(server, state.clients)
            loss, touched = _mean_loss(losses, examples, number), _touched(received)
            del received  # so that the next round finds its memory free
            yield Round(number, state, loss, len(ids), up, down, time.perf_counter() - began, touched)


@contextmanager
def _memory_released() -> Iterator[None]:
    try:
        yield
    finally:
        memory.release()


def _server_step(algorithm: Federated, server: Any, received: Any, number: int) -> Any:
    try:
        return algorithm.server_step(server, received, number)
    except Refused as problem:  # in the simulator nobody but training itself can make such numbers
        raise Diverged(f"round {number}: {problem}") from None


def _mean_loss(losses: np.ndarray, examples: np.ndarray, number: int) -> float:
    loss = float(losses @ examples / max(examples.sum(), 1))
    if not np.isfinite(loss):
        raise Diverged(f"round {number}: the training loss is {loss}: training has diverged; lower the rates")
    return loss


def _touched(received: Any) -> np.ndarray | None:
    return received.touched if isinstance(received, Sum) else None


def _epoch(
    algorithm: Federated,
    history: History,
    state: State,
    plan: Ragged,
    number: int,
    seed: int,
    dropout: float,
    threads: int,
    pool: ThreadPoolExecutor,
    path: UploadPath | None,
    observe: Observer | None,
    channel: Channel,
) -> Round:
    """A round that consists of many exchanges, each with its own cohort; exchanges are numbered through the run."""
    began = time.perf_counter()
    first = (number - 1) * plan.users + 1
    if path is None and channel == _NOTHING_BETWEEN and dropout == 0 and (plan.lengths == 1).all():
        walk = algorithm.walk(state.server, state.clients, plan.items, history, first, seed)
        if walk is not None:
            if observe is not None:
                observe(walk.ids, walk.report)
            loss, each = _mean_loss(walk.report.loss, walk.report.examples, number), max(len(walk.ids), 1)
            return Round(
                number, State(walk.server, state.clients), loss, len(walk.ids), walk.bytes_up / each,
                walk.bytes_down / each, time.perf_counter() - began, walk.touched,
            )  # fmt: skip
    server, total, count, up, down, taking_part = state.server, 0.0, 0, 0.0, 0.0, np.zeros(history.n_clients, bool)
    touched: np.ndarray | None = None
    for exchange in range(first, first + plan.users):
        ids = np.sort(plan.of(exchange - first))
        if dropout > 0:
            ids = ids[rng.uniforms(seed, exchange, history.keys[ids], rng.DROPOUT) >= dropout]
        received, losses, examples, sent, got = _round(
            algorithm, history, State(server, state.clients), ids, exchange, seed, threads, pool, path, observe, channel
        )
        if received is None:
            continue
        server = _server_step(algorithm, server, received, exchange)
        total, count = total + float(losses @ examples), count + int(examples.sum())
        up, down = up + sent * len(ids), down + got * len(ids)
        taking_part[ids] = True
        if isinstance(received, Sum):
            touched = received.touched if touched is None else touched + received.touched
    loss = _mean_loss(np.array([total / max(count, 1)]), np.array([count]), number)
    each = max(int(taking_part.sum()), 1)
    state = State(server, state.clients)
    return Round(
        number, state, loss, int(taking_part.sum()), up / each, down / each, time.perf_counter() - began, touched
    )


def _round(
    algorithm: Federated,
    history: History,
    state: State,
    ids: np.ndarray,
    number: int,
    seed: int,
    threads: int,
    pool: ThreadPoolExecutor,
    path: UploadPath | None,
    observe: Observer | None,
    channel: Channel,
) -> tuple[Any, np.ndarray, np.ndarray, float, float]:
    chunks = _chunks(ids, history, threads, algorithm.most_in_chunk, algorithm.pieces)
    sums: SimpleQueue[Sum] = SimpleQueue()
    made: list[Sum] = []

    def work(chunk: np.ndarray) -> tuple[Report, int, int, Upload | None]:
        download: Download = algorithm.download(state.server, chunk, number)
        upload, report = algorithm.client_step(state.clients, chunk, history, download, number, seed)
        if observe is not None:
            observe(chunk, report)
        if path is not None:
            upload = path(upload, chunk, number)
        up = int(upload.bytes_per_client(history.n_items).sum())
        down = round(download.bytes_per_client * len(chunk))
        if algorithm.collects or channel.gather is not None:
            return report, up, down, upload
        try:
            mine = sums.get_nowait()  # one sum for each thread at work, handed on from chunk to chunk
        except Empty:
            mine = empty_sum(history.n_items, upload.values.shape[1], upload.dense.shape[1])
            made.append(mine)
        try:
            add(mine, upload, len(ids))
        except Refused as problem:  # in the simulator nobody but training itself can make such numbers
            raise Diverged(f"round {number}: {problem}; training has diverged: lower the rates") from None
        sums.put(mine)
        return report, up, down, None

    results = list(pool.map(work, chunks))
    received: Any = None
    if not results:
        if channel.release is not None:  # an empty cohort must look like any other
            received = channel.release(None, number)
        return received, np.empty(0), np.empty(0), 0.0, 0.0
    if algorithm.collects or channel.gather is not None:
        received = Collected(chunks, [upload for *_, upload in results if upload is not None])
        if channel.gather is not None:
            received = channel.gather(received, number)
    else:
        received = made[0]
        for other in made[1:]:
            merge(received, other)
    if received is not None and channel.release is not None:
        received = channel.release(received, number)
    losses = np.concatenate([report.loss for report, *_ in results])
    examples = np.concatenate([report.examples for report, *_ in results])
    up, down = sum(r[1] for r in results), sum(r[2] for r in results)
    return received, losses, examples, up / len(ids), down / len(ids)


def _chunks(ids: np.ndarray, history: History, threads: int, most: int = 256, pieces: int = 8) -> list[np.ndarray]:
    """Cut a cohort into parts of about equal work. No result depends on where the cuts are."""
    if not len(ids):
        return []
    count = max(min(len(ids), threads * pieces), -(-len(ids) // most))
    work = np.cumsum(history.lengths[ids] + 1)
    cuts = np.searchsorted(work, work[-1] * np.arange(1, count) / count)
    return [part for part in np.split(ids, np.unique(cuts)) if len(part)]


def concatenate(uploads: list[Upload]) -> Upload:
    """Uploads of several cohorts, in their order, as one."""
    indptr = np.zeros(sum(len(u.indptr) - 1 for u in uploads) + 1, np.int64)
    np.cumsum(np.concatenate([np.diff(u.indptr) for u in uploads]), out=indptr[1:])
    return Upload(indptr, *(np.concatenate([u[field] for u in uploads]) for field in (1, 2, 3)))


def _central(
    algorithm: Central, history: History, state: State, rounds: Iterable[int], seed: int, observe: Observer | None
) -> Iterator[Round]:
    for number in rounds:
        began = time.perf_counter()
        server, loss, *drawn = algorithm.train(state.server, history, number, seed)
        state = State(server, ())
        if observe is not None and drawn:
            told = Report(np.full(history.n_clients, loss or 0.0), drawn[0].lengths, drawn[0])
            observe(np.arange(history.n_clients), told)
        if loss is not None and not np.isfinite(loss):
            raise Diverged(f"round {number}: the training loss is {loss}: training has diverged; lower the rates")
        yield Round(number, state, loss, history.n_clients, 0.0, 0.0, time.perf_counter() - began)
