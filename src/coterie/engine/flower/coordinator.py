"""The server's rounds: ask, wait until a deadline, check, add, step, write down. Nodes are known by pseudonym only.

How bytes travel is somebody else's matter (`Transport`). Whatever happens to nodes, a round ends: on everybody's
answer, on enough answers (`close_at`), or at its deadline on whoever has answered; below `min_nodes` it is abandoned
and nothing has changed. A node that let a deadline pass is asked again, but not waited for until it answers.
"""

from __future__ import annotations

import logging
import time
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from coterie.algorithms.interface import Download, Federated
from coterie.engine.flower import wire
from coterie.engine.flower.gathering import Gathering, upload_shape
from coterie.engine.flower.ledger import Block, Ledger
from coterie.engine.flower.node import names_array
from coterie.engine.flower.noise import ServerNoise
from coterie.engine.flower.wire import Head, Message, Refused
from coterie.errors import CoterieError

log = logging.getLogger("coterie.server")


class Transport(Protocol):
    """How the server reaches nodes. Node numbers are the transport's own; a reply names the request it answers."""

    def nodes(self) -> list[int]: ...

    def push(self, node: int, data: bytes, seconds: float) -> str: ...

    def pull(self) -> list[tuple[str, int, bytes | None]]:
        """(request, node, answer) of what has come since; None: the transport says the node failed."""
        ...

    def pause(self) -> None: ...


class Member(NamedTuple):
    name: str  # pseudonym
    node: int  # the transport's number
    clients: int
    place: int | None


class Stopped(CoterieError):
    """The federation cannot go on now; its checkpoint is safe."""


class _Asked(NamedTuple):
    node: int
    kind: str
    round: int


@final
class Coordinator:
    def __init__(self, ledger: Ledger, transport: Transport) -> None:
        self.ledger, self.transport = ledger, transport
        self.spec, self.terms = ledger.read()
        self.algorithm: Federated = self.spec.build()
        fresh = self.algorithm.init_server(self.spec.n_items, self.spec.seed)
        self.blocks = ledger.blocks()
        self.done, self.server = ledger.load(self.algorithm.enrol(fresh, self.total, None) if self.blocks else fresh)
        self.width, self.dense = upload_shape(self.algorithm, fresh, self.spec.n_items, self.spec.seed)
        privacy, self.noise = self.spec.privacy, None
        if privacy is not None and privacy.mechanism == "central":
            self.noise = ServerNoise(privacy, self.algorithm, ledger.folder, self.spec.seed)
        self.members: dict[str, Member] = {}
        self._by_node: dict[int, str] = {}
        self._asked: dict[str, _Asked] = {}
        self._setups: set[int] = set()  # nodes that were sent the terms and have not answered
        self._away: set[str] = set()
        self._turned_away: set[int] = set()  # nodes that could not join; asked once, told why in their log
        self._setup: bytes | None = None

    # --- the whole run ------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """All rounds that are left, then the last word to everybody. Returns the summary."""
        terms = self.terms
        self._await_nodes(terms.start_with or terms.min_nodes)
        for number in range(self.done + 1, terms.rounds + 1):
            self._one_round(number)
        return self._finish()

    def _one_round(self, number: int) -> None:
        for attempt in range(1, self.terms.patience + 1):
            began = time.monotonic()
            self._await_nodes(self.terms.min_nodes)
            gathering = Gathering(self, number, attempt)
            try:
                received = gathering.secure() if self.spec.send == "secure" else gathering.plain()
            except Refused as problem:
                self.abandon(number, attempt, str(problem))
                continue
            if received is None:
                self.abandon(number, attempt, f"{len(gathering.accepted)} of the {self.terms.min_nodes} nodes needed")
                continue
            if self.noise is not None:
                received = self.noise.release(
                    received, number, self.total
                )  # its ledger is written before anything else
            self.server = self.algorithm.server_step(self.server, received, number)
            record = {
                "round": number, "attempt": attempt, "nodes": len(gathering.accepted), "asked": gathering.asked,
                "clients": gathering.clients, "refused": gathering.refused, "late": gathering.late,
                "bytes": {"up": gathering.bytes_up, "down": gathering.bytes_down},
                "seconds": round(time.monotonic() - began, 3),
            }  # fmt: skip
            if self.noise is not None:
                record["privacy"] = self.noise.spent()
            self.ledger.commit(number, self.server, record)
            self.done = number
            self.keep_metrics(number - 1, gathering.metrics)
            log.info(
                "round %d/%d: %d nodes, %d clients, %d bytes up, %d down, %.1f s", number, self.terms.rounds,
                record["nodes"], record["clients"], gathering.bytes_up, gathering.bytes_down, record["seconds"],
            )  # fmt: skip
            return
        raise Stopped(
            f"round {number} was abandoned {self.terms.patience} times for want of {self.terms.min_nodes} nodes; model "
            f"and ledger are those of round {self.done}; --resume goes on"
        )

    def abandon(self, number: int, attempt: int, why: str) -> None:
        log.warning("round %d, attempt %d abandoned: %s", number, attempt, why)
        self.ledger.event("abandoned", round=number, attempt=attempt, why=why)

    def keep_metrics(self, round_: int, parts: list[tuple[int, dict[str, Any]]]) -> None:
        """The mean over all people measured, from the nodes' means."""
        users = sum(count for count, _ in parts)
        if not users:
            return
        mean: dict[str, dict[str, dict[str, float]]] = {}
        for count, metrics in parts:
            for part, kinds in metrics.items():
                for kind, values in kinds.items():
                    into = mean.setdefault(part, {}).setdefault(kind, {})
                    for key, value in values.items():
                        into[key] = into.get(key, 0.0) + count / users * value
        self.ledger.measured(round_, mean, users)

    def _finish(self) -> dict[str, Any]:
        number, evaluate = self.terms.rounds, bool(self.terms.evaluate_every)
        asks = {
            name: self.head("final", number, {"evaluate": evaluate}, self.download(name, number + 1))
            for name in self.present()
        }
        replies = self.gather(asks, "final", number, "finished", self.terms.deadline)
        told = [
            (one.head.about["measured"], one.head.about["metrics"])
            for one in replies.values()
            if "metrics" in one.head.about
        ]
        self.keep_metrics(number, told)
        rounds, last = self.ledger.rounds(), (self.ledger.metrics() or [{}])[-1]
        summary = {
            "coterie": self.spec.coterie, "run": self.spec.run, "algorithm": self.spec.algorithm,
            "settings": self.spec.settings, "protocol": self.spec.protocol.model_dump(mode="json"),
            "seed": self.spec.seed, "rounds": number, "send": self.spec.send, "reproducible": self.spec.reproducible,
            "private": not self.spec.reproducible, "nodes": len(self.blocks),
            "clients": sum(block.clients for block in self.blocks.values()), "model_sha256": self.ledger.model_hash(),
            "privacy": None if self.noise is None else self.noise.spent(),
            "bytes": {way: sum(one["bytes"][way] for one in rounds) for way in ("up", "down")},
            "seconds": [one["seconds"] for one in rounds], "finished_nodes": len(replies),
            "metrics": {key: last[key] for key in ("validation", "test") if key in last},
        }  # fmt: skip
        self.ledger.finish(summary)
        return summary

    # --- nodes --------------------------------------------------------------------------------------------------

    def _await_nodes(self, wanted: int) -> None:
        end = time.monotonic() + self.terms.await_nodes
        while True:
            self._invite()
            for request, node, answer in self.transport.pull():
                self.dispatch(request, node, answer)
            if len(self.present()) >= wanted:
                self._number()
                return
            if time.monotonic() > end:
                raise Stopped(
                    f"{len(self.present())} nodes are here after {self.terms.await_nodes:.0f} s, {wanted} are needed; "
                    "start more with `coterie node join`, then --resume"
                )
            self.transport.pause()

    def present(self) -> list[str]:
        """Members the transport sees now, in the order of their client numbers."""
        here = set(self.transport.nodes())
        known = [one for one in self.members.values() if one.node in here]
        return [one.name for one in sorted(known, key=self._order)]

    def _order(self, member: Member) -> tuple[float, float, str]:
        block = self.blocks.get(member.name)
        place = float("inf") if member.place is None else float(member.place)
        return (float("inf") if block is None else float(block.first), place, member.name)

    def _invite(self) -> None:
        """Send the terms to nodes that have just come."""
        for node in self.transport.nodes():
            if node not in self._by_node and node not in self._setups | self._turned_away:
                if self._setup is None:
                    items, titles = self.ledger.catalogue()
                    body = {"items": names_array(items)} | ({} if titles is None else {"titles": names_array(titles)})
                    about = {"spec": self.spec.model_dump(mode="json")}
                    self._setup = wire.pack(Head("setup", self.spec.run, 0, self.spec.sha256, about=about), body)
                self._setups.add(node)
                self.ask(node, "setup", 0, self._setup, self.terms.await_nodes)

    def _number(self) -> None:
        """Give newcomers their client numbers: by shard number where there is one, else by pseudonym."""
        fresh = [one for one in sorted(self.members.values(), key=self._order) if one.name not in self.blocks]
        for member in fresh:
            first = max((block.first + block.clients for block in self.blocks.values()), default=0)
            self.blocks[member.name] = Block(first, member.clients)
        if fresh:
            self.ledger.keep_blocks(self.blocks)
            if not self.done:
                self.server = self.algorithm.enrol(self.server, self.total, None)

    @property
    def total(self) -> int:
        return sum(block.clients for block in self.blocks.values())

    # --- messages -----------------------------------------------------------------------------------------------

    def head(self, kind: str, round_: int, about: dict[str, Any], download: Download | None = None) -> bytes:
        body = None if download is None else wire.download_arrays(download)
        return wire.pack(Head(kind, self.spec.run, round_, self.spec.sha256, about=about), body)

    def download(self, name: str, round_: int) -> Download:
        block = self.blocks[name]
        return self.algorithm.download(self.server, block.first + np.arange(block.clients), round_)

    def ask(self, node: int, kind: str, round_: int, data: bytes, seconds: float) -> None:
        self._asked[self.transport.push(node, data, seconds)] = _Asked(node, kind, round_)

    def dispatch(self, request: str, node: int, answer: bytes | None) -> tuple[_Asked, str, Message | None] | None:
        """Sort one answer: joining is dealt with here; anything else comes back as (question, pseudonym, message)."""
        asked = self._asked.pop(request, None)
        if asked is None or node != asked.node:
            self.refuse("stranger", "an answer to nothing that was asked", "unknown")
            return None
        name = self._by_node.get(node, "unknown")
        try:
            if answer is None:
                raise Refused("lost", "the node failed or went away")
            message = wire.unpack(answer)
            if message.head.kind == "refused":
                said = message.head.about
                raise Refused(f"node:{said.get('name', 'failed')}", str(said.get("why", ""))[:300])
            if asked.kind == "setup":
                wire.check(message.head, Head("joined", self.spec.run, 0, self.spec.sha256))
                self._admit(node, message)
                return None
            if message.head.about.get("node") != name:
                raise Refused("stranger", "the answer bears another node's name")
            return asked, name, message
        except Refused as problem:
            if asked.kind == "setup":
                self._setups.discard(node)
                if problem.kind != "lost":
                    self._turned_away.add(node)
            self.refuse(problem.kind, problem.why, name, asked.round)
            return None if asked.kind == "setup" else (asked, name, None)

    def _admit(self, node: int, message: Message) -> None:
        about = message.head.about
        name, clients = str(about["node"])[:64], int(about["clients"])
        block = self.blocks.get(name)
        if clients < 1 or (block is not None and block.clients != clients):
            raise Refused("clients", f"{clients} clients, the node had {0 if block is None else block.clients} before")
        if block is None and self.done and self.algorithm.collects:
            raise Refused("late-joiner", f"the server of {self.spec.algorithm} made room for its clients in round 1")
        self._setups.discard(node)
        before = self.members.get(name)
        if before is not None:
            self._by_node.pop(before.node, None)
        self.members[name], self._by_node[node] = Member(name, node, clients, about.get("place")), name
        self._away.discard(name)
        self.ledger.event("joined", node=name, clients=clients)
        log.info("node %s joined with %d clients", name, clients)

    def refuse(self, kind: str, why: str, name: str, round_: int = 0) -> None:
        log.warning("refused from node %s, round %d: %s: %s", name, round_, kind, why)
        self.ledger.event("refused", node=name, round=round_, name=kind, why=why)

    def gather(
        self,
        asks: dict[str, bytes],
        kind: str,
        round_: int,
        expected: str,
        seconds: float,
        watch: Gathering | None = None,
    ) -> dict[str, Message]:
        """Ask these members and wait. Returns the answers that are of this round and kind; late ones are refused."""
        wanted = Head(expected, self.spec.run, round_, self.spec.sha256)
        end = time.monotonic() + seconds
        for name, data in asks.items():
            self.ask(self.members[name].node, kind, round_, data, seconds)
        answered: set[str] = set()
        found: dict[str, Message] = {}
        need = self.terms.min_nodes if watch is not None else 0
        enough = min(self.terms.close_at or len(asks), len(asks))
        while True:
            for request, node, answer in self.transport.pull():
                sorted_ = self.dispatch(request, node, answer)
                if sorted_ is None:
                    continue
                asked, name, message = sorted_
                if (asked.kind, asked.round) != (kind, round_):
                    if message is not None:
                        self.refuse("late", f"an answer to {asked.kind} of round {asked.round}", name, asked.round)
                    continue
                self._away.discard(name)
                if name in found:
                    self.refuse("duplicate", "a second answer to the same question", name, round_)
                    continue
                answered.add(name)
                if message is None:
                    if watch is not None:
                        watch.count_refused("lost")
                    continue
                try:
                    wire.check(message.head, wanted)
                    if watch is not None:
                        watch.accept(name, message, len(answer or b""))
                    found[name] = message
                except Refused as problem:
                    self.refuse(problem.kind, problem.why, name, round_)
                    if watch is not None:
                        watch.count_refused(problem.kind)
            waiting = set(asks) - answered
            if not waiting or len(found) >= enough:
                break
            if waiting <= self._away and len(found) >= max(need, 1):
                break
            if time.monotonic() > end:
                self._away |= waiting
                break
            self._invite()
            self.transport.pause()
        if watch is not None:
            watch.late = len(set(asks) - answered)
        return found
