"""The command line: a thin layer in which every verb is one public function."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.data.commands import app as data_app
from coterie.engine.flower import commands as flower
from coterie.engine.flower.node_commands import node
from coterie.errors import CoterieError
from coterie.privacy.commands import app as privacy_app
from coterie.privacy.commands import audit, forget, read_flags
from coterie.report import compare_commands, federank_commands
from coterie.report.commands import app as study_app
from coterie.report.reproduce_commands import reproduce
from coterie.report.sweep_commands import sweep

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Recommendations learnt from people's histories without collecting them.",
)  # fmt: skip

app.add_typer(privacy_app, name="privacy", help="Epsilon before a run: noise, rounds, sampling.")
app.command("audit")(audit)
app.command("forget")(forget)
app.command("reproduce")(reproduce)
app.command("sweep")(sweep)
compare_commands.register(app)
federank_commands.register(app, study_app)
app.add_typer(study_app, name="study", help="Questions of the papers, answered by one command each.")
app.add_typer(data_app, name="data", help="Data sets: list, fetch, inspect, convert.")
app.add_typer(flower.federation, name="federation")
app.add_typer(flower.server, name="server")
app.add_typer(node, name="node")
app.command("split")(flower.split_command)

_VERBS = {  # as somebody new meets them
    "Train and recommend": ("demo", "run", "resume", "recommend", "similar", "algorithms"),
    "Measure and compare": ("compare", "report", "evaluate", "sweep", "reproduce", "study"),
    "What leaves a device": ("share", "audit", "privacy", "forget"),
    "Data": ("data", "split"),
    "Real federation": ("federation", "server", "node"),
}

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but the result.")]
Threads = Annotated[int | None, typer.Option(help="Threads; results do not depend on it. Default: all cores.")]
Track = Annotated[
    list[str] | None, typer.Option(help="Also tell tensorboard or mlflow, repeatable (extra `trackers`).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def run(
    algorithm: Annotated[str | None, typer.Option(help="Which system; `coterie algorithms` lists them.")] = None,
    data: Annotated[str, typer.Option(help="A named data set, a file, or `synthetic`.")] = "synthetic",
    protocol: Annotated[str, typer.Option(help="clean, paper, or paper:NAME.")] = "clean",
    split: Annotated[
        str | None, typer.Option(help="leave-one-out (default), temporal-ratio, global-time, ratio or k-fold.")
    ] = None,
    fold: Annotated[int | None, typer.Option(help="With --split k-fold: which fold is the test.")] = None,
    min_interactions: Annotated[int | None, typer.Option(help="Fewer: the user trains but is not tested.")] = None,
    rating_threshold: Annotated[float | None, typer.Option(help="Keep only rows rated at least this.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training; default is the algorithm's.")] = None,
    evaluate_every: Annotated[int, typer.Option(help="Rounds between evaluations.")] = 5,
    cohort: Annotated[
        str | None, typer.Option(help="Share (0.1) or number (100) of clients in a round; default is the algorithm's.")
    ] = None,
    exchange: Annotated[
        str, typer.Option(help="full, local-only (each client alone) or server-only (no private item tables).")
    ] = "full",
    dropout: Annotated[float, typer.Option(help="Share of each cohort that drops out, simulated.")] = 0.0,
    behaviour: Annotated[str, typer.Option(help="coterie, as_published or as_released.")] = "coterie",
    settings: Annotated[list[str] | None, typer.Option("--set", help="field=value, repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Every random number follows from it.")] = 0,
    threads: Threads = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; default runs/<name>.")] = None,
    goes_on: Annotated[
        Path | None, typer.Option("--continue", metavar="DIR", help="Go on from this run with the new --data.")
    ] = None,
    spec: Annotated[Path | None, typer.Option(help="A spec file (a run's spec.json) instead of flags.")] = None,
    columns: Annotated[list[str] | None, typer.Option(help="user=NAME, item=NAME, ... of a file, repeatable.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of named data sets; default $COTERIE_DATA.")] = None,
    sharing: Annotated[
        Path | None, typer.Option(help="Choices: user_id, pi; or user_id, item_id, never_share.")
    ] = None,
    on_bad_row: Annotated[str, typer.Option(help="error, or quarantine: set bad rows aside in a file.")] = "error",
    checkpoint_every: Annotated[int, typer.Option(help="Rounds between checkpoints.")] = 10,
    privacy: Annotated[
        str | None,
        typer.Option(help="central, local-gaussian, local-laplace; or a paper's own: fedrap-noise, gpfedrec-noise."),
    ] = None,
    clip: Annotated[float | None, typer.Option(help="Norm S to which each client's upload is cut.")] = None,
    noise: Annotated[float | None, typer.Option(help="Noise, in clip norms (z).")] = None,
    sampling: Annotated[float | None, typer.Option(help="Chance of each client to take part in a round.")] = None,
    delta: Annotated[float | None, typer.Option(help="delta of the guarantee.")] = None,
    target_epsilon: Annotated[float | None, typer.Option(help="Calibrate the noise to end at this.")] = None,
    max_epsilon: Annotated[float | None, typer.Option(help="Stop before exceeding this.")] = None,
    secure_sum: Annotated[bool, typer.Option("--secure-sum", help="The server sees masked uploads only.")] = False,
    encrypted: Annotated[
        bool, typer.Option("--encrypted", help="CKKS: the server adds what it cannot read (extra `he`).")
    ] = False,
    robust: Annotated[str | None, typer.Option(help="median, trimmed-mean or krum.")] = None,
    norm_bound: Annotated[float | None, typer.Option(help="Reject uploads of a larger norm.")] = None,
    record_server_view: Annotated[
        bool, typer.Option("--record-server-view", help="Keep what the server sees, for `coterie audit`.")
    ] = False,
    privacy_set: Annotated[
        list[str] | None,
        typer.Option(help="field=value: bits, send_rows, neighbours, min_clients, byzantine, view_users, ..."),
    ] = None,
    keep: Annotated[
        str, typer.Option(help="Of a finished run keep all, history (each checkpoint too), model or nothing.")
    ] = "all",
    track: Track = None,
    quiet: Quiet = False,
) -> None:
    """Train a system and measure it."""
    from pydantic import ValidationError

    from coterie.algorithms import algorithm_class
    from coterie.protocol.rules import resolve
    from coterie.runs.api import run_spec
    from coterie.runs.spec import DataSpec, RunSpec, explain, parse_setting, read_spec

    if goes_on is not None:
        from coterie.runs.continuing import continue_run

        _print_summary(continue_run(goes_on, data, rounds, out, threads, quiet), quiet)
        return
    if spec is not None:
        said = read_spec(spec)
    elif algorithm is None:
        raise CoterieError("which system? Give --algorithm NAME (`coterie algorithms` lists them) or --spec FILE")
    else:
        cls = algorithm_class(algorithm)
        try:
            said = RunSpec(
                algorithm=algorithm, behaviour=behaviour,
                settings=dict(parse_setting(algorithm, one) for one in settings or []),
                data=DataSpec(source=data, columns=_pairs(columns), on_bad_row=on_bad_row,  # type: ignore[arg-type]
                              sharing=None if sharing is None else str(sharing),
                              data_dir=None if data_dir is None else str(data_dir)),
                protocol=resolve(protocol, cls.home, split, min_interactions, rating_threshold, fold),
                rounds=rounds, evaluate_every=evaluate_every, dropout=dropout, seed=seed,
                exchange=exchange, cohort=None if cohort is None else _cohort(cohort),  # type: ignore[arg-type]
                checkpoint_every=checkpoint_every, keep=keep,  # type: ignore[arg-type]
                privacy=read_flags(
                    privacy_set, mechanism=privacy, clip=clip, noise=noise, sampling=sampling, delta=delta,
                    target_epsilon=target_epsilon, max_epsilon=max_epsilon, secure_sum=secure_sum or None,
                    encrypted=encrypted or None,
                    robust=robust, norm_bound=norm_bound, record_view=record_server_view or None,
                ),
            )  # fmt: skip
        except ValidationError as problem:
            raise CoterieError(explain(problem)) from None
    found = run_spec(said, out=out, threads=threads, quiet=quiet, track=track or ())
    _print_summary(found, quiet)


@app.command()
def resume(directory: Directory, threads: Threads = None, track: Track = None, quiet: Quiet = False) -> None:
    """Go on with a run that was stopped; the result is the one it would have had."""
    from coterie.runs.api import resume as again

    _print_summary(again(directory, threads=threads, quiet=quiet, track=track or ()), quiet)


@app.command()
def recommend(
    directory: Directory,
    user: Annotated[str | None, typer.Option(help="A user of the training.")] = None,
    history: Annotated[str | None, typer.Option(help="Item ids of somebody else's history, by commas.")] = None,
    n: Annotated[int, typer.Option("-n", help="How many.")] = 10,
    everybody: Annotated[bool, typer.Option("--all", help="Everybody, into a file (-o).")] = False,
    output: Annotated[Path | None, typer.Option("-o", help="recs.parquet or recs.csv, with --all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend to one person, to somebody new by her history, or to everybody."""
    from coterie.report.lists import recommendations
    from coterie.runs.run import Run

    found = Run(directory)
    if everybody:
        if output is None or output.suffix not in (".parquet", ".csv"):
            raise CoterieError("--all writes a file: give -o recs.parquet or -o recs.csv")
        import polars as pl

        table = pl.DataFrame(found.recommend_all(n))
        if output.suffix == ".parquet":
            table.write_parquet(output)
        else:
            table.write_csv(output)
        print(f"{len(table)} recommendations in {output}")
        return
    picked = found.recommend(user, n, history=None if history is None else history.split(","))
    if as_json:
        print(json.dumps([one._asdict() for one in picked], indent=1, ensure_ascii=False))
        return
    _console().print(recommendations(f"top {len(picked)} for {user or 'this history'}", picked))


@app.command()
def similar(
    directory: Directory,
    item: Annotated[str, typer.Option(help="An item id.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Items like one item."""
    from coterie.report.lists import recommendations
    from coterie.runs.run import Run

    picked = Run(directory).similar_items(item, n)
    if as_json:
        print(json.dumps([one._asdict() for one in picked], indent=1, ensure_ascii=False))
        return
    _console().print(recommendations(f"most like {item}", picked))


@app.command()
def evaluate(
    directory: Directory,
    protocol: Annotated[str, typer.Option(help="clean, paper, or paper:NAME.")] = "clean",
    split: Annotated[str | None, typer.Option(help="leave-one-out or temporal-ratio.")] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Measure a trained model under another protocol, without users whose held-out items it has seen."""
    import os

    from coterie.protocol.rules import resolve
    from coterie.runs.run import Run

    found = Run(directory)
    result = found.evaluate(resolve(protocol, found.algorithm.home, split), threads or os.cpu_count() or 1)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    if result["warning"]:
        print(result["warning"])
    left_out = result["users_left_out_as_trained_on"]
    print(f"{result['users']} users measured; {left_out} left out, since the model trained on what would be held out")
    for part, kinds in result["metrics"].items():
        for kind, values in kinds.items():
            print(f"{part:10s} {kind:8s} HR@10 {values['HR@10']:.4f}  NDCG@10 {values['NDCG@10']:.4f}")


@app.command()
def demo(out: Annotated[Path | None, typer.Option(help="Folder for the demo's runs.")] = None) -> None:
    """Federated systems beside two yardsticks, and what a leak does, on synthetic data in half a minute."""
    from coterie.demo import demo as show

    show(out)


@app.command()
def algorithms(
    name: Annotated[str | None, typer.Argument(help="Show one system with its settings.")] = None,
    as_json: AsJson = False,
) -> None:
    """The systems, what each sends to the server, and their settings."""
    from coterie.report.catalogue import catalogue, one_system

    if name is None:
        _console().print(catalogue(as_json))
    else:
        _console().print(one_system(name, as_json))


def _in_order() -> None:
    """The list of verbs that `coterie --help` prints: by what one wants to do, not by which file holds the verb."""
    title = {verb: title for title, verbs in _VERBS.items() for verb in verbs}
    order = list(title)

    def name(one: Any) -> str:
        return str(one.name or one.callback.__name__)

    app.registered_commands.sort(key=lambda one: order.index(name(one)))
    app.registered_groups.sort(key=lambda one: order.index(name(one)))
    everything: list[Any] = [*app.registered_commands, *app.registered_groups]
    for one in everything:
        one.rich_help_panel = title[name(one)]


_in_order()


def _print_summary(found: Any, quiet: bool) -> None:
    from coterie.report.compare import compare as side_by_side
    from coterie.report.compare import counted, render

    if quiet:
        print(found.path)
        return
    _console().print(render(side_by_side([found])))
    print(counted(found.summary))
    user = found.prepared.data.user_ids[0]
    print(f"run directory: {found.path}")
    print(f"next: coterie recommend {found.path} --user {user}   or   coterie compare {found.path} OTHER")


def _console() -> Any:
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=140)


def _pairs(columns: list[str] | None) -> dict[str, str] | None:
    if not columns:
        return None
    pairs = [one.partition("=") for text in columns for one in text.split(",")]
    for key, equals, value in pairs:
        if not (equals and key and value):
            raise CoterieError(
                f"--columns {key}{equals}{value}: expected user=NAME, item=NAME, rating=NAME or time=NAME"
            )
    return {key: value for key, _, value in pairs}


def _cohort(text: str) -> float | int:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise CoterieError(
            f"--cohort {text}: expected a share such as 0.1 or a number of clients such as 100"
        ) from None


def _as_ctrl_c(number: int, frame: Any) -> None:
    """What a scheduler, a container or `timeout` sends is met as Ctrl-C is: the round is finished and kept.

    Ctrl-C itself may be switched off, as it is for jobs that a script starts in the background.
    """
    ctrl_c = signal.getsignal(signal.SIGINT)
    (ctrl_c if callable(ctrl_c) else signal.default_int_handler)(number, frame)


def main() -> None:
    """Entry point: errors that the reader can mend are printed without a traceback."""
    from coterie.errors import CoterieError

    signal.signal(signal.SIGTERM, _as_ctrl_c)
    try:
        app()
    except CoterieError as problem:
        print(f"coterie: {problem}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("coterie: stopped; an unfinished run goes on with `coterie resume DIR`", file=sys.stderr)
        sys.exit(130)
    except OSError as problem:
        print(f"coterie: {problem}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
