"""Several runs at a time: the same results, failures told by name, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.data import load
from coterie.errors import CoterieError
from coterie.runs.directory import RunDirectory
from coterie.runs.spec import DataSpec, RunSpec
from coterie.runs.workers import Event, Job, Workers, cpu_seconds, finished

DATA = "synthetic:users=40,items=30,seed=1"


def _jobs(folder: Path) -> list[Job]:
    good = DataSpec(source=DATA, sha256=load(DATA).sha256)
    other = good.model_copy(update={"sha256": "0" * 64})
    return [
        Job(folder / "a", RunSpec(algorithm="fedmf", data=good, rounds=3, keep="nothing")),
        Job(folder / "b", RunSpec(algorithm="fedmf", data=other, rounds=3, keep="nothing")),
        Job(folder / "c", RunSpec(algorithm="mostpop", data=good, keep="nothing")),
    ]


def _environment(workers: Workers) -> dict[str, str]:
    said = Path(f"/proc/{workers._processes[0].pid}/environ").read_text().split("\0")
    return dict(one.split("=", 1) for one in said if "=" in one)


def test_side_by_side_gives_what_one_after_the_other_gives_and_failures_are_told(tmp_path: Path) -> None:
    found = {}
    for at_once in (1, 2):
        jobs, heard = _jobs(tmp_path / str(at_once)), list[Event]()
        with Workers(at_once, threads=1, go_on=True) as workers:
            workers.work(jobs, heard.append)
            processes = list(workers._processes)
        assert all(one.poll() is not None for one in processes)
        ends = {one.job: one for one in heard if one.kind != "round"}
        assert [ends[number].kind for number in range(3)] == ["done", "failed", "done"]
        assert "the data's hash is" in ends[1].why
        assert [one.round for one in heard if one.job == 0 and one.kind == "round"] == [1, 2, 3]
        assert finished(jobs[0].place) and not finished(jobs[1].place)
        assert cpu_seconds(jobs[0].place) > 0
        found[at_once] = RunDirectory(jobs[0].place).summary()["metrics"]
    assert found[1] == found[2]


@pytest.mark.parametrize("at_once", [1, 2])
def test_without_go_on_the_first_failure_ends_the_work(at_once: int, tmp_path: Path) -> None:
    with pytest.raises(CoterieError, match="the data's hash is"), Workers(at_once, threads=1) as workers:
        workers.work(_jobs(tmp_path)[1:], lambda _: None)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to look into a process")
def test_matrix_products_keep_to_their_share_of_the_cores(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    with Workers(2, threads=1) as workers:
        workers.work(_jobs(tmp_path)[::2], lambda event: seen.append(_environment(workers)) if not seen else None)
    assert seen[0]["OPENBLAS_NUM_THREADS"] == seen[0]["MKL_NUM_THREADS"] == "1"
    assert seen[0]["HOME"] == os.environ["HOME"]


def test_no_workers_at_all_are_refused() -> None:
    with pytest.raises(CoterieError, match="--jobs is 0"):
        Workers(0)


def test_one_that_nobody_hears_any_more_ends_without_a_traceback(tmp_path: Path) -> None:
    job = _jobs(tmp_path)[0]
    told = {"place": str(job.place), "spec": job.spec.model_copy(update={"rounds": 10_000}).model_dump(mode="json")}
    words = [sys.executable, "-m", "coterie.runs.workers", "1", str(os.getpid())]
    with subprocess.Popen(words, stdin=-1, stdout=-1, stderr=-1, text=True) as worker:
        assert worker.stdin and worker.stdout and worker.stderr
        worker.stdin.write(json.dumps(told) + "\n")
        worker.stdin.flush()
        assert json.loads(worker.stdout.readline()) == {"round": 1}
        worker.stdout.close()
        assert worker.wait(timeout=60) == 1
        assert worker.stderr.read() == ""
