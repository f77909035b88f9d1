"""BPR-MF: matrix factorisation trained to put an item she has above one she has not.

Maximise sum of ln sigma(x_ui - x_uj) - reg (|x_u|^2 + |y|^2), x_ui = <x_u, y_i> + b_i, i hers, j drawn. implicit's
trainer, one epoch a round on one thread. It draws j uniformly over the positives of everybody (popular items more
often), drops those the user has, and sees the training matrix only; it does not tell what it drew, so there is no
canary. Somebody outside training gets the vector that best orders her items above drawn ones, the items held fixed.

Rendle, Freudenthaler, Gantner, Schmidt-Thieme: BPR: Bayesian Personalized Ranking from Implicit Feedback. UAI 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from coterie import rng
from coterie.algorithms.central.ease import binary
from coterie.algorithms.central.fitting import implicit_model, logistic, need, normal, pairs, user_start
from coterie.algorithms.interface import Central, History


class Server(NamedTuple):
    user: np.ndarray  # float32[n, dim + 1]: the last column is 1, beside the items' bias
    item: np.ndarray  # float32[m, dim + 1]: the last column is the bias


class Client(NamedTuple):
    user: np.ndarray  # float32[c, dim + 1]: solved from the histories of people outside training


@final
@dataclass(frozen=True)
class BPR(Central):
    dim: int = 32  # length of user and item vectors
    lr: float = 0.02  # step size
    reg: float = 0.01  # weight decay of what a step touches
    start: float = 0.01  # deviation of the first vectors

    name: ClassVar[str] = "bpr"
    citation: ClassVar[str] = "Rendle et al., BPR: Bayesian Personalized Ranking, UAI 2009; implicit"
    sends: ClassVar[str] = "her whole history (central)"
    default_rounds: ClassVar[int] = 100
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def __post_init__(self) -> None:
        need("implicit", "central", self.name)

    def init(self, history: History, seed: int) -> Server:
        user = np.pad(user_start(history, self.dim, self.start, seed), ((0, 0), (0, 1)), constant_values=1.0)
        item = normal(seed, rng.ITEM_START, (history.n_items, self.dim), self.start)
        return Server(user, np.pad(item, ((0, 0), (0, 1))))

    def train(self, server: Server, history: History, round_: int, seed: int) -> tuple[Server, None]:
        with implicit_model("implicit.cpu.bpr") as module:
            model = module.BayesianPersonalizedRanking(
                factors=self.dim, learning_rate=self.lr, regularization=self.reg, iterations=1, num_threads=1,
                random_state=rng.generator(seed, rng.NEGATIVES, round_),
            )  # fmt: skip
            model.user_factors, model.item_factors = server.user.copy(), server.item.copy()
            model.fit(binary(history), show_progress=False)
        return Server(model.user_factors, model.item_factors), None

    def newcomer(self, server: Server, history: History, seed: int) -> Client:
        found = np.ones((history.n_clients, self.dim + 1), np.float32)
        user, better, worse, _ = pairs(history, seed, 1)
        apart = server.item[better] - server.item[worse]
        for one in range(history.n_clients):
            mine = apart[user == one]
            ridge = max(2 * self.reg * len(mine), 1e-3)
            found[one, : self.dim] = logistic(mine[:, : self.dim], mine[:, self.dim], np.ones(len(mine)), ridge)
        return Client(found)

    def score(self, server: Server, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        user = clients.user if isinstance(clients, Client) else server.user
        found: np.ndarray = user[users] @ server.item.T
        return found

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.item[:, : self.dim]
