"""Noise that a device adds to what it sends: a function of (seed, round, user), like every other draw."""

from __future__ import annotations

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms.interface import Upload


@njit(nogil=True, cache=True)
def _laplace(indptr, values, scale, keys, seed, round_, out):  # type: ignore[no-untyped-def]
    for c in range(len(keys)):
        state = rng.stream(seed, round_, keys[c], rng.NOISE)
        for r in range(indptr[c], indptr[c + 1]):
            for d in range(values.shape[1]):
                state = rng.after(state)
                x = rng.uniform(state) - 0.5
                out[r, d] = values[r, d] - scale * np.sign(x) * np.log1p(-2.0 * min(abs(x), 0.5 - 2.0**-54))


def laplace(upload: Upload, scale: float, keys: np.ndarray, seed: int, round_: int) -> np.ndarray:
    """float32: the upload's values plus Laplace(0, scale) on each number; `keys` are the senders' own."""
    out = np.empty_like(upload.values)
    _laplace(upload.indptr, upload.values, scale, keys, seed, round_, out)
    return out
