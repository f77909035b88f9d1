"""The encrypted sum: clients send CKKS ciphertexts, the server adds them without being able to read any.

FedMF as its authors meant it (Chai et al. 2021), with CKKS instead of Paillier: for 1,682 x 32 numbers 0.26 s and
4.6 MB a client where Paillier takes half an hour. The clients share one secret key (from each other, or from a key
holder who is not the server); the server has the public part only. Whoever holds the key and a single upload can read
it, so the server must not hand single uploads out: that is FedMF's trust model, and why masks are the default here.

CKKS is approximate: the decrypted sum is within 1e-5 of the plain one, not equal to it.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple, final

import numpy as np

from coterie.algorithms.interface import Sum, Upload
from coterie.algorithms.server import FIXED_POINT, empty_sum
from coterie.errors import CoterieError

_DEGREE, _BITS, _SCALE = 8192, (60, 40, 40, 60), 2.0**40
SLOTS = _DEGREE // 2  # numbers in one ciphertext


def _tenseal() -> Any:
    try:
        import tenseal
    except ImportError:
        raise CoterieError("the encrypted sum needs TenSEAL: pip install 'coterie[he]'") from None
    return tenseal


class Cost(NamedTuple):
    """Of one round."""

    clients: int
    encrypt_seconds: float  # mean over clients
    bytes_up: float  # mean over clients
    add_seconds: float  # the server's, in all
    decrypt_seconds: float  # once, on any client


@final
class Keys:
    """What the clients hold. The server gets `public()` and nothing else."""

    def __init__(self) -> None:
        ts = _tenseal()
        self._context = ts.context(ts.SCHEME_TYPE.CKKS, poly_modulus_degree=_DEGREE, coeff_mod_bit_sizes=list(_BITS))
        self._context.global_scale = _SCALE

    def public(self) -> bytes:
        """The context without the secret key, as the server gets it."""
        found: bytes = self._context.serialize(save_secret_key=False)
        return found

    def encrypt(self, numbers: np.ndarray) -> list[bytes]:
        ts = _tenseal()
        parts = [numbers[at : at + SLOTS] for at in range(0, len(numbers), SLOTS)]
        return [ts.ckks_vector(self._context, part.tolist()).serialize() for part in parts]

    def decrypt(self, letters: list[bytes]) -> np.ndarray:
        ts = _tenseal()
        return np.concatenate([np.array(ts.ckks_vector_from(self._context, one).decrypt()) for one in letters])


@final
class Adder:
    """The server: it adds what it cannot read."""

    def __init__(self, public: bytes) -> None:
        self._context = _tenseal().context_from(public)
        if self._context.is_private():
            raise CoterieError("the server was given the secret key; it must get the public part only")
        self._total: list[Any] | None = None

    def add(self, letters: list[bytes]) -> None:
        ts = _tenseal()
        mine = [ts.ckks_vector_from(self._context, one) for one in letters]
        if self._total is None:
            self._total = mine
        else:
            self._total = [a + b for a, b in zip(self._total, mine, strict=True)]

    def total(self) -> list[bytes]:
        assert self._total is not None
        return [one.serialize() for one in self._total]


def encrypted_sum(upload: Upload, n_items: int, keys: Keys) -> tuple[Sum, Cost]:
    """Every row of every client encrypted, added by a server without the key, decrypted by a client."""
    clients, width, rest = len(upload.indptr) - 1, upload.values.shape[1], upload.dense.shape[1]
    server = Adder(keys.public())
    took, sent, added = 0.0, 0, 0.0
    for c in range(clients):
        mine = slice(upload.indptr[c], upload.indptr[c + 1])
        table = np.zeros((n_items, width))
        np.add.at(table, upload.rows[mine], upload.values[mine])
        began = time.perf_counter()
        letters = keys.encrypt(np.concatenate([table.ravel(), upload.dense[c]]))
        took += time.perf_counter() - began
        sent += sum(map(len, letters))
        began = time.perf_counter()
        server.add(letters)
        added += time.perf_counter() - began
    began = time.perf_counter()
    numbers = keys.decrypt(server.total())
    opened = time.perf_counter() - began
    total = empty_sum(n_items, width, rest)
    total.rows[:] = np.rint(numbers[: n_items * width].reshape(n_items, width) * FIXED_POINT)
    total.dense[:] = np.rint(numbers[n_items * width :] * FIXED_POINT)
    total.touched[:] = 1  # the server cannot know who touched what, so its step gets the same for all items
    total.clients[0] = clients
    return total, Cost(clients, took / clients, sent / clients, added, opened)
