"""`coterie node`: a node's verbs; and what the verbs of both halves share."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from coterie.errors import CoterieError

node = typer.Typer(no_args_is_help=True, help="A node's half: one person's history, or that of many.")

Insecure = Annotated[bool, typer.Option("--insecure", help="No TLS, no node keys. Loopback only.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but the result.")]
Columns = Annotated[list[str] | None, typer.Option(help="user=NAME, item=NAME, ... of a file, repeatable.")]
Store = Annotated[Path, typer.Option(help="The node's own folder: identity, private state, record.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
HOME = Path("coterie-node")


def needs_flower() -> None:
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        from coterie.engine.flower.spec import FLOWER_HINT

        raise CoterieError(FLOWER_HINT)


def sayer(quiet: bool) -> Callable[[str], None]:
    return (lambda _: None) if quiet else (lambda text: print(text, flush=True))


def pairs_of(columns: list[str] | None) -> dict[str, str] | None:
    if not columns:
        return None
    pairs = [one.partition("=") for text in columns for one in text.split(",")]
    if not all(key and value for key, _, value in pairs):
        raise CoterieError(f"--columns {','.join(columns)}: expected user=NAME, item=NAME, rating=NAME or time=NAME")
    return {key: value for key, _, value in pairs}


@node.command("key")
def node_key_command(store: Store = HOME) -> None:
    """Make this node's key and print the public part, which the server must allow."""
    needs_flower()
    from coterie.engine.flower.keys import node_key

    print(node_key(store)[1])


@node.command()
def join(
    server_address: Annotated[str, typer.Option("--server", help="HOST:PORT of the server.")],
    data: Annotated[Path, typer.Option(help="This node's history: a file of one person's rows, or of many people's.")],
    store: Store = HOME,
    ca: Annotated[Path | None, typer.Option(help="The server's certificate authority (ca.pem).")] = None,
    columns: Columns = None,
    insecure: Insecure = False,
    quiet: Quiet = False,
) -> None:
    """Take part: train on this node's history whenever the server asks. Ends with Ctrl-C or `coterie node leave`."""
    needs_flower()
    from coterie.engine.flower.federation import NodeProcesses
    from coterie.engine.flower.processes import Processes
    from coterie.engine.flower.setup import shard_number
    from coterie.engine.flower.store import NodeStore

    say = sayer(quiet)
    if not data.exists():
        raise CoterieError(
            f"{data}: no such file; it should have the columns user_id, item_id and, if known, timestamp"
        )
    if ca is None and not insecure:
        raise CoterieError("without the server's certificate this node cannot know whom it talks to: give --ca ca.pem")
    kept = NodeStore.create(store, data, pairs_of(columns), shard_number(data))
    (store / "join.pid").write_text(str(os.getpid()))
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with Processes(store / "logs") as processes:
        member = NodeProcesses(kept, processes, "node", server_address, None if insecure else ca)
        member.start()
        say(f"node {kept.identity().pseudonym}, key {member.public}; its log is {store / 'node.log'}")
        seen = 0
        try:
            while True:
                processes.check()
                for one in (sent := kept.sent())[seen:]:
                    say(f"round {one.round}: {one.items} items, {one.clients} people, {one.bytes_up:,} bytes")
                seen = len(sent)
                time.sleep(0.5)
        except KeyboardInterrupt:
            say("left; what was learnt stays here: `coterie node recommend` answers without the server")
        finally:
            (store / "join.pid").unlink(missing_ok=True)


@node.command("recommend")
def node_recommend(
    store: Store = HOME,
    user: Annotated[str | None, typer.Option(help="Whom, where several people live behind this node.")] = None,
    n: Annotated[int, typer.Option("-n", help="How many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Recommend from this node's own disk. Nothing is sent, and no server is needed."""
    from coterie.engine.flower.node import Node

    picked = Node(store).recommend(user, n)
    if as_json:
        rows = [{"item_id": item, "title": title, "score": score} for item, title, score in picked]
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for place, (item, title, score) in enumerate(picked, 1):
        print(f"{place:3d}  {item:12s}  {title:44.44s}  {score:8.3f}")


@node.command()
def show(store: Store = HOME, as_json: AsJson = False) -> None:
    """What this node has sent so far, round by round, in bytes and items."""
    from coterie.engine.flower.store import NodeStore

    kept = NodeStore(store)
    sent, who = kept.sent(), kept.identity().pseudonym
    if as_json:
        print(json.dumps({"node": who, "sent": [one._asdict() for one in sent]}, indent=1))
        return
    print(f"the server knows this node as {who}; it has answered {len(sent)} rounds")
    for run in dict.fromkeys(one.run for one in sent):
        spec, unknown = kept.spec(run), kept.unknown_items(run)
        said = (
            ""
            if spec is None
            else f" ({spec.algorithm}, {'NOT private: reproducible' if spec.reproducible else 'private draws'})"
        )
        print(f"run {run}{said}; {unknown} rows of items the server does not know never left")
        for one in (one for one in sent if one.run == run):
            print(
                f"  round {one.round:4d}  {one.bytes_up:9,d} bytes  {one.items:6d} items of {one.clients} ({one.form})"
            )
    print(f"in all {sum(one.bytes_up for one in sent):,} bytes up, {sum(one.bytes_down for one in sent):,} down")


@node.command()
def leave(
    store: Store = HOME,
    forget: Annotated[
        bool, typer.Option("--forget", help="Erase everything this node holds, its identity too.")
    ] = False,
) -> None:
    """Stop taking part. With --forget nothing is left of this node on this disk; the history file is not touched."""
    from coterie.engine.flower.store import NodeStore

    kept = NodeStore(store)
    kept.identity()  # an error if no node lives here
    pid = store / "join.pid"
    if pid.exists():
        number = int(pid.read_text())
        try:
            os.kill(number, signal.SIGTERM)
            for _ in range(100):
                if not pid.exists():
                    break
                time.sleep(0.1)
        except ProcessLookupError:
            pid.unlink(missing_ok=True)
    if forget:
        kept.forget()
    print(f"{store}: {'erased' if forget else 'left; its state is kept'}")
