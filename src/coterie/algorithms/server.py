"""What servers do with uploads: exact sums in fixed point, then a mean or an Adam step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from coterie.algorithms.interface import Sum, Upload
from coterie.errors import CoterieError

# 2**-34 is finer than a float32 near 0.001, and 2**63 / 2**34 leaves room for sums of half a billion.
FIXED_POINT = 2.0**34
_LARGEST = 2.0**16  # in one upload. Up to 2**17, `_ROUNDER` rounds as rint does, but in vector instructions
_ROUNDER = 1.5 * 2.0**52  # a float64 plus this has its value, as a whole number, in its lowest bits
_ROUNDER_BITS = np.float64(_ROUNDER).view(np.int64)


class Refused(CoterieError):
    """An upload that must not be added: a number in it is not finite, or too large for the sum."""


@njit(nogil=True, cache=True)
def _add(indptr, rows, values, limit, sum_rows, touched):  # type: ignore[no-untyped-def]
    """Add all rows and return -1, or add nothing and return the first client whose upload is refused."""
    for c in range(len(indptr) - 1):
        fine = True
        for r in range(indptr[c], indptr[c + 1]):
            for d in range(values.shape[1]):
                fine &= abs(values[r, d]) <= limit  # NaN fails every comparison
        if not fine:
            return c
    for r in range(len(rows)):
        j = rows[r]
        touched[j] += 1
        for d in range(values.shape[1]):
            bits = np.float64(values[r, d] * FIXED_POINT + _ROUNDER).view(np.int64)
            sum_rows[j, d] += bits - _ROUNDER_BITS
    return -1


def empty_sum(n_items: int, width: int, dense: int) -> Sum:
    return Sum(
        np.zeros((n_items, width), np.int64),
        np.zeros(n_items, np.int64),
        np.zeros(dense, np.int64),
        np.zeros(1, np.int64),
    )


def largest(n_clients: int) -> float:
    """The largest number that one client of so many may send."""
    return min(2.0**62 / FIXED_POINT / max(n_clients, 1), _LARGEST)


def add(total: Sum, upload: Upload, n_clients: int) -> None:
    """Add a cohort's uploads to `total` in place; `n_clients` bounds how many may come in all."""
    limit = largest(n_clients)
    fine = (np.abs(upload.dense) <= limit).all(axis=1)
    offender = -1 if fine.all() else int(np.argmin(fine))
    if offender < 0:
        offender = _add(upload.indptr, upload.rows, upload.values, np.float32(limit), total.rows, total.touched)
    if offender >= 0:
        raise Refused(
            f"the upload of client {offender} of this cohort holds a number that is not finite or above {limit:.3g}; "
            "nothing of the cohort was added"
        )
    total.dense[:] += np.rint(upload.dense * FIXED_POINT).astype(np.int64).sum(axis=0)
    total.clients[0] += len(upload.indptr) - 1


def merge(total: Sum, other: Sum) -> None:
    """Add another partial sum in place."""
    for mine, theirs in zip(total, other, strict=True):
        mine += theirs


def real(fixed: np.ndarray) -> np.ndarray:
    """Fixed point back to float64."""
    return fixed.astype(np.float64) / FIXED_POINT


class Adam(NamedTuple):
    """Moments of a server-side Adam (Kingma and Ba 2015; Reddi et al. 2021 for the server)."""

    first: np.ndarray  # float32[m, w]
    second: np.ndarray  # float32[m, w]

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> Adam:
        return cls(np.zeros(shape, np.float32), np.zeros(shape, np.float32))


def adam_step(
    table: np.ndarray, moments: Adam, step: np.ndarray, round_: int, rate: float, betas: tuple[float, float]
) -> tuple[np.ndarray, Adam]:
    """Move `table` along `step` (a direction of descent) by Adam's rule; `round_` counts from 1."""
    b1, b2 = betas
    first = b1 * moments.first + (1 - b1) * step
    second = b2 * moments.second + (1 - b2) * step**2
    moved = table + rate * (first / (1 - b1**round_)) / (np.sqrt(second / (1 - b2**round_)) + 1e-8)
    return moved.astype(np.float32), Adam(first.astype(np.float32), second.astype(np.float32))
