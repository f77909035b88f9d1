"""The secure sum in the simulator: the same protocol as between real nodes, each simulated client a party of her own.

Every client makes fresh keys for the round, shares them among her neighbours on a k-regular ring (Shamir), masks the
fixed-point numbers of her upload modulo 2**64, and may drop out. The server gets masked numbers only; from the
survivors' shares it opens the sum, which is exact to the last bit. Keys, shares and streams are those of the Flower
engine's `secure` (Flower's secure-aggregation primitives and ChaCha20).

All rows are sent, zeros too: a sum over touched rows only would still show which rows. How often an item was touched is
not sent: the server's step gets the same number for all items.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from coterie.algorithms.interface import Sum, Upload
from coterie.algorithms.server import add, empty_sum
from coterie.errors import CoterieError

Watch = Callable[[int, np.ndarray], None]  # (client, uint64 masked numbers): what the server sees


class Party(NamedTuple):
    """What one client keeps to herself in one round."""

    name: str
    cipher: tuple[bytes, bytes]  # key pair that encrypts letters
    mask: tuple[bytes, bytes]  # key pair the pairwise masks come from
    seed: bytes  # of the mask of her own


class Opened(NamedTuple):
    total: Sum  # of the survivors
    survivors: np.ndarray  # int64: who they are
    masked_bytes: int  # of one masked upload


def secure_sum(
    upload: Upload,
    ids: np.ndarray,
    n_items: int,
    round_: int,
    neighbours: int = 16,
    lost: np.ndarray | None = None,
    watch: Watch | None = None,
    noise: Callable[[int, int], np.ndarray] | None = None,
) -> Opened:
    """Open the sum of the uploads of those who are not `lost` (bool[c]: dropped after sharing their keys).

    `noise(client, count)` are fixed-point numbers a client adds to her rows and dense part before masking.
    """
    from coterie.privacy import masks as parts

    clients = len(ids)
    if clients < 3:
        raise CoterieError(f"round {round_}: a secure sum over {clients} clients shows too much; at least 3 are needed")
    names = [f"{int(one):09d}" for one in ids]  # so that sorting by name is sorting by number
    place = ("simulated", round_, 0)
    people = {name: Party(name, parts.new_key(), parts.new_key(), secrets.token_bytes(32)) for name in names}
    around = {name: parts.neighbours(names, name, neighbours) for name in names}
    held = _deal(people, around, parts)
    gone = np.zeros(clients, bool) if lost is None else lost
    alive = [name for name, out in zip(names, gone, strict=True) if not out]
    total, size = np.zeros(0, np.uint64), 0
    for where, name in enumerate(names):
        if gone[where]:
            continue
        numbers = _numbers(upload, where, n_items, clients, noise, int(ids[where]))
        masked = _masked(numbers, people, around, name, place, parts)
        if watch is not None:
            watch(int(ids[where]), masked)
        total = masked.copy() if not len(total) else total + masked
        size = masked.nbytes
    if len(alive) < 3:
        raise CoterieError(f"round {round_}: {len(alive)} clients are left of a secure sum; at least 3 are needed")
    total = _unmask(total, people, around, held, set(alive), place, parts)
    width, rest = upload.values.shape[1], upload.dense.shape[1]
    opened = parts.unflat(total, n_items, width, rest)
    return Opened(opened._replace(touched=np.ones(n_items, np.int64)), ids[~gone], size)


def _deal(
    people: dict[str, Party], around: dict[str, list[str]], parts: Any
) -> dict[str, dict[str, tuple[bytes, bytes]]]:
    """held[receiver][sender] = (share of the seed, share of the mask key), sent encrypted from device to device."""
    from flwr.common.secure_aggregation.crypto.shamir import create_shares
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt

    held: dict[str, dict[str, tuple[bytes, bytes]]] = {name: {} for name in people}
    for name, me in people.items():
        near = around[name]
        needed = parts.threshold(len(near))
        of_seed, of_key = (create_shares(what, needed, len(near)) for what in (me.seed, me.mask[0]))
        for other, one, two in zip(near, of_seed, of_key, strict=True):
            key = parts.shared_key(me.cipher[0], people[other].cipher[1])
            letter = encrypt(key, len(one).to_bytes(2, "big") + one + two)
            plain = decrypt(parts.shared_key(people[other].cipher[0], me.cipher[1]), letter)
            cut = 2 + int.from_bytes(plain[:2], "big")
            held[other][name] = (plain[2:cut], plain[cut:])
    return held


def _numbers(
    upload: Upload, where: int, n_items: int, clients: int, noise: Callable[[int, int], np.ndarray] | None, client: int
) -> np.ndarray:
    from coterie.privacy.masks import flat

    mine = slice(upload.indptr[where], upload.indptr[where + 1])
    alone = Upload(
        np.array([0, mine.stop - mine.start]), upload.rows[mine], upload.values[mine], upload.dense[where : where + 1]
    )
    total = empty_sum(n_items, upload.values.shape[1], upload.dense.shape[1])
    add(total, alone, clients)
    total.touched[:] = 0  # not even in sum: a normaliser by touch counts is off under a secure sum
    if noise is not None:
        drawn = noise(client, total.rows.size + len(total.dense))
        total.rows[:] += drawn[: total.rows.size].reshape(total.rows.shape)
        total.dense[:] += drawn[total.rows.size :]
    numbers: np.ndarray = flat(total)
    return numbers


def _masked(
    numbers: np.ndarray, people: dict[str, Party], around: dict[str, list[str]], name: str,
    place: tuple[str, int, int], parts: Any,
) -> np.ndarray:  # fmt: skip
    me = people[name]
    masked: np.ndarray = numbers + parts.stream(me.seed, len(numbers))
    for other in around[name]:
        public = people[other].mask[1]
        masked = masked + parts.pair_mask(me.mask[0], public, name, other, parts.session(place), len(numbers))
    return masked


def _unmask(
    total: np.ndarray, people: dict[str, Party], around: dict[str, list[str]],
    held: dict[str, dict[str, tuple[bytes, bytes]]], alive: set[str], place: tuple[str, int, int], parts: Any,
) -> np.ndarray:  # fmt: skip
    """From survivors' shares: the own masks of survivors, the pairwise masks of the lost; never both of one client."""
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares

    for name in people:
        near = around[name]
        needed = parts.threshold(len(near))
        which = 0 if name in alive else 1
        given = [held[other][name][which] for other in near if other in alive]
        if len(given) < needed:
            raise CoterieError(
                f"{len(given)} of {len(near)} neighbours of one client are left, {needed} are needed to open the sum; "
                "raise --neighbours, or expect fewer drop-outs"
            )
        secret = combine_shares(given[:needed])
        if name in alive:
            total = total - parts.stream(secret, len(total))
            continue
        for other in near:
            if other in alive:
                total = total + parts.pair_mask(
                    secret, people[other].mask[1], name, other, parts.session(place), len(total)
                )
    return total
