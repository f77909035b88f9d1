"""GPFedRec: each person learns from the people whose view of the items is like hers, found without their histories.

r = sigma(MLP([p_i; q_j])). p_i and the MLP stay. Each round q starts from a shared table, is trained with the loss
BCE + lambda MSE(q, r_i) and uploaded; the server links people by the likeness of their uploads (graph.py) and sends
each the mean r_i of her neighbours' tables. Light_GPFedRec rebuilds the graph every `interval` rounds only. Ablations:
PSF (`reg=0 shared=mean`), PSF+Init (`reg=0`), PSF+Reg (`shared=mean`).

*as_released* (github.com/Zhangcx19/GPFedRec): S is cosine *distance*, so neighbours are the unlike; the item rate is
8 x items (the code's minus 0.1 is left out: a part in a hundred thousand); scored with a client's own table.
*as_published*: S is cosine similarity, the loss a sum, one rate for all (0.01: of the paper's grid 0.1 diverges), the
shared table weighted by degree. A is normalised by row, as in the code: the literal 0/1 sum over hundreds of neighbours
diverges (`normalise=none`).
*coterie*: the published similarity with the released rates, scored with the shared table: validation chose it over her
own table and over r_i (papers/defaults/gpfedrec.json).

Zhang, Long, Zhou, Zhang, Yan, Yang: GPFedRec: Graph-Guided Personalization for Federated Recommendation. KDD 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np

from coterie import rng
from coterie.algorithms import graph, memory, mlp, ncf, negatives
from coterie.algorithms.graph import Graph, Normalise, Rules, Similarity
from coterie.algorithms.graph_sources import Source, fixed_graph
from coterie.algorithms.interface import Collected, Download, Federated, History, Report, Upload
from coterie.algorithms.noise import laplace
from coterie.ragged import Ragged

_PLACE_EVERY = 5  # of a newcomer's own rounds: her neighbours are looked up anew


class Server(NamedTuple):
    table: np.ndarray  # float32[m, dim]: q_global
    graph: Graph  # everybody's last upload, and who is linked to whom
    graphs: np.ndarray  # int64[1]: how many graphs have been made
    held: np.ndarray  # bool[n, m] in the storage-saving mode: which rows each client uploads; else empty


class Client(NamedTuple):
    user: np.ndarray  # float32[n, dim]: p
    network: np.ndarray  # float32[n, parameters]: the score function
    own: np.ndarray  # float32[n, m, dim]: q as last trained, where it is needed to score; else [n, 0, dim]
    held: np.ndarray  # bool[n, m] in the storage-saving mode: the items she holds; else empty
    views: np.ndarray  # float32[n, m, dim] for people who were not in training: what the server sent; else empty


@final
@dataclass(frozen=True)
class GPFedRec(Federated):
    dim: int = 32  # length of user and item vectors
    hidden: str = "32,16,8"  # sizes of the network's hidden layers
    negatives: int = 4  # sampled negatives for each positive, redrawn each round
    epochs: int = 1  # local passes in a round
    batch: int = 256  # most examples in one local gradient step
    mean_loss: bool = True  # the logistic loss is a mean over the batch, not a sum
    start: float = 1.0  # deviation of the first user and item vectors, the same for all clients
    lr_user: float = 7.9  # step size of the user vector
    lr_item: float = 8.0  # step size of the item table, times the number of items if rate_by_items
    rate_by_items: bool = True
    lr_network: float = 0.1  # step size of the network
    reg_user: float = 0.0  # weight decay of the user vector
    reg_item: float = 0.0  # weight decay of the batch's item rows
    reg_network: float = 0.0  # weight decay of the network
    reg: float = 1.0  # lambda: weight of the mean square of q - r_i; 0 is the ablation without Reg
    shared: Literal["mean-view", "degree", "mean"] = "mean-view"  # q_global: of r_i, by degree, or plain (no Init)
    scored: Literal["own", "view", "shared"] = "shared"  # items are scored with her own table, r_i or q_global
    graph: Source = "uploads"  # where the graph comes from; random ones and oracle-... (raw histories) for comparison
    density: float = 0.5  # share of pairs that are linked, for graphs that do not come from uploads
    similarity: Similarity = "cosine"  # of uploads; cosine-distance is what the released code computes
    gamma: float = 1.0  # neighbours are those more alike than gamma times the mean
    neighbours: int = 0  # the most alike so many instead of a threshold; 0: threshold
    sample: int = 0  # at most so many neighbours, drawn anew with each graph; 0: all
    normalise: Normalise = "row"  # of A: row, none (the literal sum) or laplacian
    layers: int = 1  # l: how often tables are passed on along the graph
    interval: int = 1  # rounds from one graph to the next; Light_GPFedRec has 10
    subgraph: float = 1.0  # share of people whose neighbours are looked up anew with each graph
    noise: float = 0.0  # delta: scale of the Laplace noise on uploads
    storage: int = 0  # storage-saving: clients hold their items and so many sampled ones for each; 0: all items
    candidates: int = 200  # storage-saving: items beyond those held that the server picks for ranking

    name: ClassVar[str] = "gpfedrec"
    citation: ClassVar[str] = "Zhang et al., GPFedRec: Graph-Guided Personalization, KDD 2024"
    sends: ClassVar[str] = "her whole trained item table (her items' rows stand out in it); vector and network stay"
    draws_negatives: ClassVar[bool] = True
    collects: ClassVar[bool] = True
    pieces: ClassVar[int] = 1
    most_in_chunk: ClassVar[int] = 1024  # making views has a cost for each chunk, whatever its size
    home: ClassVar[str] = "gpfedrec"
    server_only: ClassVar[dict[str, Any]] = {"scored": "shared", "reg": 0.0, "storage": 0}
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_published": {
            "dim": 32, "negatives": 4, "epochs": 1, "batch": 256, "mean_loss": False, "start": 1.0, "lr_user": 0.01,
            "lr_item": 0.01, "rate_by_items": False, "lr_network": 0.01, "reg": 0.5, "gamma": 0.5, "shared": "degree",
            "similarity": "cosine", "scored": "own", "reg_user": 0.0, "reg_item": 0.0, "reg_network": 0.0,
        },
        "as_released": {
            "dim": 32, "negatives": 4, "epochs": 1, "batch": 256, "mean_loss": True, "start": 1.0, "lr_user": 7.9,
            "lr_item": 8.0, "rate_by_items": True, "lr_network": 0.1, "reg": 1.0, "gamma": 1.0, "shared": "mean-view",
            "similarity": "cosine-distance", "scored": "own", "reg_user": 0.0, "reg_item": 0.0, "reg_network": 0.0,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        graph.check(self.rules, self.interval)
        if self.graph.startswith("oracle-"):  # wherever the run says what leaves the devices, it says this
            object.__setattr__(self, "sends", "ORACLE GRAPH: the server was given everybody's raw history to draw it")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The network's layers, from the two vectors to the score."""
        return (2 * self.dim, *(int(one) for one in self.hidden.split(",") if one.strip()), 1)

    @property
    def rules(self) -> Rules:
        return Rules(
            self.similarity, self.gamma, self.normalise, self.layers, self.neighbours, self.sample, self.subgraph
        )

    @property
    def linked(self) -> bool:
        """Whether anything depends on the graph; it does not in the PSF ablation."""
        return self.reg > 0 or self.shared != "mean" or self.scored == "view"

    @property
    def keeps(self) -> bool:
        """Whether a client keeps her table from round to round."""
        return self.scored == "own" or self.storage > 0

    def _first_table(self, n_items: int, seed: int) -> np.ndarray:
        draws = rng.generator(seed, rng.ITEM_START)
        return (self.start * draws.standard_normal((n_items, self.dim), np.float32)).astype(np.float32)

    def init_server(self, n_items: int, seed: int) -> Server:
        nobody = graph.empty(0, n_items, self.dim, self.layers, seed)
        return Server(self._first_table(n_items, seed), nobody, np.zeros(1, np.int64), np.zeros((0, 0), bool))

    def enrol(self, server: Server, n_clients: int, history: History | None) -> Server:
        n_items, seed = len(server.table), int(server.graph.seed[0])
        fixed = fixed_graph(self.graph, n_clients, self.density, seed, history)
        held = np.zeros((n_clients, n_items) if self.storage else (0, 0), bool)
        return server._replace(graph=graph.empty(n_clients, n_items, self.dim, self.layers, seed, fixed), held=held)

    def init_clients(self, history: History, seed: int) -> Client:
        n, draws = history.n_clients, rng.generator(seed, rng.USER_START)  # one start for all: from the shared seed
        user = np.tile((self.start * draws.standard_normal(self.dim)).astype(np.float32), (n, 1))
        network = np.tile(mlp.start(self.sizes, draws), (n, 1))
        own = np.empty((n, history.n_items if self.keeps else 0, self.dim), np.float32)
        if self.keeps:
            own[:] = self._first_table(history.n_items, seed)
        held = np.zeros((n, history.n_items) if self.storage else (0, 0), bool)
        if self.storage:
            everybody = np.arange(n)
            pool = negatives.draw(history, everybody, self.storage, seed, 0)
            held[np.repeat(everybody, pool.lengths), pool.items] = True
            held[np.repeat(everybody, history.lengths), history.items] = True
        return Client(user, network, own, held, np.empty((0, 0, 0), np.float32))

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        sent = self.reg > 0 or self.scored == "view" or self.storage > 0
        views = graph.views(server.graph, ids, self.rules, server.table) if sent else None
        rows = None
        if self.storage:  # before her first upload she is sent everything
            rows = np.where(server.graph.known[ids], server.held[ids].sum(1), len(server.table))
        return Download(server.table, np.empty(0, np.float32), views, rows)

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        m = history.n_items
        drawn = negatives.draw(self._within_held(history, clients, ids), ids, self.negatives, seed, round_)
        rate = self.lr_item * (m if self.rate_by_items else 1)
        settings = ncf.Local(
            passes=self.epochs, batch=self.batch, mean=self.mean_loss, rate_user=self.lr_user, rate_item=rate,
            rate_network=self.lr_network, decay_user=self.reg_user, decay_item=self.reg_item,
            decay_network=self.reg_network, pull=2 * self.reg / (m * self.dim),
        )  # fmt: skip
        tables, slot = clients.own, ids
        if not self.keeps:
            tables, slot = memory.empty(len(ids), m, self.dim), np.arange(len(ids))
        towards = download.own if self.reg > 0 else None
        _, report = ncf.train(
            ids, history, drawn, download.table, towards, clients.user, clients.network, ids, tables, slot,
            np.array(self.sizes), settings, round_, seed,
        )  # fmt: skip
        return self._upload(clients, tables, slot, ids, history, round_, seed), report

    def _within_held(self, history: History, clients: Client, ids: np.ndarray) -> History:
        """In the storage-saving mode negatives come from the items she holds beside her own."""
        if not self.storage:
            return history
        mine = np.zeros_like(clients.held)
        mine[np.repeat(np.arange(len(mine)), history.lengths), history.items] = True
        owner, items = np.nonzero(~clients.held | mine)
        indptr = np.searchsorted(owner, np.arange(len(mine) + 1))
        return history._replace(forbidden=Ragged(indptr, items.astype(np.int32)))

    def _upload(
        self, clients: Client, tables: np.ndarray, slot: np.ndarray, ids: np.ndarray, history: History, round_: int,
        seed: int,
    ) -> Upload:  # fmt: skip
        m, first, last = history.n_items, int(slot[0]), int(slot[-1]) + 1
        nothing = np.empty((len(ids), 0), np.float32)
        if self.storage:
            owner, rows = np.nonzero(clients.held[ids])
            indptr = np.searchsorted(owner, np.arange(len(ids) + 1))
            upload = Upload(indptr, rows.astype(np.int32), tables[slot[owner], rows], nothing)
        else:  # a view where it can be one: n x m x dim numbers must not be there a third time
            mine = tables[first:last] if last - first == len(ids) else tables[slot]
            values = mine.reshape(-1, self.dim)
            values.flags.writeable = False
            rows = np.tile(np.arange(m, dtype=np.int32), len(ids))
            upload = Upload(np.arange(len(ids) + 1) * m, rows, values, nothing)
        if self.noise > 0:
            upload = upload._replace(values=laplace(upload, self.noise, history.keys[ids], seed, round_))
        return upload

    def server_step(self, server: Server, received: Collected, round_: int) -> Server:
        graph.receive(server.graph, received, lambda ids: server.table)
        now, graphs = server.graph, server.graphs
        if self.storage:
            for ids, upload in zip(received.ids, received.uploads, strict=True):
                server.held[ids] = False
                server.held[np.repeat(ids, np.diff(upload.indptr)), upload.rows] = True
        if self.linked and ((round_ - 1) % self.interval == 0 or not graphs[0]):
            now, graphs = graph.rebuild(now, self.rules, round_, int(graphs[0])), graphs + 1
        graph.propagate(now, self.rules)
        table = graph.overall(now, self.rules, self.shared)
        return server._replace(table=table, graph=now, graphs=graphs)

    def seen(self, download: Download, n_items: int, seed: int) -> Server:
        server = self.init_server(n_items, seed)
        views = np.empty((0, 0, 0), np.float32) if download.own is None else download.own
        return server._replace(table=download.table, graph=server.graph._replace(mixed=views))

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        if self.storage:
            return self._score_held(server, clients, users)
        tables, which = clients.own, users
        if self.scored == "shared":
            tables, which = server.table[None], np.zeros_like(users)
        elif self.scored == "view":
            tables, which = self._views(server, clients, users), np.arange(len(users))
        return ncf.score(users, tables, which, clients.user, clients.network, users, np.array(self.sizes))

    def _views(self, server: Server, clients: Client, users: np.ndarray) -> np.ndarray:
        """float32[len(users), m, dim]: r_i, for people of the graph and for newcomers."""
        if len(clients.views):
            found: np.ndarray = clients.views[users]
            return found
        if not len(server.graph.known):  # on a device: what it was sent
            return server.graph.mixed[users]
        return graph.views(server.graph, users, self.rules, server.table)

    def _score_held(self, server: Server, clients: Client, users: np.ndarray) -> np.ndarray:
        """The storage-saving mode: she ranks what she holds and what the server picks; the rest is not scored.

        The server picks the items whose shared vectors point most to where the rows she uploaded point, and sends
        r_i's rows of them (4.4.2).
        """
        held, sizes = clients.held[users], np.array(self.sizes)
        tables = np.where(held[:, :, None], clients.own[users], self._views(server, clients, users))
        found = ncf.score(users, tables, np.arange(len(users)), clients.user, clients.network, users, sizes)
        uploaded = _unit(np.where(held[:, :, None], tables, 0)).sum(1)
        alike = _unit(uploaded) @ _unit(server.table).T
        alike[held] = -np.inf
        sent = held.copy()
        np.put_along_axis(sent, np.argsort(-alike, axis=1, kind="stable")[:, : self.candidates], True, 1)
        found[~sent] = -np.inf
        return found

    def newcomer(self, server: Server, history: History, seed: int) -> Client:
        """She trains on her own, is placed in the graph by what came of it, and trains on with her neighbours' view."""
        clients, ids = self.init_clients(history, seed), np.arange(history.n_clients)
        views = np.tile(server.table, (len(ids), 1, 1))
        for round_ in range(1, self.newcomer_rounds + 1):
            download = Download(server.table, np.empty(0, np.float32), views if self.reg > 0 else None)
            upload, _ = self.client_step(clients, ids, history, download, round_, seed)
            if self.linked and round_ % _PLACE_EVERY == 0 and server.graph.known.any():
                tables = clients.own if self.storage else upload.values.reshape(views.shape)
                views = graph.place(server.graph, tables, self.rules, server.table)
        return clients._replace(views=views)

    def record(self, server: Server) -> dict[str, Any]:
        """How dense the graph is, and how alike people's tables are in the mean."""
        found: dict[str, Any] = {"links": float(server.graph.linked.mean()), "likeness": float(server.graph.level[0])}
        return found | ({"graph": "oracle graph"} if self.graph.startswith("oracle-") else {})

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.table


def _unit(vectors: np.ndarray) -> np.ndarray:
    length: np.ndarray = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(length, 1e-12)
