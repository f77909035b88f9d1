"""Starting and ending the processes of a federation. Whatever happens, none is left behind.

Each process leads a group of its own and is told by the kernel when its parent is gone; it is ended in `finally` and
at exit, together with everything it has started (Flower's SuperExec leads another group, so descendants are looked
up). Flower asks no outside host: telemetry and update checks are off.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from coterie.errors import CoterieError

FOLDER = "COTERIE_FEDERATION"  # hands the server's folder from SuperLink to the run it starts
_TERM = 4.0  # seconds a process has to end by itself


@final
class Processes:
    """Processes by name, each with a log file. A context manager: they end with it."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(parents=True, exist_ok=True)
        atexit.register(self.stop)

    def __enter__(self) -> Processes:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` is reached
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, command: list[str], home: Path, **env: str) -> subprocess.Popen[bytes]:
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                env=environment(home) | env, preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )  # fmt: skip
        self.running[name] = process
        return process

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def stop(self, *names: str) -> None:
        """End these (or all): asked first, then killed with everything they started."""
        chosen = [name for name in names or list(self.running) if name in self.running]
        started = [pid for name in chosen for pid in descendants(self.running[name].pid)]
        for name in chosen:
            _signal(self.running[name], signal.SIGCONT)
            _signal(self.running[name], signal.SIGTERM)
        end = time.monotonic() + _TERM
        for name in chosen:
            process = self.running.pop(name)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
            _signal(process, signal.SIGKILL)
            process.wait()
        _end(started)

    def kill(self, name: str) -> None:
        """kill -9 of a process and all it started."""
        process = self.running.pop(name)
        started = descendants(process.pid)
        _signal(process, signal.SIGKILL)
        process.wait()
        _end(started)

    def signal(self, name: str, number: int) -> None:
        _signal(self.running[name], number)

    def check(self) -> None:
        """Raise if one has ended by itself."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise CoterieError(f"{name} ended with code {process.returncode}:\n{tail(self.log(name))}")


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _end(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Everything a process has started, and what those have (Linux; elsewhere the group has to do)."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found, front = [], [pid]
    while front:
        front = [child for one in front for child in children.get(one, [])]
        found += front
    return found


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def environment(home: Path) -> dict[str, str]:
    """The environment of a Flower process: our interpreter's tools first, nothing asked of outside hosts."""
    home.mkdir(parents=True, exist_ok=True)
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join(dict.fromkeys([str(Path(__file__).parents[3]), *filter(None, sys.path)]))
    return os.environ | {
        "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(home.resolve()),
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "1.0", "PATH": here + os.pathsep + os.environ.get("PATH", ""),
        "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore",
        "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip


@contextlib.contextmanager
def at_home(home: Path) -> Iterator[None]:
    """Flower's own functions, called in this process, find their settings in `home` and ask no outside host."""
    before = dict(os.environ)
    os.environ.update({key: value for key, value in environment(home).items() if key.startswith("FLWR_")})
    try:
        yield
    finally:
        for key in [key for key in os.environ if key.startswith("FLWR_")]:
            del os.environ[key]
        os.environ.update({key: value for key, value in before.items() if key.startswith("FLWR_")})


def tool(name: str) -> str:
    """Flower's command beside our interpreter, or the install line."""
    import shutil

    from coterie.engine.flower.spec import FLOWER_HINT

    found = shutil.which(name, path=str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", ""))
    if found is None:
        raise CoterieError(FLOWER_HINT)
    return found


def free_port() -> int:
    """A port of loopback that nobody listens at, below those that the system gives to outgoing connections.

    A port the system offers by itself is one it also hands out to the next connection: seconds later, when the process
    that is to listen has started, somebody else may have it.
    """
    draw = random.SystemRandom()
    for _ in range(200):
        port = draw.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise CoterieError("no free port between 20000 and 32000 on loopback after 200 tries")


def wait_for_port(processes: Processes, host: str, port: int, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        processes.check()
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0):
            return
        time.sleep(0.1)
    raise CoterieError(f"nothing listens at {host}:{port} after {seconds:.0f} s; the logs are in {processes.logs}")


def tail(path: Path, lines: int = 15) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else "(no log)"


def call(command: list[str], home: Path, seconds: float = 240.0, **more: Any) -> str:
    """Run one of Flower's commands to its end; its output is part of any error."""
    try:
        done = subprocess.run(
            command,
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=seconds,
            start_new_session=True,
            **more,
        )
    except subprocess.TimeoutExpired:
        raise CoterieError(f"{Path(command[0]).name} {command[1]} did not end within {seconds:.0f} s") from None
    if done.returncode:
        raise CoterieError(
            f"{Path(command[0]).name} {command[1]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
    return str(done.stdout)
