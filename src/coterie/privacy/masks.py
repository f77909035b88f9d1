"""Masks that cancel in a sum: keys between pairs, pseudo-random numbers from them, and who masks with whom.

Key agreement and encryption are Flower's and the cryptography package's; here is only how they are put together. The
simulator's secure sum and the federation's use the same.
"""

from __future__ import annotations

import hashlib

import numpy as np

from coterie.algorithms.interface import Sum

NEIGHBOURS = 16  # on the ring, half on each side; all others where there are no more


def neighbours(order: list[str], me: str, count: int = NEIGHBOURS) -> list[str]:
    """Who masks with whom: the nearest on the ring of all, the same from both sides."""
    n, here = len(order), order.index(me)
    if n - 1 <= count:
        return [one for one in order if one != me]
    return sorted({order[(here + step) % n] for half in range(1, count // 2 + 1) for step in (half, -half)})


def threshold(holders: int) -> int:
    """Shares needed to open: more than half of those who hold one."""
    return max(2, holders // 2 + 1)


def stream(seed: bytes, count: int) -> np.ndarray:
    """uint64[count] from a 32-byte seed."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    key = hashlib.sha256(b"coterie mask" + seed).digest()
    encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * count)), np.uint64)


def flat(total: Sum) -> np.ndarray:
    """uint64[m w + m + p + 1]: all numbers of a sum, in a row."""
    return np.concatenate([part.ravel() for part in total]).view(np.uint64)


def unflat(numbers: np.ndarray, n_items: int, width: int, dense: int) -> Sum:
    sizes = (n_items * width, n_items, dense, 1)
    parts = np.split(numbers.view(np.int64), np.cumsum(sizes)[:-1])
    return Sum(parts[0].reshape(n_items, width), parts[1], parts[2], parts[3])


def new_key() -> tuple[bytes, bytes]:
    """(private number, public point) of a fresh P-256 key. The private one is 32 bytes, so its shares are short."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    return key.private_numbers().private_value.to_bytes(32, "big"), public


def shared_key(private: bytes, public: bytes) -> bytes:
    """The key two nodes have in common, from one's private and the other's public part."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key

    mine = ec.derive_private_key(int.from_bytes(private, "big"), ec.SECP256R1())
    return generate_shared_key(mine, ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public))


def pair_mask(private: bytes, public: bytes, me: str, other: str, session: str, count: int) -> np.ndarray:
    """The mask two nodes share: one adds it, the other takes it away."""
    seed = hashlib.sha256(shared_key(private, public) + session.encode()).digest()
    mask = stream(seed, count)
    return mask if me < other else np.uint64(0) - mask


def session(place: tuple[str, int, int]) -> str:
    """(run, round, attempt) as text: masks of one attempt are of no use in another."""
    return "/".join(map(str, place))
