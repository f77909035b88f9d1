"""The systems' losses in plain NumPy, in float64, and their gradients by finite differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def bce(x: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> float:
    """Sum of the logistic losses of `positive` ones and `negative` zeros at each score."""
    return float((positive * np.logaddexp(0, -x) + negative * np.logaddexp(0, x)).sum())


def slopes(loss: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The gradient of `loss`, number by number."""
    at = np.asarray(at, np.float64)
    found = np.empty_like(at)
    for place in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[place] += step
        down[place] -= step
        found[place] = (loss(up) - loss(down)) / (2 * step)
    return found


def weights(history_items: np.ndarray, drawn: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How often each of `rows` is a positive and how often a negative."""
    positive = np.array([float((history_items == j).sum()) for j in rows])
    return positive, np.array([float((drawn == j).sum()) for j in rows])


def star_layers(
    user: np.ndarray, items: np.ndarray, hers: int, layers: int, plain: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """LightGCN as written: powers of the normalised adjacency of a star; the first `hers` items are its leaves.

    If `plain`, items keep their layer 0 in the mean and nothing else.
    """
    n = 1 + len(items)
    adjacency = np.zeros((n, n))
    adjacency[0, 1 : 1 + hers] = adjacency[1 : 1 + hers, 0] = 1
    degree = np.maximum(adjacency.sum(1), 1)
    spread = adjacency / np.sqrt(np.outer(degree, degree))
    layer = np.vstack([user, items])
    total = layer.copy()
    for _ in range(layers):
        layer = spread @ layer
        total += layer
    total /= layers + 1
    return total[0], items / (layers + 1) if plain else total[1:]


def lightgcn_loss(
    user: np.ndarray, items: np.ndarray, hers: int, layers: int, plain: bool, positive: np.ndarray, negative: np.ndarray
) -> float:
    u, e = star_layers(user, items, hers, layers, plain)
    return bce(e @ u, positive, negative)


def gnn_scores(
    user: np.ndarray, items: np.ndarray, others: np.ndarray, hers: int, W: np.ndarray, V: np.ndarray
) -> np.ndarray:
    """FedPerGNN's scores of `items`, the first `hers` of which are her own, with `others` the neighbours' means."""
    nodes = np.tanh(items[:hers] + others @ W.T)
    return items @ (user + V @ nodes.mean(0))


def generated(
    vector: np.ndarray, memory: np.ndarray, hidden: np.ndarray, heads: np.ndarray, low: np.ndarray, s
) -> tuple:
    """MetaMF's generator for one person: the low table, and the network's p numbers."""
    c = np.append(vector @ memory, 1.0)
    h = [np.append(np.maximum(c @ one, 0), 1.0) for one in hidden]
    theta = np.concatenate([h[0] @ heads[:, : s.w1], h[1] @ heads[:, s.w1 : s.w2], h[2] @ heads[:, s.w2 :]])
    return np.einsum("q,jqd->jd", h[0], low), theta


def meta_scores(table: np.ndarray, theta: np.ndarray, s) -> np.ndarray:
    """MetaMF's prediction from what was generated, as the paper writes it."""
    rise = theta[: s.w1].reshape(s.low, s.dim)
    first = theta[s.w1 : s.b1].reshape(s.dim, s.hidden)
    inner = np.maximum(table @ rise @ first + theta[s.b1 : s.w2], 0)
    return inner @ theta[s.w2 : s.b2] + theta[s.b2]
