"""EASE: a linear item-item model with a closed form, and hard to beat.

Scores are X B with B = I - P diag(1 / diag(P)), P = (X^T X + reg I)^-1: the best item-item weights with a zero diagonal
under squared error. One matrix inverse of items x items.

Steck: Embarrassingly Shallow Autoencoders for Sparse Data. WWW 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import scipy.linalg
import scipy.sparse

from coterie.algorithms.interface import Central, History
from coterie.errors import CoterieError

MOST_ITEMS = 20_000


class Server(NamedTuple):
    weights: np.ndarray  # float32[m, m]: B


def binary(history: History, users: np.ndarray | None = None) -> scipy.sparse.csr_matrix:
    """float32[n, m]: who has which item."""
    ones = np.ones(len(history.items), np.float32)
    whole = scipy.sparse.csr_matrix(
        (ones, history.items, history.indptr), shape=(history.n_clients, history.n_items), copy=False
    )
    return whole if users is None else whole[users]


def solve(gram: np.ndarray, reg: float) -> np.ndarray:
    """float32[m, m]: B from the item-item counts. The federated version calls the same."""
    regular = gram.astype(np.float64)
    regular[np.diag_indices_from(regular)] += reg
    inverse = scipy.linalg.inv(regular, overwrite_a=True, check_finite=False)
    weights = inverse / -np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    return weights.astype(np.float32)


@final
@dataclass(frozen=True)
class EASE(Central):
    reg: float = 300.0  # ridge: how far item-item weights are held back

    name: ClassVar[str] = "ease"
    citation: ClassVar[str] = "Steck, Embarrassingly Shallow Autoencoders for Sparse Data, WWW 2019"
    sends: ClassVar[str] = "her whole history (central)"
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def init(self, history: History, seed: int) -> Server:
        if history.n_items > MOST_ITEMS:
            gigabytes = 3 * 8 * history.n_items**2 / 1e9
            raise CoterieError(
                f"ease inverts an items x items matrix: {history.n_items} items would take about {gigabytes:.0f} GB "
                f"and hours. Above {MOST_ITEMS} items use itemknn or als, or keep only items with several interactions."
            )
        return Server(np.zeros((history.n_items, history.n_items), np.float32))

    def train(self, server: Server, history: History, round_: int, seed: int) -> tuple[Server, None]:
        owners = binary(history)
        return Server(solve((owners.T @ owners).toarray(), self.reg)), None

    def score(self, server: Server, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        scores: np.ndarray = binary(history, users) @ server.weights
        return scores

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.weights.T
