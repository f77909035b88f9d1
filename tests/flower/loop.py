"""A transport without a network: nodes are objects, and faults are put between them and the server at will."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.interactions import Interactions
from coterie.engine.flower.coordinator import Coordinator
from coterie.engine.flower.ledger import Ledger
from coterie.engine.flower.node import Node
from coterie.engine.flower.setup import shards
from coterie.engine.flower.spec import FederationSpec, Terms, catalogue_hash, default_send
from coterie.engine.flower.store import NodeStore
from coterie.engine.simulate import simulate, start
from coterie.protocol import Protocol, prepare
from coterie.runs import tensors

Fault = Callable[[int, bytes, bytes], list[bytes | None]]  # (node, question, answer) -> what arrives


class Loop:
    """Answers arrive at once, unless `fault` makes something else of them. `log` keeps every byte that crossed."""

    def __init__(self, nodes: dict[int, Node], fault: Fault | None = None) -> None:
        self.members, self.fault = nodes, fault
        self.waiting: list[tuple[str, int, bytes | None]] = []
        self.log: list[bytes] = []
        self.asked = 0

    def nodes(self) -> list[int]:
        return list(self.members)

    def push(self, node: int, data: bytes, seconds: float) -> str:
        self.asked += 1
        request = str(self.asked)
        answer = self.members[node].handle(data)
        self.log += [data, answer]
        arriving = [answer] if self.fault is None else self.fault(node, data, answer)
        self.waiting += [(request, node, one) for one in arriving]
        return request

    def pull(self) -> list[tuple[str, int, bytes | None]]:
        found, self.waiting = self.waiting, []
        return found

    def pause(self) -> None:
        import time

        time.sleep(0.01)


def federation(
    folder: Path, data: Interactions, algorithm: Any, nodes: int = 3, fault: Fault | None = None, **options: Any
) -> tuple[Coordinator, Loop]:
    """A server and its nodes, ready to run."""
    terms = {key: options.pop(key) for key in list(options) if key in Terms.model_fields}
    from dataclasses import asdict

    options = {"send": default_send(algorithm), "reproducible": True, **options}
    spec = FederationSpec(
        run="test", algorithm=algorithm.name, settings=asdict(algorithm), n_items=data.n_items,
        catalogue=catalogue_hash(data.item_ids), **options,
    )  # fmt: skip
    ledger = Ledger(folder / "server")
    if not ledger.spec_file.exists():
        asked = Terms(
            **{"rounds": 3, "min_nodes": nodes, "deadline": 1.0, "evaluate_every": 0, "await_nodes": 2.0, **terms}
        )
        ledger = Ledger.create(folder / "server", spec, asked, data.item_ids, data.titles)
        for number, path in enumerate(shards(data, nodes, folder / "shards")):
            NodeStore.create(folder / f"node-{number}", path, place=number)
    members = {100 + n: Node(folder / f"node-{n}", threads=1) for n in range(nodes)}
    loop = Loop(members, fault)
    return Coordinator(ledger, loop), loop


def simulated(data: Interactions, algorithm: Any, rounds: int, folder: Path, protocol: Protocol | None = None) -> str:
    """The hash of the simulator's server after so many rounds with everybody taking part."""
    prepared = prepare(data, protocol or Protocol(), 0)
    state = start(algorithm, prepared.history, 0)
    for one in simulate(algorithm, prepared.history, state, range(1, rounds + 1), 0, 1.0):
        state = one.state
    return tensors.save(folder / "simulated", state.server, {})


def same_arrays(one: Any, other: Any) -> bool:
    pairs = zip(tensors.leaves(one), tensors.leaves(other), strict=True)
    return all(a[0] == b[0] and np.array_equal(a[1], b[1]) for a, b in pairs)
