"""MF: central matrix factorisation with a logistic loss on points.

r = sigma(<u, v_j> + b_j); BCE over her items and `negatives` drawn items for each, redrawn every epoch, plus
reg/2 (|u|^2 + |v_j|^2) for each example; Adam in shuffled batches. A round is an epoch. What FedMF would be if
everybody's history were in one place. Somebody outside training gets the vector that fits her items and drawn ones
best, the items held fixed (a logistic regression, solved exactly).

Koren, Bell, Volinsky: Matrix Factorization Techniques for Recommender Systems. Computer 42(8), 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from coterie import rng
from coterie.algorithms.central.fitting import (
    Fit,
    closed,
    fresh,
    logistic,
    need,
    normal,
    one_thread,
    opened,
    points,
    user_start,
)
from coterie.algorithms.interface import Central, History
from coterie.ragged import Ragged


class Parameters(NamedTuple):
    user: np.ndarray  # float32[n, dim]
    item: np.ndarray  # float32[m, dim]
    bias: np.ndarray  # float32[m]


class Client(NamedTuple):
    user: np.ndarray  # float32[c, dim]: solved from the histories of people outside training


@final
@dataclass(frozen=True)
class MF(Central):
    dim: int = 32  # length of user and item vectors
    negatives: int = 4  # drawn negatives for each positive, redrawn each epoch
    lr: float = 0.003  # Adam's step size
    reg: float = 0.005  # weight decay of the vectors an example touches
    batch: int = 2048  # examples in a step
    start: float = 0.05  # deviation of the first vectors

    name: ClassVar[str] = "mf"
    citation: ClassVar[str] = "Koren, Bell, Volinsky, Matrix Factorization Techniques, Computer 2009"
    sends: ClassVar[str] = "her whole history (central)"
    default_rounds: ClassVar[int] = 40
    draws_negatives: ClassVar[bool] = True
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def __post_init__(self) -> None:
        need("torch", "neural", self.name)

    def init(self, history: History, seed: int) -> Fit:
        item = normal(seed, rng.ITEM_START, (history.n_items, self.dim), self.start)
        user = user_start(history, self.dim, self.start, seed)
        return fresh(Parameters(user, item, np.zeros(history.n_items)))

    def train(self, server: Fit, history: History, round_: int, seed: int) -> tuple[Fit, float, Ragged]:
        users, items, labels, drawn = points(history, self.negatives, seed, round_)
        total = 0.0
        with one_thread() as torch:
            p, adam = opened(torch, server, self.lr)
            gather = torch.nn.functional.embedding
            for first in range(0, len(users), self.batch):
                who, what, label = (torch.from_numpy(one[first : first + self.batch]) for one in (users, items, labels))
                u, v = gather(who, p.user), gather(what, p.item)
                logit = (u * v).sum(1) + gather(what, p.bias[:, None])[:, 0]
                loss = torch.nn.functional.binary_cross_entropy_with_logits(logit, label)
                adam.zero_grad()
                (loss + self.reg / 2 * (u.square().sum() + v.square().sum()) / len(who)).backward()
                adam.step()
                total += loss.item() * len(who)
            return closed(p, adam), total / max(len(users), 1), drawn

    def newcomer(self, server: Fit, history: History, seed: int) -> Client:
        users, items, labels, _ = points(history, self.negatives, seed, 1)
        found = np.zeros((history.n_clients, self.dim), np.float32)
        for one in range(history.n_clients):
            mine = items[users == one]
            ridge = max(self.reg * len(mine), 1e-3)
            found[one] = logistic(server.now.item[mine], server.now.bias[mine], labels[users == one], ridge)
        return Client(found)

    def score(self, server: Fit, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        user = clients.user if isinstance(clients, Client) else server.now.user
        found: np.ndarray = user[users] @ server.now.item.T + server.now.bias
        return found

    def item_vectors(self, server: Fit) -> np.ndarray:
        found: np.ndarray = server.now.item
        return found
