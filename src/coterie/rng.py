"""Random numbers that are a function of (seed, round, user, purpose) and of nothing else.

A device and the simulator draw the same numbers; neither threads nor the order of clients can matter. The generator is
SplitMix64 (Steele, Lea, Flood 2014): a counter and a mixing function, so a stream starts anywhere at no cost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numba import njit

# What a number is drawn for. Two purposes never share a stream.
NEGATIVES, SHUFFLE, COHORT, DROPOUT, CANDIDATES, USER_START, ITEM_START, SHARING, SPLIT, NOISE, GRAPH = range(1, 12)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_U30, _U27, _U31, _U32, _U11 = (np.uint64(n) for n in (30, 27, 31, 32, 11))
_DOUBLE = 1.0 / (1 << 53)


@njit(nogil=True, cache=True, forceinline=True)
def mix(x):  # type: ignore[no-untyped-def]
    """Scramble 64 bits."""
    x = (x ^ (x >> _U30)) * _MIX_A
    x = (x ^ (x >> _U27)) * _MIX_B
    return x ^ (x >> _U31)


@njit(nogil=True, cache=True, forceinline=True)
def stream(seed, round_, user_key, purpose):  # type: ignore[no-untyped-def]
    """The start of the stream for these four."""
    state = mix(np.uint64(seed) + _GOLDEN)
    state = mix(state ^ np.uint64(user_key))
    state = mix(state + _GOLDEN * np.uint64(round_ + 1))
    return mix(state + _GOLDEN * np.uint64(purpose))


@njit(nogil=True, cache=True, forceinline=True)
def after(state):  # type: ignore[no-untyped-def]
    """The next state of a stream; `mix` of it is the next number."""
    return state + _GOLDEN


@njit(nogil=True, cache=True, forceinline=True)
def below(state, n):  # type: ignore[no-untyped-def]
    """A whole number in 0..n-1 (n below 2**32) from one state."""
    return np.int64(((mix(state) >> _U32) * np.uint64(n)) >> _U32)


@njit(nogil=True, cache=True, forceinline=True)
def uniform(state):  # type: ignore[no-untyped-def]
    """A number in [0, 1) from one state."""
    return np.float64(mix(state) >> _U11) * _DOUBLE


@njit(nogil=True, cache=True)
def fill_normal(out, scale, seed, user_keys, purpose):  # type: ignore[no-untyped-def]
    """Row i of `out` becomes `scale` x N(0, 1), a function of user i's key alone (Box-Muller)."""
    for i in range(out.shape[0]):
        state = stream(seed, 0, user_keys[i], purpose)
        for d in range(0, out.shape[1], 2):
            state = after(state)
            radius = np.sqrt(-2.0 * np.log(1.0 - uniform(state)))
            state = after(state)
            angle = 2.0 * np.pi * uniform(state)
            out[i, d] = scale * radius * np.cos(angle)
            if d + 1 < out.shape[1]:
                out[i, d + 1] = scale * radius * np.sin(angle)


@njit(nogil=True, cache=True)
def uniforms(seed, round_, user_keys, purpose):  # type: ignore[no-untyped-def]
    """One number in [0, 1) for each user."""
    out = np.empty(len(user_keys))
    for i in range(len(user_keys)):
        out[i] = uniform(after(stream(seed, round_, user_keys[i], purpose)))
    return out


def user_keys(user_ids: Sequence[str], secret: bytes = b"") -> np.ndarray:
    """uint64[users]: a person's key comes from her id (and, on a real node, from a secret of that node)."""
    digests = (hashlib.sha256(secret + one.encode()).digest()[:8] for one in user_ids)
    return np.array([int.from_bytes(one, "little") for one in digests], np.uint64)


def generator(seed: int, purpose: int, *more: int) -> np.random.Generator:
    """A NumPy generator for what belongs to no user (the shared start of the item table; with the round, a shuffle)."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, purpose, *more])))
