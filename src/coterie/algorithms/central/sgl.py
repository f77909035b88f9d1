"""SGL: LightGCN that must also recognise a node in two thinned-out copies of its graph.

Each epoch drops a share `drop` of the edges twice over, weighs each copy anew by its degrees, and smooths the vectors
over both. Beside LightGCN's BPR loss on the whole graph, a contrastive loss asks that a node's two versions z', z''
find each other: contrast x mean of -ln exp(cos(z'_a, z''_a) / temperature) / sum_b exp(cos(z'_a, z''_b) / temperature),
for users and for items, a and b over (at most `contrast_nodes` of) the batch's distinct nodes. A round is an epoch.

Newcomers and graph=everything: as in LightGCN.

Wu, Wang, Feng, He, Chen, Lian, Xie: Self-supervised Graph Learning for Recommendation. SIGIR 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np

from coterie import rng
from coterie.algorithms.central.fitting import closed, need, one_thread, opened, pairs
from coterie.algorithms.central.lightgcn import (
    Client,
    Server,
    adjacency,
    bpr_step,
    edges,
    finished,
    propagate,
    propagated,
    started,
)
from coterie.algorithms.interface import Central, History
from coterie.ragged import Ragged


def contrastive(torch: Any, one: Any, other: Any, places: Any, temperature: float) -> Any:
    """How hard it is for each node's first version to find its second among those at `places`; their mean."""
    left, right = (torch.nn.functional.normalize(view[places], dim=1) for view in (one, other))
    likeness = left @ right.T / temperature
    return torch.nn.functional.cross_entropy(likeness, torch.arange(len(places)))


@final
@dataclass(frozen=True)
class SGL(Central):
    dim: int = 32  # length of user and item vectors
    layers: int = 2  # how far along the graph vectors are smoothed
    lr: float = 0.02  # Adam's step size
    reg: float = 1e-4  # weight decay of the vectors a triple touches
    batch: int = 2048  # triples in a step
    start: float = 0.1  # deviation of the first vectors
    drop: float = 0.1  # share of edges missing from each copy of the graph
    contrast: float = 0.005  # weight of the contrastive loss
    temperature: float = 0.2  # how sharply versions are told apart
    contrast_nodes: int = 1024  # most users, and most items, of a batch that are contrasted
    graph: Literal["train", "everything"] = "train"  # everything: held-out items too, the leak; paper protocol only

    name: ClassVar[str] = "sgl"
    citation: ClassVar[str] = "Wu et al., Self-supervised Graph Learning for Recommendation, SIGIR 2021"
    sends: ClassVar[str] = "her whole history (central)"
    default_rounds: ClassVar[int] = 30
    draws_negatives: ClassVar[bool] = True
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def __post_init__(self) -> None:
        need("torch", "neural", self.name)

    def init(self, history: History, seed: int) -> Server:
        return started(history, self.dim, self.start, seed)

    def train(self, server: Server, history: History, round_: int, seed: int) -> tuple[Server, float, Ragged]:
        user, item = edges(history, self.graph)
        *triples, drawn = pairs(history, seed, round_)
        n, m, total = history.n_clients, history.n_items, 0.0
        thinning = rng.generator(seed, rng.DROPOUT, round_)
        with one_thread() as torch:
            graphs = [adjacency(torch, user, item, n, m)]
            for _ in range(2):
                kept = thinning.random(len(user)) >= self.drop
                graphs.append(adjacency(torch, user[kept], item[kept], n, m))
            p, adam = opened(torch, server.fit, self.lr)
            for first in range(0, len(triples[0]), self.batch):
                triple = tuple(torch.from_numpy(one[first : first + self.batch]) for one in triples)
                views = [propagate(one, p.nodes.detach(), self.layers).requires_grad_() for one in graphs]
                adam.zero_grad()
                loss, rest = bpr_step(torch, p.nodes, views[0], n, triple, self.reg)
                for side in (triple[0], triple[1] + n):
                    places = torch.unique(side)[: self.contrast_nodes]
                    rest = rest + self.contrast * contrastive(torch, views[1], views[2], places, self.temperature)
                (loss + rest).backward()
                for one, view in zip(graphs, views, strict=True):
                    p.nodes.grad += propagate(one, view.grad, self.layers)
                adam.step()
                total += loss.item() * len(triple[0])
            fit = closed(p, adam)
            trained = finished(torch, fit, graphs[0], n, self.layers, np.bincount(item, minlength=m))
        return trained, total / max(len(triples[0]), 1), drawn

    def newcomer(self, server: Server, history: History, seed: int) -> Client:
        return propagated(server, history)

    def score(self, server: Server, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        user = clients.user if isinstance(clients, Client) else server.user
        found: np.ndarray = user[users] @ server.item.T
        return found

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.item
