"""FedRAP: each person's view of the items is a shared sparse table plus a private one.

r = sigma(<u_i, D_i[j] + C[j]> + b_i). C goes to the server, which averages; D_i, u_i and b_i stay. The loss on a client:
BCE - lambda ||D_i - C||^2 + mu ||C||_1: the two views shall differ, and the shared one be sparse.

*as_released*: what the tables came from (github.com/mtics/FedRAP): means over the batch, rates decaying by round and
step, weight decay on every row, all clients, the plain mean of C. The curriculum is computed there but never applied,
so it is off here too. *coterie*: FedMF's server-side Adam for C, and D as a small private correction.

Li, Long, Zhou: Federated Recommendation with Additive Personalization. ICLR 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np

from coterie import rng
from coterie.algorithms import factor, negatives
from coterie.algorithms.interface import Download, Federated, History, Report, Sum, Upload
from coterie.algorithms.rowstore import RowStore
from coterie.algorithms.server import Adam, adam_step, real


class Server(NamedTuple):
    table: np.ndarray  # float32[m, dim (+ 1)]: C, and the item's bias in the last column if there is one
    moments: Adam  # of the server's optimiser (unused by the plain mean)


class Client(NamedTuple):
    user: np.ndarray  # float32[n, dim]: u
    bias: np.ndarray  # float32[n]: b
    own: RowStore  # D: float32[n, m, dim] in effect


@final
@dataclass(frozen=True)
class FedRAP(Federated):
    dim: int = 64  # length of user and item vectors
    negatives: int = 16  # distinct sampled negatives for each positive, redrawn each round
    epochs: int = 1  # local passes in a round
    batch: int = 1 << 20  # most rows in one local gradient step
    mean_loss: bool = False  # gradients are means over the batch, not sums
    item_bias: bool = True  # each item has a shared bias
    user_bias: bool = False  # each client has a bias of her own
    start: float = 0.02  # deviation of the first C and u
    start_own: float = 0.0  # deviation of the first D
    uniform_user: bool = False  # u and b start at the same U(+-1/sqrt(dim)) for all clients
    lr_user: float = 0.2  # user step size, over the square root of the history's length if user_rate_by_history
    user_rate_by_history: bool = True
    lr_item: float = 0.008  # step size of C on the client
    lr_own: float = 0.003  # step size of D
    reg_user: float = 0.004  # weight decay of u
    reg_item: float = 0.08  # weight decay of C on the client
    reg_own: float = 0.1  # weight decay of D
    decay_everywhere: bool = False  # weight decay also on rows outside the batch
    round_decay: float = 1.0  # all client rates are multiplied by this after each round
    step_decay: float = 1.0  # and by this after each step within a round
    apart: float = 0.0  # lambda: weight of -||D - C||^2
    sparse: float = 0.0  # mu: weight of ||C||_1
    tolerance: float = 0.0  # local stop: relative change of the running mean loss; 0 is off
    aggregate: Literal["adam", "mean"] = "adam"  # what the server does with the movements of C
    lr_server: float = 0.04  # step size of the server's Adam
    beta1: float = 0.9
    beta2: float = 0.99

    name: ClassVar[str] = "fedrap"
    citation: ClassVar[str] = "Li, Long, Zhou, Federated Recommendation with Additive Personalization, ICLR 2024"
    sends: ClassVar[str] = "movement of the shared table's rows she touched; her own table and vector stay"
    draws_negatives: ClassVar[bool] = True
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_released": {
            "dim": 32, "negatives": 4, "epochs": 10, "batch": 2048, "mean_loss": True, "item_bias": False,
            "user_bias": True, "start": 1.0, "start_own": 1.0, "uniform_user": True, "lr_user": 0.5,
            "user_rate_by_history": False, "lr_item": 200.0, "lr_own": 200.0, "reg_user": 1e-4, "reg_item": 1e-4,
            "reg_own": 1e-4, "decay_everywhere": True, "round_decay": 0.97, "step_decay": 0.95, "apart": 0.1,
            "sparse": 0.1, "tolerance": 1e-4, "aggregate": "mean",
        },
    }  # fmt: skip

    def init_server(self, n_items: int, seed: int) -> Server:
        table = self.start * rng.generator(seed, rng.ITEM_START).standard_normal((n_items, self.dim), np.float32)
        if self.item_bias:
            table = np.hstack([table, np.zeros((n_items, 1), np.float32)])
        moments = table.shape if self.aggregate == "adam" else (0, 0)
        return Server(table.astype(np.float32), Adam.zeros(moments))

    def init_clients(self, history: History, seed: int) -> Client:
        draws = rng.generator(seed, rng.USER_START)  # one start for all, so it may come from the shared seed
        own = self.start_own * draws.standard_normal((history.n_items, self.dim), np.float32)
        user = np.empty((history.n_clients, self.dim), np.float32)
        bias = np.zeros(history.n_clients, np.float32)
        if self.uniform_user:
            edge = self.dim**-0.5
            user[:] = draws.uniform(-edge, edge, self.dim)
            bias[:] = draws.uniform(-edge, edge)
        else:
            rng.fill_normal(user, self.start, seed, history.keys, rng.USER_START)
        return Client(user, bias, RowStore.empty(history.n_clients, own.astype(np.float32)))

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        return Download(server.table, np.empty(0, np.float32))

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        drawn = negatives.draw(history, ids, self.negatives, seed, round_)
        fade = self.round_decay ** (round_ - 1)
        rate = np.full(len(ids), self.lr_user * fade)
        if self.user_rate_by_history:
            rate /= np.sqrt(np.maximum(history.lengths[ids], 1))
        settings = factor.Local(
            passes=self.epochs, batch=self.batch, mean=self.mean_loss, squared=False, shared=True, private=True,
            item_bias=self.item_bias, user_bias=self.user_bias, whole=False, everywhere=self.decay_everywhere,
            rate_item=self.lr_item * fade, rate_own=self.lr_own * fade, decay_user=self.reg_user,
            decay_item=self.reg_item, decay_own=self.reg_own, step_decay=self.step_decay, apart=self.apart,
            sparse=self.sparse, penalty=factor.L1, tolerance=self.tolerance,
        )  # fmt: skip
        return factor.train(
            ids, history, drawn, download, clients.user, clients.bias, clients.own, rate, settings, round_, seed
        )

    def server_step(self, server: Server, received: Sum, round_: int) -> Server:
        moved = real(received.rows)
        if self.aggregate == "adam":
            step = moved / np.sqrt(np.maximum(received.touched, 1))[:, None]
            return Server(
                *adam_step(server.table, server.moments, step, round_, self.lr_server, (self.beta1, self.beta2))
            )
        clients = max(int(received.clients[0]), 1)  # the mean of whole tables, from shrinks and touched rows alone
        table = real(received.dense)[0] / clients * server.table + moved / clients
        return server._replace(table=table.astype(np.float32))

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        return factor.score(users, server.table, clients.user, clients.bias, clients.own, True, self.item_bias)

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.table[:, : self.dim]
