"""A node's own disk: who it is, what it holds, what it has sent. Nothing in here ever leaves the node.

Client state lies in files (it can be gigabytes), the record in SQLite. A round is one folder that appears by a rename
and one transaction that makes it count: a node killed at any moment wakes up before or after a round, never within.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from coterie.algorithms.interface import History
from coterie.data.interactions import Interactions
from coterie.engine.flower.spec import FederationSpec
from coterie.errors import CoterieError
from coterie.protocol import Prepared
from coterie.ragged import Ragged
from coterie.runs import tensors

_KEPT_ROUNDS = 2  # the last, and the one before: a server that lost its last round may ask for it again
_SCHEMA = """
CREATE TABLE IF NOT EXISTS identity (key TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
  run TEXT PRIMARY KEY, spec TEXT NOT NULL, joined REAL NOT NULL, unknown INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rounds (
  run TEXT, round INTEGER, folder TEXT, download TEXT, bytes_up INTEGER, bytes_down INTEGER, items INTEGER,
  clients INTEGER, form TEXT, at REAL, PRIMARY KEY (run, round));
CREATE TABLE IF NOT EXISTS sessions (run TEXT, round INTEGER, attempt INTEGER, name TEXT, value BLOB,
  PRIMARY KEY (run, round, attempt, name));
"""


class Identity(NamedTuple):
    pseudonym: str  # by which the server knows this node
    secret: bytes  # part of every random number unless the run is reproducible
    data: str  # where the history lies
    columns: dict[str, str] | None
    place: int | None  # number of the shard, where `coterie split` made it


class Sent(NamedTuple):
    """One line of what this node has sent."""

    run: str
    round: int
    bytes_up: int
    bytes_down: int
    items: int
    clients: int
    form: str
    at: float


@final
class NodeStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "node.db"

    @classmethod
    def create(
        cls, folder: Path, data: str | Path, columns: dict[str, str] | None = None, place: int | None = None
    ) -> NodeStore:
        """The store in this folder, made if there is none. An old one keeps its pseudonym and secret."""
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        store = cls(folder)
        fresh = {
            "pseudonym": secrets.token_hex(8).encode(), "secret": secrets.token_bytes(32),
            "data": str(Path(data).expanduser().resolve() if Path(data).expanduser().exists() else data).encode(),
            "columns": json.dumps(columns).encode(), "place": json.dumps(place).encode(),
        }  # fmt: skip
        with closing(store._connect(make=True)) as link, link:
            link.executescript(_SCHEMA)
            for key, value in fresh.items():
                rule = "REPLACE" if key in ("data", "columns", "place") else "IGNORE"
                link.execute(f"INSERT OR {rule} INTO identity VALUES (?, ?)", (key, value))
        store.database.chmod(0o600)
        return store

    def identity(self) -> Identity:
        with closing(self._connect()) as link:
            found = dict(link.execute("SELECT key, value FROM identity").fetchall())
        return Identity(
            found["pseudonym"].decode(), found["secret"], found["data"].decode(), json.loads(found["columns"]),
            json.loads(found["place"]),
        )  # fmt: skip

    def _connect(self, make: bool = False) -> sqlite3.Connection:
        if not make and not self.database.exists():
            raise CoterieError(
                f"{self.folder}: no node lives here; `coterie node join --store {self.folder}` makes one"
            )
        link = sqlite3.connect(self.database, timeout=30)
        link.execute("PRAGMA journal_mode=WAL")
        link.execute("PRAGMA synchronous=FULL")
        return link

    # --- runs ---------------------------------------------------------------------------------------------------

    def run_folder(self, run: str) -> Path:
        return self.folder / "runs" / run

    def join_run(self, spec: FederationSpec, titles: list[str] | None, prepared: Prepared, unknown: int) -> None:
        """Remember a run's terms, its catalogue and this node's history in its numbers."""
        folder = self.run_folder(spec.run)
        folder.mkdir(parents=True, exist_ok=True)
        _save_prepared(folder, prepared, titles)
        with closing(self._connect()) as link, link:
            link.execute(
                "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)",
                (spec.run, spec.model_dump_json(), time.time(), unknown),
            )

    def spec(self, run: str) -> FederationSpec | None:
        with closing(self._connect()) as link:
            row = link.execute("SELECT spec FROM runs WHERE run = ?", (run,)).fetchone()
        return None if row is None else FederationSpec.model_validate_json(row[0])

    def latest_run(self) -> str | None:
        with closing(self._connect()) as link:
            row = link.execute("SELECT run FROM runs ORDER BY joined DESC LIMIT 1").fetchone()
        return None if row is None else str(row[0])

    def unknown_items(self, run: str) -> int:
        with closing(self._connect()) as link:
            row = link.execute("SELECT unknown FROM runs WHERE run = ?", (run,)).fetchone()
        return 0 if row is None else int(row[0])

    def prepared(self, run: str) -> Prepared:
        return _load_prepared(self.run_folder(run))

    # --- rounds -------------------------------------------------------------------------------------------------

    def state(self, run: str, before: int, template: Any) -> Any:
        """Client state after the last finished round below `before`; the template itself if there is none."""
        with closing(self._connect()) as link:
            row = link.execute(
                "SELECT folder FROM rounds WHERE run = ? AND round < ? AND folder IS NOT NULL "
                "ORDER BY round DESC LIMIT 1",
                (run, before),
            ).fetchone()
        return template if row is None else tensors.load(self.run_folder(run) / row[0] / "clients", template)

    def last_round(self, run: str) -> int:
        with closing(self._connect()) as link:
            row = link.execute("SELECT MAX(round) FROM rounds WHERE run = ?", (run,)).fetchone()
        return int(row[0] or 0)

    def reply(self, run: str, round_: int, download: str) -> bytes | None:
        """What was answered to this very download, if it was."""
        with closing(self._connect()) as link:
            row = link.execute(
                "SELECT folder FROM rounds WHERE run = ? AND round = ? AND download = ? AND folder IS NOT NULL",
                (run, round_, download),
            ).fetchone()
        path = None if row is None else self.run_folder(run) / row[0] / "reply.bin"
        return path.read_bytes() if path is not None and path.exists() else None

    def finish_round(self, sent: Sent, clients: Any, download: str, reply: bytes) -> None:
        """State, reply and record of a round, all or nothing."""
        home = self.run_folder(sent.run)
        name = f"round-{sent.round:06d}-{secrets.token_hex(4)}"
        part = home / f".part-{name}"
        tensors.save(part / "clients", clients, {"round": sent.round})
        _write(part / "reply.bin", reply)
        part.rename(home / name)
        with closing(self._connect()) as link, link:
            link.execute(
                "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (sent.run, sent.round, name, download, *sent[2:]),
            )
            link.execute(
                "UPDATE rounds SET folder = NULL WHERE run = ? AND (round <= ? OR round > ?)",
                (sent.run, sent.round - _KEPT_ROUNDS, sent.round),
            )
            kept = {row[0] for row in link.execute("SELECT folder FROM rounds WHERE run = ?", (sent.run,)).fetchall()}
        for old in [*home.glob("round-*"), *home.glob(".part-*")]:
            if old.name not in kept:
                shutil.rmtree(old, ignore_errors=True)

    def keep_public(self, run: str, message: bytes) -> None:
        """The server's last word, from which this node recommends when the server is gone."""
        _write(self.run_folder(run) / "public.bin", message)

    def public(self, run: str) -> bytes | None:
        path = self.run_folder(run) / "public.bin"
        return path.read_bytes() if path.exists() else None

    def sent(self, run: str | None = None) -> list[Sent]:
        query = "SELECT run, round, bytes_up, bytes_down, items, clients, form, at FROM rounds"
        with closing(self._connect()) as link:
            if run is None:
                rows = link.execute(query + " ORDER BY at").fetchall()
            else:
                rows = link.execute(query + " WHERE run = ? ORDER BY round", (run,)).fetchall()
        return [Sent(*row) for row in rows]

    # --- secure sums: keys and shares live for one attempt at one round -------------------------------------------

    def keep(self, run: str, round_: int, attempt: int, name: str, value: bytes) -> None:
        with closing(self._connect()) as link, link:
            link.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)", (run, round_, attempt, name, value))

    def kept(self, run: str, round_: int, attempt: int, name: str) -> bytes | None:
        with closing(self._connect()) as link:
            row = link.execute(
                "SELECT value FROM sessions WHERE run = ? AND round = ? AND attempt = ? AND name = ?",
                (run, round_, attempt, name),
            ).fetchone()
        return None if row is None else bytes(row[0])

    def drop_sessions(self, run: str, before: int) -> None:
        """Keys and shares of earlier rounds are of no use to anybody but a thief."""
        with closing(self._connect()) as link, link:
            link.execute("DELETE FROM sessions WHERE run = ? AND round < ?", (run, before))

    def forget(self) -> None:
        """Erase everything this node holds: identity, secret, state, record."""
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        for path in sorted(self.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self.folder.rmdir()


def _write(path: Path, content: bytes) -> None:
    import os

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


_LISTS = ("train", "validation", "test", "validation_candidates", "test_candidates", "forbidden")


def _save_prepared(folder: Path, prepared: Prepared, titles: list[str] | None) -> None:
    from safetensors.numpy import save

    history = prepared.history
    arrays = {name: getattr(history, name) for name in ("indptr", "items", "counts", "ratings", "keys")}
    if history.ages is not None:
        arrays["ages"] = history.ages
    lists = {name: getattr(prepared, name) for name in _LISTS[:-1]} | {"forbidden": history.forbidden}
    for name, one in lists.items():
        arrays |= {f"{name}.indptr": one.indptr, f"{name}.items": one.items}
    arrays["users"] = prepared.users
    arrays["seen.indptr"], arrays["seen.items"] = prepared.data.indptr, prepared.data.items
    _write(folder / "history.safetensors", save({key: np.ascontiguousarray(one) for key, one in arrays.items()}))
    names = {"users": prepared.data.user_ids, "items": prepared.data.item_ids, "titles": titles}
    _write(folder / "names.json", json.dumps(names).encode())


def _load_prepared(folder: Path) -> Prepared:
    from safetensors.numpy import load_file

    arrays = load_file(folder / "history.safetensors")
    names = json.loads((folder / "names.json").read_text())
    lists = {name: Ragged(arrays[f"{name}.indptr"], arrays[f"{name}.items"]) for name in _LISTS}
    history = History(
        arrays["indptr"], arrays["items"], arrays["counts"], arrays["ratings"], lists["forbidden"], arrays["keys"],
        len(names["items"]), ages=arrays.get("ages"),
    )  # fmt: skip
    seen = arrays["seen.items"]
    data = Interactions(
        "this node", arrays["seen.indptr"], seen, np.ones(len(seen), np.float32), None, names["users"], names["items"],
        names["titles"],
    )  # fmt: skip
    train, validation, test, validation_candidates, test_candidates = (lists[name] for name in _LISTS[:-1])
    users: np.ndarray = arrays["users"]
    return Prepared(data, history, train, validation, test, validation_candidates, test_candidates, users, {})
