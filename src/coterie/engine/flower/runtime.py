"""The processes of both sides. A node's: Flower's SuperNode, and the one that answers its messages. The server's:
Flower's SuperLink, and the one that runs the rounds.

    python -m coterie.engine.flower.runtime supernode ARGUMENTS OF flower-supernode
    python -m coterie.engine.flower.runtime answers STORE ADDRESS
    python -m coterie.engine.flower.runtime superlink ARGUMENTS OF flower-superlink
    python -m coterie.engine.flower.runtime rounds ARGUMENTS OF flower-superexec   (started by the SuperLink)
    python -m coterie.engine.flower.runtime register LINK KEY.pub ...   (lets nodes in)

Flower as it comes starts a fresh Python for every message and every run (2 to 4 s of imports on a small machine), looks
for messages every 3 s, and runs the program that the server sent along. Here the process that answers, and the one that
runs the rounds, have everything loaded and fork for each message or run, so a server whose rounds were killed goes on a
second later; all look four times a second while rounds are going on; and **the program is the node's own installed
Coterie**: what the server ships is not executed, so a server cannot make a node run code that reads its history. These
are changes to flwr 1.41's insides, which the extra `flower` pins; each is checked at the start.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

QUICK = 0.25  # seconds between looks while rounds are going on; Flower's own is 3
GIVEN_UP = 15.0  # seconds in which a message's content has to follow it
CALM = 30.0  # seconds without a message, after which the looks become rarer


@final
class _Clock:
    """The module `time` for Flower's loops: they look often while rounds are going on, and as rarely as Flower else."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def touch(self) -> None:
        """A message is being dealt with."""
        self.last = time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds <= 0.5:  # within a message: Flower waits for its answer
            self.touch()
        quiet = time.monotonic() - self.last
        time.sleep(min(seconds, QUICK * max(1.0, quiet / CALM)))


def retry_sooner() -> None:
    """An object that is not there yet is asked for again after 0.1 s, then 0.2, ...; Flower begins with a second.

    With quick looks a message is often seen just before its content has come, so this second was paid in every round.
    And a message whose content does not come is given up after `GIVEN_UP` seconds: a server that is killed while it
    sends leaves such a message behind, for which Flower would wait two hours and read no other.
    """
    from flwr.supercore.inflatable import inflatable_utils as inside

    for pull in (inside.pull_objects, inside.pull_and_inflate_object_from_tree):
        defaults = pull.__kwdefaults__ or {}
        _expect({"initial_backoff", "backoff_cap", "max_time"} <= set(defaults), "pulling objects has its three limits")
        defaults["initial_backoff"], defaults["backoff_cap"], defaults["max_time"] = 0.1, 2.0, GIVEN_UP


def supernode(arguments: list[str]) -> None:
    """`flower-supernode`, looking for messages more often."""
    import flwr.supernode.start_client_internal as inside
    from flwr.supernode.cli.flower_supernode import flower_supernode

    _expect(getattr(inside, "time", None) is time, "the SuperNode's loop sleeps by the module time")
    vars(inside)["time"] = _Clock()
    retry_sooner()
    sys.argv = ["flower-supernode", *arguments]
    flower_supernode()


@final
class _Forking:
    """Does each task in a fork of this warm process: a crash there costs one message, or one run of the rounds."""

    def __init__(self, work: Callable[[Any], None], warm_up: Callable[[], None], clock: _Clock) -> None:
        self.work, self.warm_up, self.clock = work, warm_up, clock
        self.children: set[int] = set()

    def get_eligible_capacity(self, supported_task_types: set[Any], **_: Any) -> tuple[set[Any], set[str]]:
        return supported_task_types, set()

    def wait_for_capacity(self, *_: Any, **__: Any) -> None:
        return None

    def launch(self, spec: Any) -> Any:
        from flwr.supercore.superexec.executor.types import LaunchResult

        self.clock.touch()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._child(spec)
        self.children.add(pid)
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Called between looks: bury the dead, and load what a newly joined run needs before its first round."""
        for pid in list(self.children):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.children.discard(pid)
        with contextlib.suppress(Exception):  # whatever is wrong, the task's own process will say it
            self.warm_up()

    def close(self) -> None:
        for pid in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 15)

    def _child(self, spec: Any) -> None:
        self.children.clear()  # Flower's way out closes what was inherited: siblings are not the child's to end
        code = 1
        try:
            self.work(spec)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def warm_up(folder: Path, done: set[str]) -> None:
    """Load history and kernels of the latest run, once, where every fork finds them."""
    from coterie.engine.flower.apps import node_at
    from coterie.runs.drive import warm_up as compile_kernels

    node = node_at(str(folder))
    run = node.store.latest_run()
    if run is not None and run not in done:
        done.add(run)
        compile_kernels(node.joined(run).algorithm, 1)


def _answer(spec: Any) -> None:
    from flwr.supernode.runtime.run_clientapp import run_clientapp

    run_clientapp(
        runtime_api_address=spec.runtime_api_address, token=spec.token, insecure=spec.insecure,
        certificates=None, parent_pid=os.getppid(),
    )  # fmt: skip


def _run_rounds(spec: Any) -> None:
    from queue import Queue

    from flwr.superlink.runtime.run_serverapp import run_serverapp

    authority = spec.root_certificates_path
    run_serverapp(
        runtime_api_address=spec.runtime_api_address, log_queue=Queue(), token=spec.token, insecure=spec.insecure,
        certificates=None if authority is None else Path(authority).read_bytes(), parent_pid=os.getppid(),
        runtime_dependency_install=False,
    )  # fmt: skip


def _fork_in_loop(work: Callable[[Any], None], warm_up: Callable[[], None]) -> None:
    """Make Flower's loop over tasks look often, and do each task in a fork of this process."""
    import flwr.supercore.superexec.run_superexec as loop

    _expect(callable(getattr(loop, "get_executor", None)), "the loop takes its executor from get_executor")
    _expect(getattr(loop, "time", None) is time, "the loop sleeps by the module time")
    clock = _Clock()
    vars(loop)["time"] = clock
    vars(loop)["get_executor"] = lambda *_, **__: _Forking(work, warm_up, clock)


def answers(folder: Path, address: str) -> None:
    """The loop that takes messages from the SuperNode at `address` and has each answered."""
    import flwr.supercore.superexec.run_superexec as loop
    import flwr.supernode.runtime.run_clientapp as run

    from coterie.engine.flower.apps import client_app

    _expect(callable(getattr(run, "get_load_client_app_fn", None)), "a ClientApp is loaded by get_load_client_app_fn")
    _expect(callable(getattr(run, "install_from_fab", None)), "a bundle is unpacked by install_from_fab")
    retry_sooner()
    warm: set[str] = set()
    _fork_in_loop(_answer, lambda: warm_up(folder, warm))
    vars(run)["get_load_client_app_fn"] = lambda *_, **__: lambda *_, **__: client_app  # its own, whatever was sent
    vars(run)["install_from_fab"] = lambda *_, **__: None
    loop.run_superexec(runtime_api_address=address, insecure=True, parent_pid=os.getppid())


def superlink(arguments: list[str]) -> None:
    """`flower-superlink`, which starts `rounds` below where it would start `flower-superexec`."""
    inside = importlib.import_module("flwr.superlink.cli.flower_superlink")  # its package hides it by a function
    ours, theirs = [sys.executable, "-m", "coterie.engine.flower.runtime", "rounds"], "_get_superexec_command"
    command = getattr(inside, theirs, None)
    _expect(callable(command), f"the SuperLink asks {theirs} how to start what runs a ServerApp")
    vars(inside)[theirs] = lambda *args, **more: [*ours, *command(*args, **more)[1:]]  # type: ignore[misc]
    sys.argv = ["flower-superlink", *arguments]
    inside.flower_superlink()


def rounds(arguments: list[str]) -> None:
    """`flower-superexec`, which runs the coordinator in forks of this process."""
    from flwr.supercore.cli import flower_superexec

    from coterie.engine.flower.ledger import Ledger
    from coterie.engine.flower.processes import FOLDER
    from coterie.runs.drive import warm_up as compile_kernels

    done: list[bool] = []

    def warm_up() -> None:
        if not done:
            done.append(True)
            compile_kernels(Ledger(Path(os.environ[FOLDER])).read()[0].build(), 1)

    importlib.import_module("coterie.engine.flower.apps")  # what the bundle will ask for
    retry_sooner()
    _fork_in_loop(_run_rounds, warm_up)
    sys.argv = ["flower-superexec", *arguments]
    flower_superexec()


def submit(link: str, app: Path) -> None:
    """`flwr run` without its second of imports: hand the SuperLink of this FLWR_HOME a run of `app`."""
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.flower_config import read_superlink_connection
    from flwr.cli.utils import init_http_client_from_connection
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.proto.fab_pb2 import Fab

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a library it builds with
        content = build_fab_from_disk(app)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # it says where it calls
        client = init_http_client_from_connection(read_superlink_connection(link))
    try:
        client.StartRun(StartRunRequest(fab=Fab(hash_str=hashlib.sha256(content).hexdigest(), content=content)))
    finally:
        client.close()


def register(link: str, keys: list[str]) -> None:
    """`flwr supernode register` for many keys in one process. Those known already stay so."""
    from flwr.cli.flower_config import read_superlink_connection
    from flwr.cli.supernode.register import try_load_public_key
    from flwr.cli.utils import init_http_client_from_connection
    from flwr.proto.control_pb2 import RegisterNodeRequest

    client = init_http_client_from_connection(read_superlink_connection(link))
    try:
        for key in keys:
            try:
                client.RegisterNode(request=RegisterNodeRequest(public_key=try_load_public_key(Path(key))))
            except Exception as problem:
                if "already" not in str(getattr(problem, "response", problem)) + str(problem) + _body(problem):
                    raise
    finally:
        client.close()


def _body(problem: Exception) -> str:
    return str(getattr(getattr(problem, "response", None), "text", ""))


def _expect(holds: bool, what: str) -> None:
    if not holds:
        import flwr

        from coterie.errors import CoterieError

        raise CoterieError(
            f"flwr {getattr(flwr, '__version__', '?')} is not the one Coterie was made for: expected that {what}"
        )


def main() -> None:
    role, *rest = sys.argv[1:]
    if role == "supernode":
        supernode(rest)
    elif role == "superlink":
        superlink(rest)
    elif role == "rounds":
        rounds(rest)
    elif role == "register":
        register(rest[0], rest[1:])
    else:
        answers(Path(rest[0]), rest[1])


if __name__ == "__main__":
    main()
