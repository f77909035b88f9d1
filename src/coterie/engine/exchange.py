"""The same system with less exchange, for the comparison: what does federating bring, and what do private tables?

`local-only`: each client federates with herself alone. She has a server of her own, which starts where the common one
would and sees her uploads only, in the rounds in which she would have been drawn. Nothing leaves a device.
`server-only`: nobody uses a private item table. The shared parameters, the user's vector, bias or score network stay;
tables of items kept on a device (`RowStore`) are put back to their start after every step, and the settings that an
algorithm names in `server_only` are applied. For a system without private tables this is the system itself.

Neither is a copy of any algorithm: both are this engine calling the same three functions.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal, NamedTuple, final

import numpy as np

from coterie.algorithms.interface import (
    Algorithm,
    Central,
    Federated,
    History,
    Report,
    Sharing,
    Upload,
    Walk,
)
from coterie.algorithms.rowstore import RowStore
from coterie.engine.simulate import Diverged, Observer, Round, State, cohort, simulate, start
from coterie.errors import CoterieError
from coterie.ragged import Ragged

Exchange = Literal["full", "local-only", "server-only"]


def with_exchange(algorithm: Any, exchange: Exchange, rounds: int | None = None) -> Any:
    """The algorithm as it is, or with less exchange; `rounds` is how long somebody new trains alone."""
    if exchange == "full":
        return algorithm
    if not isinstance(algorithm, Federated):
        raise CoterieError(
            f"{algorithm.name} is central: there is no exchange to leave out; {exchange} is for federated systems"
        )
    return server_only(algorithm) if exchange == "server-only" else LocalOnly(algorithm, rounds)


class Alone(NamedTuple):
    """What is kept of clients who trained alone: the servers themselves would be n times as large as one."""

    scores: np.ndarray  # float32[n, m]: each client's scores by her own model


_NEVER = np.finfo(np.float32).min  # stands for minus infinity (not to be recommended) in a state, which must be finite


@final
class LocalOnly(Central):
    """Every client with a server of her own; to others a system without exchange.

    Trained client by client, so that only a few servers exist at a time.
    """

    def __init__(self, inner: Federated, rounds: int | None = None) -> None:
        for name in Algorithm.__annotations__:  # what it says of itself
            setattr(self, name, getattr(inner, name))
        self.inner, self.rounds = inner, rounds or inner.default_rounds
        # When she takes part is decided among all; alone she then always does.
        self._lone: Any = replace(inner, never_twice_running=False) if inner.never_twice_running else inner  # type: ignore[type-var]
        self.sends = "nothing (local-only: each client trains alone)"  # type: ignore[misc]

    def score(self, server: Alone, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        held: Alone = clients if isinstance(clients, Alone) else server  # a newcomer brings her own
        found: np.ndarray = held.scores[users].copy()
        found[found == _NEVER] = -np.inf
        return found

    def newcomer(self, server: Alone, history: History, seed: int) -> Alone:
        """She trains alone, as everybody did."""
        rows = [self._train(history, i, range(1, self.rounds + 1), seed, np.array([self.rounds]), None)[0][-1]
                for i in range(history.n_clients)]  # fmt: skip
        return Alone(np.stack(rows))

    def init(self, history: History, seed: int) -> Alone:
        return Alone(np.zeros((history.n_clients, history.n_items), np.float32))

    def train(self, server: Alone, history: History, round_: int, seed: int) -> tuple[Alone, float]:
        """Everybody after `round_` rounds, from the start: for one round. `simulate` does many in one go."""
        *_, done = self.simulate(history, range(round_, round_ + 1), seed, 1.0, 0.0, 1, None, round_)
        return done.state.server, done.loss or 0.0

    def _train(
        self, history: History, i: int, rounds: Any, seed: int, wanted: np.ndarray, observe: Observer | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Client i alone: her scores after each of the `wanted` rounds, and loss x examples, examples by round."""
        mine, me = one_of(history, i), np.array([i])
        state, alone = start(self._lone, mine, seed), np.array([0])
        scores = np.zeros((len(wanted), history.n_items), np.float32)
        losses, examples = np.zeros(int(wanted[-1]) + 1), np.zeros(int(wanted[-1]) + 1, np.int64)
        now = 0

        def watch(_: np.ndarray, report: Report) -> None:
            losses[now] += float(report.loss @ report.examples)
            examples[now] += int(report.examples.sum())
            if observe is not None:
                observe(me, report)

        taken = [int(number) for number in rounds]

        def counted() -> Iterator[int]:
            nonlocal now
            for now in taken:  # noqa: UP028 (the observer has to know the round)
                yield now

        for place, done in enumerate(simulate(self._lone, mine, state, counted(), seed, observe=watch)):
            until = taken[place + 1] if place + 1 < len(taken) else int(wanted[-1]) + 1
            due = (wanted >= done.number) & (wanted < until)  # she stays as she is until she is drawn again
            if due.any():
                scores[due] = self._lone.score(done.state.server, done.state.clients, mine, alone)[0]
        if not taken or wanted[0] < taken[0]:  # before she was first drawn she scores with the start
            fresh = start(self._lone, mine, seed)
            early = wanted < (taken[0] if taken else np.inf)
            scores[early] = self._lone.score(fresh.server, fresh.clients, mine, alone)[0]
        scores[scores == -np.inf] = _NEVER
        return scores, losses, examples

    def simulate(
        self,
        history: History,
        rounds: range,
        seed: int,
        size: float | int,
        dropout: float,
        threads: int,
        observe: Observer | None,
        every: int,
    ) -> Iterator[Round]:
        """Yield each round of `rounds`; its state holds the scores if the round is a multiple of `every` or the last.

        Everybody is trained before the first round is yielded. Going on after a stop trains anew: the same numbers.
        """
        began, n, last = time.perf_counter(), history.n_clients, rounds[-1]
        wanted = np.array([r for r in range(1, last + 1) if r % every == 0 or r == last])
        taking, rests = np.zeros((last + 1, n), bool), self.inner.never_twice_running
        for number in range(1, last + 1):
            plan = self.inner.plan(history, size, seed, number)
            drawn = cohort(history, size, dropout, seed, number, rests) if plan is None else np.unique(plan.items)
            taking[number, drawn] = True
        total, count = np.zeros(last + 1), np.zeros(last + 1, np.int64)

        def work(i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            return self._train(history, i, np.flatnonzero(taking[:, i]), seed, wanted, observe)

        with tempfile.TemporaryFile(prefix="coterie-local-only-") as file, ThreadPoolExecutor(threads) as pool:
            kept = np.memmap(file, np.float32, "w+", shape=(len(wanted), n, history.n_items))
            for i, (scores, losses, examples) in enumerate(pool.map(work, range(n))):
                kept[:, i] = scores
                total, count = total + losses, count + examples
            each = (time.perf_counter() - began) / last
            state = State(self.init(history, seed), ())
            for number in rounds:
                at = np.flatnonzero(wanted == number)
                if len(at):
                    state = State(Alone(np.array(kept[at[0]])), ())
                loss = float(total[number]) / max(int(count[number]), 1)
                if not np.isfinite(loss):
                    raise Diverged(f"round {number}: the training loss is {loss}: it has diverged; lower the rates")
                yield Round(number, state, loss, int(taking[number].sum()), 0.0, 0.0, each)


def one_of(history: History, i: int) -> History:
    """The history of client i alone, as her device has it."""

    def part(lists: Ragged) -> Ragged:
        mine = lists.of(i)
        return Ragged(np.array([0, len(mine)], np.int64), mine)

    own = slice(int(history.indptr[i]), int(history.indptr[i + 1]))
    sharing = history.sharing
    return history._replace(
        indptr=np.array([0, own.stop - own.start], np.int64), items=history.items[own], counts=history.counts[own],
        ratings=history.ratings[own], forbidden=part(history.forbidden), keys=history.keys[i : i + 1],
        sharing=None if sharing is None else Sharing(sharing.pi[i : i + 1], part(sharing.never)),
        ages=None if history.ages is None else history.ages[own],
    )  # fmt: skip


def server_only(algorithm: Federated) -> Federated:
    """The same algorithm, but that after every step the private item tables are put back to their start."""
    try:
        twin: Any = replace(algorithm, **algorithm.server_only)  # type: ignore[type-var]
    except ValueError as problem:
        raise CoterieError(f"{algorithm.name} has no server-only form with these settings: {problem}") from None
    step, walk = twin.client_step, twin.walk

    def client_step(clients: Any, ids: np.ndarray, history: History, *rest: Any) -> tuple[Upload, Report]:
        kept = dense_tables(clients, history)
        if kept:  # better no ablation than one that is the system itself under another name
            raise CoterieError(
                f"{algorithm.name} keeps a private item table ({', '.join(kept)}) and names no settings without it "
                "(`server_only`), so there is no server-only form of it"
            )
        found: tuple[Upload, Report] = step(clients, ids, history, *rest)
        for table in private_tables(clients):
            table.forget(ids)
        return found

    def short_walk(server: Any, clients: Any, *rest: Any) -> Walk | None:
        found: Walk | None = None if private_tables(clients) else walk(server, clients, *rest)
        return found

    object.__setattr__(twin, "client_step", client_step)
    object.__setattr__(twin, "walk", short_walk)
    found: Federated = twin
    return found


def private_tables(clients: Any) -> list[RowStore]:
    """The item tables in what devices keep."""
    if isinstance(clients, RowStore):
        return [clients] if len(clients.used) else []
    parts = clients if isinstance(clients, tuple) and hasattr(clients, "_fields") else ()
    return [table for part in parts for table in private_tables(part)]


def dense_tables(clients: Any, history: History) -> list[str]:
    """Names of plain arrays in what devices keep that hold a row for each client and item."""
    shape = (history.n_clients, history.n_items)
    fields = getattr(clients, "_fields", ())
    arrays = [(name, value) for name in fields if isinstance(value := getattr(clients, name), np.ndarray)]
    return [name for name, value in arrays if value.ndim == 3 and value.shape[:2] == shape]


def system(algorithm: Any) -> Federated | Central:
    """The system itself, where it is run client by client."""
    found: Federated | Central = algorithm.inner if isinstance(algorithm, LocalOnly) else algorithm
    return found
