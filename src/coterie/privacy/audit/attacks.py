"""Attacks: evidence -> a score for each user and item, higher where the item is likelier to be hers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie.privacy.audit.evidence import Evidence

Attack = Callable[[Evidence], np.ndarray]


def support(seen: Evidence) -> np.ndarray:
    """Which rows came in her first upload."""
    return seen.first


def frequency(seen: Evidence) -> np.ndarray:
    """How often a row came: positives come whenever she does, negatives by chance."""
    found: np.ndarray = seen.came / np.maximum(seen.uploads, 1)[:, None]
    return found


def absence(seen: Evidence) -> np.ndarray:
    """How often it did not: what is never sent as a negative is what she has."""
    return -frequency(seen)


def rank_one_sign(seen: Evidence) -> np.ndarray:
    """On which side of the top singular vector a row lies."""
    found: np.ndarray = seen.sign / np.maximum(seen.uploads, 1)[:, None]
    return found


def rank_one_score(seen: Evidence) -> np.ndarray:
    """The same vector is her user vector: it scores the whole catalogue, also what was never sent."""
    return seen.score


def row_norm(seen: Evidence) -> np.ndarray:
    """How far a row moved when it came."""
    found: np.ndarray = seen.norm / np.maximum(seen.came, 1)
    return found


SIMPLE: dict[str, Attack] = {
    "support": support,
    "frequency": frequency,
    "absence": absence,
    "rank-1 sign": rank_one_sign,
    "rank-1 score": rank_one_score,
    "row norm": row_norm,
    "row norm, least": lambda seen: -row_norm(seen),
}


def popularity(indptr: np.ndarray, items: np.ndarray, ids: np.ndarray, n_items: int) -> np.ndarray:
    """float64[u, m]: how many others have the item. Chance is not 0.5, since people like what is liked."""
    counts = np.bincount(items, minlength=n_items).astype(np.float64)
    others: np.ndarray = np.tile(counts, (len(ids), 1)) - labels(indptr, items, ids, n_items)
    return others


def labels(indptr: np.ndarray, items: np.ndarray, ids: np.ndarray, n_items: int) -> np.ndarray:
    """bool[u, m]: the truth."""
    found = np.zeros((len(ids), n_items), bool)
    for place, user in enumerate(ids):
        found[place, items[indptr[user] : indptr[user + 1]]] = True
    return found
