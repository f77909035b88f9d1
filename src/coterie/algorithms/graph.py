"""User graphs on the server: who is like whom by the tables they uploaded, and what each person's neighbours hold.

S is the similarity of flattened uploads, A_ij = 1 where S_ij > gamma x mean(S), and person i is sent r_i, row i of
R = P^l Q with P = A normalised. S is one symmetric product: by the processor's matrix unit where there is one
(tile_products.py), else by fixed blocks with BLAS on one thread each; either way the bytes do not depend on the number
of threads. R is sums of neighbours' rows (neighbour_sums.py) and is never stored: each
cohort's rows are made when they are sent.

Zhang et al.: GPFedRec, KDD 2024, Eq. 3 to 6 and section 4.6. Light GCN: He et al., SIGIR 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms import amx, tile_products
from coterie.algorithms.interface import Collected
from coterie.algorithms.neighbour_sums import add_up, by_popularity
from coterie.algorithms.server import Refused
from coterie.errors import CoterieError

Similarity = Literal["cosine", "cosine-distance", "euclidean"]
Normalise = Literal["row", "none", "laplacian"]

_PIECE = 4096  # rows of uploads that are looked at together
_BLOCK = 256  # users in a block of the Gram matrix; fixed, so that sums are always cut in the same places
_FAST = {"reassoc", "contract", "arcp", "nsz"}


class Rules(NamedTuple):
    """How a graph is made from uploads."""

    similarity: Similarity
    gamma: float
    normalise: Normalise
    layers: int
    neighbours: int  # the most alike so many instead of a threshold; 0: threshold
    sample: int  # at most so many neighbours, drawn anew with each graph; 0: all
    subgraph: float  # share of users whose neighbours are looked up anew with each graph


def check(rules: Rules, interval: int) -> None:
    """Settings that cannot work are refused before anything runs."""
    if rules.layers < 1 or interval < 1:
        raise CoterieError(f"layers is {rules.layers} and interval {interval}; both count from 1")
    if rules.neighbours < 0 or rules.sample < 0:
        raise CoterieError(f"neighbours is {rules.neighbours} and sample {rules.sample}; give 0 (no limit) or more")
    if not 0 < rules.subgraph <= 1:
        raise CoterieError(f"subgraph is {rules.subgraph}; it is a share of the users: above 0, at most 1")


class Graph(NamedTuple):
    """What the server keeps for each client."""

    uploads: np.ndarray  # float32[n, m, w]: Q, everybody's last upload
    known: np.ndarray  # bool[n]: who has uploaded
    linked: np.ndarray  # bool[n, n]: A; row i are the neighbours of i
    level: np.ndarray  # float64[1]: mean(S) when the graph was made
    mixed: np.ndarray  # float32[n, m, w] where l > 1: P^(l - 1) Q; else empty
    fixed: np.ndarray  # bool[n, n] where the graph does not come from uploads; else empty
    seed: np.ndarray  # int64[1]: of the server's own draws


def empty(n_clients: int, n_items: int, width: int, layers: int, seed: int, fixed: np.ndarray | None = None) -> Graph:
    """Before the first round nobody has uploaded anything."""
    return Graph(
        np.zeros((n_clients, n_items, width), np.float32),
        np.zeros(n_clients, bool),
        np.zeros((n_clients, n_clients), bool),
        np.zeros(1),
        np.zeros((n_clients if layers > 1 else 0, n_items, width), np.float32),
        np.zeros((0, 0), bool) if fixed is None else fixed,
        np.array([seed], np.int64),
    )


def receive(graph: Graph, received: Collected, elsewhere: Callable[[np.ndarray], np.ndarray]) -> None:
    """Put uploads in their place. Where clients sent only some rows, `elsewhere(ids)` has the others."""
    n_items, width = graph.uploads.shape[1:]
    largest = float(np.sqrt(np.finfo(np.float32).max / max(n_items * width, 1)))  # of tables whose products are finite
    for upload in received.uploads:  # all of them, before any is taken in
        if not _within(upload.values, largest):
            raise Refused(
                f"an upload holds numbers that are not finite or above {largest:.3g}; nothing of this round was taken "
                "in (if it was training that diverged: lower the rates, lr_item first)"
            )
    for ids, upload in zip(received.ids, received.uploads, strict=True):
        whole = len(upload.rows) == len(ids) * n_items
        if whole:
            tables = upload.values.reshape(len(ids), n_items, width)
        else:
            tables = np.array(np.broadcast_to(elsewhere(ids), (len(ids), n_items, width)))
            owner = np.repeat(np.arange(len(ids)), np.diff(upload.indptr))
            tables[owner, upload.rows] = upload.values
        first, last = int(ids[0]), int(ids[-1]) + 1
        if last - first == len(ids):
            graph.uploads[first:last] = tables
        else:
            graph.uploads[ids] = tables
        graph.known[ids] = True


def _within(values: np.ndarray, largest: float) -> bool:
    """Whether all are finite and none is larger; piece by piece, so that the second look finds them in the cache."""
    pieces = (values[first : first + _PIECE] for first in range(0, len(values), _PIECE))
    return all(one.max(initial=0.0) <= largest and one.min(initial=0.0) >= -largest for one in pieces)  # NaN is neither


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _products(tables: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """float32[len(left), len(right)]: inner products of flattened tables."""
    flat = tables.reshape(len(tables), -1)
    workers = max((library["num_threads"] for library in _blas().info()), default=1)
    if amx.available() and flat.shape[1] >= tile_products.SHORTEST:
        return tile_products.products(flat, left, right, workers)
    out = np.empty((len(left), len(right)), np.float32)
    mirrored = left is right

    def rows(of: np.ndarray, first: int) -> np.ndarray:
        some = of[first : first + _BLOCK]
        return flat[some[0] : some[-1] + 1] if some[-1] - some[0] + 1 == len(some) else flat[some]

    def block(place: tuple[int, int]) -> None:
        a, b = place
        mine = rows(left, a)
        found = mine @ (mine if mirrored and a == b else rows(right, b)).T
        out[a : a + len(mine), b : b + found.shape[1]] = found
        if mirrored and a != b:
            out[b : b + found.shape[1], a : a + len(mine)] = found.T

    places = [
        (a, b) for a in range(0, len(left), _BLOCK) for b in range(0, len(right), _BLOCK) if not mirrored or a <= b
    ]
    with _blas().limit(limits=1), ThreadPoolExecutor(workers) as pool:
        list(pool.map(block, places))
    return out


def alike(tables: np.ndarray, left: np.ndarray, right: np.ndarray, kind: Similarity) -> np.ndarray:
    """float32[len(left), len(right)]: S between these users' tables."""
    found = _products(tables, left, right)
    if left is right:
        mine = theirs = np.diagonal(found).copy()
    else:
        squares = _squares(tables)
        mine, theirs = squares[left], squares[right]
    found = _likeness(found, mine, theirs, kind)
    if kind == "cosine-distance":
        found[left[:, None] == right[None, :]] = 0
    return found


def _likeness(inner: np.ndarray, mine: np.ndarray, theirs: np.ndarray, kind: Similarity) -> np.ndarray:
    """S from inner products and the squared lengths of both sides."""
    if kind == "euclidean":
        return -np.sqrt(np.maximum(mine[:, None] + theirs[None, :] - 2 * inner, 0))
    inner /= np.sqrt(np.maximum(mine, 1e-30))[:, None] * np.sqrt(np.maximum(theirs, 1e-30))[None, :]
    return inner if kind == "cosine" else np.clip(1 - inner, 0, 2)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _squares(tables):  # type: ignore[no-untyped-def]
    out = np.empty(len(tables), np.float32)
    for i in range(len(tables)):
        total = 0.0
        for j in range(tables.shape[1]):
            for d in range(tables.shape[2]):
                total += np.float64(tables[i, j, d]) * tables[i, j, d]
        out[i] = total
    return out


def rebuild(graph: Graph, rules: Rules, round_: int, count: int) -> Graph:
    """The graph from the uploads there are; `count` is how many graphs there were before."""
    everybody = np.flatnonzero(graph.known)
    linked, level = graph.linked.copy(), graph.level
    if len(graph.fixed):
        linked[:] = graph.fixed & graph.known[None, :]
        some = everybody
    else:
        some = everybody
        if rules.subgraph < 1.0 and count > 0:  # another part of the users each time
            size = max(1, int(np.ceil(rules.subgraph * len(everybody))))
            some = everybody[np.sort((count * size + np.arange(size)) % len(everybody))]
        found = alike(graph.uploads, some, everybody if len(some) < len(everybody) else some, rules.similarity)
        level = np.array([found.mean(dtype=np.float64)])
        linked[some] = False
        linked[np.ix_(some, everybody)] = choose(found, rules, level[0])
    linked[~graph.known] = False
    if rules.sample > 0:
        _thin(linked, some, rules.sample, graph.seed[0], round_)
    lonely = graph.known & ~linked.any(1)
    linked[lonely, lonely] = True
    return graph._replace(linked=linked, level=level)


def choose(found: np.ndarray, rules: Rules, level: float) -> np.ndarray:
    """bool of S's shape: the neighbours of each row."""
    if rules.neighbours > 0:
        near = np.zeros(found.shape, bool)
        best = np.argsort(-found, axis=1, kind="stable")[:, : rules.neighbours]
        np.put_along_axis(near, best, True, 1)
        return near
    return found > np.float32(rules.gamma * level)


@njit(nogil=True, cache=True)
def _thin(linked, some, most, seed, round_):  # type: ignore[no-untyped-def]
    """Keep at most `most` neighbours of each of `some`, drawn without replacement."""
    for i in some:
        near = np.flatnonzero(linked[i])
        if len(near) <= most:
            continue
        state = rng.stream(seed, round_, np.uint64(i), rng.GRAPH)
        for t in range(most):
            state = rng.after(state)
            other = t + rng.below(state, len(near) - t)
            near[t], near[other] = near[other], near[t]
        for t in range(most, len(near)):
            linked[i, near[t]] = False


def _weights(linked: np.ndarray, normalise: Normalise) -> tuple[np.ndarray, np.ndarray]:
    """P_ij = row_i A_ij column_j: the two factors, float32[n]."""
    ones = np.ones(len(linked), np.float32)
    if normalise == "none":
        return ones, ones
    out = np.maximum(linked.sum(1), 1).astype(np.float32)
    if normalise == "row":
        return 1 / out, ones
    return 1 / np.sqrt(out), 1 / np.sqrt(np.maximum(linked.sum(0), 1)).astype(np.float32)


def views(graph: Graph, ids: np.ndarray, rules: Rules, otherwise: np.ndarray) -> np.ndarray:
    """float32[c, m, w]: r_i of these users; the table `otherwise` for those who are not in the graph yet."""
    rows, columns = _weights(graph.linked, rules.normalise)
    source = graph.mixed if len(graph.mixed) else graph.uploads
    out = add_up(source, graph.linked[ids], rows[ids], columns, by_popularity(graph.linked))
    out[~graph.linked[ids].any(1)] = otherwise
    return out


def propagate(graph: Graph, rules: Rules) -> None:
    """All layers but the last, which `views` does; in place, a block of users at a time where l = 2."""
    if not len(graph.mixed):
        return
    rows, columns = _weights(graph.linked, rules.normalise)
    source, order = graph.uploads, by_popularity(graph.linked)
    for _ in range(rules.layers - 1):
        found = np.empty_like(graph.mixed) if source is graph.mixed else graph.mixed
        for first in range(0, len(found), _BLOCK):
            some = slice(first, first + _BLOCK)
            found[some] = add_up(source, graph.linked[some], rows[some], columns, order)
        graph.mixed[:] = found
        source = graph.mixed


def overall(graph: Graph, rules: Rules, how: Literal["mean-view", "degree", "mean"]) -> np.ndarray:
    """float32[m, w]: q_global, the mean of all r_i, or of all uploads weighted by degree, or plain."""
    here = max(int(graph.known.sum()), 1)
    source = graph.uploads
    if how == "mean":
        weights = graph.known / here
    elif how == "degree":
        degree = graph.linked.sum(0, dtype=np.float64)
        weights = degree / max(degree.sum(), 1.0)
    else:
        rows, columns = _weights(graph.linked, rules.normalise)
        weights = (rows.astype(np.float64) @ graph.linked) * columns / here
        source = graph.mixed if len(graph.mixed) else graph.uploads
    return _weighted(source, weights)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _weighted(tables, weights):  # type: ignore[no-untyped-def]
    total = np.zeros(tables.shape[1:])
    for i in range(len(tables)):
        if weights[i] != 0.0:
            for j in range(tables.shape[1]):
                for d in range(tables.shape[2]):
                    total[j, d] += weights[i] * tables[i, j, d]
    return total.astype(np.float32)


def place(graph: Graph, tables: np.ndarray, rules: Rules, otherwise: np.ndarray) -> np.ndarray:
    """float32[c, m, w]: views for people outside the graph, by the likeness of their tables to everybody's uploads.

    They are nobody's neighbours yet, so only their own degree counts: each view is a mean.
    """
    flat, squares = graph.uploads.reshape(len(graph.known), -1), _squares(graph.uploads)
    order = by_popularity(graph.linked)
    out, ones = np.empty_like(tables), np.ones(len(flat), np.float32)
    for c, mine in enumerate(tables.reshape(len(tables), -1)):  # her view may not depend on who comes with her
        with _blas().limit(limits=1):
            inner = np.concatenate([flat[first : first + _BLOCK] @ mine for first in range(0, len(flat), _BLOCK)])
        found = _likeness(inner[None, :], np.array([mine @ mine]), squares, rules.similarity)
        found[0, ~graph.known] = -np.inf
        near = choose(found, rules, graph.level[0]) & graph.known
        if near.any():
            out[c] = add_up(graph.uploads, near, 1 / near.sum(1, dtype=np.float32), ones, order)[0]
        else:
            out[c] = otherwise
    return out
