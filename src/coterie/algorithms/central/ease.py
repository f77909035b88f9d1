"""EASE: a linear item-item model with a closed form, and hard to beat.

Scores are X B with B = I - P diag(1 / diag(P)), P = (X^T X + reg I)^-1: the best item-item weights with a zero diagonal
under squared error. One matrix inverse of items x items.

How strong the ridge has to be depends on the data. X^T X is a sum over people, so by default the ridge is `each` times
their number: if everybody were there twice, the weights would stay the same. With `--set reg=auto` it is chosen from
the training data alone: one item of each history is set aside, and of a few ridges the one that ranks those best is
used for the whole.

Steck: Embarrassingly Shallow Autoencoders for Sparse Data. WWW 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
import scipy.linalg
import scipy.sparse

from coterie import rng
from coterie.algorithms.interface import Central, History
from coterie.errors import CoterieError

MOST_ITEMS = 20_000
TRIED = (100.0, 200.0, 300.0, 600.0, 1000.0, 2000.0)
_MOST_TRIED = 4_000  # items, the most popular, on which ridges are compared: six inverses of these take seconds


class Server(NamedTuple):
    weights: np.ndarray  # float32[m, m]: B
    reg: np.ndarray  # float64[1]: the ridge that was used


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


def ridge(reg: float | Literal["people"], each: float, people: int) -> float:
    """The ridge for so many people with a history."""
    return each * max(people, 1) if reg == "people" else reg


def choose(history: History, seed: int) -> float:
    """The ridge of TRIED that ranks best (NDCG@10, all items) one item of each history that it was not shown."""
    owners = binary(history)
    known = np.sort(np.argsort(-np.bincount(history.items, minlength=history.n_items), kind="stable")[:_MOST_TRIED])
    shown = scipy.sparse.csr_matrix(owners[:, known])
    lengths = np.diff(shown.indptr)
    users = np.flatnonzero(lengths > 1)
    if not len(users):
        return TRIED[2]
    draws = rng.uniforms(seed, 0, history.keys[users], rng.SHUFFLE)
    aside = shown.indptr[users] + (draws * lengths[users]).astype(np.int64)
    wanted = shown.indices[aside]
    shown.data[aside] = 0.0
    shown.eliminate_zeros()
    gram = (shown.T @ shown).toarray()
    return max(TRIED, key=lambda reg: _quality(solve(gram, reg), shown, users, wanted))


def _quality(weights: np.ndarray, shown: scipy.sparse.csr_matrix, users: np.ndarray, wanted: np.ndarray) -> float:
    total = 0.0
    for first in range(0, len(users), 1000):
        some, items = shown[users[first : first + 1000]], wanted[first : first + 1000]
        scores = some @ weights
        scores[some.nonzero()] = -np.inf
        ranks = (scores > scores[np.arange(len(items)), items][:, None]).sum(axis=1)
        total += float((1.0 / np.log2(ranks[ranks < 10] + 2.0)).sum())
    return total


@final
@dataclass(frozen=True)
class EASE(Central):
    reg: float | Literal["people", "auto"] = "people"  # ridge: `each` x people; auto: by the training data; a number
    each: float = 0.1  # what each person adds to the ridge with reg=people

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
        return Server(np.zeros((history.n_items, history.n_items), np.float32), np.zeros(1))

    def train(self, server: Server, history: History, round_: int, seed: int) -> tuple[Server, None]:
        if self.reg == "auto":
            reg = choose(history, seed)
        else:
            reg = ridge(self.reg, self.each, int(np.count_nonzero(history.lengths)))
        owners = binary(history)
        return Server(solve((owners.T @ owners).toarray(), reg), np.array([reg])), None

    def record(self, server: Server) -> dict[str, Any]:
        return {"reg": float(server.reg[0])}

    def score(self, server: Server, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        scores: np.ndarray = binary(history, users) @ server.weights
        return scores

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.weights.T
