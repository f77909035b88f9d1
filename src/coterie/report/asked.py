"""What was asked for: metrics as people write them, and folders of which some hold no finished run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from coterie.errors import CoterieError, unknown_name
from coterie.evaluate.metrics import BEYOND, CUTOFFS, GAINS, canonical
from coterie.runs.directory import NoRecord
from coterie.runs.run import Run

RANKINGS = ("sampled", "full")
OF_PEOPLE = [f"{name}@{k}" for name in GAINS for k in CUTOFFS]
OF_LISTS = [f"{name}@{k}" for name in BEYOND for k in CUTOFFS]  # of everybody's lists together, under full ranking


def columns(metrics: Sequence[str]) -> list[tuple[str, str]]:
    """(ranking, metric) of each: `HR@10` under every ranking it is measured in, `full.HR@10` under that one."""
    asked = [_split(text, OF_PEOPLE + OF_LISTS) for text in metrics]
    found = [
        (ranking, metric)
        for ranking in RANKINGS
        for wanted, metric in asked
        if wanted == ranking or (not wanted and (ranking == "full" or metric in OF_PEOPLE))
    ]
    return list(dict.fromkeys(found))


def column(text: str) -> str:
    """The metric of tests and spread, `full.HR@10`: it must have a value for each person."""
    ranking, metric = _split(text, OF_PEOPLE)
    if metric in OF_LISTS:
        raise CoterieError(
            f"--on {text}: {metric} is of everybody's lists together, but tests and spread need a value for each "
            f"person. Those that have one: {', '.join(OF_PEOPLE)}; --metric {metric} shows it"
        )
    return f"{ranking or 'full'}.{metric}"


def _split(text: str, listed: list[str]) -> tuple[str, str]:
    """Ranking (empty where none was said) and metric; what is unknown is answered with `listed`."""
    first, dot, rest = text.partition(".")
    ranking, metric = (first, rest) if dot else ("", text)
    if dot and ranking not in RANKINGS:
        raise unknown_name("ranking", ranking, ["full", "sampled"])
    with suppress(CoterieError):  # its own list has other names
        metric = canonical(metric)
    if metric not in OF_PEOPLE + OF_LISTS:
        raise unknown_name("metric", metric, listed)
    if ranking == "sampled" and metric in OF_LISTS:
        raise CoterieError(f"{text}: {metric} is measured under full ranking only; ask for full.{metric}")
    return ranking, metric


def finished(runs: Sequence[Run | str | Path], say: Callable[[str], None]) -> list[Run]:
    """The finished runs. One given alone must be one; of several, as `runs/*` gives, what is none is left out."""
    if not runs:
        raise CoterieError("compare needs at least one run directory")
    found = []
    for one in runs:
        try:
            run = one if isinstance(one, Run) else Run(one)
            run.directory.check_finished()
        except NoRecord as problem:
            if len(runs) == 1 or not (isinstance(one, Run) or Path(one).exists()):  # a name, not a pattern's find
                raise
            say(f"left out: {problem}")
        else:
            found.append(run)
    if not found:
        raise CoterieError(
            f"none of the {len(runs)} folders holds a finished run; `coterie run --out DIR` makes one, "
            "`coterie resume DIR` ends one that was begun"
        )
    return found
