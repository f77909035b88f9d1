"""One trust domain: bytes in, bytes out. The simulator's client step over the people behind this node.

`handle` is the whole of it. What is private (histories, client state, ids, losses) is read from and written to the
node's store and is in no answer; an error is answered by its name only, and told in full in the node's own log.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, final

import numpy as np

from coterie import __version__, rng
from coterie.algorithms.interface import Download, Federated, History, Sum, Upload
from coterie.algorithms.server import Refused as NotAdded
from coterie.algorithms.server import add, empty_sum
from coterie.data.interactions import Interactions
from coterie.engine.flower import secure, wire
from coterie.engine.flower.noise import NodeNoise
from coterie.engine.flower.spec import FederationSpec, catalogue_hash
from coterie.engine.flower.store import NodeStore, Sent
from coterie.engine.flower.wire import Head, Message, Refused
from coterie.engine.simulate import State, _chunks, cohort, concatenate
from coterie.errors import CoterieError
from coterie.protocol import Prepared, prepare
from coterie.protocol.prepare import ages
from coterie.ragged import Ragged, from_pairs

log = logging.getLogger("coterie.node")
REPORT_AT_LEAST = 10  # people behind a node, under which it tells no metrics: a mean over few is a person's secret


class Joined(NamedTuple):
    """A run this node takes part in, ready to compute."""

    spec: FederationSpec
    algorithm: Federated
    prepared: Prepared


@final
class Node:
    def __init__(self, folder: Path, threads: int | None = None) -> None:
        self.store = NodeStore(folder)
        self.identity = self.store.identity()
        self.threads = threads or os.cpu_count() or 1
        self._joined: dict[str, Joined] = {}

    def handle(self, data: bytes) -> bytes:
        """Answer one message."""
        head = Head("unknown", "", 0, "")
        try:
            message = wire.unpack(data)
            head = message.head
            if head.version != __version__:
                raise Refused("version", f"from coterie {head.version}, this node has coterie {__version__}")
            if head.kind == "setup":
                return self._setup(message)
            joined = self.joined(head.run)
            if head.spec != joined.spec.sha256:
                raise Refused(
                    "spec", f"made under spec {head.spec[:12]}, this node joined spec {joined.spec.sha256[:12]}"
                )
            if head.kind == "step":
                return self._step(joined, message, data)
            if head.kind == "final":
                return self._final(joined, message, data)
            if head.kind in secure.STAGES:
                return secure.answer(self.store, self._reply, message)
            raise Refused("kind", f"a message of kind {head.kind!r}, which this version does not know")
        except Refused as problem:
            log.warning("%s message of round %d refused: %s", head.kind, head.round, problem)
            return self._reply(head, "refused", {"name": problem.kind, "why": problem.why})
        except Exception:  # its text may speak of people: it stays here
            log.exception("%s message of round %d failed", head.kind, head.round)
            return self._reply(head, "refused", {"name": "failed", "why": "the node failed; its own log says why"})

    def joined(self, run: str) -> Joined:
        """The run of that name, read from disk on first use."""
        if run not in self._joined:
            spec = self.store.spec(run)
            if spec is None:
                raise Refused("run", f"this node has not joined run {run}")
            self._joined[run] = Joined(spec, spec.build(), self.store.prepared(run))
        return self._joined[run]

    def _reply(self, to: Head, kind: str, about: dict[str, Any], body: dict[str, np.ndarray] | None = None) -> bytes:
        return wire.pack(Head(kind, to.run, to.round, to.spec, about={"node": self.identity.pseudonym, **about}), body)

    # --- joining ------------------------------------------------------------------------------------------------

    def _setup(self, message: Message) -> bytes:
        head = message.head
        spec = FederationSpec.model_validate(head.about["spec"])
        if spec.sha256 != head.spec:
            raise Refused("spec", "the spec's hash is not the one in the header")
        items = _names(message.body, "items")
        titles = _names(message.body, "titles") if "titles" in message.body else None
        if catalogue_hash(items) != spec.catalogue or len(items) != spec.n_items:
            raise Refused("catalogue", "the item catalogue is not the one the spec names")
        known = self.store.spec(spec.run)
        if known != spec:
            prepared, unknown = prepare_node(self._load(), spec, items, titles, self.identity.secret)
            self.store.join_run(spec, titles, prepared, unknown)
            self._joined.pop(spec.run, None)
            log.info(
                "joined run %s: %s, %d people, %d training rows, %d rows of items the server does not know stay unused",
                spec.run, spec.algorithm, prepared.history.n_clients, len(prepared.history.items), unknown,
            )  # fmt: skip
        count = self.joined(spec.run).prepared.history.n_clients
        return self._reply(
            head, "joined", {"clients": count, "place": self.identity.place if spec.reproducible else None}
        )

    def _load(self) -> Interactions:
        from coterie.data import load

        return load(self.identity.data, columns=self.identity.columns)

    # --- a round ------------------------------------------------------------------------------------------------

    def _step(self, joined: Joined, message: Message, data: bytes) -> bytes:
        spec, head = joined.spec, message.head
        asked = hashlib.sha256(_content(message)).hexdigest()
        stored = self.store.reply(spec.run, head.round, asked)
        if stored is None:
            stored = self._train(joined, message, asked, len(data))
        else:
            log.info("round %d was done already: the same answer again", head.round)
        if spec.send == "secure":
            return secure.mask(self.store, self._reply, message, wire.unpack(stored), joined.algorithm, spec)
        return stored

    def _train(self, joined: Joined, message: Message, asked: str, bytes_down: int) -> bytes:
        spec, algorithm, head = joined.spec, joined.algorithm, message.head
        history, download = joined.prepared.history, wire.download_from(message.body)
        if len(download.table) != spec.n_items or (download.own is not None and len(download.own) != history.n_clients):
            raise Refused("shape", f"a table of {len(download.table)} items, this run has {spec.n_items}")
        began = time.perf_counter()
        clients = self.store.state(spec.run, head.round, algorithm.init_clients(history, spec.seed))
        about: dict[str, Any] = {"form": "single" if spec.send == "single" else "sum"}
        if head.about.get("evaluate"):  # of the model as it came, with the clients as they are: the last round's result
            about |= self._measured(joined, State(algorithm.seen(download, spec.n_items, spec.seed), clients))
        noise = None
        if spec.privacy is not None:
            noise = NodeNoise(
                spec.privacy, algorithm, spec.n_items, history.n_clients, self.store.run_folder(spec.run), spec.seed
            )
        drawn = None if noise is None else noise.draw(head.round)
        ids = cohort(history, spec.cohort, spec.dropout, spec.seed, head.round) if drawn is None else drawn
        most = max(int(head.about.get("clients", 0)), history.n_clients)
        found = train(algorithm, clients, ids, joined.prepared, download, head.round, spec, most, self.threads, noise)
        if isinstance(found, Upload):
            body, more = wire.upload_arrays(found, spec.n_items, spec.half)
            body, items = body | {"ids": ids.astype(np.int32)}, len(np.unique(found.rows))
            about |= more
        else:
            body, items = wire.sum_arrays(found), int((found.touched > 0).sum())
        reply = self._reply(head, "upload", about, body)
        form = "masked sum" if spec.send == "secure" else about["form"]
        sent = Sent(spec.run, head.round, len(reply), bytes_down, items, len(ids), form, time.time())
        self.store.finish_round(sent, clients, asked, reply)
        self.store.keep_public(spec.run, wire.pack(head, message.body))
        log.info(
            "round %d: %d clients, %d items, %d bytes up, %.2f s", head.round, len(ids), items, len(reply),
            time.perf_counter() - began,
        )  # fmt: skip
        return reply

    def _final(self, joined: Joined, message: Message, data: bytes) -> bytes:
        """The finished model: keep it for recommending, and measure it here if asked to."""
        spec = joined.spec
        self.store.keep_public(spec.run, data)
        about: dict[str, Any] = {}
        if message.head.about.get("evaluate"):
            about = self._measured(joined, self.state(joined))
        log.info("run %s is finished after round %d", spec.run, message.head.round)
        return self._reply(message.head, "finished", about)

    def _measured(self, joined: Joined, state: State) -> dict[str, Any]:
        from coterie.runs.measure import measure

        count = len(joined.prepared.users)
        if not count or (count < REPORT_AT_LEAST and not joined.spec.reproducible):
            return {}
        found = measure(joined.algorithm, state, joined.prepared, self.threads).metrics
        return {"measured": count, "metrics": found}

    # --- for the people behind this node --------------------------------------------------------------------------

    def state(self, joined: Joined) -> State:
        """The last model the server sent and the clients as they are on disk: all that recommending takes."""
        spec = joined.spec
        public = self.store.public(spec.run)
        if public is None:
            raise CoterieError(
                f"{self.store.folder}: this node has joined run {spec.run} but has not trained a round yet"
            )
        download = wire.download_from(wire.unpack(public).body)
        start = joined.algorithm.init_clients(joined.prepared.history, spec.seed)
        clients = self.store.state(spec.run, 1 << 40, start)
        return State(joined.algorithm.seen(download, spec.n_items, spec.seed), clients)

    def recommend(self, user: str | None = None, n: int = 10, run: str | None = None) -> list[tuple[str, str, float]]:
        """(item id, title, score) of the best items this person has not touched yet. No network."""
        run = run or self.store.latest_run()
        if run is None:
            raise CoterieError(f"{self.store.folder}: this node has not joined a run yet; `coterie node join` does")
        joined = self.joined(run)
        data = joined.prepared.data
        if user is None and data.n_users > 1:
            raise CoterieError(
                f"{data.n_users} people live behind this node; say whom with --user, e.g. {data.user_ids[0]!r}"
            )
        if user is not None and user not in data.user_number:
            raise CoterieError(f"user {user!r} is not among the {data.n_users} people behind this node")
        number = 0 if user is None else data.user_number[user]
        state = self.state(joined)
        scores = joined.algorithm.score(state.server, state.clients, joined.prepared.history, np.array([number]))[0]
        scores = scores.astype(np.float32)
        scores[data.items[data.indptr[number] : data.indptr[number + 1]]] = -np.inf
        best = np.argsort(-scores, kind="stable")[: min(n, int(np.isfinite(scores).sum()))]
        return [(data.item_ids[item], data.title(int(item)), float(scores[item])) for item in best]


def train(
    algorithm: Federated,
    clients: Any,
    ids: np.ndarray,
    prepared: Prepared,
    download: Download,
    round_: int,
    spec: FederationSpec,
    most_clients: int,
    threads: int,
    noise: NodeNoise | None = None,
) -> Upload | Sum:
    """The simulator's client step over this node's cohort: single uploads, or their sum in fixed point."""
    history = prepared.history
    lock, totals = Lock(), list[Sum]()

    def work(chunk: np.ndarray) -> Upload | None:
        part = download._replace(
            own=None if download.own is None else download.own[chunk],
            rows=None if download.rows is None else download.rows[chunk],
        )
        upload, report = algorithm.client_step(clients, chunk, history, part, round_, spec.seed)
        if not np.isfinite(report.loss).all():
            raise Refused("not-finite", "training has diverged on this node; lower the rates")
        if noise is not None and noise.path is not None:
            upload = noise.path(upload, chunk, round_)
        if spec.send == "single":
            return upload
        with lock:
            if not totals:
                totals.append(empty_sum(spec.n_items, upload.values.shape[1], upload.dense.shape[1]))
            try:
                add(totals[0], upload, most_clients)
            except NotAdded:
                raise Refused("not-finite", "an upload of this node is not finite or too large to add") from None
        return None

    with ThreadPoolExecutor(threads) as pool:
        uploads = [
            one for one in pool.map(work, _chunks(ids, history, threads, algorithm.most_in_chunk)) if one is not None
        ]
    if totals:
        return totals[0]
    if not uploads:
        raise Refused("nobody", "none of this node's people took part in this round")
    return concatenate(uploads)


def prepare_node(
    data: Interactions, spec: FederationSpec, items: list[str], titles: list[str] | None, secret: bytes
) -> tuple[Prepared, int]:
    """This node's history in the catalogue's numbers, and how many rows are of items the catalogue lacks."""
    protocol, number = spec.protocol, {name: place for place, name in enumerate(items)}
    user = np.repeat(np.arange(data.n_users), np.diff(data.indptr))
    item = np.array([number.get(one, -1) for one in data.item_ids], np.int64)[data.items]
    keep = item >= 0
    unknown = int((~keep).sum())
    if protocol.rating_threshold is not None:
        keep &= data.ratings >= protocol.rating_threshold
    if protocol.drop_short:
        keep &= (np.bincount(user[keep], minlength=data.n_users) >= protocol.min_interactions)[user]
    people, user = np.unique(user[keep], return_inverse=True)
    if not len(people):
        raise CoterieError("none of this node's rows is of an item the server's catalogue knows")
    indptr = np.zeros(len(people) + 1, np.int64)
    np.cumsum(np.bincount(user, minlength=len(people)), out=indptr[1:])
    mine = Interactions(
        "this node", indptr, item[keep].astype(np.int32), data.ratings[keep],
        None if data.times is None else data.times[keep], [data.user_ids[u] for u in people], items, titles,
    )  # fmt: skip
    asked = protocol.model_copy(
        update={"rating_threshold": None, "drop_short": False}
    )  # done above, by catalogue number
    pairs = np.unique(user * len(items) + mine.items)
    longest = int(np.bincount(pairs // len(items)).max())
    enough = longest >= max(protocol.min_interactions, 3)  # else: train on all there is, measure nothing
    prepared = prepare(mine, asked, spec.seed) if enough else _training_only(mine)
    keys = rng.user_keys(mine.user_ids, b"" if spec.reproducible else secret)
    return prepared._replace(history=prepared.history._replace(keys=keys)), unknown


def _training_only(mine: Interactions) -> Prepared:
    owner = np.repeat(np.arange(mine.n_users), np.diff(mine.indptr))
    pairs, which, counts = np.unique(owner * mine.n_items + mine.items, return_inverse=True, return_counts=True)
    own = from_pairs(pairs // mine.n_items, pairs % mine.n_items, mine.n_users)
    ratings = np.bincount(which, weights=mine.ratings).astype(np.float32)
    keys = np.zeros(mine.n_users, np.uint64)
    history = History(own.indptr, own.items, np.ones(len(counts), np.float32), ratings, own, keys, mine.n_items)
    if mine.times is not None:
        history = history._replace(ages=ages(history, owner, mine.items, mine.times))
    nothing = Ragged(np.zeros(mine.n_users + 1, np.int64), np.empty(0, np.int32))
    return Prepared(mine, history, own, nothing, nothing, nothing, nothing, np.empty(0, np.int64), {})


def _content(message: Message) -> bytes:
    """What a reply depends on, so that the same question gets the same answer: not the attempt, not the time."""
    digest = hashlib.sha256(f"{message.head.run}/{message.head.round}".encode())
    for name in ("table", "dense", "own", "rows"):
        if name in message.body:
            digest.update(name.encode() + np.ascontiguousarray(message.body[name]).tobytes())
    return digest.digest()


def _names(body: dict[str, np.ndarray], name: str) -> list[str]:
    if name not in body:
        raise Refused("shape", f"no array {name!r}")
    text = body[name].tobytes().decode()
    return text.split("\x1f")


def names_array(names: list[str]) -> np.ndarray:
    return np.frombuffer("\x1f".join(names).encode(), np.uint8)
