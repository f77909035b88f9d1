"""Search for settings by the validation metric; every trial is a run directory, and the cost is part of the record.

    found = coterie.sweep("fedmf", "ml-100k", space={"lr_server": [0.02, 0.04]}, out="sweeps/fedmf")
    found.best["settings"], found.flags()

Grid, random draws or TPE (optuna). The same call goes on where it was stopped: a finished run is never done again.
With several data sets or metrics a trial's score is the mean over them of its value relative to the best value of any
trial on the same set and metric, which is known at the end only; while searching, TPE sees the mean of values relative
to MostPop's. Test figures are neither read nor shown: measure the chosen settings once, with `run`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coterie import __version__
from coterie.algorithms import algorithm_class
from coterie.data.interactions import Interactions
from coterie.errors import CoterieError, unknown_name
from coterie.protocol import resolve
from coterie.report.space import Axis, grid, parse_space
from coterie.report.sweep_display import Display
from coterie.runs import tensors
from coterie.runs.directory import RunDirectory
from coterie.runs.identity import algorithm_version, available_cores, hardware
from coterie.runs.run import load_data
from coterie.runs.spec import DataSpec, RunSpec
from coterie.runs.workers import Event, Job, Workers, cpu_seconds, diverged

_KINDS = ("full", "sampled")
_RELATIVE = "mean over data sets and metrics of value / best value of any trial on the same set and metric"


class Question(NamedTuple):
    """What is searched: stays the same when a sweep goes on."""

    bases: dict[str, RunSpec]  # by the data set's name
    axes: list[Axis]
    method: str
    seed: int
    seeds: int
    metrics: tuple[str, ...]
    batch: int  # TPE asks for so many trials before it hears how they went

    def said(self) -> dict[str, Any]:
        """The question as the record has it: no folders of this machine."""
        base = next(iter(self.bases.values()))
        return {
            "algorithm": base.algorithm, "behaviour": base.behaviour, "version": algorithm_version(base.algorithm),
            "settings": {k: v for k, v in base.settings.items() if k not in {axis.field for axis in self.axes}},
            "space": {axis.field: axis.said() for axis in self.axes},
            "data": {name: one.data.sha256 for name, one in self.bases.items()},
            "protocol": base.protocol.model_dump(mode="json"), "rounds": base.resolved().rounds,
            "evaluate_every": base.evaluate_every, "cohort": base.resolved().cohort, "exchange": base.exchange,
            "privacy": None if base.privacy is None else base.privacy.model_dump(mode="json"), "dropout": base.dropout,
            "method": self.method, "seed": self.seed, "seeds": self.seeds, "metrics": list(self.metrics),
            "batch": self.batch,
        }  # fmt: skip


class Sweep(NamedTuple):
    """What a sweep found. `record` is sweep.json."""

    path: Path
    record: dict[str, Any]

    @property
    def best(self) -> dict[str, Any]:
        found: dict[str, Any] = self.record["best"]
        return found

    @property
    def trials(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.record["trials"]
        return found

    def flags(self) -> str:
        """The best settings as `coterie run` takes them."""
        return " ".join(f"--set {field}={_text(value)}" for field, value in self.best["settings"].items())


def sweep(
    algorithm: str | RunSpec,
    data: str | Path | Interactions | Sequence[str | Path | Interactions] | None = None,
    *,
    space: Sequence[str] | Mapping[str, Any],
    out: str | Path,
    method: str = "grid",
    trials: int | None = None,
    seeds: int = 1,
    metrics: Sequence[str] = ("full.NDCG@10",),
    protocol: str = "clean",
    split: str | None = None,
    min_interactions: int | None = None,
    behaviour: str = "coterie",
    settings: Mapping[str, Any] | None = None,
    data_dir: str | Path | None = None,
    seed: int = 0,
    jobs: int | None = 1,
    quiet: bool = True,
    command: str | None = None,
    **options: Any,
) -> Sweep:
    """Search; `options` are those of a run's spec (rounds, evaluate_every, cohort, ...). A spec can replace them."""
    fixed = dict(settings or {})
    if isinstance(algorithm, RunSpec):
        base = algorithm.model_copy(update={"settings": {**algorithm.settings, **fixed}, **options})
    else:
        rules = resolve(protocol, algorithm_class(algorithm).home, split, min_interactions)
        where = DataSpec(source=None, data_dir=None if data_dir is None else str(data_dir))
        base = RunSpec(
            algorithm=algorithm, behaviour=behaviour, settings=fixed, data=where, protocol=rules, **options
        )  # fmt: skip
    axes = parse_space(base.algorithm, base.behaviour, fixed, space, method)
    if seeds < 1:
        raise CoterieError(f"--seeds is {seeds}; a trial needs at least one run")
    jobs = available_cores() if jobs is None else jobs
    memory, bases = _read(base, data)
    if memory and jobs > 1:
        raise CoterieError("data handed over in memory can be searched one run at a time: give a file, or jobs=1")
    total = _trials(trials, axes, method)
    for one in metrics:
        _check_metric(one)
    question = Question(bases, axes, method, seed, seeds, tuple(dict.fromkeys(metrics)), jobs if method == "tpe" else 1)
    _optuna()
    folder = RunDirectory(Path(out))
    if folder.spec_file.exists():
        raise CoterieError(
            f"{out} holds a run (spec.json), and a sweep's files do not belong beside it: choose another --out"
        )
    with folder.locked():
        question = _same_question(question, folder.path)
        with Workers(jobs) as workers, Display(quiet, question.bases, total, seeds) as display:
            searching = _Searching(question, folder.path, workers, memory, display)
            searching.go(total)
            record = _record(searching, total, command)
    return Sweep(folder.path, record)


class _Searching:
    """The loop: ask optuna for settings, run them, tell it."""

    def __init__(
        self, question: Question, path: Path, workers: Workers, memory: dict[str, Interactions], display: Display
    ) -> None:
        optuna = _optuna()
        self.question, self.path, self.workers, self.memory, self.display = question, path, workers, memory, display
        self.study = optuna.create_study(
            storage=f"sqlite:///{path / 'optuna.db'}", study_name="sweep", direction="maximize", load_if_exists=True
        )
        self.several = len(question.bases) * len(question.metrics) > 1

    def go(self, total: int) -> None:
        states = _optuna().trial.TrialState
        if self.several:
            self._yardstick()
        ended = (states.COMPLETE, states.FAIL)
        self.display.finished(sum(one.state in ended for one in self.study.get_trials(deepcopy=False)))
        while True:
            trials = [one for one in self.study.get_trials(deepcopy=False) if one.state != states.WAITING]
            open_ = [one.number for one in trials if one.state == states.RUNNING]
            begun = len(trials)
            while begun < total and (self.question.method != "tpe" or not open_ or begun % self.question.batch):
                open_.append(self._ask(begun))
                begun += 1
            if not open_:
                return
            self._run(open_)

    def _ask(self, number: int) -> int:
        """The next trial's settings. TPE's batches begin at multiples of their size, also after an interruption."""
        optuna, q = _optuna(), self.question
        if q.method == "grid":
            if number == len(self.study.get_trials(deepcopy=False)):  # else: enqueued before it was stopped
                self.study.enqueue_trial(grid(q.axes)[number])
        elif q.method == "tpe":  # a sampler made anew for each trial: what it asks for does not depend on interruptions
            self.study.sampler = optuna.samplers.TPESampler(seed=q.seed * 100_003 + number, constant_liar=True)
        else:
            self.study.sampler = optuna.samplers.RandomSampler(seed=q.seed * 100_003 + number)
        return int(self.study.ask({axis.field: axis.distribution() for axis in q.axes}).number)

    def _run(self, numbers: list[int]) -> None:
        """Do all runs of these trials; each trial is told as soon as its last run is in."""
        states = _optuna().trial.TrialState
        jobs = [(number, job) for number in numbers for job in self.jobs(number)]
        left = {number: sum(one == number for one, _ in jobs) for number in numbers}

        def heard(event: Event) -> None:
            number, job = jobs[event.job]
            self.display.heard(event, job)
            if event.kind == "round":
                return
            left[number] -= 1
            if left[number] == 0:
                values = self.values(number)
                if values is None:
                    self.study.tell(number, state=states.FAIL)
                else:
                    self.study.tell(number, self.while_searching(values))
                self.display.trial(number, self.settings(number), values)

        self.workers.work([job for _, job in jobs], heard, self.memory)

    def settings(self, number: int) -> dict[str, Any]:
        params: dict[str, Any] = self.study.get_trials(deepcopy=False)[number].params
        return {axis.field: params[axis.field] for axis in self.question.axes}

    def jobs(self, number: int) -> list[Job]:
        chosen, found = self.settings(number), []
        for name, base in self.question.bases.items():
            for seed in range(self.question.seeds):
                spec = base.model_copy(
                    update={"settings": {**base.settings, **chosen}, "seed": seed, "keep": "nothing"}
                )
                found.append(Job(self.path / "trials" / f"{number:04d}" / f"{name}-seed{seed}", spec))
        return found

    def values(self, number: int) -> dict[str, dict[str, float]] | None:
        """By data set and metric: the validation figure at the run's best round, mean over seeds; None if diverged."""
        jobs = self.jobs(number)
        if any(diverged(job.place) for job in jobs):
            return None
        found: dict[str, dict[str, float]] = {}
        for name in self.question.bases:
            mine = [one.place for one in jobs if one.place.name.rpartition("-seed")[0] == name]
            found[name] = {m: float(np.mean([_validation(one, m) for one in mine])) for m in self.question.metrics}
        return found

    def while_searching(self, values: dict[str, dict[str, float]]) -> float:
        if not self.several:
            return next(iter(next(iter(values.values())).values()))
        ratios = []
        for name, mine in values.items():
            for metric, value in mine.items():
                yardstick = _validation(self.path / "mostpop" / name, metric)
                ratios.append(value / yardstick if yardstick > 0 else value)
        return float(np.mean(ratios))

    def _yardstick(self) -> None:
        jobs = [
            Job(
                self.path / "mostpop" / name,
                RunSpec(algorithm="mostpop", data=base.data, protocol=base.protocol, keep="nothing"),
            )
            for name, base in self.question.bases.items()
        ]
        self.workers.work(jobs, lambda _: None, self.memory)


def _record(searching: _Searching, total: int, command: str | None) -> dict[str, Any]:
    q, trials = searching.question, []
    for one in searching.study.get_trials(deepcopy=False):
        jobs = searching.jobs(one.number)
        values = searching.values(one.number)
        trial: dict[str, Any] = {
            "number": one.number, "settings": searching.settings(one.number), "values": values, "score": None,
            "best_rounds": [_best_round(job.place) for job in jobs],
            "cpu_seconds": round(sum(cpu_seconds(job.place) for job in jobs), 2),
        }  # fmt: skip
        if values is None:
            trial["diverged"] = next(why for job in jobs if (why := diverged(job.place)))
        trials.append(trial)
    _score(trials, searching.several)
    scored = [one for one in trials if one["score"] is not None]
    if not scored:
        raise CoterieError(f"all {len(trials)} trials diverged: the space holds no setting that can be trained")
    best = max(scored, key=lambda one: (one["score"], -one["number"]))
    what = f"validation {q.metrics[0]} at each run's best validation round, mean over seeds"
    record = {
        "coterie": __version__, "command": command, **q.said(), "other_settings": _other_settings(q),
        "chosen_by": what if not searching.several else f"{_RELATIVE} (validation, at each run's best round)",
        "while_searching": None if not searching.several else "mean of values relative to MostPop's",
        "budget": {
            "trials": total, "diverged": len(trials) - len(scored), "runs": sum(len(t["best_rounds"]) for t in trials),
            "cpu_seconds": round(sum(t["cpu_seconds"] for t in trials), 1), "jobs": searching.workers.at_once,
            "threads": searching.workers.threads, "hardware": hardware(),
        },
        "best": best, "trials": trials,
    }  # fmt: skip
    if (warning := next(iter(q.bases.values())).protocol.warning) is not None:
        record["warning"] = warning
    tensors.write_json(searching.path / "sweep.json", record)
    return record


def _other_settings(question: Question) -> dict[str, Any]:
    """Every setting that was not searched, defaults written out: the record must not depend on later defaults."""
    settings = next(iter(question.bases.values())).resolved().settings
    return {key: value for key, value in settings.items() if key not in {axis.field for axis in question.axes}}


def _score(trials: list[dict[str, Any]], several: bool) -> None:
    having = [one for one in trials if one["values"] is not None]
    for one in having:
        flat = [(name, metric, value) for name, mine in one["values"].items() for metric, value in mine.items()]
        if not several:
            one["score"] = flat[0][2]
            continue
        tops = [max(other["values"][name][metric] for other in having) for name, metric, _ in flat]
        ratios = [value / top if top > 0 else 1.0 for (_, _, value), top in zip(flat, tops, strict=True)]
        one["score"] = float(np.mean(ratios))


def _read(base: RunSpec, data: Any) -> tuple[dict[str, Interactions], dict[str, RunSpec]]:
    """Each data set read once, to know its hash; those handed over in memory are kept."""
    sources = [None] if data is None else list(data) if isinstance(data, list | tuple) else [data]
    if sources == [None] and base.data.source is None:
        raise CoterieError("which data? Give --data NAME or FILE, repeatable")
    memory: dict[str, Interactions] = {}
    bases: dict[str, RunSpec] = {}
    for source in sources:
        if isinstance(source, Interactions):
            found, where = source, DataSpec(source=None)
            memory[found.sha256] = found
        else:
            where = base.data if source is None else base.data.model_copy(update={"source": str(source)})
            where = where.model_copy(update={"sha256": None}) if source is not None else where
            found = load_data(where)
        if found.name in bases:
            raise CoterieError(f"two data sets are called {found.name}; a sweep tells them apart by name")
        where = where.model_copy(update={"sha256": found.sha256})
        bases[found.name] = base.model_copy(update={"data": where})
    next(iter(bases.values())).resolved()  # or refuse
    return memory, bases


def _trials(asked: int | None, axes: Sequence[Axis], method: str) -> int:
    if method == "grid":
        size = len(grid(axes))
        if asked not in (None, size):
            raise CoterieError(
                f"the grid has {size} points and --trials says {asked}: leave --trials out, or draw that many with "
                "--method random"
            )
        return size
    if asked is None or asked < 1:
        raise CoterieError(f"--method {method} needs to know how many to try: --trials 20")
    return asked


def _check_metric(text: str) -> None:
    from coterie.evaluate.metrics import CUTOFFS, GAINS

    kind, _, metric = text.partition(".")
    known = [f"{name}@{k}" for name in GAINS for k in CUTOFFS]
    if kind not in _KINDS or metric not in known:
        raise unknown_name("metric", text, [f"{kind}.{one}" for kind in _KINDS for one in known])


def _same_question(question: Question, path: Path) -> Question:
    """A sweep that goes on asks what it asked before; only the number of trials and of jobs may change."""
    file, said = path / "question.json", question.said()
    if not file.exists():
        tensors.write_json(file, said)
        return question
    before = json.loads(file.read_text())
    now = json.loads(json.dumps({**said, "batch": before.get("batch")}))
    other = [key for key in now if now[key] != before.get(key)]
    if other:
        told = "; ".join(f"{key} was {json.dumps(before.get(key))} and is {json.dumps(now[key])}" for key in other)
        raise CoterieError(f"{path} holds another sweep: {told}. Ask the same again to go on, or choose another --out")
    return question._replace(batch=int(before["batch"]))


def _validation(place: Path, metric: str) -> float:
    kind, _, name = metric.partition(".")
    return float(RunDirectory(place).summary()["metrics"]["validation"][kind][name])


def _best_round(place: Path) -> int | None:
    return None if diverged(place) else int(RunDirectory(place).summary()["best_round"])


def _text(value: Any) -> str:
    """As `--set` reads it back: a float with all its digits, so that the flags are the trial again."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise CoterieError("searching needs optuna: pip install 'coterie[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
