"""A federation of real processes on loopback, over TLS: equal to the simulator, and what is done to it does not show.

Each test starts its own federation and ends it; all are bounded in time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

import coterie
from coterie.algorithms import CATALOGUE, make
from coterie.engine.flower import runtime
from coterie.engine.flower.federation import NodeProcesses, Server
from coterie.engine.flower.keys import node_key
from coterie.engine.flower.node import Node
from coterie.engine.flower.processes import Processes, descendants, tail
from coterie.engine.flower.setup import catalogue, found, shards
from coterie.engine.flower.spec import Terms
from coterie.engine.flower.store import NodeStore
from coterie.protocol import Protocol
from tests.flower.loop import simulated

LONG = 420.0  # seconds after which a federation of these tests has hung


def world() -> coterie.Interactions:
    return coterie.synthetic(users=45, items=50, seed=1, shortest=5, longest=20)


class Running:
    def __init__(self, server: Server, nodes: list[NodeProcesses], processes: Processes) -> None:
        self.server, self.nodes, self.processes = server, nodes, processes
        self.ledger = server.ledger

    def until(self, holds: Callable[[], bool], seconds: float = LONG) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, tail(self.server.folder / "server.log", 20)
            time.sleep(0.02)

    def round_done(self, number: int) -> None:
        self.until(lambda: len(self.ledger.rounds()) >= number)

    def kill_server_run(self) -> bool:
        """kill -9 of the process that runs the rounds. False: it was not there at this moment."""
        for parent in descendants(self.processes.running["superlink"].pid):
            for pid in descendants(parent):  # a fork of the process that keeps everything loaded
                with suppress(OSError):
                    if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":  # not killed before
                        os.kill(pid, signal.SIGKILL)
                        return True
        return False


@contextmanager
def running(folder: Path, algorithm: Any, nodes: int = 3, tls: bool = True, **options: Any) -> Iterator[Running]:
    data = world()
    terms = {key: options.pop(key) for key in list(options) if key in Terms.model_fields}
    asked = Terms(
        **{"rounds": 3, "min_nodes": nodes, "start_with": nodes, "deadline": 60, "evaluate_every": 0, **terms}
    )
    items, titles = catalogue(data, Protocol(), 0)
    ledger = found(folder / "server", algorithm, items, titles, asked, **{"reproducible": True, **options})
    with Processes(folder / "logs") as processes:
        server = Server(ledger, processes, tls=tls)
        server.start()
        members = []
        for number, path in enumerate(shards(data, nodes, folder / "shards")):
            store = NodeStore.create(folder / f"node-{number}", path, place=number)
            authority = None if server.keys is None else server.keys.authority
            members.append(NodeProcesses(store, processes, f"node-{number}", server.address, authority))
        server.register(*(one.public for one in members))
        for one in members:
            one.start()
        server.submit()
        yield Running(server, members, processes)


def small(name: str) -> Any:
    algorithm = make(name)
    return make(name, **{"dim": 8} if "dim" in algorithm.__dataclass_fields__ else {})


def test_over_tls_with_the_server_killed_and_a_stranger_at_the_door(tmp_path: Path) -> None:
    """The model is the simulator's; the stranger, whose key nobody registered, never gets in."""
    algorithm, draw = small("fedmf"), random.Random(1)
    with Processes(tmp_path / "elsewhere") as others, running(tmp_path, algorithm, rounds=3) as here:
        shard = tmp_path / "shards" / "node-0" / "interactions.csv"
        store = NodeStore.create(tmp_path / "stranger", shard)
        authority = here.server.keys.authority if here.server.keys else None
        stranger = NodeProcesses(store, others, "stranger", here.server.address, authority)
        stranger.start()
        for number in (0, 1):  # once while nodes join, once in a round
            here.round_done(number)
            time.sleep(draw.uniform(0.0, 1.0))
            here.until(here.kill_server_run, 180)
            here.server.submit()
        summary = here.server.wait(LONG)
        assert summary["nodes"] == 3
        assert not (tmp_path / "stranger" / "node.log").exists()  # it was never asked anything
    assert [one["round"] for one in here.ledger.rounds()] == [1, 2, 3]
    assert summary["model_sha256"] == simulated(world(), algorithm, 3, tmp_path)


def test_nodes_killed_stopped_and_back_again(tmp_path: Path) -> None:
    """kill -9 in mid-round, SIGSTOP past the deadline, a restart from disk: every round closes on the survivors."""
    with running(tmp_path, small("fedrap"), rounds=500, min_nodes=2, deadline=10.0, patience=20, tls=False) as here:
        here.until(lambda: bool(here.ledger.rounds()) and here.ledger.rounds()[-1]["nodes"] == 3)
        here.nodes[2].kill()
        after = len(here.ledger.rounds())
        here.round_done(after + 2)
        assert here.ledger.rounds()[-1]["nodes"] == 2
        trained = here.nodes[2].store.last_round(here.server.ledger.read()[0].run)
        assert trained >= 1
        here.nodes[2].start()  # it finds its state on disk and its old name with the server
        here.until(lambda: here.ledger.rounds()[-1]["nodes"] == 3)
        here.nodes[1].signal(signal.SIGSTOP)
        after = len(here.ledger.rounds())
        here.round_done(after + 3)
        assert here.ledger.rounds()[-1]["nodes"] == 2 and here.ledger.rounds()[-1]["late"] == 1
        here.nodes[1].signal(signal.SIGCONT)
        here.until(lambda: here.ledger.rounds()[-1]["nodes"] == 3)
        here.nodes[0].kill()
        here.nodes[1].kill()  # one is left, two are needed: nothing may change any more
        here.until(lambda: bool(here.ledger.events("abandoned")))
        done, model = here.ledger.rounds(), here.ledger.model_hash()
        time.sleep(2.0)
        assert (here.ledger.rounds(), here.ledger.model_hash()) == (done, model)
    names = {one["node"] for one in here.ledger.events("joined")}
    assert len(names) == 3  # the restarted node came back under its own pseudonym
    assert len(here.ledger.blocks()) == 3


def test_the_commands_from_end_to_end(tmp_path: Path) -> None:
    """`federation up`, then the node's own verbs with no server left."""

    def coterie_(*words: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, ["src", os.environ.get("PYTHONPATH", "")]))
        return subprocess.run(
            [sys.executable, "-m", "coterie.cli", *words], capture_output=True, text=True, timeout=LONG,
            env=os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
        )  # fmt: skip

    out = tmp_path / "fed"
    data = "synthetic:users=45,items=50,seed=1,shortest=5,longest=20"
    done = coterie_(
        "federation", "up", "--algorithm", "fedrap", "--set", "dim=8", "--data", data, "--nodes", "3", "--rounds", "2",
        "--send", "single", "--float16", "--out", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "round 2/2: 3 nodes, 45 people" in done.stdout and "NDCG@10" in done.stdout
    user = world().user_ids[3]
    picked = json.loads(
        coterie_("node", "recommend", "--store", str(out / "node-0"), "--user", user, "-n", "5", "--json").stdout
    )
    assert len(picked) == 5 and picked[0]["title"]
    shown = coterie_("node", "show", "--store", str(out / "node-0"))
    assert "it has answered 2 rounds" in shown.stdout and user not in shown.stdout
    for path in (out / "server").rglob("*"):  # Flower's own database and logs too
        assert path.is_dir() or user.encode() not in path.read_bytes()
    left = coterie_("node", "leave", "--forget", "--store", str(out / "node-0"))
    assert "erased" in left.stdout and not (out / "node-0").exists()
    again = coterie_("node", "show", "--store", str(out / "node-0"))
    assert again.returncode == 2 and "no node lives here" in again.stderr


@pytest.mark.slow
def test_fifty_kills_of_the_server_end_in_the_same_model(tmp_path: Path) -> None:
    """At any moment: while it starts, while nodes join, in a round, between two."""
    algorithm, draw, rounds = small("fedrap"), random.Random(0), 20
    with running(tmp_path, algorithm, rounds=rounds, tls=False) as here:
        here.round_done(1)
        done, in_vain = 1, 0
        for _ in range(50):
            now = len(here.ledger.rounds())
            done, in_vain = now, in_vain + 1 if now == done else 0
            longest = 4.0 * 1.5 ** (in_vain // 8)  # on a busy machine a run needs longer to come to a round at all
            time.sleep(draw.uniform(0.0, longest if rounds - done > 5 else 0.2))  # the last rounds are kept for the end
            here.until(here.kill_server_run, 180)
            here.server.submit()
        before = len(here.ledger.rounds())
        summary = here.server.wait(600)
    assert 1 < before < rounds
    assert [one["round"] for one in here.ledger.rounds()] == list(range(1, rounds + 1))
    assert summary["model_sha256"] == simulated(world(), algorithm, rounds, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ("fedrap", "federank", "pfedrec", "gpfedrec") if name in CATALOGUE])
def test_the_papers_systems_over_real_processes(name: str, tmp_path: Path) -> None:
    algorithm = small(name)
    with running(tmp_path, algorithm, rounds=2, evaluate_every=1) as here:
        summary = here.server.wait(LONG)
    if name != "federank":  # there a simulator's round is an epoch of many exchanges, here it is one
        assert summary["model_sha256"] == simulated(world(), algorithm, 2, tmp_path)
    assert summary["metrics"]["test"]["full"]["NDCG@10"] > 0
    assert Node(tmp_path / "node-1").recommend(world().user_ids[20], 3)


@pytest.mark.slow
def test_the_whole_server_is_killed_and_resumed(tmp_path: Path) -> None:
    """SuperLink and run die together; a new SuperLink at the same address finds the nodes still calling."""
    algorithm = small("fedmf")
    with running(tmp_path, algorithm, rounds=5) as here:
        here.round_done(2)
        here.processes.kill("superlink")
        again = Server(here.ledger, here.processes, port=here.server.port)
        again.start()
        again.register(*(one.public for one in here.nodes))
        again.submit()
        summary = again.wait(LONG)
    assert summary["model_sha256"] == simulated(world(), algorithm, 5, tmp_path)


@pytest.mark.slow
def test_a_secure_sum_over_real_processes(tmp_path: Path) -> None:
    algorithm = small("fedmf")
    with running(tmp_path, algorithm, nodes=4, min_nodes=3, rounds=3, send="secure") as here:
        summary = here.server.wait(LONG)
    assert summary["model_sha256"] == simulated(world(), algorithm, 3, tmp_path)


def test_keys_are_made_once_and_kept_private(tmp_path: Path) -> None:
    first, again = node_key(tmp_path), node_key(tmp_path)
    assert first == again
    assert first[0].stat().st_mode & 0o077 == 0
    assert first[1].read_text().startswith("ecdsa-sha2-nistp384 ")


def test_a_fork_that_ends_does_not_end_its_siblings() -> None:
    """Flower's way out of a process closes the executor it inherited, which knows every fork made before."""
    pytest.importorskip("flwr.supercore.superexec.executor")
    sibling = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        forking = runtime._Forking(lambda _: forking.close(), lambda: None, runtime._Clock())
        forking.children.add(sibling.pid)
        forking.launch(None)
        (child,) = forking.children - {sibling.pid}
        assert os.waitpid(child, 0)[1] == 0
        time.sleep(0.2)
        assert sibling.poll() is None
        forking.close()  # the parent's own way out does end them
        assert sibling.wait(10) == -signal.SIGTERM
    finally:
        sibling.kill()


def test_a_message_whose_content_never_comes_is_given_up() -> None:
    """A server killed while it sends leaves one behind; Flower would wait two hours for it and read no other."""
    from flwr.supercore.inflatable import inflatable_utils as inside

    before = {
        pull: dict(pull.__kwdefaults__) for pull in (inside.pull_objects, inside.pull_and_inflate_object_from_tree)
    }
    try:
        runtime.retry_sooner()
        for pull in before:
            assert pull.__kwdefaults__["max_time"] == runtime.GIVEN_UP and pull.__kwdefaults__["backoff_cap"] <= 2.0
    finally:
        for pull, defaults in before.items():
            pull.__kwdefaults__.update(defaults)
