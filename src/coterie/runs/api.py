"""Run, resume, open: the sentences of the Python interface. The command line says the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coterie.algorithms import make
from coterie.data import load
from coterie.data.interactions import Interactions
from coterie.errors import CoterieError
from coterie.protocol import resolve
from coterie.runs.directory import RunDirectory, new_directory
from coterie.runs.display import shown
from coterie.runs.drive import drive
from coterie.runs.run import Run, load_data
from coterie.runs.spec import RunSpec, explain, spec_of
from coterie.runs.trackers import tracked


def run(
    algorithm: Any,
    data: Interactions | str | Path,
    *,
    protocol: str = "clean",
    split: str | None = None,
    min_interactions: int | None = None,
    rating_threshold: float | None = None,
    fold: int | None = None,
    out: str | Path | None = None,
    threads: int | None = None,
    quiet: bool = True,
    track: Sequence[str] = (),
    **options: Any,
) -> Run:
    """Train and measure. `options` are the spec's: rounds, seed, cohort, dropout, evaluate_every, keep, ...

    `track` names who is told of each round beside the record: "tensorboard", "mlflow" (extra `trackers`).

    >>> import coterie
    >>> found = coterie.run(coterie.MostPop(), coterie.load("synthetic"), out="/tmp/example")  # doctest: +SKIP
    """
    if isinstance(algorithm, str):
        algorithm = make(algorithm)
    if not isinstance(data, Interactions):
        data = load(data)
    chosen = resolve(protocol, algorithm.home, split, min_interactions, rating_threshold, fold)
    try:
        spec = spec_of(algorithm, data, protocol=chosen, **options)
    except ValidationError as problem:
        raise CoterieError(explain(problem)) from None
    return run_spec(spec, data, out, threads, quiet, track)


def run_spec(
    spec: RunSpec,
    data: Interactions | None = None,
    out: str | Path | None = None,
    threads: int | None = None,
    quiet: bool = True,
    track: Sequence[str] = (),
) -> Run:
    """Train and measure what a spec says."""
    data = load_data(spec.data, data)
    spec = spec.model_copy(update={"data": spec.data.model_copy(update={"sha256": data.sha256})}).resolved()
    directory = RunDirectory(new_directory(None if out is None else Path(out), spec))
    shown(tracked(drive(spec, data, directory, threads), spec, directory.path, track), spec, quiet)
    return Run(directory.path, data)


def resume(
    path: str | Path,
    data: Interactions | None = None,
    threads: int | None = None,
    quiet: bool = True,
    track: Sequence[str] = (),
) -> Run:
    """Go on with a run that was stopped; the result is the one it would have had."""
    directory = RunDirectory(Path(path))
    spec = directory.spec()
    data = load_data(spec.data, data)
    shown(tracked(drive(spec, data, directory, threads, resume=True), spec, directory.path, track), spec, quiet)
    return Run(directory.path, data)


def open(path: str | Path, data: Interactions | None = None) -> Run:
    """A run directory, to look at and to recommend from."""
    return Run(path, data)
