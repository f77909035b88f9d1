"""Graphs that do not come from uploads, for comparison (GPFedRec's Figure 1 and Table 7).

Random ones by networkx (extra `graph`), and "oracle graphs" from people's raw histories, which no server may have.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from coterie import rng
from coterie.algorithms.interface import History
from coterie.errors import CoterieError

Source = Literal[
    "uploads", "barabasi-albert", "watts-strogatz", "erdos-renyi", "regular",
    "oracle-cosine", "oracle-euclidean", "oracle-jaccard", "oracle-pearson",
]  # fmt: skip
_MOST_EDGES = 8_000_000  # networkx keeps some 300 bytes for each


def fixed_graph(source: Source, n: int, density: float, seed: int, history: History | None) -> np.ndarray | None:
    """bool[n, n] with about `density` of all pairs linked; None where the graph comes from uploads."""
    if source == "uploads":
        return None
    if not 0 < density < 1:
        raise CoterieError(f"density is {density}; expected a share of linked pairs between 0 and 1, such as 0.5")
    if source.startswith("oracle-"):
        if history is None:
            raise CoterieError(f"graph={source} is drawn from raw histories, which no server has: only simulations can")
        return _oracle(source.removeprefix("oracle-"), density, history)
    return _random(source, n, density, seed)


def _random(source: str, n: int, density: float, seed: int) -> np.ndarray:
    try:
        import networkx as nx
    except ImportError:
        raise CoterieError(f"graph={source} needs networkx: pip install 'coterie[graph]'") from None
    if density * n * n / 2 > _MOST_EDGES:
        raise CoterieError(
            f"graph={source}: {int(density * n * n / 2)} edges take networkx more than 2 GB; lower density below "
            f"{2 * _MOST_EDGES / n**2:.2f}"
        )
    draws = rng.generator(seed, rng.GRAPH)
    draw = int(draws.integers(2**31))
    each = density * (n - 1)
    made: Any
    if source == "barabasi-albert":  # m edges for each newcomer give m (n - m) of n (n - 1) / 2: half at most
        target = min(density, 1 - density)
        m = max(1, round((n - np.sqrt(max(n * n - 2 * target * n * (n - 1), 0))) / 2))
        made = nx.barabasi_albert_graph(n, min(m, n - 1), seed=draw)
        if density > 0.5:
            made = nx.complement(made)
    elif source == "watts-strogatz":
        made = nx.watts_strogatz_graph(n, min(max(2, 2 * round(each / 2)), n - 1), 0.1, seed=draw)
    elif source == "erdos-renyi":
        made = nx.gnp_random_graph(n, density, seed=draw)
    else:
        # random offsets around a ring, in a random order: networkx's own way rejects for hours where links are many
        offsets = draws.permutation(np.arange(1, (n + 1) // 2))[: max(1, round(each / 2))]
        order = draws.permutation(n).tolist()
        made = nx.relabel_nodes(nx.circulant_graph(n, offsets.tolist()), dict(enumerate(order)))
    found: np.ndarray = nx.to_numpy_array(made, dtype=np.float32, nodelist=range(n)) > 0
    return found


def _oracle(kind: str, density: float, history: History) -> np.ndarray:
    """The most alike pairs by what people consumed."""
    from scipy.sparse import csr_array

    n, m = history.n_clients, history.n_items
    ones = np.ones(len(history.items))
    consumed = csr_array((ones, history.items, history.indptr), shape=(n, m))
    common = (consumed @ consumed.T).toarray()
    size = history.lengths.astype(np.float64)
    both = size[:, None] + size[None, :]
    if kind == "cosine":
        alike = common / np.sqrt(np.maximum(size[:, None] * size[None, :], 1))
    elif kind == "euclidean":
        alike = -np.sqrt(np.maximum(both - 2 * common, 0))
    elif kind == "jaccard":
        alike = common / np.maximum(both - common, 1)
    else:
        share = size / m
        spread = np.sqrt(np.maximum(share * (1 - share), 1e-12))
        alike = (common / m - share[:, None] * share[None, :]) / (spread[:, None] * spread[None, :])
    apart = ~np.eye(n, dtype=bool)
    if n < 2:
        return ~apart
    found: np.ndarray = alike >= np.quantile(alike[apart], 1 - density)
    return found
