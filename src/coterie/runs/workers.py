"""Many runs, several at a time, each in its own folder: finished ones are kept, stopped ones go on.

    with Workers(2) as workers:
        workers.work([Job(Path("a"), spec), Job(Path("b"), other)], say=print)

One at a time they run in this process; several run in processes of their own, which are told a job as a line of JSON
and answer with lines of JSON. A worker ends with the process that started it, however that one ends.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, Self, final

from coterie.data.interactions import Interactions
from coterie.engine.simulate import Diverged
from coterie.errors import CoterieError
from coterie.runs import tensors
from coterie.runs.directory import RunDirectory
from coterie.runs.drive import Interrupted, drive
from coterie.runs.identity import available_cores
from coterie.runs.run import load_data
from coterie.runs.spec import DataSpec, RunSpec

_BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")
_NOTE_EVERY = 2.0  # seconds between notes of the CPU time a run has taken so far


class Job(NamedTuple):
    place: Path  # the run's folder
    spec: RunSpec


class Event(NamedTuple):
    """What happened to one of the jobs."""

    job: int
    kind: str  # "round", "done", "diverged", "failed"
    round: int = 0
    why: str = ""


Say = Callable[[Event], None]


def finished(place: Path) -> bool:
    return RunDirectory(place).summary_file.exists() or _diverged_file(place).exists()


def diverged(place: Path) -> str | None:
    """Why a run that was done gave no figures; None if it gave some."""
    file = _diverged_file(place)
    return str(json.loads(file.read_text())["why"]) if file.exists() else None


def cpu_seconds(place: Path) -> float:
    """CPU time that went into a run so far, over all its beginnings; of a killed one to within seconds."""
    file = place / "cpu.json"
    return float(json.loads(file.read_text())["seconds"]) if file.exists() else 0.0


def run_rounds(job: Job, threads: int, data: Interactions | None = None) -> Iterator[int]:
    """Start the run, or go on with it; the number of each round done. A run that diverges says so in its folder."""
    if finished(job.place):
        return
    directory, began, before = RunDirectory(job.place), time.process_time(), cpu_seconds(job.place)
    data = load_data(job.spec.data) if data is None else data
    spec = job.spec.model_copy(update={"data": job.spec.data.model_copy(update={"sha256": data.sha256})})
    going_on = directory.spec_file.exists()
    noted = -_NOTE_EVERY

    def note() -> None:
        job.place.mkdir(parents=True, exist_ok=True)
        tensors.write_json(job.place / "cpu.json", {"seconds": before + time.process_time() - began})

    try:
        for record in drive(directory.spec() if going_on else spec, data, directory, threads, resume=going_on):
            if time.monotonic() - noted > _NOTE_EVERY:
                note()
                noted = time.monotonic()
            yield int(record["round"])
    except Diverged as problem:
        tensors.write_json(_diverged_file(job.place), {"why": str(problem).replace(str(job.place), "its folder")})
    finally:
        note()


def _diverged_file(place: Path) -> Path:
    return place / "diverged.json"


@final
class Workers:
    """`at_once` runs side by side, each with its share of the cores (or `threads`).

    A run that is refused (a data set too large for its method, a package that is missing) ends the work with its error,
    or, with `go_on`, is told as "failed" and the others go on.
    """

    def __init__(self, at_once: int = 1, threads: int | None = None, go_on: bool = False) -> None:
        if at_once < 1:
            raise CoterieError(f"--jobs is {at_once}; at least one run has to be at work, so give 1 or more")
        self.at_once, self.go_on = at_once, go_on
        self.threads = threads or max(1, available_cores() // at_once)
        self._processes: list[subprocess.Popen[str]] = []
        self._heard: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()  # the end of its work
        for process in self._processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self._processes = []

    def work(self, jobs: Sequence[Job], say: Say, data: Mapping[str, Interactions] | None = None) -> None:
        """Do them all. `data` holds what was handed over in memory, by hash; then one run at a time."""
        if self.at_once == 1 or len(jobs) < 2:
            for number, job in enumerate(jobs):
                try:
                    given = (data or {}).get(job.spec.data.sha256 or "") or _loaded(job.spec.data)
                    for done in run_rounds(job, self.threads, given):
                        say(Event(number, "round", done))
                except Interrupted:
                    raise
                except CoterieError as problem:
                    if not self.go_on:
                        raise
                    say(Event(number, "failed", why=str(problem)))
                else:
                    say(_ended(number, job.place))
            return
        self._side_by_side(jobs, say)

    def _side_by_side(self, jobs: Sequence[Job], say: Say) -> None:
        while len(self._processes) < min(self.at_once, len(jobs)):
            self._start()
        todo = list(range(len(jobs)))[::-1]
        idle, busy = list(range(len(self._processes))), dict[int, int]()
        under_way: set[int] = set()  # workers that have done a round of their job
        try:
            while todo or busy:
                while todo and idle:
                    worker, number = idle.pop(), todo.pop()
                    self._tell(worker, jobs[number])
                    busy[worker] = number
                worker, line = self._heard.get()
                if worker not in busy:
                    continue
                number = busy[worker]
                said = None if line is None else json.loads(line)
                if said is None:
                    code = self._processes[worker].wait()
                    raise CoterieError(
                        f"{jobs[number].place}: the process at work on it ended with code {code} (out of memory?); the "
                        "same command goes on where it stopped, with fewer --jobs if memory was short"
                    )
                if "error" in said and not self.go_on:
                    raise CoterieError(said["error"])
                if "round" in said:
                    under_way.add(worker)
                    say(Event(number, "round", said["round"]))
                else:
                    del busy[worker]
                    under_way.discard(worker)
                    idle.append(worker)
                    failed = Event(number, "failed", why=said.get("error", ""))
                    say(failed if "error" in said else _ended(number, jobs[number].place))
        except BaseException:  # Ctrl-C, or one of them failed: the others finish their round and write a checkpoint
            for worker in busy:
                with suppress(OSError):
                    self._processes[worker].send_signal(signal.SIGINT if worker in under_way else signal.SIGTERM)
            raise

    def _tell(self, worker: int, job: Job) -> None:
        stdin = self._processes[worker].stdin
        assert stdin is not None
        with suppress(BrokenPipeError):  # it is gone; its reader says so
            stdin.write(json.dumps({"place": str(job.place), "spec": job.spec.model_dump(mode="json")}) + "\n")
            stdin.flush()

    def _start(self) -> None:
        number = len(self._processes)
        words = [sys.executable, "-m", "coterie.runs.workers", str(self.threads), str(os.getpid())]
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        share = dict.fromkeys(_BLAS, str(self.threads))  # its threads wait busily, and would take the others' cores
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, **share, "PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip
        self._processes.append(process)
        assert process.stdout is not None
        threading.Thread(target=self._listen, args=(number, process.stdout), daemon=True).start()

    def _listen(self, number: int, lines: IO[str]) -> None:
        with suppress(ValueError):  # closed
            for line in lines:
                self._heard.put((number, line))
        self._heard.put((number, None))


def _ended(number: int, place: Path) -> Event:
    why = diverged(place)
    return Event(number, "done") if why is None else Event(number, "diverged", why=why)


_LAST: dict[str, Interactions] = {}  # the data set of the last run, since the next one is mostly on the same


def _loaded(spec: DataSpec) -> Interactions:
    key = spec.model_dump_json()
    if key not in _LAST:
        found = load_data(spec)
        _LAST.clear()
        _LAST[key] = found
    return _LAST[key]


def _serve(threads: int, parent: int) -> None:
    """The other end: a job a line, answers a line each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    signal.signal(signal.SIGINT, lambda *_: os._exit(1))  # except in the midst of rounds: then the round is finished
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()

    def answer(**what: Any) -> None:
        try:
            print(json.dumps(what), file=answers, flush=True)
        except BrokenPipeError:  # who asked was killed: end as `_end_with` would, not with a traceback in her terminal
            os._exit(1)

    for line in sys.stdin:
        told = json.loads(line)
        job = Job(Path(told["place"]), RunSpec.model_validate(told["spec"]))
        try:
            for done in run_rounds(job, threads, _loaded(job.spec.data)):
                answer(round=done)
        except Interrupted:
            return
        except CoterieError as problem:
            answer(error=str(problem))
        except Exception:
            answer(error=f"{job.place}: {traceback.format_exc()}")
        else:
            answer(done=True)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
