"""`coterie sweep`: settings chosen by validation, and what the search cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def sweep(
    space: Annotated[
        list[str], typer.Option(help="What to try, repeatable: lr=0.02,0.04 or reg=0.01..0.3:log or dim=16..128:log:4.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the sweep; the same command goes on where it stopped.")],
    algorithm: Annotated[str | None, typer.Option(help="Which system; `coterie algorithms` lists them.")] = None,
    data: Annotated[list[str] | None, typer.Option(help="A data set or file, repeatable.")] = None,
    method: Annotated[str, typer.Option(help="grid, random or tpe.")] = "grid",
    trials: Annotated[int | None, typer.Option(help="How many settings to try (random, tpe).")] = None,
    seeds: Annotated[int, typer.Option(help="Runs for each setting and data set.")] = 1,
    metric: Annotated[list[str] | None, typer.Option(help="Validation metric, repeatable; full.NDCG@10.")] = None,
    protocol: Annotated[str, typer.Option(help="clean, paper, or paper:NAME.")] = "clean",
    split: Annotated[str | None, typer.Option(help="leave-one-out, temporal-ratio, global-time or ratio.")] = None,
    min_interactions: Annotated[int | None, typer.Option(help="Fewer: the user trains but is not tested.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training; default is the algorithm's.")] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Rounds between evaluations; 5.")] = None,
    cohort: Annotated[str | None, typer.Option(help="Share (0.1) or number (100) of clients in a round.")] = None,
    behaviour: Annotated[str, typer.Option(help="coterie, as_published or as_released.")] = "coterie",
    settings: Annotated[list[str] | None, typer.Option("--set", help="field=value for all trials, repeatable.")] = None,
    spec: Annotated[Path | None, typer.Option(help="A run's spec file instead of --algorithm and so on.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of named data sets; default $COTERIE_DATA.")] = None,
    seed: Annotated[int, typer.Option(help="What random and tpe draw follows from it.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Runs side by side; default: one for each core.")] = None,
    record: Annotated[Path | None, typer.Option(help="Write the record here too, for example papers/defaults.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but the result.")] = False,
) -> None:
    """Search settings by the validation metric: grid, random or TPE; every trial a run, the cost on record."""
    from pydantic import ValidationError

    from coterie.errors import CoterieError
    from coterie.report.sweep import sweep as search
    from coterie.report.sweep_display import table
    from coterie.runs import tensors
    from coterie.runs.drive import Interrupted
    from coterie.runs.spec import explain, parse_setting, read_spec

    if (algorithm is None) == (spec is None):
        raise CoterieError(
            "which system? Give either --algorithm NAME (`coterie algorithms` lists them) or --spec FILE"
        )
    base = algorithm if spec is None else read_spec(spec)
    assert base is not None
    name = base if isinstance(base, str) else base.algorithm
    asked = {"rounds": rounds, "evaluate_every": evaluate_every, "cohort": _cohort(cohort)}
    try:
        found = search(
            base, data or None, space=space, out=out, method=method, trials=trials, seeds=seeds,
            metrics=metric or ("full.NDCG@10",), protocol=protocol, split=split, min_interactions=min_interactions,
            behaviour=behaviour, settings=dict(parse_setting(name, one) for one in settings or []), data_dir=data_dir,
            seed=seed, jobs=jobs, quiet=quiet, command=_command(),
            **{key: value for key, value in asked.items() if value is not None},
        )  # fmt: skip
    except ValidationError as problem:
        raise CoterieError(explain(problem)) from None
    except (KeyboardInterrupt, Interrupted):
        raise CoterieError(f"stopped; the same command goes on where it was, in {out}") from None
    if record is not None:
        record.parent.mkdir(parents=True, exist_ok=True)
        tensors.write_json(record, found.record)
    if as_json:
        print(json.dumps(found.record, indent=1))
        return
    if not quiet:
        from rich.console import Console

        (Console() if sys.stdout.isatty() else Console(width=160)).print(table(found.record))
    print(found.flags())


def _cohort(text: str | None) -> float | int | None:
    if text is None:
        return None
    from coterie.errors import CoterieError

    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise CoterieError(f"--cohort {text}: expected a share such as 0.1 or a number such as 100") from None


def _command() -> str:
    """The command as typed, without folders of this machine: what a reader needs to ask the same."""
    import shlex

    words, skip, kept = sys.argv[1:], False, []
    for word in words:
        flag = word.partition("=")[0]
        if skip:
            skip = False
        elif flag in ("--out", "--record", "--data-dir", "--jobs"):
            skip = "=" not in word
        else:
            kept.append(Path(word).name if word.startswith(("/", "~")) else word)
    return shlex.join(["coterie", *kept])
