"""CentRAP: FedRAP's model trained where everybody's history lies together.

The same score <u_i, D_i[j] + C[j]> + c_j and the same local steps, but each person's step moves the one C at once
instead of being averaged with the others' at the end of a round. What federation costs FedRAP is the difference.

Li, Long, Zhou: Federated Recommendation with Additive Personalization. ICLR 2024 (the baseline CentRAP).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from coterie import rng
from coterie.algorithms import factor, negatives
from coterie.algorithms.interface import Central, Download, History
from coterie.algorithms.rowstore import RowStore
from coterie.ragged import Ragged


class Server(NamedTuple):
    table: np.ndarray  # float32[m, dim + 1]: C, and the item's bias in the last column
    user: np.ndarray  # float32[n, dim]: u
    own: RowStore  # D: float32[n, m, dim] in effect


@final
@dataclass(frozen=True)
class CentRAP(Central):
    dim: int = 32  # length of user and item vectors
    negatives: int = 4  # distinct sampled negatives for each positive, redrawn each round
    start: float = 0.1  # deviation of the first C and u
    lr_user: float = 0.02  # step size of u, for the sum over a history
    lr_item: float = 0.002  # step size of C
    lr_own: float = 0.0005  # step size of D
    reg_user: float = 0.02  # weight decay of u
    reg_item: float = 0.02  # weight decay of touched rows of C
    reg_own: float = 0.1  # weight decay of touched rows of D
    apart: float = 0.0  # lambda: weight of -||D - C||^2
    sparse: float = 0.0  # mu: weight of ||C||_1

    name: ClassVar[str] = "centrap"
    citation: ClassVar[str] = "Li, Long, Zhou, Federated Recommendation with Additive Personalization, ICLR 2024"
    sends: ClassVar[str] = "her whole history (central)"
    default_rounds: ClassVar[int] = 100
    draws_negatives: ClassVar[bool] = True
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_released": {
            "lr_item": 0.02, "lr_own": 0.1, "reg_own": 0.0, "reg_user": 0.0, "reg_item": 0.0, "start": 0.3,
        },
    }  # fmt: skip

    def init(self, history: History, seed: int) -> Server:
        draws = rng.generator(seed, rng.ITEM_START)
        table = self.start * draws.standard_normal((history.n_items, self.dim), np.float32)
        user = np.empty((history.n_clients, self.dim), np.float32)
        rng.fill_normal(user, self.start, seed, history.keys, rng.USER_START)
        nothing = np.zeros((history.n_items, self.dim), np.float32)
        table = np.hstack([table, np.zeros((history.n_items, 1), np.float32)]).astype(np.float32)
        return Server(table, user, RowStore.empty(history.n_clients, nothing))

    def train(self, server: Server, history: History, round_: int, seed: int) -> tuple[Server, float, Ragged]:
        everybody = np.arange(history.n_clients)
        drawn = negatives.draw(history, everybody, self.negatives, seed, round_)
        order = np.argsort(rng.uniforms(seed, round_, history.keys, rng.SHUFFLE), kind="stable")
        table, user, own = server.table.copy(), server.user, server.own
        losses, examples = np.zeros(history.n_clients), np.zeros(history.n_clients, np.int64)
        for client in order:
            losses[client], examples[client] = self._visit(client, history, drawn, table, user, own, round_, seed)
        loss = float(losses @ examples / max(examples.sum(), 1))
        return Server(table, user, own), loss, drawn

    def _visit(
        self,
        client: int,
        history: History,
        drawn: Ragged,
        table: np.ndarray,
        user: np.ndarray,
        own: RowStore,
        round_: int,
        seed: int,
    ) -> tuple[float, int]:
        """One step on one person's examples, applied to the shared table at once."""
        hers = drawn.of(client)
        upload, report = factor.train(
            np.array([client]), history, Ragged(np.array([0, len(hers)]), hers),
            Download(table, np.empty(0, np.float32)), user, None, own, np.array([self.lr_user]), self._settings(),
            round_, seed,
        )  # fmt: skip
        table[upload.rows] += upload.values
        return float(report.loss[0]), int(report.examples[0])

    def _settings(self, train_items: bool = True) -> factor.Local:
        return factor.Local(
            passes=1, batch=1 << 20, mean=False, squared=False, shared=True, private=True, item_bias=True,
            user_bias=False, whole=False, everywhere=False, rate_item=self.lr_item if train_items else 0.0,
            rate_own=self.lr_own, decay_user=self.reg_user, decay_item=self.reg_item, decay_own=self.reg_own,
            step_decay=1.0, apart=self.apart, sparse=self.sparse, penalty=factor.L1, tolerance=0.0,
        )  # fmt: skip

    def score(self, server: Server, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        user, own = (clients.user, clients.own) if clients else (server.user, server.own)
        return factor.score(users, server.table, user, None, own, True, True)

    def newcomer(self, server: Server, history: History, seed: int) -> Server:
        """Her vector and her own table, solved against the finished C."""
        start = self.init(history, seed)
        ids, table = np.arange(history.n_clients), Download(server.table, np.empty(0, np.float32))
        for round_ in range(1, 31):
            drawn = negatives.draw(history, ids, self.negatives, seed, round_)
            rate = np.full(len(ids), self.lr_user)
            factor.train(
                ids, history, drawn, table, start.user, None, start.own, rate, self._settings(False), round_, seed
            )
        return start

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.table[:, : self.dim]
