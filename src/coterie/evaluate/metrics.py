"""Ranks -> metrics, binary relevance, one value for each user.

Every metric here is a sum over a user's held-out items of a gain that depends on the item's rank r (from 0), its place
i among her held-out items (from 0, by rank), how many she has (h) and the cutoff K. Stated once as such, the same table
serves the exact figures and the estimate from sampled ranks (`coterie.evaluate.corrected`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from coterie.errors import unknown_name
from coterie.evaluate.ranks import Ranks

CUTOFFS = (5, 10, 20, 50)


def _discount(rank: np.ndarray) -> np.ndarray:
    return 1.0 / np.log2(rank + 2.0)


def _ideal_dcg(held: np.ndarray, cutoff: int) -> np.ndarray:
    """The DCG of a perfect list: min(h, K) hits in front."""
    sums: np.ndarray = np.cumsum(_discount(np.arange(cutoff)))
    return np.asarray(sums[np.minimum(held, cutoff) - 1])


# name: gain(rank r, place i, held h, cutoff K) of a held-out item inside the first K; outside it is nothing.
GAINS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]] = {
    "HR": lambda r, i, h, K: (i == 0) * 1.0,  # was any found?
    "NDCG": lambda r, i, h, K: _discount(r) / _ideal_dcg(h, K),
    "MRR": lambda r, i, h, K: (i == 0) / (r + 1.0),
    "Precision": lambda r, i, h, K: np.full(r.shape, 1.0 / K),
    "Recall": lambda r, i, h, K: 1.0 / h,
    "F1": lambda r, i, h, K: 2.0 / (K + h),  # 2PR / (P + R) with P = n/K and R = n/h is 2n / (K + h)
    "MAP": lambda r, i, h, K: (i + 1.0) / (r + 1.0) / h,  # precision at each hit over ALL held-out items, as in ranx
}

_SPELLINGS = {"hit": "HR", "hits": "HR", "hitrate": "HR", "prec": "Precision", "ap": "MAP", "rr": "MRR"}


def canonical(name: str) -> str:
    """The name under which a metric is kept: `Hit@10`, `hit_rate@10` and `hr@10` are `HR@10`."""
    base, at, cutoff = name.strip().partition("@")
    plain = base.replace("_", "").replace("-", "").lower()
    known = {key.lower(): key for key in GAINS} | _SPELLINGS
    known |= {key.replace("-", "").lower(): key for key in BEYOND}
    if plain not in known or (at and not (cutoff.isdecimal() and int(cutoff) > 0)):
        raise unknown_name("metric", name, [f"{key}@10" for key in (*GAINS, *BEYOND)])
    return f"{known[plain]}{at}{int(cutoff) if at else ''}"


def places(ranks: Ranks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each held-out rank, int64[h] each: the row of its user, its place among hers, how many she has."""
    row = np.repeat(np.arange(len(ranks.users)), ranks.held)
    return row, np.arange(len(ranks.ranks)) - ranks.indptr[row], ranks.held[row]


def per_user(ranks: Ranks, cutoffs: Sequence[int] = CUTOFFS) -> dict[str, np.ndarray]:
    """Each metric at each cutoff, as float64[e] aligned with `ranks.users`; keys `HR@10`, `NDCG@10`, ..."""
    row, place, held = places(ranks)
    values = {}
    for K in cutoffs:
        inside = np.flatnonzero(ranks.ranks < K)  # few, mostly: the gains are computed for these alone
        r, i, h, owner = ranks.ranks[inside].astype(np.int64), place[inside], held[inside], row[inside]
        for name, gain in GAINS.items():
            values[f"{name}@{K}"] = np.bincount(owner, weights=gain(r, i, h, K), minlength=len(ranks.users))
    return values


def averages(values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The mean over users of each metric; NaN where nobody was evaluated, since 0 would be a claim."""
    return {name: float(np.mean(one)) if len(one) else float("nan") for name, one in values.items()}


BEYOND = ("Coverage", "1-Gini", "AvgPopularity", "Novelty")


def beyond_accuracy(
    top: np.ndarray, popularity: np.ndarray, n_users: int, cutoffs: Sequence[int] = CUTOFFS
) -> dict[str, float]:
    """What the recommended lists are like, whoever likes them.

    Arguments:
        top: int32[e, n] recommended items, best first, -1 padded (`Ranks.top`).
        popularity: int[m] training interactions of each item.
        n_users: users in training.

    `Coverage@K`: share of the m items that stand in somebody's first K.
    `1-Gini@K`: 1 - sum_j (2j - m - 1) p_j / (m - 1), p ascending shares of the recommendations, j from 1 (as FedeRank
    prints it): 1 if every item is recommended equally often, 0 if it is always the same one.
    `AvgPopularity@K`: training interactions of a recommended item, mean over the list, then over users.
    `Novelty@K`: the same mean of -log2(popularity / users); an item nobody has counts as if one person had it.
    """
    m = len(popularity)
    information = -np.log2(np.maximum(popularity, 1) / n_users)
    values: dict[str, float] = {}
    for K in cutoffs:
        lists = top[:, :K]
        real = lists >= 0
        lengths = real.sum(axis=1)
        some = lengths > 0
        counts = np.bincount(lists[real], minlength=m)
        total = max(int(counts.sum()), 1)
        weights = 2.0 * np.arange(1, m + 1) - m - 1
        gini = float(weights @ np.sort(counts)) / total / max(m - 1, 1)
        values[f"Coverage@{K}"] = float(np.count_nonzero(counts) / m)
        values[f"1-Gini@{K}"] = 1.0 - gini if some.any() else float("nan")
        for name, worth in (("AvgPopularity", popularity.astype(np.float64)), ("Novelty", information)):
            of_list = (np.where(real, worth[lists], 0.0).sum(axis=1)[some]) / lengths[some]
            values[f"{name}@{K}"] = float(of_list.mean()) if some.any() else float("nan")
    return values
