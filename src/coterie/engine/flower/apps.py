"""Flower carries the bytes: a ClientApp that hands them to the node, a ServerApp that runs the coordinator.

One message type serves all (`train`); what a message is stands in Coterie's own header. Bytes travel as an array of
uint8, which Flower cuts into chunks. Nothing is kept in Flower's context: it is gone when a SuperNode restarts.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any, final

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from coterie.engine.flower.coordinator import Coordinator
from coterie.engine.flower.ledger import Ledger
from coterie.engine.flower.node import Node
from coterie.engine.flower.processes import FOLDER
from coterie.engine.flower.runtime import retry_sooner

_PAUSE = 0.2  # seconds between two looks for answers
_LOOK_FOR_NODES = 1.0  # seconds for which the list of nodes is believed


def wrapped(data: bytes) -> RecordDict:
    return RecordDict({"coterie": ArrayRecord({"bytes": Array(np.frombuffer(data, np.uint8))})})


def unwrapped(content: RecordDict) -> bytes:
    record = content["coterie"]
    assert isinstance(record, ArrayRecord)
    return record["bytes"].numpy().tobytes()


@final
class FlowerTransport:
    """The coordinator's way to nodes over Flower's Grid, asking for answers oftener than `send_and_receive` does."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._waiting: dict[str, tuple[int, float]] = {}  # request -> node, when it is given up
        self._nodes: list[int] = []
        self._looked = -1e9

    def nodes(self) -> list[int]:
        if time.monotonic() - self._looked > _LOOK_FOR_NODES:
            self._nodes, self._looked = sorted(self.grid.get_node_ids()), time.monotonic()
        return self._nodes

    def push(self, node: int, data: bytes, seconds: float) -> str:
        message = Message(wrapped(data), dst_node_id=node, message_type="train", ttl=seconds + 5.0)
        request = str(next(iter(self.grid.push_messages([message]))))
        self._waiting[request] = (node, time.monotonic() + seconds + 60.0)
        return request

    def pull(self) -> list[tuple[str, int, bytes | None]]:
        if not self._waiting:
            return []
        found: list[tuple[str, int, bytes | None]] = []
        for reply in self.grid.pull_messages(list(self._waiting)):
            request = reply.metadata.reply_to_message_id
            node, _ = self._waiting.pop(request, (0, 0.0))
            found.append((request, node, None if reply.has_error() else unwrapped(reply.content)))
        now = time.monotonic()
        for request in [one for one, (_, end) in self._waiting.items() if now > end]:
            found.append((request, self._waiting.pop(request)[0], None))
        return found

    def pause(self) -> None:
        time.sleep(_PAUSE)


def log_to(path: Path, name: str) -> None:
    """Coterie's own words go to a file of their own, and to the process's output."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    wanted = str(path.resolve())
    if not any(isinstance(one, logging.FileHandler) and one.baseFilename == wanted for one in logger.handlers):
        handler = logging.FileHandler(path)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)


def _end_with_parent() -> None:
    """A run whose SuperLink is gone must not hold the folder: it could neither reach a node nor tell anybody."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


client_app = ClientApp()
server_app = ServerApp()
_NODES: dict[str, Node] = {}  # warm across messages where one process serves several


def node_at(folder: str) -> Node:
    if folder not in _NODES:
        _NODES[folder] = Node(Path(folder))
    return _NODES[folder]


@client_app.train()
def answer(message: Message, context: Context) -> Message:
    folder = str(context.node_config["store"])
    log_to(Path(folder) / "node.log", "coterie.node")
    return Message(wrapped(node_at(folder).handle(unwrapped(message.content))), reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    _end_with_parent()
    retry_sooner()
    folder = Path(os.environ[FOLDER])  # from the SuperLink that `coterie server start` started
    log_to(folder / "server.log", "coterie.server")
    ledger = Ledger(folder)
    with ledger.directory.locked():
        try:
            summary: dict[str, Any] = Coordinator(ledger, FlowerTransport(grid)).run()
        except BaseException as problem:
            logging.getLogger("coterie.server").error("stopped: %s", problem)
            ledger.event("stopped", why=str(problem))
            raise
    logging.getLogger("coterie.server").info("finished: model %s", summary["model_sha256"])
