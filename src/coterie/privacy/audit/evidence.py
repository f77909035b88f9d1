"""The recorded view, folded into a few numbers for each user and item: what the attacks work from."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from coterie.algorithms.interface import Upload
from coterie.privacy import view


class Evidence(NamedTuple):
    """Of the attacked users, in the order of `ids`. Everything comes from the view; no truth is in here."""

    ids: np.ndarray  # int64[u]
    uploads: np.ndarray  # int64[u]: how many came from each
    first: np.ndarray  # float32[u, m]: 1 where the row came in her first upload
    came: np.ndarray  # float32[u, m]: in how many uploads the row came
    norm: np.ndarray  # float32[u, m]: sum of its norms
    last: np.ndarray  # float32[u, m]: sum of its last numbers (an item's bias, where there is one)
    sign: np.ndarray  # float32[u, m]: sum of its projections on the upload's top singular vector, in their own unit
    score: np.ndarray  # float32[u, m]: sum of scores of the whole catalogue by that vector, standardised
    single: view.Seen  # the last round in which all these users' uploads are at hand, for retraining
    rounds: int
    masked: bool


def direction(values: np.ndarray) -> np.ndarray:
    """float64[w]: the top right singular vector, turned so that most rows point against it.

    The upload of one logistic step is nearly rank one: every row is a multiple of the user vector, positives one way,
    negatives the other; and there are more negatives.
    """
    vector: np.ndarray = np.linalg.eigh((values.T @ values).astype(np.float64))[1][:, -1].astype(np.float32)
    along = values @ vector
    return -vector if (along > 0).sum() > (along < 0).sum() else vector


def moved(rows: np.ndarray, values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """float32[r, w]: how rows moved. Some systems send whole rows, not movements: the server knows what it had sent."""
    if table.shape[1] != values.shape[1]:
        return values
    change: np.ndarray = values - table[rows]
    sizes = [np.linalg.norm(one.astype(np.float64)) for one in (change, values)]
    return change if sizes[0] < sizes[1] else values


def collect(directory: Path, most: int | None = None, users: int | None = None, seed: int = 0) -> Evidence:
    """Read the view round by round; only this summary stays in memory."""
    m = int(view.about(directory)["items"])
    ids = _attacked(directory, most, users, seed)
    place = np.full(int(ids.max()) + 1, -1)
    place[ids] = np.arange(len(ids))
    shape = (len(ids), m)
    first, came, norm, last, sign, score = (np.zeros(shape, np.float32) for _ in range(6))
    uploads, count, single, masked = np.zeros(len(ids), np.int64), 0, None, False
    for seen in view.rounds(directory, most):
        count, masked = count + 1, seen.masked
        table = seen.table.astype(np.float64)
        here = np.array([one < len(place) and place[one] >= 0 for one in seen.ids])
        if single is None or here.sum() >= (np.isin(single.ids, ids)).sum():
            single = seen
        for c in np.flatnonzero(here):
            u = place[seen.ids[c]]
            part = slice(seen.upload.indptr[c], seen.upload.indptr[c + 1])
            rows, values = seen.upload.rows[part], seen.upload.values[part]
            if not seen.masked:
                values = moved(rows, values, seen.table)
            uploads[u] += 1
            if not len(rows):
                continue
            if uploads[u] == 1:
                first[u, rows] = 1.0
            vector = direction(values)
            along = values @ vector
            along /= np.sqrt(np.mean(along**2)) + 1e-30
            came[u] += np.bincount(rows, minlength=m).clip(max=1)
            norm[u] += np.bincount(rows, np.linalg.norm(values, axis=1), minlength=m)
            last[u] += np.bincount(rows, values[:, -1], minlength=m)
            sign[u] += np.bincount(rows, along, minlength=m)
            if table.shape[1] == len(vector):
                liked = table @ vector
                score[u] += (liked - liked.mean()) / (liked.std() + 1e-30)
    assert single is not None
    return Evidence(ids, uploads, first, came, norm, last, sign, score, single, count, masked)


def _attacked(directory: Path, most: int | None, users: int | None, seed: int) -> np.ndarray:
    """int64[u]: users of whom something came, or a sample of them."""
    found = np.unique(np.concatenate(view.senders(directory, most)))
    if users is not None and users < len(found):
        found = np.sort(np.random.default_rng(seed).permutation(found)[:users])
    return found


def part_of(upload: Upload, c: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and values of one client."""
    mine = slice(upload.indptr[c], upload.indptr[c + 1])
    return upload.rows[mine], upload.values[mine]
