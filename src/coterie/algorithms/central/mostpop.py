"""MostPop: everybody is recommended what most people have. The first bar any personal system has to clear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from coterie.algorithms.interface import Central, History


class Server(NamedTuple):
    popularity: np.ndarray  # float32[m]: how many histories hold the item


@final
@dataclass(frozen=True)
class MostPop(Central):
    name: ClassVar[str] = "mostpop"
    citation: ClassVar[str] = "folklore"
    sends: ClassVar[str] = "her whole history (central)"
    collaborative: ClassVar[bool] = False
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def init(self, history: History, seed: int) -> Server:
        return Server(np.zeros(history.n_items, np.float32))

    def train(self, server: Server, history: History, round_: int, seed: int) -> tuple[Server, None]:
        return Server(np.bincount(history.items, minlength=history.n_items).astype(np.float32)), None

    def score(self, server: Server, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        return np.broadcast_to(server.popularity, (len(users), len(server.popularity))).copy()
