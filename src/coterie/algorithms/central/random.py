"""Random: scores drawn anew for each person. What chance looks like under the same protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms.interface import Central, History


class Server(NamedTuple):
    seed: np.ndarray  # int64[1]
    n_items: np.ndarray  # int64[1]


@njit(nogil=True, cache=True)
def _scores(keys, seed, out):  # type: ignore[no-untyped-def]
    for u in range(len(keys)):
        state = rng.stream(seed, 0, keys[u], rng.USER_START)
        for j in range(out.shape[1]):
            state = rng.after(state)
            out[u, j] = rng.uniform(state)


@final
@dataclass(frozen=True)
class Random(Central):
    name: ClassVar[str] = "random"
    citation: ClassVar[str] = "folklore"
    sends: ClassVar[str] = "nothing"
    collaborative: ClassVar[bool] = False
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def init(self, history: History, seed: int) -> Server:
        return Server(np.array([seed]), np.array([history.n_items]))

    def train(self, server: Server, history: History, round_: int, seed: int) -> tuple[Server, None]:
        return server, None

    def score(self, server: Server, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        out = np.empty((len(users), int(server.n_items[0])), np.float32)
        _scores(history.keys[users], int(server.seed[0]), out)
        return out
