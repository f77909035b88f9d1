"""User-kNN: she is recommended what the people most like her have.

Score of an item = sum of the similarities of those of her `neighbours` nearest people who have it. People are compared
by the cosine of their histories, plain or with rare items weighing more (TF-IDF). The similarities are implicit's, on
the transposed matrix; somebody outside training is compared with everybody when she comes.

Resnick, Iacovou, Suchak, Bergstrom, Riedl: GroupLens. CSCW 1994.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
import scipy.sparse

from coterie.algorithms.central.ease import binary
from coterie.algorithms.central.fitting import need
from coterie.algorithms.central.itemknn import Server as Similar
from coterie.algorithms.central.itemknn import matrix, nearest
from coterie.algorithms.interface import Central, History


class Server(NamedTuple):
    similar: Similar  # users x users, the nearest of each
    indptr: np.ndarray  # int64[n + 1]: everybody's history
    items: np.ndarray  # int32[nnz]
    weight: np.ndarray  # float32[m]: what each item says when two people are compared


@final
@dataclass(frozen=True)
class UserKNN(Central):
    neighbours: int = 50  # most alike people asked
    weighting: Literal["cosine", "tfidf"] = "cosine"  # how much each item says

    name: ClassVar[str] = "userknn"
    citation: ClassVar[str] = "Resnick et al., GroupLens, CSCW 1994; implicit"
    sends: ClassVar[str] = "her whole history (central)"
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def __post_init__(self) -> None:
        need("implicit", "central", self.name)

    def init(self, history: History, seed: int) -> Server:
        nobody = Similar(np.zeros(history.n_clients + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        return Server(nobody, history.indptr, history.items, np.ones(history.n_items, np.float32))

    def train(self, server: Server, history: History, round_: int, seed: int) -> tuple[Server, None]:
        owners = binary(history)
        # one more than asked: everybody is her own nearest, which adds only to items she has
        similar = nearest(owners.T.tocsr(), self.weighting, self.neighbours + 1, 0.0, 0.0)
        weight = np.ones(history.n_items, np.float32)
        if self.weighting == "tfidf":  # as implicit weighs
            had = np.bincount(history.items, minlength=history.n_items)
            weight = (np.log(history.n_clients) - np.log1p(had)).astype(np.float32)
        return Server(similar, history.indptr, history.items, weight), None

    def newcomer(self, server: Server, history: History, seed: int) -> Similar:
        """Her similarity to everybody of the training, the nearest kept."""
        everybody, she = (_unit(indptr, items, server.weight) for indptr, items in (server[1:3], history[:2]))
        likeness: np.ndarray = (she @ everybody.T).toarray()
        keep = min(self.neighbours, likeness.shape[1])
        near = np.sort(np.argpartition(-likeness, keep - 1, axis=1)[:, :keep], axis=1)
        values = np.take_along_axis(likeness, near, axis=1)
        indptr = np.arange(len(likeness) + 1, dtype=np.int64) * keep
        return Similar(indptr, near.reshape(-1).astype(np.int32), values.reshape(-1).astype(np.float32))

    def score(self, server: Server, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        n = len(server.indptr) - 1
        near = matrix(clients if isinstance(clients, Similar) else server.similar, n)[users]
        ones = np.ones(len(server.items), np.float32)
        owners = scipy.sparse.csr_matrix((ones, server.items, server.indptr), shape=(n, history.n_items))
        found: np.ndarray = (near @ owners).toarray()
        return found.astype(np.float32)

    def item_vectors(self, server: Server) -> np.ndarray:
        """Who has the item: people are this system's only dimensions."""
        ones = np.ones(len(server.items), np.float32)
        shape = (len(server.indptr) - 1, len(server.weight))
        owners: np.ndarray = scipy.sparse.csr_matrix((ones, server.items, server.indptr), shape=shape).T.toarray()
        return owners


def _unit(indptr: np.ndarray, items: np.ndarray, weight: np.ndarray) -> scipy.sparse.csr_matrix:
    """Histories as weighted rows of length 1."""
    rows = scipy.sparse.csr_matrix((weight[items], items, indptr), shape=(len(indptr) - 1, len(weight)))
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).reshape(-1)
    return scipy.sparse.diags(1.0 / np.maximum(length, 1e-12)) @ rows
