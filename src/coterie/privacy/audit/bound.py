"""A lower bound on epsilon by experiment: run the mechanism with and without somebody, and try to tell which it was.

The mechanisms are the ones the run used, on a small table, against the worst-placed person: her upload has the full
clip norm and the attacker knows it. Thresholds are chosen on one half of the trials and judged on the other; rates are
taken at the ends of their Clopper-Pearson intervals (95 %), so the bound is below the true epsilon in 19 runs of 20.
If it exceeds the claimed epsilon, the implementation adds too little noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coterie.algorithms.interface import History, Sum, Upload
from coterie.algorithms.server import FIXED_POINT, empty_sum, real
from coterie.privacy import accountant, local
from coterie.privacy.central import CentralNoise, Ledger
from coterie.privacy.noise import Secret
from coterie.privacy.spec import PrivacySpec
from coterie.ragged import Ragged

_ITEMS, _WIDTH = 6, 4


def lower_bound(inside: np.ndarray, outside: np.ndarray, delta: float, confidence: float = 0.95) -> float:
    """The largest epsilon refuted by how well a threshold tells `inside` from `outside` statistics."""
    from scipy.stats import beta

    half = len(inside) // 2
    choose = np.quantile(np.concatenate([inside[:half], outside[:half]]), np.linspace(0.01, 0.99, 99))
    error = (1 - confidence) / 2
    best, threshold = -1.0, 0.0
    for one in choose:
        hit, false = (inside[:half] > one).mean(), max((outside[:half] > one).mean(), 0.5 / half)
        if hit > delta and math.log((hit - delta) / false) > best and (outside[:half] > one).sum() >= 5:
            best, threshold = math.log((hit - delta) / false), float(one)
    test_in, test_out = inside[half:], outside[half:]
    hits, falses, n = int((test_in > threshold).sum()), int((test_out > threshold).sum()), len(test_in)
    low = beta.ppf(error, hits, n - hits + 1) if hits else 0.0
    high = beta.ppf(1 - error, falses + 1, n - falses) if falses < n else 1.0
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def experiment(spec: PrivacySpec, trials: int = 2000, rounds: int = 1) -> dict[str, Any] | None:
    """Bound and claim of this run's mechanism over `rounds` releases; None where no epsilon is claimed."""
    if spec.mechanism not in ("central", "local-gaussian", "local-laplace") or not spec.noise or spec.clip is None:
        return None
    shape, clip, secret = (_ITEMS, _WIDTH), spec.clip, Secret.from_seed(20_240_607)
    canary = np.zeros(shape)
    canary[0, 0] = clip  # all of the norm in one number: as good for L1 as for L2
    told = np.zeros((2, trials))
    delta = spec.delta or 1e-5
    if spec.mechanism == "central":
        rate = spec.sampling or 1.0
        everybody = Ragged(np.arange(2), np.zeros(1, np.int32))
        ones = np.ones(1, np.float32)
        alone = History(everybody.indptr, everybody.items, ones, ones, everybody, np.zeros(1, np.uint64), _ITEMS)
        for present in (0, 1):
            for trial in range(trials):
                mechanism = CentralNoise(clip, spec.noise, rate, delta, secret, Ledger(None), None)
                for release in range(rounds):
                    number = 1 + release + rounds * (trial + trials * present)
                    took_part = len(mechanism.draw(alone, number)) > 0 and present == 1
                    out = mechanism.release(_sum(canary if took_part else np.zeros(shape)), number)
                    told[present, trial] += real(out.rows)[0, 0]
        claimed = accountant.epsilon(rate, spec.noise, rounds, delta)
    else:
        every = np.arange(_ITEMS, dtype=np.int32)
        path = local.steps(spec, secret, _ITEMS, 1, lambda n_items, round_: 1.0)
        for present in (0, 1):
            values = (canary if present else -canary).astype(np.float32)
            for trial in range(trials):
                for release in range(rounds):
                    upload = Upload(np.array([0, _ITEMS]), every, values.copy(), np.empty((1, 0), np.float32))
                    for step in path:
                        upload = step(upload, np.array([trial + trials * present]), release + 1)
                    told[present, trial] += upload.values[0, 0]
        claimed = float(local.statement(spec, rounds)["epsilon"])
    return {
        "epsilon_lower_bound": lower_bound(told[1], told[0], delta), "epsilon_claimed": claimed, "releases": rounds,
        "trials": trials, "delta": delta,
    }  # fmt: skip


def _sum(rows: np.ndarray) -> Sum:
    total = empty_sum(_ITEMS, _WIDTH, 0)
    total.rows[:] = np.rint(rows * FIXED_POINT)
    total.clients[0] = 1
    return total
