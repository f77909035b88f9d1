"""What the server sees, kept for the audit: uploads (or masked ones and their sum), who sent them, in which round.

The truth is kept apart, in a file only the audit opens. Nothing else of a client is written.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from coterie.algorithms.interface import History, Sum, Upload
from coterie.errors import CoterieError

FOLDER, TRUTH = "server-view", "audit-truth.safetensors"


class Seen(NamedTuple):
    """One round as the server saw it."""

    number: int
    table: np.ndarray  # float32[m, w]: what it had sent
    exchange: np.ndarray  # int64[c]: in which exchange of the round (an epoch has many) each upload came
    ids: np.ndarray  # int64[c]: who sent it
    upload: Upload  # what came; values are float32, of a secure sum the masked uint64 as float64 in [0, 1)
    masked: bool
    total: np.ndarray | None  # float64[m, w]: the opened (and noised) sum, where the server gets one


@final
class Recorder:
    """Collects the uploads of a round, then writes them in one file."""

    def __init__(self, folder: Path, history: History, users: int | None, about: dict[str, Any]) -> None:
        self.folder = folder / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        n = history.n_clients
        wanted = min(users or n, n)
        chosen = np.sort(np.random.default_rng(0).permutation(n)[:wanted])  # always the same ones
        self._wanted = np.zeros(n, bool)
        self._wanted[chosen] = True
        self._parts: list[tuple[int, int, np.ndarray, Upload]] = []
        self._masked: list[tuple[int, int, np.ndarray]] = []
        self._total: Sum | None = None
        self._lock = threading.Lock()
        about |= {"clients": n, "items": history.n_items, "recorded_clients": wanted}
        (self.folder / "about.json").write_text(json.dumps(about, indent=1) + "\n")
        _save(folder / TRUTH, {"indptr": history.indptr, "items": history.items})

    def wants(self, ids: np.ndarray) -> np.ndarray:
        """bool[c]: whose uploads are kept."""
        found: np.ndarray = self._wanted[ids]
        return found

    def upload(self, upload: Upload, ids: np.ndarray, number: int) -> Upload:
        """A step at the end of the path: it changes nothing."""
        from coterie.privacy.robust import only

        keep = self._wanted[ids]
        if keep.any():
            with self._lock:
                part = only(upload, keep)
                self._parts.append((number, int(ids[keep][0]), ids[keep], part))
        return upload

    def masked(self, number: int, client: int, numbers: np.ndarray) -> None:
        if self._wanted[client]:
            self._masked.append((number, client, numbers))

    def total(self, total: Sum) -> None:
        self._total = total

    def flush(self, round_: int, table: np.ndarray) -> None:
        """The round is over: write what was seen in it."""
        arrays: dict[str, np.ndarray] = {"table": table.astype(np.float32)}
        parts = sorted(self._parts, key=lambda one: one[:2])
        if parts:
            indptr = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(u.indptr) for *_, u in parts]))])
            arrays |= {
                "exchange": np.concatenate([np.full(len(ids), number) for number, _, ids, _ in parts]),
                "ids": np.concatenate([ids for *_, ids, _ in parts]), "indptr": indptr.astype(np.int64),
                "rows": np.concatenate([u.rows for *_, u in parts]),
                "values": np.concatenate([u.values for *_, u in parts]),
                "dense": np.concatenate([u.dense for *_, u in parts]),
            }  # fmt: skip
        if self._masked:
            arrays |= {
                "exchange": np.array([number for number, *_ in self._masked]),
                "ids": np.array([client for _, client, _ in self._masked]),
                "masked": np.stack([numbers for *_, numbers in self._masked]),
            }
        if self._total is not None:
            arrays["total"] = self._total.rows
        self._parts, self._masked, self._total = [], [], None
        _save(self.folder / f"round-{round_:06d}.safetensors", arrays)


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    part = path.with_name(path.name + ".part")
    save_file({key: np.ascontiguousarray(value) for key, value in arrays.items()}, part)
    part.replace(path)


def about(directory: Path) -> dict[str, Any]:
    file = directory / FOLDER / "about.json"
    if not file.exists():
        raise CoterieError(
            f"{directory}: no server view was recorded; run again with `coterie run ... --record-server-view`"
        )
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def truth(directory: Path) -> tuple[np.ndarray, np.ndarray]:
    """(indptr, items) of what people really have: for judging attacks, never for making them."""
    from safetensors.numpy import load_file

    found = load_file(directory / TRUTH)
    return found["indptr"], found["items"]


def rounds(directory: Path, most: int | None = None) -> Iterator[Seen]:
    """The recorded rounds in their order, one in memory at a time."""
    from safetensors.numpy import load_file

    from coterie.algorithms.server import FIXED_POINT

    files = sorted((directory / FOLDER).glob("round-*.safetensors"))
    if not files:
        raise CoterieError(f"{directory / FOLDER}: no recorded round; the run ended before its first round did")
    for file in files[:most]:
        found = load_file(file)
        table, number = found["table"], int(file.stem.split("-")[1])
        total = found["total"].astype(np.float64) / FIXED_POINT if "total" in found else None
        if "masked" in found:
            yield Seen(number, table, found["exchange"], found["ids"], _unfold(found["masked"], table), True, total)
        elif "ids" in found:
            upload = Upload(found["indptr"], found["rows"], found["values"], found["dense"])
            yield Seen(number, table, found["exchange"], found["ids"], upload, False, total)


def senders(directory: Path, most: int | None = None) -> list[np.ndarray]:
    """int64 for each recorded round: of whom something came. Reads nothing else of the files."""
    from safetensors import safe_open

    found = []
    for path in sorted((directory / FOLDER).glob("round-*.safetensors"))[:most]:
        with safe_open(path, framework="numpy") as file:
            if "ids" in file.keys():  # noqa: SIM118 (not a dict)
                found.append(file.get_tensor("ids"))
    if not found:
        raise CoterieError(f"{directory / FOLDER}: no recorded upload; the run ended before its first round did")
    return found


def _unfold(masked: np.ndarray, table: np.ndarray) -> Upload:
    """Masked numbers modulo 2**64 as an upload: every row and its masked touch count, as shares of 2**64."""
    clients, m = len(masked), len(table)
    width = (masked.shape[1] - 1) // m - 1  # rows x width, touched, clients; a dense rest is short beside m
    numbers = (masked.astype(np.float64) / 2.0**64).astype(np.float32)
    rows = numbers[:, : m * width].reshape(clients * m, width)
    touched = numbers[:, m * width : m * width + m].reshape(clients * m, 1)
    return Upload(
        np.arange(clients + 1, dtype=np.int64) * m, np.tile(np.arange(m, dtype=np.int32), clients),
        np.hstack([rows, touched]), numbers[:, m * (width + 1) :],
    )  # fmt: skip
