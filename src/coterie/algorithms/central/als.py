"""ALS: matrix factorisation for implicit feedback by alternating least squares.

Minimise sum over all (u, i) of c_ui (p_ui - <x_u, y_i>)^2 + reg (|X|^2 + |Y|^2) with p = 1 and c = `alpha` where u has
i, p = 0 and c = 1 elsewhere: every item she does not have counts as a weak no, and none is drawn. Given one side the
other is a ridge regression for each row. implicit's solver, one iteration a round; user vectors are then solved exactly
from the new items, as they are for somebody who was not in training.

Hu, Koren, Volinsky: Collaborative Filtering for Implicit Feedback Datasets. ICDM 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from coterie import rng
from coterie.algorithms.central.ease import binary
from coterie.algorithms.central.fitting import implicit_model, need, normal, user_start
from coterie.algorithms.interface import Central, History


class Server(NamedTuple):
    user: np.ndarray  # float32[n, dim]
    item: np.ndarray  # float32[m, dim]


class Client(NamedTuple):
    user: np.ndarray  # float32[c, dim]: solved from the histories of people outside training


@final
@dataclass(frozen=True)
class ALS(Central):
    dim: int = 64  # length of user and item vectors
    reg: float = 10.0  # ridge on both sides
    alpha: float = 1.0  # how much more a yes counts than a no
    start: float = 0.01  # deviation of the first vectors

    name: ClassVar[str] = "als"
    citation: ClassVar[str] = "Hu, Koren, Volinsky, Collaborative Filtering for Implicit Feedback, ICDM 2008; implicit"
    sends: ClassVar[str] = "her whole history (central)"
    default_rounds: ClassVar[int] = 15
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def __post_init__(self) -> None:
        need("implicit", "central", self.name)

    def init(self, history: History, seed: int) -> Server:
        items = normal(seed, rng.ITEM_START, (history.n_items, self.dim), self.start)
        return Server(user_start(history, self.dim, self.start, seed), items)

    def train(self, server: Server, history: History, round_: int, seed: int) -> tuple[Server, None]:
        owners = binary(history)
        with implicit_model("implicit.cpu.als") as module:
            model = self._model(module, server.item.copy())
            model.user_factors = server.user.copy()
            model.fit(owners, show_progress=False)
            user = model.recalculate_user(np.arange(history.n_clients), owners)
        return Server(user, model.item_factors), None

    def newcomer(self, server: Server, history: History, seed: int) -> Client:
        with implicit_model("implicit.cpu.als") as module:
            model = self._model(module, server.item)
            return Client(model.recalculate_user(np.arange(history.n_clients), binary(history)))

    def _model(self, module: Any, item: np.ndarray) -> Any:
        model = module.AlternatingLeastSquares(
            factors=self.dim, regularization=self.reg, alpha=self.alpha, iterations=1, num_threads=1, random_state=0
        )
        model.item_factors = item
        return model

    def score(self, server: Server, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        user = clients.user if isinstance(clients, Client) else server.user
        found: np.ndarray = user[users] @ server.item.T
        return found

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.item
