"""GraphAgg: GPFedRec's graph-guided aggregation as a plug-in for systems that share one item table.

The system below (`base`) trains as it always does, each client a cohort of one, but starts from a table of her own:
(1 - towards) x q_global + towards x r_i, the graph's view of her (graph.py). What she uploads is the table that came of
it, movements times `boost`; the server links people by these tables and q_global is the mean of the views. Nothing of
the base is copied or changed: its client step, its score and its client state are used as they are, its server step is
what this replaces.

Zhang et al.: GPFedRec, KDD 2024, section 5.5 and Table 5, which name the idea; how a base without a pull towards r_i
takes it in is not said there. Starting from it (`towards=1`) is our reading, and what Table 5 has here; half way to it
is what validation chose under the clean protocol (papers/defaults/graphagg.json).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np

from coterie.algorithms import graph, memory
from coterie.algorithms.graph import Graph, Normalise, Rules, Similarity
from coterie.algorithms.interface import Collected, Download, Federated, History, Report, Upload
from coterie.errors import CoterieError
from coterie.ragged import ragged

_PLACE_EVERY = 5  # of a newcomer's own rounds


class Server(NamedTuple):
    base: Any  # what the base's server holds; its `table` is q_global
    graph: Graph  # everybody's last upload, and who is linked to whom
    graphs: np.ndarray  # int64[1]: how many graphs have been made


class Seen(NamedTuple):
    """What a device knows of the server: enough to score with."""

    base: Any
    own: np.ndarray  # float32[n, m, w]: each client's table


class Client(NamedTuple):
    base: Any  # what the base keeps on the device
    number: np.ndarray  # int64[n]: hers in the server's graph; -1 for somebody who was not in training
    views: np.ndarray  # float32[n, m, w] for newcomers: the table each was sent; else empty


@final
@dataclass(frozen=True)
class GraphAgg(Federated):
    base: Literal["fedmf", "fedrecon", "pfedrec"] = "pfedrec"  # the system whose aggregation is replaced
    base_behaviour: str = "as_released"  # of the base
    base_settings: str = ""  # of the base: field=value,field=value
    towards: float = 0.5  # where a client's table starts: at the shared one (0), at her neighbours' view (1), between
    boost: float = 1.0  # movements are multiplied by this: bases whose server adds them up have small ones
    similarity: Similarity = "cosine"  # of uploads
    gamma: float = 1.0  # neighbours are those more alike than gamma times the mean
    neighbours: int = 0  # the most alike so many instead of a threshold; 0: threshold
    sample: int = 0  # at most so many neighbours, drawn anew with each graph; 0: all
    normalise: Normalise = "row"  # of A: row, none (the literal sum) or laplacian
    layers: int = 1  # how often tables are passed on along the graph
    interval: int = 1  # rounds from one graph to the next
    subgraph: float = 1.0  # share of people whose neighbours are looked up anew with each graph

    name: ClassVar[str] = "graphagg"
    # Taste lives in the neighbours' views; a short history finds its place in the graph too poorly for that.
    guides_newcomers: ClassVar[bool] = False
    citation: ClassVar[str] = "Zhang et al., GPFedRec: Graph-Guided Personalization, KDD 2024 (section 5.5)"
    sends: ClassVar[str] = "her whole trained item table (her items' rows stand out in it)"
    draws_negatives: ClassVar[bool] = True
    collects: ClassVar[bool] = True
    pieces: ClassVar[int] = 2
    most_in_chunk: ClassVar[int] = 512  # making views has a cost for each chunk, whatever its size
    scored_together: ClassVar[int] = 512
    home: ClassVar[str] = "gpfedrec"
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def __post_init__(self) -> None:
        graph.check(self.rules, self.interval)
        alone = self.system.server_only  # without private tables: everybody from the shared one, and so for the base
        text = ",".join(f"{field}={value}" for field, value in alone.items())
        settings = ",".join(filter(None, (self.base_settings, text)))
        object.__setattr__(self, "server_only", {"towards": 0.0, "base_settings": settings})

    @cached_property
    def system(self) -> Federated:
        """The base itself."""
        from coterie.algorithms import make

        settings: dict[str, Any] = {}
        for one in filter(None, self.base_settings.split(",")):
            field, equals, value = one.partition("=")
            if not equals:
                raise CoterieError(f"base_settings has {one!r}; expected field=value,field=value")
            try:
                settings[field.strip()] = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                settings[field.strip()] = value
        if self.base == "fedrecon":  # for a weighted mean, a step this replaces, it would send movements times weights
            settings["aggregate"] = "sum"
        found = make(self.base, self.base_behaviour, **settings)
        assert isinstance(found, Federated)
        return found

    @property
    def rules(self) -> Rules:
        return Rules(
            self.similarity, self.gamma, self.normalise, self.layers, self.neighbours, self.sample, self.subgraph
        )

    def init_server(self, n_items: int, seed: int) -> Server:
        base = self.system.init_server(n_items, seed)
        return Server(
            base, graph.empty(0, base.table.shape[0], base.table.shape[1], self.layers, seed), np.zeros(1, np.int64)
        )

    def enrol(self, server: Server, n_clients: int, history: History | None) -> Server:
        seed = int(server.graph.seed[0])
        n_items, width = server.base.table.shape
        return server._replace(graph=graph.empty(n_clients, n_items, width, self.layers, seed))

    def init_clients(self, history: History, seed: int) -> Client:
        none = np.empty((0, 0, 0), np.float32)
        return Client(self.system.init_clients(history, seed), np.arange(history.n_clients), none)

    def _sent(self, server: Server, number: np.ndarray) -> np.ndarray:
        """float32[c, m, w]: the tables these people start from."""
        shared = server.base.table
        if self.towards == 0:
            return np.tile(shared, (len(number), 1, 1))
        views = graph.views(server.graph, number, self.rules, shared)
        if self.towards != 1:
            views *= np.float32(self.towards)
            views += np.float32(1 - self.towards) * shared
        return views

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        below = self.system.download(server.base, ids, round_)
        return below._replace(own=self._sent(server, ids))

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        if download.own is None:
            raise CoterieError("graphagg's client step needs a table for each client, and the download has none")
        tables, reports = memory.empty(*download.own.shape), []
        tables[:] = download.own
        for c in range(len(ids)):
            alone = download._replace(table=download.own[c], own=None)
            upload, report = self.system.client_step(clients.base, ids[c : c + 1], history, alone, round_, seed)
            tables[c, upload.rows] += np.float32(self.boost) * upload.values
            reports.append(report)
        m, width = download.table.shape
        rows = np.tile(np.arange(m, dtype=np.int32), len(ids))
        drawn = [one.negatives.items for one in reports if one.negatives is not None]
        report = Report(
            np.concatenate([one.loss for one in reports]),
            np.concatenate([one.examples for one in reports]),
            ragged(drawn) if len(drawn) == len(ids) else None,
        )
        nothing = np.empty((len(ids), 0), np.float32)
        return Upload(np.arange(len(ids) + 1) * m, rows, tables.reshape(-1, width), nothing), report

    def server_step(self, server: Server, received: Collected, round_: int) -> Server:
        graph.receive(server.graph, received, lambda ids: server.base.table)
        now, graphs = server.graph, server.graphs
        if (round_ - 1) % self.interval == 0 or not graphs[0]:
            now, graphs = graph.rebuild(now, self.rules, round_, int(graphs[0])), graphs + 1
        graph.propagate(now, self.rules)
        table = graph.overall(now, self.rules, "mean-view")
        return Server(server.base._replace(table=table), now, graphs)

    def seen(self, download: Download, n_items: int, seed: int) -> Seen:
        assert download.own is not None
        return Seen(self.system.seen(download, n_items, seed), download.own)

    def score(self, server: Server | Seen, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        if len(clients.views):  # newcomers
            tables = clients.views[users]
        else:
            tables = server.own[users] if isinstance(server, Seen) else self._sent(server, clients.number[users])
        return np.concatenate(
            [
                self.system.score(server.base._replace(table=table), clients.base, history, users[row : row + 1])
                for row, table in enumerate(tables)
            ]
        )

    def newcomer(self, server: Server, history: History, seed: int) -> Client:
        """She trains on her own, is placed in the graph by what came of it, and trains on from her neighbours' view."""
        clients, ids = self.init_clients(history, seed), np.arange(history.n_clients)
        sent = np.tile(server.base.table, (len(ids), 1, 1))
        for round_ in range(1, self.newcomer_rounds + 1):
            below = self.system.download(server.base, ids, round_)
            upload, _ = self.client_step(clients, ids, history, below._replace(own=sent), round_, seed)
            if round_ % _PLACE_EVERY == 0 and server.graph.known.any() and self.towards > 0:
                views = graph.place(server.graph, upload.values.reshape(sent.shape), self.rules, server.base.table)
                sent = np.float32(self.towards) * views + np.float32(1 - self.towards) * server.base.table
        return Client(clients.base, np.full(len(ids), -1), sent)

    def item_vectors(self, server: Server) -> np.ndarray:
        return self.system.item_vectors(server.base)
