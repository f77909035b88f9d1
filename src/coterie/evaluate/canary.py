"""The leak canary: does counting how often an item was drawn as a training negative find the held-out item?

On a device nobody knows the future, so held-out items are drawn as negatives like any other. Where they are spared
(negatives drawn from what a user touched nowhere, test included), the scorer "minus the number of draws" finds them
without learning anything.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coterie.errors import CoterieError
from coterie.ragged import Ragged


class Canary(NamedTuple):
    """The counting scorer's hit rate beside that of a random scorer on the same candidates."""

    hr: float
    chance: float
    standard_error: float  # of hr - chance, over users

    @property
    def leaks(self) -> bool:
        """More than 4 standard errors above chance (and above what rounding could make)."""
        return self.hr - self.chance > 4 * self.standard_error + 1e-12


def canary(counts_held: np.ndarray, counts_candidates: Ragged | np.ndarray, cutoff: int = 10) -> Canary:
    """Compare the draws of each held-out item with those of the other candidates of its user.

    Arguments:
        counts_held: int[e] how often each held-out item was drawn as a negative for its user.
        counts_candidates: the same for her other candidates: int[e, c], or a Ragged whose `items` are the counts.
        cutoff: K of HR@K.

    Equal counts are decided at their expected value: with b candidates drawn less often and q as often, the held-out
    item is among the first K with probability clip((K - b) / (q + 1), 0, 1). Chance is min(1, K / (candidates + 1)).
    Fewer than two users say nothing: the error is then 1, the largest it could be, and there is no verdict.
    """
    held = np.asarray(counts_held)
    if isinstance(counts_candidates, Ragged):
        lengths, counts = counts_candidates.lengths, counts_candidates.items
    else:
        lengths, counts = np.full(len(counts_candidates), counts_candidates.shape[1]), counts_candidates.reshape(-1)
    if len(held) != len(lengths):
        raise CoterieError(
            f"the canary got {len(held)} held-out items and candidates for {len(lengths)}. Pass one list for each."
        )
    row = np.repeat(np.arange(len(held)), lengths)
    better = np.bincount(row[counts < held[row]], minlength=len(held))
    equal = np.bincount(row[counts == held[row]], minlength=len(held))
    hit = np.clip((cutoff - better) / (equal + 1), 0.0, 1.0)
    chance = np.minimum(1.0, cutoff / (lengths + 1))
    if len(held) < 2:
        return Canary(float(hit.sum()), float(chance.sum()), 1.0)
    error = float(np.std(hit - chance, ddof=1)) / math.sqrt(len(held))
    return Canary(float(hit.mean()), float(chance.mean()), error)
