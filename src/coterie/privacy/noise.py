"""Noise that cannot be guessed: SHAKE-256 of a secret key as the stream, so a round done again gets the same noise.

The key comes from the system's CSPRNG and stays in the run's folder, readable by its owner only. A run with
`seeded_noise` takes the key from its seed: anybody can subtract that noise, so the run is stamped "not private".
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import final

import numpy as np
from numba import njit

from coterie.errors import CoterieError

_DOUBLE = 1.0 / (1 << 53)


@njit(nogil=True, cache=True)
def _laplace(words, out):  # type: ignore[no-untyped-def]
    """The last bit is the sign, the first 52 are a number in (0, 1) whose logarithm is the size."""
    for place in range(len(words)):
        size = -np.log(((words[place] >> np.uint64(12)) + 0.5) * (2.0 * _DOUBLE))
        out[place] = size if words[place] & np.uint64(1) else -size


@final
class Secret:
    """Streams of random numbers for (what, round, who), from one key."""

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise CoterieError(f"a noise key has 32 bytes, this one {len(key)}: the key file is damaged")
        self._key = key

    @classmethod
    def from_seed(cls, seed: int) -> Secret:
        return cls(hashlib.sha256(f"not private: seed {seed}".encode()).digest())

    @classmethod
    def in_file(cls, path: Path) -> Secret:
        """The key kept there, or a fresh one, on the disk before it is used."""
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(path.name + ".part")
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(handle, secrets.token_bytes(32))
                os.fsync(handle)
            finally:
                os.close(handle)
            part.replace(path)
        return cls(path.read_bytes())

    def words(self, count: int, what: str, round_: int, who: int = 0) -> np.ndarray:
        """uint64[count]"""
        seed = self._key + f"{what}/{round_}/{who}".encode()
        return np.frombuffer(hashlib.shake_256(seed).digest(8 * count), np.uint64)

    def uniform(self, count: int, what: str, round_: int, who: int = 0) -> np.ndarray:
        """float64[count] in (0, 1)"""
        return ((self.words(count, what, round_, who) >> np.uint64(11)) + 0.5) * _DOUBLE

    def normal(self, count: int, what: str, round_: int, who: int = 0) -> np.ndarray:
        """float64[count] of N(0, 1), by Box and Muller."""
        half = (count + 1) // 2
        draws = self.uniform(2 * half, what, round_, who)
        radius, angle = np.sqrt(-2.0 * np.log(draws[:half])), 2.0 * np.pi * draws[half:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]

    def laplace(self, count: int, what: str, round_: int, who: int = 0) -> np.ndarray:
        """float64[count] of Laplace(0, 1)."""
        found = np.empty(count)
        _laplace(self.words(count, what, round_, who), found)
        return found
