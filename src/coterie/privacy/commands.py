"""`coterie privacy plan`, `coterie audit`, `coterie forget`: each verb is one public function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from coterie.errors import CoterieError

app = typer.Typer(help="Epsilon before a run: noise, rounds, sampling.", no_args_is_help=True)

# typer reads these annotations at run time
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")]
Number = Optional[float]  # noqa: UP045


def read_flags(more: list[str] | None, **flags: Any) -> Any:
    """The flags of `coterie run` as a privacy section; None if none was given."""
    from coterie.errors import unknown_name
    from coterie.privacy.spec import PrivacySpec

    said = {key: value for key, value in flags.items() if value is not None}
    for one in more or []:
        key, equals, value = one.partition("=")
        if not equals:
            raise CoterieError(f"--privacy-set {one!r}: expected field=value, for example bits=8")
        if key not in PrivacySpec.model_fields:
            raise unknown_name("privacy field", key, list(PrivacySpec.model_fields))
        said[key] = value
    return PrivacySpec.model_validate(said) if said else None


@app.callback()
def _about() -> None:
    """Privacy, stated."""


@app.command()
def plan(
    users: Annotated[int, typer.Option(help="How many users there are (N).")],
    rate: Annotated[float, typer.Option(help="Chance of each user to take part in a round (q).")] = 0.1,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = 100,
    items: Annotated[int, typer.Option(help="Items in the catalogue.")] = 1682,
    dim: Annotated[int, typer.Option(help="Numbers sent for each item.")] = 32,
    noise: Annotated[Number, typer.Option(help="Noise multiplier z; epsilon follows.")] = None,
    epsilon: Annotated[Number, typer.Option(help="Epsilon; the noise multiplier follows.")] = None,
    delta: Annotated[Number, typer.Option(help="delta; default 1e-5, or 0.1 / users if smaller.")] = None,
    as_json: AsJson = False,
) -> None:
    """What a setting of central differential privacy costs, and how loud its noise is beside the signal."""
    from coterie.privacy import accountant

    found = accountant.plan(users, rate, rounds, items * dim, delta, noise, epsilon)
    if as_json:
        print(json.dumps(found._asdict(), indent=1))
        return
    print(
        f"{users:,} users, each drawn with chance {rate} in each of {rounds} rounds; {found.numbers:,} numbers a client"
    )
    print(f"noise multiplier z            {found.noise:.4f}   (deviation of the sum's noise, in clip norms S)")
    print(f"epsilon, who sees the models  {found.epsilon:.3f}   at delta {found.delta:g}, one user added or removed")
    print(f"epsilon, the server           {found.epsilon_server:.3f}   it knows who took part: {found.busiest} rounds")
    print("                              (holds only if it sees nothing but the noised sum: --secure-sum)")
    print(
        f"noise against signal          {found.noise_to_signal:.2f}   norm of the noise on the mean / largest signal S"
    )
    if found.noise_to_signal > 1:
        need = found.noise_to_signal * found.cohort
        print(f"the noise is louder than the signal; {need:,.0f} users in a round would bring it to 1")


def audit(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs made with --record-server-view.")],
    rounds: Annotated[Optional[int], typer.Option(help="Use the first so many recorded rounds.")] = None,  # noqa: UP045
    users: Annotated[Optional[int], typer.Option(help="Attack so many users; default all recorded.")] = None,  # noqa: UP045
    out: Annotated[Optional[Path], typer.Option("-o", help="JSON file; default DIR/audit.json.")] = None,  # noqa: UP045
    plot: Annotated[Optional[Path], typer.Option(help="An HTML page: uplift against epsilon and quality.")] = None,  # noqa: UP045
    seed: Annotated[int, typer.Option(help="Of shuffles, folds and bootstrap.")] = 0,
    as_json: AsJson = False,
) -> None:
    """What a curious server learns about people beyond what is popular, from what it saw in these runs."""
    from coterie.privacy.audit.report import figure, render
    from coterie.privacy.audit.run import audit as attack
    from coterie.runs import tensors
    from coterie.runs.run import Run

    found = []
    for directory in directories:
        run = Run(directory)
        summary = run.summary if run.directory.summary_file.exists() else None
        result = attack(run.path, run.algorithm, summary, rounds, users, seed)
        tensors.write_json(out if out is not None and len(directories) == 1 else run.path / "audit.json", result)
        found.append(result)
    if plot is not None:
        plot.write_text(figure(found))
    if as_json:
        print(json.dumps(found[0] if len(found) == 1 else found, indent=1))
        return
    from rich.console import Console

    for result in found:
        Console(width=150).print(render(result))


def forget(
    directory: Directory,
    user: Annotated[str, typer.Option(help="Whose contribution shall go.")],
    method: Annotated[
        str,
        typer.Option(
            help="exact (replay without her, from a kept checkpoint or the start) or approximate (correction rounds)."
        ),
    ] = "exact",
    rounds: Annotated[int, typer.Option(help="approximate: correction rounds.")] = 5,
    compare: Annotated[
        bool, typer.Option("--compare", help="approximate: measure against the exact replay too.")
    ] = False,
    out: Annotated[Optional[Path], typer.Option(help="Directory of the new run; default DIR-without-ID.")] = None,  # noqa: UP045
    delete_old: Annotated[bool, typer.Option("--delete-old", help="Delete DIR once the new run stands.")] = False,
    threads: Annotated[Optional[int], typer.Option(help="Threads.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Take one person out of a trained run: her private state is erased and the shared table goes on without her."""
    from coterie.runs.forgetting import forget as without

    found = without(directory, user, method, rounds, compare, out, threads, delete_old)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    print(f"{found['method']}: {user} is not in {found['directory']}; rounds trained again: {found['rounds_replayed']}")
    if "replayed_from" in found:
        print(f"  replayed from {found['replayed_from']}")
    for key, value in found["closeness"].items():
        print(f"  {key.replace('_', ' '):44s} {value:.6g}" if isinstance(value, float) else f"  {key}: {value}")
