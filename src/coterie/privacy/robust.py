"""Aggregation that bears some bad clients: screening by name, coordinate median, trimmed mean, Krum.

All of them need single uploads, so none works with a secure sum. The median and the trimmed mean of a row are taken
over the clients who sent that row (most send no update for most items, and a median over zeros would be zero), and
scaled by how many they are, so that a server step gets a sum of the usual size.

Yin et al.: Byzantine-Robust Distributed Learning. ICML 2018. Blanchard et al.: Machine Learning with Adversaries:
Byzantine Tolerant Gradient Descent. NeurIPS 2017.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coterie.algorithms.interface import Sum, Upload
from coterie.algorithms.server import FIXED_POINT, add, empty_sum
from coterie.privacy.path import norms, owners

REASONS = ("shape", "rows", "not-finite", "over-norm")


class Screened(NamedTuple):
    upload: Upload  # of the clients that are left
    ids: np.ndarray  # int64: who they are
    rejected: dict[str, list[int]]  # reason -> clients


def screen(
    upload: Upload,
    ids: np.ndarray,
    n_items: int,
    shape: tuple[int, int] | None = None,
    most: float | None = None,
    neutral: float = 0.0,
) -> Screened:
    """Leave out uploads that must not count. `shape` is (width of a row, length of dense) as the server expects it."""
    clients = len(ids)
    reason = np.full(clients, -1)
    if shape is not None and (upload.values.shape[1], upload.dense.shape[1]) != shape:
        reason[:] = 0
    who = owners(upload)
    outside = (upload.rows < 0) | (upload.rows >= n_items)
    key = who.astype(np.int64) * (n_items + 1) + np.clip(upload.rows, 0, n_items)
    _, first, times = np.unique(key, return_index=True, return_counts=True)
    twice = np.zeros(len(key), bool)
    twice[first[times > 2]] = True  # once as consumed and once as a negative may be; more is padding
    bad_rows = np.bincount(who, outside | twice, minlength=clients) > 0
    reason = np.where((reason < 0) & bad_rows, 1, reason)
    with np.errstate(over="ignore", invalid="ignore"):
        size = norms(upload, neutral=neutral)
    reason = np.where((reason < 0) & ~np.isfinite(size), 2, reason)
    if most is not None:
        reason = np.where((reason < 0) & (size > most), 3, reason)
    rejected = {REASONS[r]: [int(one) for one in ids[reason == r]] for r in range(4) if (reason == r).any()}
    return Screened(only(upload, reason < 0), ids[reason < 0], rejected)


def only(upload: Upload, keep: np.ndarray) -> Upload:
    """The uploads of some of the clients."""
    lengths = np.diff(upload.indptr)[keep]
    rows = keep[owners(upload)]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Upload(indptr, upload.rows[rows], upload.values[rows], upload.dense[keep])


def _by_item(upload: Upload) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows sorted by item: (values, where each item's begin, touched)."""
    order = np.argsort(upload.rows, kind="stable")
    touched = np.bincount(upload.rows)
    return upload.values[order], np.concatenate([[0], np.cumsum(touched)]), touched


def _middle(values: np.ndarray, trim: float | None) -> np.ndarray:
    """float64[w]: the coordinate median, or the mean without the `trim` share at both ends."""
    if trim is None:
        found: np.ndarray = np.median(values.astype(np.float64), axis=0)
        return found
    cut = int(np.ceil(trim * len(values))) if trim > 0 else 0
    cut = min(cut, (len(values) - 1) // 2)
    ordered = np.sort(values.astype(np.float64), axis=0)
    kept: np.ndarray = ordered[cut : len(values) - cut].mean(axis=0)
    return kept


def coordinatewise(upload: Upload, n_items: int, trim: float | None) -> Sum:
    """Median (`trim` None) or trimmed mean over touching clients, times how many touch."""
    clients = len(upload.indptr) - 1
    total = empty_sum(n_items, upload.values.shape[1], upload.dense.shape[1])
    values, begin, touched = _by_item(upload)
    for item in np.flatnonzero(touched):
        middle = _middle(values[begin[item] : begin[item + 1]], trim)
        total.rows[item] = np.rint(middle * touched[item] * FIXED_POINT)
    total.touched[: len(touched)] = touched
    if upload.dense.shape[1] and clients:
        total.dense[:] = np.rint(_middle(upload.dense, trim) * clients * FIXED_POINT)
    total.clients[0] = clients
    return total


def krum_order(upload: Upload, n_items: int, bad: int) -> np.ndarray:
    """Clients from the most to the least central: by the sum of squared distances to their nearest n - bad - 2."""
    from scipy.sparse import csr_matrix

    clients, width = len(upload.indptr) - 1, upload.values.shape[1]
    columns = (upload.rows[:, None].astype(np.int64) * width + np.arange(width)).ravel()
    flat = csr_matrix(
        (upload.values.astype(np.float64).ravel(), columns, upload.indptr * width), shape=(clients, n_items * width)
    )
    gram = (flat @ flat.T).toarray() + upload.dense.astype(np.float64) @ upload.dense.astype(np.float64).T
    square = np.diag(gram)
    distance = np.maximum(square[:, None] + square - 2 * gram, 0.0)
    np.fill_diagonal(distance, np.inf)
    near = min(max(clients - bad - 2, 1), max(clients - 1, 1))
    score = np.sort(distance, axis=1)[:, :near].sum(axis=1)
    return np.argsort(score, kind="stable")


def krum(upload: Upload, n_items: int, byzantine: float) -> Sum:
    """Multi-Krum: the sum over the n - f - 2 most central clients, scaled to all."""
    clients = len(upload.indptr) - 1
    bad = int(np.ceil(byzantine * clients))
    keep = np.zeros(clients, bool)
    keep[krum_order(upload, n_items, bad)[: max(clients - bad - 2, 1)]] = True
    total = empty_sum(n_items, upload.values.shape[1], upload.dense.shape[1])
    add(total, only(upload, keep), clients)
    return total


def aggregate(upload: Upload, n_items: int, rule: str, byzantine: float) -> Sum:
    """What the server's step gets under a robust rule."""
    if rule == "krum":
        return krum(upload, n_items, byzantine)
    if rule in ("median", "trimmed-mean"):
        return coordinatewise(upload, n_items, None if rule == "median" else byzantine)
    total = empty_sum(n_items, upload.values.shape[1], upload.dense.shape[1])
    add(total, upload, len(upload.indptr) - 1)
    return total
