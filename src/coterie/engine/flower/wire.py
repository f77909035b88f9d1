"""What crosses the network: safetensors bytes, a header, a checksum. No pickle; a flipped bit is refused.

A message is 8 bytes of magic, the SHA-256 of the rest, and a safetensors file whose metadata is the header. Uploads
travel as rows with their item numbers (or, where that is shorter, with one bit for each item), sums as the int64 rows
that somebody touched.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import numpy as np

from coterie import __version__
from coterie.algorithms.interface import Download, Sum, Upload
from coterie.errors import CoterieError

MAGIC = b"COTERIE1"
FORMAT = "1"
_PREFIX = len(MAGIC) + 32
MOST_BYTES = (2 << 30) - (64 << 20)  # Flower's limit is 2 GiB for one message


class Refused(CoterieError):
    """A message that must not be used. `kind` is its name in the record."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(f"{kind}: {why}")
        self.kind = kind
        self.why = why


class Head(NamedTuple):
    """Who speaks of what. `about` holds small values of the kind of message."""

    kind: str
    run: str
    round: int
    spec: str  # SHA-256 of the federation's spec
    version: str = __version__
    about: dict[str, Any] = {}  # noqa: RUF012 - never changed


class Message(NamedTuple):
    head: Head
    body: dict[str, np.ndarray]


def pack(head: Head, body: dict[str, np.ndarray] | None = None) -> bytes:
    from safetensors.numpy import save

    arrays = {key: np.ascontiguousarray(value) for key, value in (body or {}).items()}
    arrays = arrays or {"nothing": np.zeros(0, np.uint8)}  # safetensors wants at least one
    metadata = {"format": FORMAT, "head": json.dumps(head._asdict(), sort_keys=True)}
    content = save(arrays, metadata)
    if len(content) > MOST_BYTES:
        raise CoterieError(
            f"a {head.kind} message of {len(content):,} bytes is above the transport's limit of {MOST_BYTES:,}; put "
            "fewer people behind each node, or lower dim"
        )
    return b"".join((MAGIC, hashlib.sha256(content).digest(), content))


def unpack(data: bytes) -> Message:
    """The message, every byte checked against its hash before anything in it is believed."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if len(data) < _PREFIX or not data.startswith(MAGIC):
        raise Refused("damaged", f"{len(data)} bytes that do not begin as a Coterie message does")
    content = data[_PREFIX:]
    if hashlib.sha256(content).digest() != data[len(MAGIC) : _PREFIX]:
        raise Refused("damaged", "the checksum does not match: the message was changed or cut off on its way")
    try:
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size])["__metadata__"]
        if metadata["format"] != FORMAT:
            raise Refused("version", f"wire format {metadata['format']}, expected {FORMAT}")
        head = Head(**json.loads(metadata["head"]))
        body = load(content)
    except (ValueError, KeyError, TypeError, SafetensorError) as problem:
        raise Refused("damaged", f"not a message of ours: {problem}") from None
    return Message(head, {key: value for key, value in body.items() if key != "nothing"})


def check(head: Head, expected: Head) -> None:
    """Refuse by name what is not of this run, spec, round and version."""
    if head.version != expected.version:
        raise Refused(
            "version", f"from coterie {head.version}, this is coterie {expected.version}; install the same on both"
        )
    if head.run != expected.run:
        raise Refused("run", f"for run {head.run}, this is run {expected.run}")
    if head.spec != expected.spec:
        raise Refused("spec", f"made under spec {head.spec[:12]}, this run has spec {expected.spec[:12]}")
    if head.round != expected.round:
        raise Refused("round", f"for round {head.round}, this is round {expected.round}")
    if head.kind != expected.kind:
        raise Refused("kind", f"a {head.kind!r} message, expected {expected.kind!r}")


def download_arrays(download: Download) -> dict[str, np.ndarray]:
    found = {"table": download.table, "dense": download.dense, "own": download.own, "rows": download.rows}
    return {name: array for name, array in found.items() if array is not None}


def download_from(body: dict[str, np.ndarray]) -> Download:
    try:
        return Download(body["table"], body["dense"], body.get("own"), body.get("rows"))
    except KeyError as missing:
        raise Refused("shape", f"a download without {missing}") from None


def upload_arrays(upload: Upload, n_items: int, half: bool) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and header of single uploads. Rows go by number, or by one bit for each item where that is shorter."""
    counts = np.diff(upload.indptr)
    width = upload.values.shape[1] * (2 if half else 4)
    crowded = counts * (4 + width) > n_items * width
    about: dict[str, Any] = {"half": half, "scale": 0}
    values, rows = upload.values, upload.rows
    body: dict[str, np.ndarray] = {"counts": counts.astype(np.int32), "dense": upload.dense}
    if crowded.any():
        masks = np.zeros((int(crowded.sum()), n_items), bool)
        order = np.arange(len(rows))
        for place, client in enumerate(np.flatnonzero(crowded)):
            span = slice(upload.indptr[client], upload.indptr[client + 1])
            masks[place, rows[span]] = True
            order[span] = span.start + np.argsort(rows[span], kind="stable")
        values = values[order]
        body["masks"] = np.packbits(masks, axis=1)
        body["crowded"] = crowded.astype(np.uint8)
        rows = rows[np.repeat(~crowded, counts)]
    body["rows"] = rows.astype(np.int32)
    if half:
        largest = float(np.abs(values).max(initial=0.0))
        about["scale"] = 0 if largest == 0 or not np.isfinite(largest) else int(14 - np.ceil(np.log2(largest)))
        values = (values * np.float32(2.0 ** about["scale"])).astype(np.float16)
    body["values"] = values
    return body, about


def upload_from(message: Message, n_items: int, width: int, dense: int) -> Upload:
    """Single uploads back, every shape and number checked."""
    body, half = message.body, bool(message.head.about.get("half"))
    counts, rows = _array(body, "counts", np.int32, 1), _array(body, "rows", np.int32, 1)
    values = _array(body, "values", np.float16 if half else np.float32, 2)
    shared = _array(body, "dense", np.float32, 2)
    if values.shape[1] != width or shared.shape != (len(counts), dense):
        raise Refused(
            "shape",
            f"values {values.shape} and dense {shared.shape}, expected (rows, {width}) and ({len(counts)}, {dense})",
        )
    if (counts < 0).any() or int(counts.sum(dtype=np.int64)) != len(values):
        raise Refused("shape", f"{len(values)} rows, though the clients' counts add up to {int(counts.sum())}")
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    if "masks" in body:
        rows = _with_masks(body, rows, counts, n_items)
    if len(rows) != len(values) or (len(rows) and (rows.min() < 0 or rows.max() >= n_items)):
        raise Refused("rows", f"item numbers outside 0..{n_items - 1}, or {len(rows)} of them for {len(values)} rows")
    owner = np.repeat(np.arange(len(counts)), counts)
    if len(np.unique(owner * np.int64(n_items) + rows)) != len(rows):
        raise Refused("rows", "the same item twice in one client's upload")
    found = values.astype(np.float32)
    if half:
        found *= np.float32(2.0 ** -float(message.head.about.get("scale", 0)))
    for name, array in (("values", found), ("dense", shared)):
        if not np.isfinite(array).all():
            raise Refused("not-finite", f"{name} holds numbers that are not finite")
    return Upload(indptr, rows, found, shared)


def _with_masks(body: dict[str, np.ndarray], listed: np.ndarray, counts: np.ndarray, n_items: int) -> np.ndarray:
    crowded = _array(body, "crowded", np.uint8, 1).astype(bool)
    masks = _array(body, "masks", np.uint8, 2)
    if len(crowded) != len(counts) or masks.shape != (int(crowded.sum()), (n_items + 7) // 8):
        raise Refused("shape", f"masks {masks.shape} for {int(crowded.sum())} clients and {n_items} items")
    present = np.unpackbits(masks, axis=1, count=n_items).astype(bool)
    if (present.sum(1) != counts[crowded]).any() or len(listed) != counts[~crowded].sum():
        raise Refused("rows", "the masks do not have as many items as the clients' counts say")
    rows = np.empty(int(counts.sum()), np.int32)
    by_mask = np.repeat(crowded, counts)
    rows[by_mask] = np.nonzero(present)[1]
    rows[~by_mask] = listed
    return rows


def sum_arrays(total: Sum) -> dict[str, np.ndarray]:
    """A shard's sum: the rows that somebody of the shard touched."""
    rows = np.flatnonzero(total.touched).astype(np.int32)
    return {
        "rows": rows, "values": total.rows[rows], "touched": total.touched[rows].astype(np.int32), "dense": total.dense,
        "clients": total.clients,
    }  # fmt: skip


def sum_from(message: Message, n_items: int, width: int, dense: int, most_clients: int, limit: float) -> Sum:
    """A shard's sum back, bounded so that no shard can overflow what the others sent."""
    body = message.body
    rows, touched = _array(body, "rows", np.int32, 1), _array(body, "touched", np.int32, 1)
    values, shared = _array(body, "values", np.int64, 2), _array(body, "dense", np.int64, 1)
    clients = _array(body, "clients", np.int64, 1)
    if (
        values.shape != (len(rows), width)
        or len(touched) != len(rows)
        or shared.shape != (dense,)
        or clients.shape != (1,)
    ):
        raise Refused(
            "shape", f"values {values.shape}, dense {shared.shape}, expected ({len(rows)}, {width}) and ({dense},)"
        )
    if len(rows) and (rows.min() < 0 or rows.max() >= n_items or len(np.unique(rows)) != len(rows)):
        raise Refused("rows", f"item numbers outside 0..{n_items - 1}, or twice")
    count = int(clients[0])
    if not 0 <= count <= most_clients or (len(touched) and (touched.min() < 0 or touched.max() > count)):
        raise Refused("clients", f"a sum over {count} clients from a node of {most_clients}")
    most = limit * max(count, 1)
    if len(values) and max(abs(int(values.min())), abs(int(values.max()))) > most:
        raise Refused("too-large", f"a number above what {count} clients may send")
    if len(shared) and max(abs(int(shared.min())), abs(int(shared.max()))) > most:
        raise Refused("too-large", f"a number above what {count} clients may send")
    total = Sum(
        np.zeros((n_items, width), np.int64), np.zeros(n_items, np.int64), shared.copy(), clients.copy()
    )  # fmt: skip
    total.rows[rows], total.touched[rows] = values, touched
    return total


def _array(body: dict[str, np.ndarray], name: str, dtype: Any, dimensions: int) -> np.ndarray:
    if name not in body:
        raise Refused("shape", f"no array {name!r}")
    found = body[name]
    if found.dtype != np.dtype(dtype):
        raise Refused("dtype", f"{name} is {found.dtype}, expected {np.dtype(dtype)}")
    if found.ndim != dimensions:
        raise Refused("shape", f"{name} has {found.ndim} dimensions, expected {dimensions}")
    return found
