"""Runs as real processes: killed, started ten at a time, on a disk that is full. Nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

COMMAND = [sys.executable, "-m", "coterie.cli"]
RUN = [
    "run", "--algorithm", "fedrap", "--data", "synthetic:users=80,items=120,seed=1", "--rounds", "60",
    "--checkpoint-every", "2", "--evaluate-every", "3", "--threads", "1", "--quiet",
]  # fmt: skip


def _say(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, cwd=cwd, timeout=300)


def _killed_until_done(folder: Path, draw: np.random.Generator, kills: int) -> int:
    """Kill the run at random points, resume, until it is through; returns how many kills hit a living process."""
    hit = 0
    while not (folder / "summary.json").exists():
        words = (
            ["resume", str(folder), "--threads", "1", "--quiet"]
            if (folder / "spec.json").exists()
            else [*RUN, "--out", str(folder)]
        )
        process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if hit < kills:
            rounds = folder / "rounds.jsonl"
            began, before = time.monotonic(), rounds.stat().st_size if rounds.exists() else 0
            while process.poll() is None and time.monotonic() - began < 60:  # let it get to work first
                if rounds.exists() and rounds.stat().st_size > before:
                    break
                time.sleep(0.005)
            time.sleep(float(draw.uniform(0, 0.4)))
            if process.poll() is None:
                hit += 1
                process.send_signal(signal.SIGKILL)
        _, said = process.communicate(timeout=300)
        assert process.returncode in (0, -signal.SIGKILL), said
    return hit


def _same_after(folder: Path, kills: int, seed: int) -> None:
    assert _say(*RUN, "--out", str(folder / "whole")).returncode == 0
    whole = json.loads((folder / "whole" / "summary.json").read_text())
    draw = np.random.default_rng(seed)
    hit = attempt = 0
    while hit < kills:
        attempt += 1
        hit += _killed_until_done(folder / f"killed-{attempt}", draw, min(5, kills - hit))
        again = json.loads((folder / f"killed-{attempt}" / "summary.json").read_text())
        for key in ("model_sha256", "last_model_sha256", "metrics", "canary", "best_round"):
            assert again[key] == whole[key], key


@pytest.mark.parametrize("algorithm", ["fedrap", "gpfedrec"])
def test_compiled_just_now_or_loaded_it_is_the_same_model(tmp_path: Path, algorithm: str) -> None:
    """A run's first process compiles its kernels; what goes on after a crash finds them on the disk."""
    words = [*COMMAND, *RUN, "--rounds", "6", "--algorithm", algorithm, "--out"]
    env, models = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}, []
    for name in ("compiled", "loaded"):
        subprocess.run([*words, str(tmp_path / name)], env=env, capture_output=True, check=True, timeout=600)
        models.append(json.loads((tmp_path / name / "summary.json").read_text())["last_model_sha256"])
    assert any((tmp_path / "kernels").rglob("*.nbc")) and models[0] == models[1]


def test_kill_minus_nine_and_resume_give_the_same_model(tmp_path: Path) -> None:
    _same_after(tmp_path, kills=5, seed=1)


@pytest.mark.parametrize("ignores_ctrl_c", [False, True], ids=["in a terminal", "in the background"])
def test_told_to_end_it_finishes_the_round_and_keeps_it(tmp_path: Path, ignores_ctrl_c: bool) -> None:
    """SIGTERM, from a scheduler or a container: no checkpoint would be due before round 5000."""
    where = ["--threads", "1", "--quiet", "--out", str(tmp_path / "run")]
    words = [*COMMAND, *RUN[:5], "--rounds", "5000", "--checkpoint-every", "5000", "--evaluate-every", "5000", *where]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignores_ctrl_c else None
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        if ignores_ctrl_c:
            signal.signal(signal.SIGINT, before)
    rounds = tmp_path / "run" / "rounds.jsonl"
    began = time.monotonic()
    while process.poll() is None and not (rounds.exists() and rounds.stat().st_size) and time.monotonic() - began < 120:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    done = len(rounds.read_text().splitlines())
    assert process.returncode == 2 and f"stopped after round {done} of 5000; `coterie resume" in said, said
    assert [one.name for one in (tmp_path / "run" / "checkpoints").glob("round-*")] == [f"round-{done:06d}"]


@pytest.mark.slow
def test_fifty_kills_and_resumes_give_the_same_model(tmp_path: Path) -> None:
    _same_after(tmp_path, kills=50, seed=2)


def test_of_ten_simultaneous_starts_one_wins(tmp_path: Path) -> None:
    words = [*COMMAND, *RUN, "--out", str(tmp_path / "one")]
    crowd = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(10)]
    ends = [(process.communicate(timeout=300)[1], process.returncode) for process in crowd]
    assert sorted(code for _, code in ends) == [0] + [2] * 9
    for said, code in ends:
        assert code == 0 or "another run is at work in this folder" in said or "already holds a run" in said, said
    assert (tmp_path / "one" / "summary.json").exists()


def test_a_full_disk_is_a_clear_error_and_the_last_checkpoint_stays_valid(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk]).returncode:
        pytest.skip("a small tmpfs cannot be mounted here (needs root)")
    try:
        words = [*RUN, "--set", "own_items=false"]
        whole = _say(*words, "--keep", "all", "--out", str(tmp_path / "whole"))
        assert whole.returncode == 0, whole.stderr
        model = next((tmp_path / "whole" / "checkpoints").glob("round-*/last"))
        one = sum(file.stat().st_size for file in model.iterdir())
        filler = disk / "filler"  # leaves room for the first checkpoint, not for the next beside it
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        filler.write_bytes(bytes(free - int(1.1 * one)))
        said = _say(*words, "--out", str(disk / "run"))
        assert said.returncode == 2, said.stderr
        assert "writing failed" in said.stderr and "No space left" in said.stderr and "coterie resume" in said.stderr
        assert "Traceback" not in said.stderr
        assert list((disk / "run" / "checkpoints").glob("round-*")), "the first checkpoint is kept"
        filler.unlink()
        assert _say("resume", str(disk / "run"), "--quiet").returncode == 0
        again, before = (json.loads((f / "summary.json").read_text()) for f in (disk / "run", tmp_path / "whole"))
        assert again["last_model_sha256"] == before["last_model_sha256"]
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.slow
def test_a_thousand_rounds_do_not_drift_in_memory(tmp_path: Path) -> None:
    code = (
        "import resource, coterie\n"
        "from coterie.algorithms import make\n"
        "from coterie.engine.simulate import simulate, start\n"
        "from coterie.protocol import prepare, resolve\n"
        "data = coterie.load('synthetic:users=120,items=150')\n"
        "p = prepare(data, resolve('clean'), 0)\n"
        "a = make('fedmf')\n"
        "def rss(): return int(open('/proc/self/statm').read().split()[1])\n"
        "for r in simulate(a, p.history, start(a, p.history, 0), range(1, 1101), 0, threads=2):\n"
        "    if r.number == 100: early = rss()\n"
        "print(rss() / early)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert float(found.stdout) < 1.05


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "--algorithm", "fedmv"], "unknown algorithm 'fedmv'. Did you mean 'fedmf'?"),
        (["run"], "which system?"),
        (["run", "--algorithm", "fedmf", "--set", "dims=3"], "unknown setting of fedmf 'dims'. Did you mean 'dim'?"),
        (["run", "--algorithm", "als", "--set", "name=x"], "setting of als 'name'. Known: dim, reg, alpha, start."),
        (["run", "--algorithm", "fedmf", "--set", "dim=many"], "--set dim=many"),
        (["run", "--algorithm", "federank", "--set", "triples=many"], "or 'average' or 'own'"),
        (["run", "--algorithm", "fedmf", "--protocol", "dirty"], "unknown protocol 'dirty'"),
        (["run", "--algorithm", "fedmf", "--cohort", "lots"], "--cohort lots"),
        (["run", "--algorithm", "fedmf", "--rounds", "0"], "rounds: got 0"),
        (["run", "--algorithm", "fedrap", "--behaviour", "as_dreamt"], "unknown behaviour of fedrap 'as_dreamt'"),
        (["recommend", "nowhere", "--user", "1"], "this is not a run folder"),
        (["compare", "nowhere"], "this is not a run folder"),
    ],
)  # fmt: skip
def test_mistakes_are_answered_without_a_traceback(tmp_path: Path, words: list[str], expected: str) -> None:
    said = _say(*words, cwd=tmp_path)
    assert said.returncode == 2 and expected in said.stderr and "Traceback" not in said.stderr, said.stderr
    assert not list(tmp_path.iterdir()), "a refused run leaves nothing behind"
