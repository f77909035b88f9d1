"""FedNCF: neural collaborative filtering whose user vectors stay, and whose item table and network are averaged.

r = sigma(MLP([p_i; q_j])). A client starts from the shared q and MLP, trains with her own p_i, and sends by how much
the rows of q that she touched and the MLP moved; the server adds the mean of the movements (FedAvg).

*as_published*: one rate for all, as in the paper; GPFedRec's Table 3 trains it for 100 rounds with one local pass of
batches of 256 and the rate from a grid. *coterie*: the same; a server-side Adam (`aggregate=adam`) was searched and is
no better but at rates next to which it fails (docs/findings/other-federated.md).

Perifanis, Efraimidis: Federated Neural Collaborative Filtering. Knowledge-Based Systems 242, 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np

from coterie import rng
from coterie.algorithms import mlp, ncf, negatives
from coterie.algorithms.interface import Download, Federated, History, Report, Sum, Upload
from coterie.algorithms.server import Adam, adam_step, real


class Server(NamedTuple):
    table: np.ndarray  # float32[m, dim]: q
    network: np.ndarray  # float32[parameters]: the MLP
    moments: Adam  # of q, for the server's optimiser (empty for the plain mean)
    network_moments: Adam  # of the MLP


class Client(NamedTuple):
    user: np.ndarray  # float32[n, dim]: p


@final
@dataclass(frozen=True)
class FedNCF(Federated):
    dim: int = 32  # length of user and item vectors
    hidden: str = "32,16,8"  # sizes of the network's hidden layers
    negatives: int = 4  # sampled negatives for each positive, redrawn each round
    epochs: int = 1  # local passes in a round
    batch: int = 256  # most examples in one local gradient step
    mean_loss: bool = True  # the loss is a mean over the batch, not a sum
    start: float = 1.0  # deviation of the first user and item vectors
    lr_user: float = 7.9  # step size of the user vector
    lr_item: float = 8.0  # step size of the item table on the client, times the number of items if rate_by_items
    rate_by_items: bool = True
    lr_network: float = 1.0  # step size of the network on the client
    reg_user: float = 0.0  # weight decay of the user vector
    reg_item: float = 0.0  # weight decay of touched item rows
    reg_network: float = 0.0  # weight decay of the network
    aggregate: Literal["mean", "adam"] = "mean"  # what the server does with the movements
    lr_server: float = 0.02  # step size of the server's Adam for the item table
    lr_server_network: float = 0.005  # and for the network
    beta1: float = 0.9
    beta2: float = 0.99

    name: ClassVar[str] = "fedncf"
    citation: ClassVar[str] = "Perifanis, Efraimidis, Federated Neural Collaborative Filtering, KBS 2022"
    sends: ClassVar[str] = "movement of the item rows she touched and of the whole network"
    draws_negatives: ClassVar[bool] = True
    home: ClassVar[str] = "gpfedrec"
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_published": {
            "dim": 32, "negatives": 4, "epochs": 1, "batch": 256, "mean_loss": True, "start": 1.0, "lr_user": 7.9,
            "lr_item": 8.0, "rate_by_items": True, "lr_network": 1.0, "aggregate": "mean",
        },
    }  # fmt: skip

    @property
    def sizes(self) -> tuple[int, ...]:
        """The network's layers, from the two vectors to the score."""
        return (2 * self.dim, *(int(one) for one in self.hidden.split(",") if one.strip()), 1)

    def init_server(self, n_items: int, seed: int) -> Server:
        draws = rng.generator(seed, rng.ITEM_START)
        table = (self.start * draws.standard_normal((n_items, self.dim), np.float32)).astype(np.float32)
        network = mlp.start(self.sizes, draws)
        adam = self.aggregate == "adam"
        return Server(
            table, network, Adam.zeros(table.shape if adam else (0, 0)), Adam.zeros(network.shape if adam else (0,))
        )

    def init_clients(self, history: History, seed: int) -> Client:
        user = np.empty((history.n_clients, self.dim), np.float32)
        rng.fill_normal(user, self.start, seed, history.keys, rng.USER_START)
        return Client(user)

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        return Download(server.table, server.network)

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        drawn = negatives.draw(history, ids, self.negatives, seed, round_)
        settings = ncf.Local(
            passes=self.epochs, batch=self.batch, mean=self.mean_loss, rate_user=self.lr_user,
            rate_item=self.lr_item * (history.n_items if self.rate_by_items else 1), rate_network=self.lr_network,
            decay_user=self.reg_user, decay_item=self.reg_item, decay_network=self.reg_network, pull=0.0,
        )  # fmt: skip
        networks, place = np.tile(download.dense, (len(ids), 1)), np.arange(len(ids))
        moved, report = ncf.train(
            ids, history, drawn, download.table, None, clients.user, networks, place, None, place,
            np.array(self.sizes), settings, round_, seed,
        )  # fmt: skip
        return Upload(*moved, networks - download.dense), report

    def server_step(self, server: Server, received: Sum, round_: int) -> Server:
        rows, network, clients = real(received.rows), real(received.dense), max(int(received.clients[0]), 1)
        if self.aggregate == "mean":
            return server._replace(
                table=(server.table + rows / clients).astype(np.float32),
                network=(server.network + network / clients).astype(np.float32),
            )
        betas = (self.beta1, self.beta2)
        touched = np.sqrt(np.maximum(received.touched, 1))[:, None]
        table, moments = adam_step(server.table, server.moments, rows / touched, round_, self.lr_server, betas)
        theta, others = adam_step(
            server.network, server.network_moments, network / clients**0.5, round_, self.lr_server_network, betas
        )
        return Server(table, theta, moments, others)

    def seen(self, download: Download, n_items: int, seed: int) -> Server:
        return self.init_server(n_items, seed)._replace(table=download.table, network=download.dense)

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        nought = np.zeros_like(users)
        return ncf.score(
            users, server.table[None], nought, clients.user, server.network[None], nought, np.array(self.sizes)
        )

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.table
