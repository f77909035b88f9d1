"""An estimate of the full-ranking metric from sampled ranks.

A metric on 99 sampled candidates is not a small version of the metric on all items: it can even order two systems the
other way round. Krichene and Rendle, "On Sampled Metrics for Item Recommendation" (KDD 2020), section 5, replace the
metric f on full ranks by a function g on sampled ranks that minimises, over full ranks q with a uniform prior,

    sum_q (E[g(k) | q] - f(q))^2 + gamma Var[g(k) | q],

solved by ((1 - gamma) P'P + gamma diag(P'1)) g = P'f with P[q, k] = P(sampled rank k | full rank q).

Two things differ from the paper. Its P is binomial (candidates drawn with replacement); ours are drawn without, so P is
hypergeometric, and the estimate becomes exact where every item was drawn. And several held-out items are allowed: the
places of held-out items among each other are known exactly, only the others are sampled.
A small gamma follows the full metric closely and needs many users; a large one is steadier and more biased.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numba import njit
from scipy.linalg import solve

from coterie.errors import CoterieError
from coterie.evaluate.metrics import CUTOFFS, GAINS, averages, places
from coterie.evaluate.ranks import Ranks

GAMMA = 0.01
_ROWS = 1 << 15  # full ranks taken at a time: P for a million items is not to stand in memory
_STEP = 1.02  # users whose numbers of items differ by less than this share one solution


@njit(nogil=True, cache=True)
def _hypergeometric(first, rows, n, c):  # type: ignore[no-untyped-def]
    """Each row from its mode outwards by the ratio of neighbours: two logarithms of factorials instead of hundreds."""
    out = np.zeros((rows, c + 1))
    for row in range(rows):
        q = first + row
        low, high = max(0, c - (n - q)), min(c, q)
        k = min(max((c + 1) * (q + 1) // (n + 2), low), high)
        log_p = math.lgamma(q + 1) - math.lgamma(k + 1) - math.lgamma(q - k + 1)
        log_p += math.lgamma(n - q + 1) - math.lgamma(c - k + 1) - math.lgamma(n - q - c + k + 1)
        log_p -= math.lgamma(n + 1) - math.lgamma(c + 1) - math.lgamma(n - c + 1)
        out[row, k] = math.exp(log_p)
        for j in range(k, high):
            out[row, j + 1] = out[row, j] * ((q - j) * (c - j)) / ((j + 1) * (n - q - c + j + 1))
        for j in range(k, low, -1):
            out[row, j - 1] = out[row, j] * (j * (n - q - c + j)) / ((q - j + 1) * (c - j + 1))
        out[row] /= out[row].sum()  # takes out the rounding of the large logarithms
    return out


def rank_probabilities(start: int, end: int, n: int, c: int) -> np.ndarray:
    """P(k of c drawn are among the q better ones of n), q from start to end - 1: float64[end - start, c + 1]."""
    return np.asarray(_hypergeometric(start, end - start, n, c))


@lru_cache(maxsize=1024)  # the same sizes come back in every evaluated round
def _indicators(n: int, c: int, gamma: float, first: int) -> np.ndarray:
    """float64[c + 1, first]: for each q below `first` the function of the sampled rank that estimates "full rank is q".

    Any metric with a cutoff is a weighted sum of these, so one solution serves all metrics and cutoffs.
    """
    squares, mass = np.zeros((c + 1, c + 1)), np.zeros(c + 1)
    for start in range(0, n + 1, _ROWS):
        chunk = rank_probabilities(start, min(start + _ROWS, n + 1), n, c)
        squares += chunk.T @ chunk
        mass += chunk.sum(axis=0)
    target = np.zeros((c + 1, first))
    known = min(first, n + 1)
    target[:, :known] = rank_probabilities(0, known, n, c).T
    found = np.asarray(solve((1 - gamma) * squares + gamma * np.diag(mass), target, assume_a="pos"))
    found.setflags(write=False)
    return found


def _sizes(n: np.ndarray, c: np.ndarray) -> np.ndarray:
    """int64[e]: the number of items to solve for, nearly equal ones joined (below 4 c they matter, and are cheap)."""
    joined = np.round(np.log(np.maximum(n, 1)) / np.log(_STEP)).astype(np.int64)
    label = np.where(n < 4 * c, -n - 1, joined)
    _, group = np.unique(np.stack([label, c]), axis=1, return_inverse=True)
    sums = np.bincount(group, weights=n)
    return np.asarray(np.round(sums / np.bincount(group)).astype(np.int64)[group])


def corrected_per_user(
    ranks: Ranks,
    full_candidates: int | np.ndarray,
    gamma: float = GAMMA,
    cutoffs: Sequence[int] = CUTOFFS,
    metrics: Sequence[str] = ("HR", "NDCG"),
) -> dict[str, np.ndarray]:
    """The terms whose mean over users is `corrected`, float64[e]. A single one says nothing (it may be below zero)."""
    if not 0 < gamma <= 1:
        raise CoterieError(f"gamma is {gamma}, expected above 0 and at most 1; the usual values are 0.01 and 0.1.")
    row, place, held = places(ranks)
    c = ranks.candidates - ranks.held
    n = np.broadcast_to(np.asarray(full_candidates, np.int64), c.shape) - ranks.held
    if np.any(n < c):
        worst = int(np.argmin(n - c))
        raise CoterieError(
            f"user {ranks.users[worst]} was ranked among {ranks.candidates[worst]} sampled items, but full_candidates "
            f"says that there are only {n[worst] + held[ranks.indptr[worst]]}. Count the held-out items in both."
        )
    solve_for = _sizes(n, c)
    values = {f"{name}@{K}": np.zeros(len(ranks.users)) for K in cutoffs for name in metrics}
    first = max(cutoffs)
    for n_here, c_here in np.unique(np.stack([solve_for, c]), axis=1).T.tolist() if len(c) else []:
        mine = np.flatnonzero(((solve_for == n_here) & (c == c_here))[row] & (place < first))
        i, h = place[mine, None], held[mine, None]
        weights = _indicators(n_here, c_here, gamma, first)[ranks.ranks[mine] - i[:, 0]]  # [held-out items, first]
        r = np.arange(first)[None, :] + i  # the full rank if q items that are not held out stand before it
        for K in cutoffs:
            for name in metrics:
                gains = np.where(r < K, GAINS[name](r, i, h, K), 0.0)
                terms = np.einsum("xq,xq->x", gains, weights)
                values[f"{name}@{K}"] += np.bincount(row[mine], weights=terms, minlength=len(ranks.users))
    return values


def corrected(
    ranks: Ranks,
    full_candidates: int | np.ndarray,
    gamma: float = GAMMA,
    cutoffs: Sequence[int] = CUTOFFS,
    metrics: Sequence[str] = ("HR", "NDCG"),
) -> dict[str, float]:
    """Estimate the full-ranking metrics from sampled ranks (keys `HR@10`, `NDCG@10`, ...; print gamma beside them).

    Arguments:
        ranks: of `rank_among`, candidates drawn uniformly without replacement.
        full_candidates: how many items a full ranking would rank for each user, held-out ones included: one number
            or int[e] aligned with `ranks.users` (`Ranks.candidates` of the full ranking).
        gamma: weight of the variance against the bias.
    """
    return averages(corrected_per_user(ranks, full_candidates, gamma, cutoffs, metrics))
