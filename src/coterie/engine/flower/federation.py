"""The two halves of a federation as processes: a server (SuperLink and the run), a node (SuperNode and its answers)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from coterie.engine.flower.keys import certificates, node_key
from coterie.engine.flower.ledger import Ledger
from coterie.engine.flower.processes import FOLDER, Processes, at_home, call, free_port, tail, tool, wait_for_port
from coterie.engine.flower.store import NodeStore
from coterie.errors import CoterieError

LINK = "coterie"
_RUNTIME = [sys.executable, "-m", "coterie.engine.flower.runtime"]
_GONE = 1.5  # seconds without anybody at work, after which the rounds' process is taken for dead
_AGAIN = 100  # times it is started again
_APP = {
    "pyproject.toml": """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "coterie-federation"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "coterie"

[tool.flwr.app.components]
serverapp = "coterie_federation:server_app"
clientapp = "coterie_federation:client_app"

[tool.flwr.app.config]
""",
    "coterie_federation.py": """from coterie.engine.flower.apps import client_app, server_app

__all__ = ["client_app", "server_app"]
""",
}


@final
class Server:
    """SuperLink, and one run of the federation in a folder. TLS unless told otherwise."""

    def __init__(
        self, ledger: Ledger, processes: Processes, host: str = "127.0.0.1", port: int | None = None, tls: bool = True
    ) -> None:
        self.ledger, self.processes, self.tls = ledger, processes, tls
        self.host, self.port = host, port or free_port()
        self.folder = ledger.folder.resolve()
        self.home = self.folder / "flower"
        if host not in ("127.0.0.1", "localhost", "::1") and not tls:
            raise CoterieError(
                f"--host {host} is open to others: TLS and node keys are needed, so leave out --insecure"
            )
        self.keys = certificates(self.folder / "keys", [host]) if tls else None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Start SuperLink and make it known to Flower's commands."""
        tool("flower-superlink")  # or the install line
        command = [*_RUNTIME, "superlink", "--host", self.host, "--port", str(self.port),
                   "--database", str(self.home / "superlink.db"),
                   "--disable-runtime-dependency-installation"]  # fmt: skip
        if self.keys is None:
            command.append("--insecure")
        else:
            command += ["--ssl-ca-certfile", str(self.keys.authority), "--ssl-certfile", str(self.keys.certificate),
                        "--ssl-keyfile", str(self.keys.key), "--enable-supernode-auth"]  # fmt: skip
        self.home.mkdir(parents=True, exist_ok=True)
        trust = (
            "insecure = true" if self.keys is None else f"root-certificates = {json.dumps(str(self.keys.authority))}"
        )
        reach = "127.0.0.1" if self.host == "0.0.0.0" else self.host  # its own commands come over loopback
        config = f'[superlink]\ndefault = "{LINK}"\n\n[superlink.{LINK}]\naddress = "{reach}:{self.port}"\n{trust}\n'
        (self.home / "config.toml").write_text(config)
        self.processes.start("superlink", command, self.home, **{FOLDER: str(self.folder)})
        wait_for_port(self.processes, reach, self.port)

    def register(self, *public_keys: Path) -> None:
        """Let the nodes with these keys in."""
        if self.keys is not None and public_keys:
            call([*_RUNTIME, "register", LINK, *map(str, public_keys)], self.home)

    def submit(self) -> None:
        """Start (or go on with) the rounds: a new Flower run over the same folder."""
        app = self.home / "app"
        app.mkdir(parents=True, exist_ok=True)
        for name, text in _APP.items():
            (app / name).write_text(text)
        from coterie.engine.flower import runtime  # with flwr, which only a federation needs

        with at_home(self.home):
            try:
                runtime.submit(LINK, app)
            except Exception as problem:
                raise CoterieError(f"the SuperLink at {self.address} did not take the run: {problem}") from problem

    def wait(self, seconds: float | None = None, watch: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Until the summary stands. A run that is killed on the way is started again from its checkpoint."""
        began, end = time.time(), None if seconds is None else time.monotonic() + seconds
        was_held, free_since, again = False, None, 0
        while not self.ledger.summary_file.exists():
            self.processes.check()
            stopped = [one for one in self.ledger.events("stopped") if one["at"] > began - 60]
            if stopped:
                raise CoterieError(f"the federation stopped: {stopped[-1]['why']}")
            if end is not None and time.monotonic() > end:
                raise CoterieError(f"not finished after {seconds} s; {tail(self.folder / 'server.log', 5)}")
            if self._at_work():
                was_held, free_since = True, None
            elif was_held and free_since is None:
                free_since = time.monotonic()
            elif free_since is not None and time.monotonic() - free_since > _GONE:
                if again == _AGAIN:
                    raise CoterieError(f"the server's run died {again} times; the logs are in {self.processes.logs}")
                again, was_held, free_since = again + 1, False, None
                self.ledger.event("resumed", after=len(self.ledger.rounds()))
                self.submit()
            watch()
            time.sleep(0.2)
        watch()
        found: dict[str, Any] = json.loads(self.ledger.summary_file.read_text())
        return found

    def _at_work(self) -> bool:
        """Whether the rounds' process lives: it holds the folder's lock, and the lock dies with it."""
        try:
            with self.ledger.directory.locked():
                return False
        except CoterieError:
            return True


@final
class NodeProcesses:
    """One node's processes. Its key is `node.key` in its store."""

    def __init__(self, store: NodeStore, processes: Processes, name: str, address: str, authority: Path | None) -> None:
        self.store, self.processes, self.name = store, processes, name
        self.address, self.authority = address, authority
        self.private, self.public = node_key(store.folder)

    def start(self) -> None:
        folder, port = self.store.folder.resolve(), free_port()
        config = f'store="{folder}"'
        command = [*_RUNTIME, "supernode", "--superlink", self.address, "--isolation", "process", "--host", "127.0.0.1",
                   "--port", str(port), "--node-config", config]  # fmt: skip
        if self.authority is None:
            command.append("--insecure")
        else:
            command += ["--root-certificates", str(self.authority), "--auth-supernode-private-key", str(self.private)]
        home = folder / "flower"
        self.processes.start(self.name, command, home)
        self.processes.start(f"{self.name}-answers", [*_RUNTIME, "answers", str(folder), f"127.0.0.1:{port}"], home)

    def stop(self) -> None:
        self.processes.stop(f"{self.name}-answers", self.name)

    def kill(self) -> None:
        """kill -9, both processes and all forks."""
        for name in (f"{self.name}-answers", self.name):
            self.processes.kill(name)

    def signal(self, number: int) -> None:
        for name in (self.name, f"{self.name}-answers"):
            self.processes.signal(name, number)
