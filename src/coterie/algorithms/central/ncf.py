"""NCF: a small network on the user's and the item's vector says whether they go together.

r = sigma(MLP([u; v_j])), layers 2 dim -> 32 -> 16 -> 8 -> 1 with ReLU (no product branch, as in the papers' tables);
BCE over her items and `negatives` drawn ones for each, redrawn every epoch; Adam with weight decay reg/2 |.|^2 on the
vectors an example touches. A round is an epoch. Somebody outside training gets a vector by `newcomer_steps` of the same
training on her own examples, items and network held fixed.

He, Liao, Zhang, Nie, Hu, Chua: Neural Collaborative Filtering. WWW 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from coterie import rng
from coterie.algorithms.central.fitting import (
    Fit,
    closed,
    fresh,
    need,
    normal,
    one_thread,
    opened,
    points,
    user_start,
)
from coterie.algorithms.interface import Central, History
from coterie.ragged import Ragged

HIDDEN = (32, 16, 8)
_AT_ONCE = 1 << 16  # pairs scored in one go: their hidden layer stays in the cache


class Parameters(NamedTuple):
    user: np.ndarray  # float32[n, dim]
    item: np.ndarray  # float32[m, dim]
    of_user: np.ndarray  # float32[dim, 32]: the first layer's part for the user
    of_item: np.ndarray  # float32[dim, 32]: and for the item
    bias1: np.ndarray  # float32[32]
    weight2: np.ndarray  # float32[32, 16]
    bias2: np.ndarray  # float32[16]
    weight3: np.ndarray  # float32[16, 8]
    bias3: np.ndarray  # float32[8]
    out: np.ndarray  # float32[8]
    bias_out: np.ndarray  # float32[1]


class Client(NamedTuple):
    user: np.ndarray  # float32[c, dim]: trained from the histories of people outside training


@final
@dataclass(frozen=True)
class NCF(Central):
    dim: int = 32  # length of user and item vectors
    negatives: int = 4  # drawn negatives for each positive, redrawn each epoch
    lr: float = 0.001  # Adam's step size
    reg: float = 0.001  # weight decay of the vectors an example touches
    batch: int = 1024  # examples in a step
    start: float = 0.05  # deviation of the first vectors
    newcomer_steps: int = 100  # steps of somebody outside training, on her own vector

    name: ClassVar[str] = "ncf"
    citation: ClassVar[str] = "He et al., Neural Collaborative Filtering, WWW 2017"
    sends: ClassVar[str] = "her whole history (central)"
    default_rounds: ClassVar[int] = 50
    draws_negatives: ClassVar[bool] = True
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def __post_init__(self) -> None:
        need("torch", "neural", self.name)

    def init(self, history: History, seed: int) -> Fit:
        draw = rng.generator(seed, rng.ITEM_START, 1)
        sizes = (2 * self.dim, *HIDDEN, 1)
        weights, biases = [], []
        for inputs, outputs in pairwise(sizes):
            weights.append(draw.uniform(-1, 1, (inputs, outputs)) * np.sqrt(6 / (inputs + outputs)))  # Glorot
            biases.append(np.zeros(outputs))
        return fresh(
            Parameters(
                user_start(history, self.dim, self.start, seed),
                normal(seed, rng.ITEM_START, (history.n_items, self.dim), self.start),
                weights[0][: self.dim], weights[0][self.dim :], biases[0],
                weights[1], biases[1], weights[2], biases[2], weights[3][:, 0], biases[3],
            )
        )  # fmt: skip

    def train(self, server: Fit, history: History, round_: int, seed: int) -> tuple[Fit, float, Ragged]:
        users, items, labels, drawn = points(history, self.negatives, seed, round_)
        total = 0.0
        with one_thread() as torch:
            p, adam = opened(torch, server, self.lr)
            for first in range(0, len(users), self.batch):
                who, what, label = (torch.from_numpy(one[first : first + self.batch]) for one in (users, items, labels))
                adam.zero_grad()
                loss, whole = self._loss(torch, p, who, what, label)
                whole.backward()
                adam.step()
                total += loss.item() * len(who)
            return closed(p, adam), total / max(len(users), 1), drawn

    def _loss(self, torch: Any, p: Any, who: Any, what: Any, label: Any) -> tuple[Any, Any]:
        """BCE, and BCE with weight decay."""
        u, v = torch.nn.functional.embedding(who, p.user), torch.nn.functional.embedding(what, p.item)
        hidden = torch.relu(u @ p.of_user + v @ p.of_item + p.bias1)
        hidden = torch.relu(torch.addmm(p.bias2, hidden, p.weight2))
        logit = torch.relu(torch.addmm(p.bias3, hidden, p.weight3)) @ p.out + p.bias_out
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logit, label)
        return loss, loss + self.reg / 2 * (u.square().sum() + v.square().sum()) / len(who)

    def newcomer(self, server: Fit, history: History, seed: int) -> Client:
        users, items, labels, _ = points(history, self.negatives, seed, 1)
        with one_thread() as torch:
            start = np.repeat(server.now.user.mean(0, keepdims=True), history.n_clients, axis=0)
            p: Any = Parameters(*(torch.tensor(one) for one in server.now._replace(user=start)))
            p.user.requires_grad_()
            adam = torch.optim.Adam([p.user], lr=10 * self.lr)
            who, what, label = (torch.from_numpy(one) for one in (users, items, labels))
            for _ in range(self.newcomer_steps if len(users) else 0):
                adam.zero_grad()
                self._loss(torch, p, who, what, label)[1].backward()
                adam.step()
            return Client(p.user.detach().numpy())

    def score(self, server: Fit, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        p = server.now
        user = (clients.user if isinstance(clients, Client) else p.user)[users] @ p.of_user
        item = p.item @ p.of_item + p.bias1
        out = np.empty((len(users), len(item)), np.float32)
        step = max(1, _AT_ONCE // len(item))
        for first in range(0, len(users), step):
            hidden = user[first : first + step, None, :] + item[None, :, :]
            for weight, bias in ((p.weight2, p.bias2), (p.weight3, p.bias3)):
                hidden = np.maximum(hidden, 0, out=hidden) @ weight + bias
            out[first : first + step] = np.maximum(hidden, 0, out=hidden) @ p.out + p.bias_out
        return out

    def item_vectors(self, server: Fit) -> np.ndarray:
        found: np.ndarray = server.now.item
        return found
