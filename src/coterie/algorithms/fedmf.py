"""FedMF: matrix factorisation whose user vectors never leave the devices.

r = sigma(<u_i, C[j]> + c_j). Each client keeps u_i, steps on her own positives and sampled negatives, and sends by how
much the rows of C that she touched should move. The server adds those movements up.
Items that nobody's device has ever met, as positive or negative, are scored -inf: their rows are noise.

*coterie*: what she came to lately weighs more; her device knows when that was, and no time leaves it. The sum of
movements over the square root of how many clients sent the row is a direction for a server-side Adam: plain averaging
with huge client rates, as in the papers, is what costs accuracy.
*as_published*: no bias, the server adds the plain sum of the movements; with rates at which that does not diverge when
everybody takes part in a round.

Chai, Wang, Chen, Yang: Secure Federated Matrix Factorization. IEEE Intelligent Systems 36(5), 2021.
Reddi et al.: Adaptive Federated Optimization. ICLR 2021 (Adam on the server).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np

from coterie import rng
from coterie.algorithms import factor, negatives
from coterie.algorithms.interface import Download, Federated, History, Report, Sum, Upload
from coterie.algorithms.server import Adam, adam_step, real


class Server(NamedTuple):
    table: np.ndarray  # float32[m, dim (+ 1)]: item vectors, and the item's bias in the last column if there is one
    moments: Adam  # of the server's optimiser
    met: np.ndarray  # bool[m]: has anybody ever sent this row


class Client(NamedTuple):
    user: np.ndarray  # float32[n, dim]: the user vectors


@final
@dataclass(frozen=True)
class FedMF(Federated):
    dim: int = 32  # length of user and item vectors
    negatives: int = 16  # sampled negatives for each positive, redrawn each round
    epochs: int = 1  # local passes in a round
    batch: int = 1 << 20  # most rows in one local gradient step
    loss: Literal["bce", "squared"] = "bce"  # logistic loss, or squared error
    item_bias: bool = True  # each item has a bias
    start: float = 0.02  # deviation of the first vectors
    lr_user: float = 0.25  # user step size, over the square root of the history's length if user_rate_by_history
    user_rate_by_history: bool = True
    lr_item: float = 0.008  # item step size on the client
    reg_user: float = 0.01  # weight decay of the user vector
    reg_item: float = 0.1  # weight decay of touched item rows, on the client
    aggregate: Literal["adam", "mean", "sum"] = "adam"  # what the server does with the movements
    lr_server: float = 0.05  # step size of the server's Adam
    beta1: float = 0.9
    beta2: float = 0.99
    half_life: float = 8.0  # a positive's weight halves with every so many later ones, where times are known; 0: never
    oldest: float = 0.05  # but no less than this much of her latest's

    name: ClassVar[str] = "fedmf"
    citation: ClassVar[str] = "Chai et al., Secure Federated Matrix Factorization, IEEE Intelligent Systems 2021"
    sends: ClassVar[str] = "movement of the item rows she touched (positives and sampled negatives)"
    draws_negatives: ClassVar[bool] = True
    most_in_chunk: ClassVar[int] = 16  # what a chunk uploads should still be in the cache when it is added
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_published": {
            "dim": 32, "negatives": 4, "epochs": 10, "item_bias": False, "start": 0.1, "aggregate": "sum",
            "user_rate_by_history": False, "lr_user": 0.002, "lr_item": 0.0003, "reg_user": 0.0, "reg_item": 0.0,
            "half_life": 0.0,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        factor.check_recency(self.half_life, self.oldest, self.batch)

    def init_server(self, n_items: int, seed: int) -> Server:
        table = self.start * rng.generator(seed, rng.ITEM_START).standard_normal((n_items, self.dim), np.float32)
        if self.item_bias:
            table = np.hstack([table, np.zeros((n_items, 1), np.float32)])
        return Server(table.astype(np.float32), Adam.zeros(table.shape), np.zeros(n_items, bool))

    def init_clients(self, history: History, seed: int) -> Client:
        user = np.empty((history.n_clients, self.dim), np.float32)
        rng.fill_normal(user, self.start, seed, history.keys, rng.USER_START)
        return Client(user)

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        return Download(server.table, np.empty(0, np.float32))

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        drawn = negatives.draw(history, ids, self.negatives, seed, round_)
        rate = np.full(len(ids), self.lr_user)
        if self.user_rate_by_history:
            rate /= np.sqrt(np.maximum(history.lengths[ids], 1))
        settings = factor.Local(
            passes=self.epochs, batch=self.batch, mean=False, squared=self.loss == "squared", shared=True,
            private=False, item_bias=self.item_bias, user_bias=False, whole=False, everywhere=False,
            rate_item=self.lr_item, rate_own=0.0, decay_user=self.reg_user, decay_item=self.reg_item, decay_own=0.0,
            step_decay=1.0, apart=0.0, sparse=0.0, penalty=factor.NO_PENALTY, tolerance=0.0,
            half_life=self.half_life, oldest=self.oldest,
        )  # fmt: skip
        upload, report = factor.train(
            ids, history, drawn, download, clients.user, None, None, rate, settings, round_, seed
        )
        return upload._replace(dense=np.empty((len(ids), 0), np.float32)), report

    def server_step(self, server: Server, received: Sum, round_: int) -> Server:
        moved, met = real(received.rows), server.met | (received.touched > 0)
        if self.aggregate == "adam":
            step = moved / np.sqrt(np.maximum(received.touched, 1))[:, None]
            betas = (self.beta1, self.beta2)
            return Server(*adam_step(server.table, server.moments, step, round_, self.lr_server, betas), met)
        share = 1.0 if self.aggregate == "sum" else 1.0 / max(int(received.clients[0]), 1)
        return Server((server.table + share * moved).astype(np.float32), server.moments, met)

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        scores = factor.score(users, server.table, clients.user, None, None, True, self.item_bias)
        if server.met.any():
            scores[:, ~server.met] = -np.inf  # nobody's device has met them: their rows are noise
        return scores

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.table[:, : self.dim]
