"""Noise that a device adds to what it sends: a function of (seed, round, user), like every other draw.

It is drawn for every number of a table, 50 million a round on MovieLens-100K, so the loop is written for whole vectors:
a number's state is computed from its place in the stream and the logarithm is a series, not a call.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms import memory
from coterie.algorithms.interface import Upload

_LN2 = np.float32(np.log(2.0))
_ROOT_HALF = np.int32(0x3F3504F3)  # the bits of sqrt(1/2)
_MAGNITUDE, _STEP = np.int32(0x7FFFFFFF), np.float32(2.0**-31)


@njit(nogil=True, cache=True, forceinline=True, error_model="numpy")
def _log(x):  # type: ignore[no-untyped-def]
    """log x in float32 for 0 < x <= 1: x = 2**e f, f near 1, log f = 2 artanh((f - 1) / (f + 1)) by its series."""
    bits = np.float32(x).view(np.int32)
    exponent = np.int32(bits - _ROOT_HALF) >> np.int32(23)
    f = np.int32(bits - (exponent << np.int32(23))).view(np.float32)
    z = (f - np.float32(1.0)) / (f + np.float32(1.0))
    q = z * z
    p = np.float32(2 / 9) * q + np.float32(2 / 7)
    p = p * q + np.float32(2 / 5)
    p = p * q + np.float32(2 / 3)
    p = p * q + np.float32(2.0)
    return np.float32(exponent) * _LN2 + p * z


@njit(nogil=True, cache=True, error_model="numpy")
def _laplace(indptr, values, scale, keys, seed, round_, out):  # type: ignore[no-untyped-def]
    """A number's 32 random bits: one for the sign, the others for how far in the tail it lies (2**-32 at the least)."""
    step = rng.after(np.uint64(0))  # from one number's state to the next one's
    for c in range(len(keys)):
        state = rng.stream(seed, round_, keys[c], rng.NOISE)
        mine, noisy = values[indptr[c] : indptr[c + 1]].reshape(-1), out[indptr[c] : indptr[c + 1]].reshape(-1)
        for p in range(len(mine)):
            bits = np.int32(np.uint32(rng.mix(state + step * np.uint64(p + 1)) >> np.uint64(32)))
            tail = (np.float32(bits & _MAGNITUDE) + np.float32(0.5)) * _STEP
            far = scale * _log(tail)
            noisy[p] = mine[p] + (far if bits < 0 else -far)


def laplace(upload: Upload, scale: float, keys: np.ndarray, seed: int, round_: int) -> np.ndarray:
    """float32: the upload's values plus Laplace(0, scale) on each number; `keys` are the senders' own."""
    out = memory.empty(*upload.values.shape)
    _laplace(upload.indptr, np.ascontiguousarray(upload.values), np.float32(scale), keys, seed, round_, out)
    return out
