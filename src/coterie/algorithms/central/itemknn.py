"""Item-kNN: an item is recommended for being like the items she has.

Score = sum over her items of their similarity to the candidate, each item keeping its `neighbours` nearest: an item of
hers speaks for its own nearest (`nearest_of=hers`, as implicit does), or a candidate hears only its own nearest among
her items (`nearest_of=candidate`, as in Sarwar et al.; then every item, however rare, has as many that speak for it).
Items are compared by the cosine of who has them, plain or weighted by TF-IDF or BM25. The similarities are implicit's.
`shrink` multiplies the plain cosine by c / (c + shrink), c people having both: on sparse data two items with one owner
in common would otherwise be perfectly alike.

Sarwar, Karypis, Konstan, Riedl: Item-Based Collaborative Filtering Recommendation Algorithms. WWW 2001. Koren: Factor
in the Neighbors. TKDD 2010 (shrinkage).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
import scipy.sparse

from coterie.algorithms.central.ease import MOST_ITEMS, binary
from coterie.algorithms.central.fitting import implicit_model, need
from coterie.algorithms.interface import Central, History
from coterie.errors import CoterieError


class Server(NamedTuple):
    """Similarities as a sparse matrix, row by row."""

    indptr: np.ndarray  # int64[m + 1]
    items: np.ndarray  # int32[nnz]
    values: np.ndarray  # float32[nnz]


def nearest(owners: scipy.sparse.csr_matrix, weighting: str, neighbours: int, k1: float, b: float) -> Server:
    """For each column of `owners` the `neighbours` columns most like it, itself among them."""
    with implicit_model("implicit.nearest_neighbours") as module:
        if weighting == "bm25":
            model = module.BM25Recommender(K=neighbours, K1=k1, B=b, num_threads=1)
        else:
            kind = module.CosineRecommender if weighting == "cosine" else module.TFIDFRecommender
            model = kind(K=neighbours, num_threads=1)
        model.fit(owners, show_progress=False)
    found = model.similarity
    found.sort_indices()
    return Server(found.indptr.astype(np.int64), found.indices.astype(np.int32), found.data.astype(np.float32))


def shrunk(owners: scipy.sparse.csr_matrix, neighbours: int, shrink: float) -> Server:
    """As `nearest` by the plain cosine, each similarity held back where few people stand behind it."""
    both = scipy.sparse.coo_array(owners.T @ owners)
    had, (row, column), times = np.asarray(owners.sum(axis=0)).reshape(-1), both.coords, both.data
    likeness = times / np.sqrt(had[row] * had[column]) * times / (times + shrink)
    order = np.lexsort((column, -likeness, row))
    first = np.searchsorted(row[order], np.arange(owners.shape[1] + 1))
    place = np.arange(len(order)) - first[row[order]]  # 0 for the most alike of each row
    kept = np.sort(order[place < neighbours])
    found = scipy.sparse.csr_array((likeness[kept], (row[kept], column[kept])), shape=both.shape)
    found.sort_indices()
    return Server(found.indptr.astype(np.int64), found.indices.astype(np.int32), found.data.astype(np.float32))


def turned(server: Server) -> Server:
    """Rows for columns: what each item says of others becomes what the others say of it."""
    found = matrix(server, len(server.indptr) - 1).T.tocsr()
    found.sort_indices()
    return Server(found.indptr.astype(np.int64), found.indices.astype(np.int32), found.data.astype(np.float32))


def matrix(server: Server, columns: int) -> scipy.sparse.csr_matrix:
    shape = (len(server.indptr) - 1, columns)
    return scipy.sparse.csr_matrix((server.values, server.items, server.indptr), shape=shape)


@final
@dataclass(frozen=True)
class ItemKNN(Central):
    neighbours: int = 20  # most alike items kept for each item
    weighting: Literal["cosine", "tfidf", "bm25"] = "tfidf"  # how much each (user, item) pair says
    k1: float = 1.2  # BM25: how soon repeats stop to count
    b: float = 0.75  # BM25: how much a popular item is held back
    shrink: float = 0.0  # cosine: how many common owners are half believed; 0 believes one
    nearest_of: Literal["hers", "candidate"] = "hers"  # whose nearest items count

    name: ClassVar[str] = "itemknn"
    citation: ClassVar[str] = "Sarwar et al., Item-Based Collaborative Filtering, WWW 2001; implicit"
    sends: ClassVar[str] = "her whole history (central)"
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def __post_init__(self) -> None:
        need("implicit", "central", self.name)
        if self.shrink < 0.0 or (self.shrink > 0.0 and self.weighting != "cosine"):
            raise CoterieError(
                f"shrink is {self.shrink} with weighting {self.weighting}; it is 0 or more, and goes with "
                "weighting=cosine only"
            )

    def init(self, history: History, seed: int) -> Server:
        return Server(np.zeros(history.n_items + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))

    def train(self, server: Server, history: History, round_: int, seed: int) -> tuple[Server, None]:
        owners = binary(history)
        if self.shrink:
            found = shrunk(owners, self.neighbours, self.shrink)
        else:
            found = nearest(owners, self.weighting, self.neighbours, self.k1, self.b)
        return found if self.nearest_of == "hers" else turned(found), None

    def score(self, server: Server, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        found: np.ndarray = (binary(history, users) @ matrix(server, history.n_items)).toarray()
        return found.astype(np.float32)

    def item_vectors(self, server: Server) -> np.ndarray:
        m = len(server.indptr) - 1
        if m > MOST_ITEMS:
            raise CoterieError(
                f"itemknn's item vectors are items x items: {m} items would take {4 * m * m / 1e9:.0f} GB; above "
                f"{MOST_ITEMS} items ask als or bpr which items are alike"
            )
        found: np.ndarray = matrix(server, m).toarray()
        return found
