"""`coterie federation`, `server` and `split`: each verb is a few calls of this package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.engine.flower.node_commands import Columns, Insecure, Quiet, needs_flower, pairs_of, sayer
from coterie.errors import CoterieError

federation = typer.Typer(no_args_is_help=True, help="A complete federation on this machine, for trying out.")
server = typer.Typer(no_args_is_help=True, help="The server's half of a federation.")

Algorithm = Annotated[str, typer.Option(help="Which federated system; `coterie algorithms` lists them.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds of training; default is the algorithm's.")]
Protocol_ = Annotated[str, typer.Option(help="clean, paper, or paper:NAME.")]
Split = Annotated[str | None, typer.Option(help="leave-one-out (default) or temporal-ratio.")]
MinInteractions = Annotated[int | None, typer.Option(help="Fewer: the user trains but is not tested.")]
Threshold = Annotated[float | None, typer.Option(help="Keep only rows rated at least this.")]
Every = Annotated[int, typer.Option(help="Rounds between evaluations on the nodes; 0: never.")]
Cohort = Annotated[float, typer.Option(help="Share of each node's people in a round.")]
Dropout = Annotated[float, typer.Option(help="Share of them that drop out, simulated.")]
Behaviour = Annotated[str, typer.Option(help="coterie, as_published or as_released.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="field=value, repeatable.")]
Seed = Annotated[int, typer.Option(help="Every shared random number follows from it.")]
Send = Annotated[str | None, typer.Option(help="sum (default), single, or secure: masked, opened only as a sum.")]
Half = Annotated[bool, typer.Option("--float16", help="Single uploads carry half precision.")]
Privacy = Annotated[str | None, typer.Option(help="central, local-gaussian or local-laplace; default none.")]
Clip = Annotated[float | None, typer.Option(help="S: each person's upload is cut to this norm.")]
Noise = Annotated[float | None, typer.Option(help="z: noise, in clip norms.")]
Sampling = Annotated[float | None, typer.Option(help="q: chance of each person to take part (central).")]
Epsilon = Annotated[float | None, typer.Option(help="Stop before a round that would exceed this (central).")]
MinNodes = Annotated[int | None, typer.Option(help="A round with fewer nodes is abandoned.")]
CloseAt = Annotated[int | None, typer.Option(help="Over-selection: close a round once so many have answered.")]
Deadline = Annotated[float, typer.Option(help="Seconds until a round closes on whoever has answered.")]
Reproducible = Annotated[bool, typer.Option("--reproducible", help="Equal to the simulator's bytes; not private.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the federation in --out.")]


def split_command(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A named data set, a file, or `synthetic`.")],
    nodes: Annotated[int, typer.Option(help="How many shards.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder for the shards.")] = Path("shards"),
    columns: Columns = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of named data sets; default $COTERIE_DATA.")] = None,
) -> None:
    """Cut a data set into shards, one file for each node, and write the item catalogue beside them."""
    import csv

    from coterie.engine.flower.setup import shards

    loaded = _load(data, columns, data_dir)
    written = shards(loaded, nodes, out)
    with (out / "items.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["item_id", "title"])
        lines.writerows((item, loaded.title(number)) for number, item in enumerate(loaded.item_ids))
    print(f"{loaded.n_users} users of {loaded.name} in {nodes} shards: {written[0]} ... {written[-1]}")
    print(f"the catalogue of {loaded.n_items} items, which is all the server needs: {out / 'items.csv'}")


@federation.command()
def up(
    algorithm: Algorithm = "fedmf",
    data: Annotated[str, typer.Option(help="A named data set, a file, or `synthetic`.")] = "synthetic",
    nodes: Annotated[int, typer.Option(help="How many nodes, each a shard of the data.")] = 3,
    protocol: Protocol_ = "clean",
    split: Split = None,
    min_interactions: MinInteractions = None,
    rating_threshold: Threshold = None,
    rounds: Rounds = None,
    evaluate_every: Every = 5,
    cohort: Cohort = 1.0,
    dropout: Dropout = 0.0,
    behaviour: Behaviour = "coterie",
    settings: Settings = None,
    seed: Seed = 0,
    send: Send = None,
    half: Half = False,
    privacy: Privacy = None,
    clip: Clip = None,
    noise: Noise = None,
    sampling: Sampling = None,
    max_epsilon: Epsilon = None,
    reproducible: Reproducible = False,
    min_nodes: MinNodes = None,
    close_at: CloseAt = None,
    deadline: Deadline = 120.0,
    insecure: Insecure = False,
    columns: Columns = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of named data sets; default $COTERIE_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default federations/<name>.")] = None,
    resume: Resume = False,
    quiet: Quiet = False,
) -> None:
    """Start a server and nodes as real processes on loopback, train, report, and end them all."""
    needs_flower()
    from coterie.algorithms import make
    from coterie.engine.flower.federation import NodeProcesses, Server
    from coterie.engine.flower.ledger import Ledger
    from coterie.engine.flower.processes import Processes
    from coterie.engine.flower.setup import catalogue, found, shard_number, shards
    from coterie.engine.flower.spec import Terms
    from coterie.engine.flower.store import NodeStore
    from coterie.privacy.commands import read_flags
    from coterie.protocol.rules import resolve
    from coterie.runs.spec import parse_setting

    say = sayer(quiet)
    folder = out or _fresh(Path("federations"), f"{algorithm}-{Path(data).name.split(':')[0]}")
    if resume:
        ledger = Ledger(folder / "server")
        _, terms = ledger.read()
        stores = [NodeStore(folder / f"node-{n}") for n in range(len(list(folder.glob("node-*"))))]
    else:
        chosen = make(algorithm, behaviour, **dict(parse_setting(algorithm, one) for one in settings or []))
        rules = resolve(protocol, chosen.home, split, min_interactions, rating_threshold)
        loaded = _load(data, columns, data_dir)
        items, titles = catalogue(loaded, rules, seed)
        terms = Terms(
            rounds=rounds or chosen.default_rounds, min_nodes=min_nodes or nodes, start_with=nodes, close_at=close_at,
            deadline=deadline, evaluate_every=evaluate_every,
        )  # fmt: skip
        ledger = found(
            folder / "server", chosen, items, titles, terms, behaviour=behaviour, protocol=rules, seed=seed,
            cohort=cohort, dropout=dropout, send=send, half=half, reproducible=reproducible,
            privacy=read_flags(
                None, mechanism=privacy, clip=clip, noise=noise, sampling=sampling, max_epsilon=max_epsilon
            ),
        )  # fmt: skip
        files = shards(loaded, nodes, folder / "shards")
        stores = [
            NodeStore.create(folder / f"node-{n}", path, place=shard_number(path)) for n, path in enumerate(files)
        ]
        say(f"{loaded.n_users} users of {loaded.name} behind {nodes} nodes, {len(items)} items, in {folder}")
    with Processes(folder / "logs") as processes:
        here = Server(ledger, processes, tls=not insecure)
        here.start()
        say(f"SuperLink at {here.address}, {'no TLS' if insecure else 'TLS and node keys made for this run'}")
        authority = None if here.keys is None else here.keys.authority
        members = [NodeProcesses(one, processes, one.folder.name, here.address, authority) for one in stores]
        here.register(*(one.public for one in members))
        for one in members:
            one.start()
        here.submit()
        say(f"{len(members)} nodes started, the run is submitted; the server's log is {ledger.folder / 'server.log'}")
        summary = here.wait(watch=progress(ledger, terms.rounds, say))
    _report(summary, folder, quiet)
    if not quiet:
        print(
            f"next: coterie node recommend --store {folder / 'node-0'} --user ID   or   coterie node show --store ..."
        )


@server.command("start")
def server_start(
    out: Annotated[Path, typer.Option(help="The federation's folder on the server.")],
    items: Annotated[Path | None, typer.Option(help="The catalogue: a CSV with item_id and title.")] = None,
    allow: Annotated[
        list[Path] | None, typer.Option(help="A node's public key, or a folder of them; repeatable.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; another than loopback needs TLS.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 9092,
    algorithm: Algorithm = "fedmf",
    protocol: Protocol_ = "clean",
    split: Split = None,
    min_interactions: MinInteractions = None,
    rating_threshold: Threshold = None,
    rounds: Rounds = None,
    evaluate_every: Every = 5,
    cohort: Cohort = 1.0,
    behaviour: Behaviour = "coterie",
    settings: Settings = None,
    seed: Seed = 0,
    send: Send = None,
    half: Half = False,
    privacy: Privacy = None,
    clip: Clip = None,
    noise: Noise = None,
    sampling: Sampling = None,
    max_epsilon: Epsilon = None,
    reproducible: Reproducible = False,
    min_nodes: Annotated[int, typer.Option(help="A round with fewer nodes is abandoned.")] = 1,
    start_with: Annotated[int | None, typer.Option(help="Nodes to wait for before the first round.")] = None,
    close_at: CloseAt = None,
    deadline: Deadline = 120.0,
    await_nodes: Annotated[float, typer.Option(help="Seconds to wait for enough nodes.")] = 3600.0,
    insecure: Insecure = False,
    resume: Resume = False,
    quiet: Quiet = False,
) -> None:
    """Serve a federation until its rounds are done. Killed at any moment, --resume goes on to the same model."""
    needs_flower()
    from coterie.algorithms import make
    from coterie.engine.flower.federation import Server
    from coterie.engine.flower.ledger import Ledger
    from coterie.engine.flower.processes import Processes
    from coterie.engine.flower.setup import found, read_catalogue
    from coterie.engine.flower.spec import Terms
    from coterie.privacy.commands import read_flags
    from coterie.protocol.rules import resolve
    from coterie.runs.spec import parse_setting

    say = sayer(quiet)
    if resume:
        ledger = Ledger(out)
        _, terms = ledger.read()
        if ledger.summary_file.exists():
            raise CoterieError(f"{out}: the federation is finished; there is nothing to resume")
    else:
        if items is None:
            raise CoterieError("the server publishes the items: give --items FILE (`coterie split` writes one)")
        chosen = make(algorithm, behaviour, **dict(parse_setting(algorithm, one) for one in settings or []))
        terms = Terms(
            rounds=rounds or chosen.default_rounds, min_nodes=min_nodes, start_with=start_with, close_at=close_at,
            deadline=deadline, evaluate_every=evaluate_every, await_nodes=await_nodes,
        )  # fmt: skip
        rules = resolve(protocol, chosen.home, split, min_interactions, rating_threshold)
        ledger = found(
            out, chosen, *read_catalogue(items), terms, behaviour=behaviour, protocol=rules, seed=seed, cohort=cohort,
            send=send, half=half, reproducible=reproducible,
            privacy=read_flags(
                None, mechanism=privacy, clip=clip, noise=noise, sampling=sampling, max_epsilon=max_epsilon
            ),
        )  # fmt: skip
    keys = [key for path in allow or [] for key in (sorted(path.rglob("*.pub")) if path.is_dir() else [path])]
    if not insecure and not keys and not resume:
        raise CoterieError(
            "no node could join: give their public keys with --allow FILE.pub (`coterie node key` makes one)"
        )
    with Processes(out / "logs") as processes:
        here = Server(ledger, processes, host, port, tls=not insecure)
        here.start()
        here.register(*keys)
        if here.keys is not None:
            say(f"nodes need this certificate: {here.keys.authority}")
        say(f"listening at {here.address}; {len(keys)} node keys; waiting for {terms.start_with or terms.min_nodes}")
        here.submit()
        summary = here.wait(watch=progress(ledger, terms.rounds, say))
    _report(summary, out, quiet)


def progress(ledger: Any, rounds: int, say: Callable[[str], None]) -> Callable[[], None]:
    """A function that tells of rounds as they are written down."""
    told = [len(ledger.rounds()), len(ledger.metrics()), len(ledger.events())]

    def look() -> None:
        for event in ledger.events()[told[2] :]:
            if event["what"] in ("refused", "abandoned"):
                say(f"{event['what']}: {event.get('name', '')} {event['why']}")
        for one in ledger.rounds()[told[0] :]:
            up_, down = (f"{one['bytes'][way] / 1000:.0f} kB {way}" for way in ("up", "down"))
            say(
                f"round {one['round']}/{rounds}: {one['nodes']} nodes, {one['clients']} people, {up_}, {down}, "
                f"{one['seconds']:.1f} s"
            )
        for one in ledger.metrics()[told[1] :]:
            full = one["test"]["full"]
            say(
                f"after round {one['round']}: test HR@10 {full['HR@10']:.4f}, NDCG@10 {full['NDCG@10']:.4f} (all items)"
            )
        told[:] = [len(ledger.rounds()), len(ledger.metrics()), len(ledger.events())]

    return look


def _report(summary: dict[str, Any], folder: Path, quiet: bool) -> None:
    if quiet:
        print(folder)
        return
    seconds = sorted(summary["seconds"])
    print(
        f"{summary['algorithm']}: {summary['rounds']} rounds, {summary['nodes']} nodes, {summary['clients']} people; "
        f"{seconds[len(seconds) // 2]:.1f} s a round (median); {summary['bytes']['up'] / 1e6:.2f} MB up, "
        f"{summary['bytes']['down'] / 1e6:.2f} MB down"
    )
    for part, kinds in summary["metrics"].items():
        for kind, values in kinds.items():
            print(f"{part:10s} {kind:8s} HR@10 {values['HR@10']:.4f}  NDCG@10 {values['NDCG@10']:.4f}")
    if summary.get("privacy"):
        spent = summary["privacy"]
        print(f"epsilon {spent['epsilon']:.3f} (delta {spent['delta']:g}) against those who see the model")
    if summary["reproducible"]:
        print("reproducible: the simulator's bytes; not private, since the server could recompute every draw")
    print(f"model {summary['model_sha256']} in {folder}")


def _fresh(parent: Path, stem: str) -> Path:
    number = 1
    while (path := parent / (stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return path


def _load(data: str, columns: list[str] | None, data_dir: Path | None) -> Any:
    from coterie.data import load

    return load(data, columns=pairs_of(columns), data_dir=data_dir)
