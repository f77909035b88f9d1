"""A sum that shows nobody's part: pairwise masks and a mask of one's own, with shares for those who drop out.

Bonawitz et al., Practical Secure Aggregation (CCS 2017), on a ring of neighbours as in SecAgg+ (Bell et al., CCS 2020).
Key agreement, encryption and Shamir shares are Flower's (`flwr.common.secure_aggregation`); its mask generator is not
used, since it folds a seed into 32 bits and feeds a Mersenne Twister: here a mask is a ChaCha20 key stream. What is
masked are the fixed-point numbers of a `Sum` modulo 2**64, so the opened sum is exact to the last bit.

One attempt at a round has four stages: `keys` (fresh public keys), `shares` (of the mask key and the own mask's seed,
encrypted for each neighbour), `step` (train, answer masked), `unmask` (own-mask shares of survivors, key shares of the
dropped: never both of one node). A node that has opened a round opens it for no other set of survivors.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable

import numpy as np

from coterie.algorithms.interface import Federated, Sum
from coterie.algorithms.server import FIXED_POINT
from coterie.engine.flower.spec import FederationSpec
from coterie.engine.flower.store import NodeStore
from coterie.engine.flower.wire import Message, Refused
from coterie.privacy.masks import flat, neighbours, new_key, pair_mask, session, shared_key, stream, threshold

STAGES = ("keys", "shares", "unmask")
Reply = Callable[..., bytes]


# --- on the node ----------------------------------------------------------------------------------------------------


def answer(store: NodeStore, reply: Reply, message: Message) -> bytes:
    head = message.head
    attempt = int(head.about["attempt"])
    place = (head.run, head.round, attempt)
    if head.kind == "keys":
        store.drop_sessions(head.run, head.round)
        pairs = {name: new_key() for name in ("cipher", "mask")}
        for name, (private, _) in pairs.items():
            store.keep(*place, name, private)
        return reply(head, "keys", {name: public.hex() for name, (_, public) in pairs.items()})
    if head.kind == "shares":
        return _share(store, reply, message, place)
    return _unmask(store, reply, message, place)


def _kept(store: NodeStore, place: tuple[str, int, int], name: str) -> bytes:
    found = store.kept(*place, name)
    if found is None:
        raise Refused("stage", f"this node has no {name} of round {place[1]}, attempt {place[2]}: it missed a stage")
    return found


def _share(store: NodeStore, reply: Reply, message: Message, place: tuple[str, int, int]) -> bytes:
    from flwr.common.secure_aggregation.crypto.shamir import create_shares
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt

    keys: dict[str, dict[str, str]] = message.head.about["keys"]
    me = str(message.head.about["you"])
    if len(keys) < 3 or me not in keys:
        raise Refused("too-few", f"a secure sum over {len(keys)} nodes shows too much; at least 3 are needed")
    if len({one["mask"] for one in keys.values()}) != len(keys):
        raise Refused("keys", "two nodes with the same key: somebody is being impersonated")
    store.keep(*place, "roster", json.dumps(keys).encode())
    around = neighbours(sorted(keys), me)
    seed = secrets.token_bytes(32)
    store.keep(*place, "own", seed)
    needed = threshold(len(around))
    of_seed = create_shares(seed, needed, len(around))
    of_key = create_shares(_kept(store, place, "mask"), needed, len(around))
    cipher = _kept(store, place, "cipher")
    letters = {}
    for other, one, two in zip(around, of_seed, of_key, strict=True):
        key = shared_key(cipher, bytes.fromhex(keys[other]["cipher"]))
        letters[other] = encrypt(key, json.dumps([me, other, one.hex(), two.hex()]).encode()).decode()
    return reply(message.head, "shares", {"letters": letters})


def mask(
    store: NodeStore, reply: Reply, message: Message, plain: Message, algorithm: Federated, spec: FederationSpec
) -> bytes:
    """The round's sum under this attempt's masks. `plain` is the node's own stored answer, which is never sent."""
    head = message.head
    place = (head.run, head.round, int(head.about["attempt"]))
    keys = json.loads(_kept(store, place, "roster"))
    me, letters = str(head.about["you"]), head.about["letters"]
    if len(letters) < 2:
        raise Refused("too-few", "fewer than two others are left to hide among")
    store.keep(*place, "letters", json.dumps(letters).encode())
    body = plain.body
    total = Sum(
        np.zeros((spec.n_items, body["values"].shape[1]), np.int64), np.zeros(spec.n_items, np.int64), body["dense"],
        body["clients"],
    )  # fmt: skip
    total.rows[body["rows"]], total.touched[body["rows"]] = body["values"], body["touched"]
    numbers = flat(total)
    masked = numbers + stream(_kept(store, place, "own"), len(numbers))
    private = _kept(store, place, "mask")
    for other in letters:
        public = bytes.fromhex(keys[other]["mask"])
        masked = masked + pair_mask(private, public, me, other, session(place), len(numbers))
    about = {key: value for key, value in plain.head.about.items() if key in ("measured", "metrics")}
    return reply(
        head, "upload", {"form": "masked", **about}, {"masked": masked, "width": np.array([total.rows.shape[1]])}
    )


def _unmask(store: NodeStore, reply: Reply, message: Message, place: tuple[str, int, int]) -> bytes:
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt

    about = message.head.about
    survivors, me = sorted(about["survivors"]), str(about["you"])
    keys, letters = json.loads(_kept(store, place, "roster")), json.loads(_kept(store, place, "letters"))
    if len(survivors) < 3 or me not in survivors:
        raise Refused("too-few", f"a sum over {len(survivors)} nodes shows too much; at least 3 are needed")
    opened = store.kept(place[0], place[1], -1, "opened")
    if opened is not None and json.loads(opened) != survivors:
        raise Refused(
            "opened", "this round was opened already, for another set of nodes; the difference would show one"
        )
    store.keep(place[0], place[1], -1, "opened", json.dumps(survivors).encode())
    cipher, shares = _kept(store, place, "cipher"), {}
    for other, letter in letters.items():
        said = json.loads(decrypt(shared_key(cipher, bytes.fromhex(keys[other]["cipher"])), letter.encode()))
        if said[:2] != [other, me]:
            raise Refused("letter", "a share that was not written by its sender for this node")
        shares[other] = said[2] if other in survivors else said[3]  # never both of one node
    return reply(message.head, "unmask", {"shares": shares})


# --- on the server --------------------------------------------------------------------------------------------------


def opened(
    masked: dict[str, np.ndarray],
    keys: dict[str, dict[str, str]],
    sharers: Iterable[str],
    shares: dict[str, dict[str, str]],
    place: tuple[str, int, int],
) -> np.ndarray:
    """The sum of the survivors' numbers, from their masked ones and the shares the survivors gave."""
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares

    order, survivors, alive = sorted(keys), set(masked), set(sharers)
    total = np.zeros(len(next(iter(masked.values()))), np.uint64)
    for numbers in masked.values():
        total += numbers
    for name in sorted(alive):
        around = neighbours(order, name)
        given = [bytes.fromhex(shares[one][name]) for one in around if name in shares.get(one, {})]
        needed = threshold(len(around))
        if len(given) < needed:
            raise Refused("shares", f"{len(given)} shares of one node are left, {needed} are needed to open the sum")
        secret = combine_shares(given[:needed])
        if name in survivors:
            total -= stream(secret, len(total))
        else:  # dropped after it gave its shares: take its half of each pair's mask out of the others
            for other in around:
                if other in survivors:
                    public = bytes.fromhex(keys[other]["mask"])
                    total += pair_mask(secret, public, name, other, session(place), len(total))
    return total


def checked(total: Sum, clients: int, limit: float) -> Sum:
    """What was opened is a plausible sum; a node that lied in its masked part is seen here, though not which one."""
    count = int(total.clients[0])
    if not 0 < count <= clients:
        raise Refused("clients", f"the opened sum speaks of {count} clients, the federation has {clients}")
    if total.touched.min(initial=0) < 0 or total.touched.max(initial=0) > count:
        raise Refused("rows", "the opened sum has an item sent by more clients than there are")
    most = limit * FIXED_POINT * count
    for part in (total.rows, total.dense):
        if part.size and max(abs(int(part.min())), abs(int(part.max()))) > most:
            raise Refused("too-large", "a number in the opened sum is above what its clients may send")
    return total
