"""One attempt at one round: what was asked, accepted and refused, and what it adds up to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np

from coterie.algorithms.interface import Collected, Federated, History, Sum, Upload
from coterie.algorithms.server import FIXED_POINT, add, empty_sum, largest, merge
from coterie.algorithms.server import Refused as NotAdded
from coterie.engine.flower import secure, wire
from coterie.engine.flower.ledger import Block
from coterie.engine.flower.wire import Message, Refused
from coterie.privacy.masks import unflat
from coterie.ragged import Ragged

if TYPE_CHECKING:
    from coterie.engine.flower.coordinator import Coordinator


@final
class Gathering:
    """Made for each attempt; `plain` or `secure` runs it."""

    def __init__(self, owner: Coordinator, number: int, attempt: int) -> None:
        self.owner, self.number, self.attempt = owner, number, attempt
        self.accepted: dict[str, tuple[np.ndarray, Upload] | None] = {}
        self.total: Sum | None = None
        self.refused: dict[str, int] = {}
        self.metrics: list[tuple[int, dict[str, Any]]] = []
        self.bytes_up = self.bytes_down = self.clients = self.late = self.asked = 0
        self.masked: dict[str, np.ndarray] = {}

    def count_refused(self, kind: str) -> None:
        self.refused[kind] = self.refused.get(kind, 0) + 1

    def _questions(self, names: list[str], extra: dict[str, dict[str, Any]] | None = None) -> dict[str, bytes]:
        owner, every = self.owner, self.owner.terms.evaluate_every
        evaluate = bool(every) and self.number > 1 and (self.number - 1) % every == 0
        about = {"clients": owner.total, "evaluate": evaluate, "attempt": self.attempt}
        asks: dict[str, bytes] = {}
        same: bytes | None = None
        for name in names:
            if same is None or extra is not None:
                download = owner.download(name, self.number)
                data = owner.head("step", self.number, about | (extra or {}).get(name, {}), download)
                same = data if download.own is None else None
            asks[name] = data if same is None else same if extra is None else data
        self.asked = len(asks)
        self.bytes_down += sum(map(len, asks.values()))
        return asks

    def plain(self) -> Any:
        """Answers are added as they come. None: too few."""
        owner = self.owner
        asks = self._questions(owner.present())
        owner.gather(asks, "step", self.number, "upload", owner.terms.deadline, self)
        if len(self.accepted) < owner.terms.min_nodes:
            return None
        if not owner.algorithm.collects:
            return self.total
        order = sorted(self.accepted, key=lambda name: owner.blocks[name].first)
        parts = [part for name in order if (part := self.accepted[name]) is not None]
        return Collected([ids for ids, _ in parts], [upload for _, upload in parts])

    def accept(self, name: str, message: Message, size: int) -> None:
        """Check one answer and add it; `Refused` if it must not be."""
        owner, form = self.owner, message.head.about.get("form")
        spec, block = owner.spec, owner.blocks[name]
        wanted = {"single": "single", "sum": "sum", "secure": "masked"}[spec.send]
        if form != wanted:
            raise Refused("form", f"an answer of form {form!r}, this run sends {wanted!r}")
        if form == "masked":
            self._accept_masked(name, message)
        elif form == "sum":
            limit = largest(owner.total) * FIXED_POINT
            part = wire.sum_from(message, spec.n_items, owner.width, owner.dense, block.clients, limit)
            merge(self._sum(), part)
            self.accepted[name], self.clients = None, self.clients + int(part.clients[0])
        else:
            self._accept_single(name, message, block)
        self.bytes_up += size
        if "metrics" in message.head.about:
            self.metrics.append((int(message.head.about["measured"]), message.head.about["metrics"]))

    def _sum(self) -> Sum:
        if self.total is None:
            self.total = empty_sum(self.owner.spec.n_items, self.owner.width, self.owner.dense)
        return self.total

    def _accept_single(self, name: str, message: Message, block: Block) -> None:
        owner = self.owner
        upload = wire.upload_from(message, owner.spec.n_items, owner.width, owner.dense)
        ids = message.body.get("ids", np.empty(0, np.int32))
        count = len(upload.indptr) - 1
        if (
            ids.dtype != np.int32
            or len(ids) != count
            or (np.diff(ids) <= 0).any()
            or (ids < 0).any()
            or (ids >= block.clients).any()
        ):
            raise Refused("clients", f"{count} uploads for {len(ids)} of the node's {block.clients} clients")
        if owner.algorithm.collects:
            self.accepted[name] = (ids.astype(np.int64) + block.first, upload)
        else:
            try:
                add(self._sum(), upload, owner.total)
            except NotAdded as problem:
                raise Refused("too-large", str(problem)) from None
            self.accepted[name] = None
        self.clients += count

    def _accept_masked(self, name: str, message: Message) -> None:
        owner = self.owner
        numbers = message.body.get("masked", np.empty(0))
        size = owner.spec.n_items * (owner.width + 1) + owner.dense + 1
        if numbers.dtype != np.uint64 or numbers.shape != (size,):
            raise Refused("shape", f"{numbers.shape} masked numbers of {numbers.dtype}, expected ({size},) of uint64")
        self.masked[name], self.accepted[name] = numbers, None

    def secure(self) -> Sum | None:
        """Keys, shares, masked answers, unmasking. None: too few at some stage."""
        owner, number = self.owner, self.number
        least = max(owner.terms.min_nodes, 3)
        place = (owner.spec.run, number, self.attempt)
        names, about = owner.present(), {"attempt": self.attempt}

        def stage(kind: str, each: dict[str, dict[str, Any]]) -> dict[str, Message]:
            asks = {name: owner.head(kind, number, about | more) for name, more in each.items()}
            self.bytes_down += sum(map(len, asks.values()))
            return owner.gather(asks, kind, number, kind, owner.terms.deadline)

        told = stage("keys", {name: {} for name in names})
        keys = {name: {part: one.head.about[part] for part in ("cipher", "mask")} for name, one in told.items()}
        if len(keys) < least:
            return None
        sharers = stage("shares", {name: {"keys": keys, "you": name} for name in keys})
        if len(sharers) < least:
            return None
        letters: dict[str, dict[str, str]] = {name: {} for name in sharers}
        for name, one in sharers.items():
            for other, letter in one.head.about["letters"].items():
                if other in letters:
                    letters[other][name] = letter
        extra = {name: {"you": name, "letters": mine} for name, mine in letters.items()}
        owner.gather(self._questions(list(sharers), extra), "step", number, "upload", owner.terms.deadline, self)
        survivors = sorted(self.masked)
        if len(survivors) < least:
            return None
        given = stage("unmask", {name: {"you": name, "survivors": survivors} for name in survivors})
        shares = {name: one.head.about["shares"] for name, one in given.items()}
        numbers = secure.opened(self.masked, keys, sharers, shares, place)
        total = unflat(numbers, owner.spec.n_items, owner.width, owner.dense)
        limit = largest(owner.total)
        self.clients = int(total.clients[0])
        return secure.checked(total, sum(owner.blocks[name].clients for name in survivors), limit)


def upload_shape(algorithm: Federated, server: Any, n_items: int, seed: int) -> tuple[int, int]:
    """(width, dense) of an upload, found by one toy client's step: what every answer is checked against."""
    own = Ragged(np.array([0, 1]), np.zeros(1, np.int32))
    ones = np.ones(1, np.float32)
    toy = History(own.indptr, own.items, ones, ones, own, np.zeros(1, np.uint64), n_items)
    ids, server = np.arange(1), algorithm.enrol(server, 1, None)
    clients = algorithm.init_clients(toy, seed)
    upload, _ = algorithm.client_step(clients, ids, toy, algorithm.download(server, ids, 1), 1, seed)
    return upload.values.shape[1], upload.dense.shape[1]
