"""Sweeps: chosen by validation, never twice the same work, whatever kills them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import coterie
from coterie.errors import CoterieError
from coterie.report.space import grid, parse_space
from coterie.report.sweep_display import Display
from coterie.runs.directory import RunDirectory
from coterie.runs.identity import algorithm_version, run_key
from coterie.runs.spec import DataSpec, RunSpec, parse_setting, read_spec
from coterie.runs.workers import Event, Job

DATA = "synthetic:users=40,items=30,seed=1"
OTHER = "synthetic:users=50,items=30,seed=2"


def _sweep(out: Path, **more: object) -> coterie.report.sweep.Sweep:  # type: ignore[name-defined]
    options: dict[str, object] = {
        "space": {"lr_server": [0.02, 0.1], "dim": "4,8"}, "rounds": 4, "evaluate_every": 2, "out": out,
    }  # fmt: skip
    return coterie.sweep("fedmf", DATA, **{**options, **more})


def test_a_grid_is_walked_whole_and_the_best_by_validation_wins(tmp_path: Path) -> None:
    found = _sweep(tmp_path)
    assert [one["settings"] for one in found.trials] == [
        {"lr_server": 0.02, "dim": 4}, {"lr_server": 0.02, "dim": 8},
        {"lr_server": 0.1, "dim": 4}, {"lr_server": 0.1, "dim": 8},
    ]  # fmt: skip
    for one in found.trials:
        (run,) = (tmp_path / "trials" / f"{one['number']:04d}").iterdir()
        summary = RunDirectory(run).summary()
        assert summary["settings"]["dim"] == one["settings"]["dim"]
        assert one["score"] == summary["metrics"]["validation"]["full"]["NDCG@10"]
    assert found.best["score"] == max(one["score"] for one in found.trials)
    assert found.flags() == " ".join(f"--set {field}={value}" for field, value in found.best["settings"].items())


def test_the_record_holds_the_budget_and_neither_test_figures_nor_folders(tmp_path: Path) -> None:
    found = _sweep(tmp_path, seeds=2, method="random", trials=2, space=["reg_item=0.01..0.3:log"])
    budget = found.record["budget"]
    assert (budget["trials"], budget["runs"], found.record["seeds"]) == (2, 4, 2)
    assert 0 < budget["cpu_seconds"] == pytest.approx(sum(one["cpu_seconds"] for one in found.trials), abs=0.06)
    text = (tmp_path / "sweep.json").read_text()
    assert json.loads(text) == found.record
    assert str(tmp_path) not in text and '"test"' not in text
    for one in found.trials:
        assert 0.01 <= one["settings"]["reg_item"] <= 0.3
    other = found.record["other_settings"]
    assert other["dim"] == coterie.FedMF().dim and "reg_item" not in other


def test_the_flags_of_the_best_settings_are_its_trial_again(tmp_path: Path) -> None:
    """All digits of a drawn number: with six of them a run would be near the trial, not the trial."""
    space = {"reg_item": "0.01..0.3:log", "user_rate_by_history": [True, False]}
    found = _sweep(tmp_path / "sweep", method="tpe", trials=2, rounds=2, space=space)
    flags = found.flags().split()
    settings = dict(parse_setting("fedmf", one) for one in flags[1::2])
    assert set(flags[::2]) == {"--set"} and settings == found.best["settings"]
    again = coterie.run(coterie.FedMF(**settings), DATA, rounds=2, evaluate_every=2, out=tmp_path / "run")
    assert again.metrics["validation"]["full"]["NDCG@10"] == found.best["score"]


def test_the_spec_of_a_run_can_be_searched_around(tmp_path: Path) -> None:
    coterie.run(coterie.FedMF(dim=4), DATA, rounds=2, out=tmp_path / "run")
    file = tmp_path / "run" / "spec.json"
    found = coterie.sweep(read_spec(file), space={"negatives": [1, 4]}, out=tmp_path / "sweep")
    assert found.record["rounds"] == 2 and found.record["settings"]["dim"] == 4


def test_test_figures_do_not_choose(tmp_path: Path) -> None:
    """Whatever the runs say about the test, the choice stays: they are changed on disk, and it is asked again."""
    before = _sweep(tmp_path)
    for file in tmp_path.glob("trials/*/*/summary.json"):
        summary = json.loads(file.read_text())
        number = int(file.parts[-3])
        summary["metrics"]["test"]["full"]["NDCG@10"] = 1.0 if number != before.best["number"] else 0.0
        file.write_text(json.dumps(summary))
    assert _sweep(tmp_path).best == before.best


def test_several_sets_and_metrics_are_scored_relative_to_the_best_trial(tmp_path: Path) -> None:
    metrics = ("full.NDCG@10", "sampled.HR@10")
    space = {"lr_server": [0.02, 0.1]}
    files = []
    for name, source in (("one", DATA), ("two", OTHER)):
        file = tmp_path / f"{name}.csv"
        data = coterie.load(source)
        rows = [
            f"{data.user_ids[u]},{data.item_ids[i]},{t}"
            for u in range(data.n_users)
            for t, i in enumerate(data.items[data.indptr[u] : data.indptr[u + 1]])
        ]
        file.write_text("user_id,item_id,timestamp\n" + "\n".join(rows) + "\n")
        files.append(file)
    found = coterie.sweep("fedmf", files, space=space, metrics=metrics, rounds=3, out=tmp_path / "sweep")
    assert list(found.record["data"]) == ["one", "two"]
    for one in found.trials:
        ratios = [
            one["values"][name][metric] / max(other["values"][name][metric] for other in found.trials)
            for name in found.record["data"]
            for metric in metrics
        ]
        assert one["score"] == pytest.approx(sum(ratios) / 4)
    assert (tmp_path / "sweep" / "mostpop" / "one" / "summary.json").exists()
    assert "MostPop" in found.record["while_searching"]


def test_a_finished_run_is_never_done_again_and_more_trials_go_on(tmp_path: Path) -> None:
    random = {"method": "random", "space": {"reg_item": "0.01..0.3:log"}}
    first = _sweep(tmp_path, trials=2, **random)
    stamps = {file: file.stat().st_mtime_ns for file in tmp_path.glob("trials/*/*/summary.json")}
    more = _sweep(tmp_path, trials=3, **random)
    assert len(stamps) == 2 and {file: file.stat().st_mtime_ns for file in stamps} == stamps
    assert more.trials[:2] == first.trials and len(more.trials) == 3


def test_random_and_tpe_draw_the_same_whether_interrupted_or_not(tmp_path: Path) -> None:
    for method in ("random", "tpe"):
        options = {"method": method, "space": {"reg_item": "0.01..0.3:log", "dim": "4,8"}, "rounds": 1}
        whole = _sweep(tmp_path / method / "a", trials=3, **options)
        _sweep(tmp_path / method / "b", trials=1, **options)
        parts = _sweep(tmp_path / method / "b", trials=3, **options)
        assert [one["settings"] for one in whole.trials] == [one["settings"] for one in parts.trials]
        assert [one["score"] for one in whole.trials] == [one["score"] for one in parts.trials]


def test_another_question_in_the_same_folder_is_refused_with_the_difference(tmp_path: Path) -> None:
    _sweep(tmp_path, space={"dim": [2, 4]}, rounds=1)
    with pytest.raises(CoterieError, match="holds another sweep: rounds was 1 and is 2"):
        _sweep(tmp_path, space={"dim": [2, 4]}, rounds=2)


def test_a_runs_folder_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    coterie.run(coterie.FedMF(dim=4), DATA, rounds=1, out=tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CoterieError, match=r"holds a run \(spec.json\).*choose another --out"):
        _sweep(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_killed_sweep_goes_on_side_by_side_and_ends_as_if_it_had_not_been_killed(tmp_path: Path) -> None:
    words = [
        sys.executable, "-m", "coterie.cli", "sweep", "--algorithm", "fedmf", "--data", DATA, "--rounds", "300",
        "--evaluate-every", "100", "--space", "dim=4,8", "--jobs", "2", "--out", str(tmp_path / "killed"), "--json",
        "--quiet",
    ]  # fmt: skip
    surroundings = {**os.environ, "PYTHONPATH": str(Path(coterie.__file__).parents[1])}
    process = subprocess.Popen(words, env=surroundings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    places = [tmp_path / "killed" / "trials" / f"000{n}" / "synthetic-seed0" for n in (0, 1)]
    for _ in range(1200):
        if any((place / "checkpoints").exists() for place in places) or process.poll() is not None:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    unfinished = [place for place in places if not (place / "summary.json").exists()]
    assert unfinished
    for place in unfinished:  # the workers end with their parent; then the folders are free
        for _ in range(200):
            try:
                with RunDirectory(place).locked():
                    break
            except CoterieError:
                time.sleep(0.05)
    again = subprocess.run(words, env=surroundings, capture_output=True, text=True, check=True)
    record = json.loads(again.stdout)
    whole = coterie.sweep(
        "fedmf", DATA, space={"dim": [4, 8]}, rounds=300, evaluate_every=100, out=tmp_path / "whole"
    )  # fmt: skip
    assert [one["values"] for one in record["trials"]] == [one["values"] for one in whole.trials]
    assert record["best"]["settings"] == whole.best["settings"]


def test_a_log_is_told_every_minute_how_far_a_long_trial_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = RunSpec(algorithm="fedmf", data=DataSpec(source=DATA), seed=3)  # rounds as the system has them: 100
    now, job = [0.0], Job(Path("trial"), spec)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Display(False, {"tiny": spec}, trials=4, seeds=1) as display:
        for round_ in range(1, 31):
            now[0] += 5
            display.heard(Event(0, "round", round_), job)
    told = capsys.readouterr().err.splitlines()
    assert [one.split("; ")[1] for one in told] == ["seed 3: round 13 of 100", "seed 3: round 26 of 100"]
    assert told[0].startswith("trial 1 of 4, about 32 min 15 s left")  # 387 rounds of 5 seconds each


def test_a_trial_that_diverges_is_counted_and_cannot_win(tmp_path: Path) -> None:
    found = coterie.sweep(
        "fedrap", DATA, behaviour="as_released", space={"lr_own": [200.0, 1e30]}, rounds=2, out=tmp_path
    )
    assert found.record["budget"]["diverged"] == 1
    assert found.trials[1]["score"] is None and "not finite" in found.trials[1]["diverged"]
    assert str(tmp_path) not in json.dumps(found.record)
    assert found.best["number"] == 0


@pytest.mark.parametrize(
    ("space", "method", "message"),
    [
        (["lr_sever=1,2"], "grid", "Did you mean 'lr_server'"),
        (["lr_server"], "grid", "expected field=values"),
        ([], "grid", "nothing to search"),
        (["lr_server=0.1"], "grid", "use --set lr_server=0.1"),
        (["lr_server=0.1,0.1"], "grid", "stands twice"),
        (["lr_server=0.3..0.1"], "random", "empty"),
        (["lr_server=0..1:log"], "tpe", "starts above 0"),
        (["lr_server=0.1..0.2"], "grid", "has no grid"),
        (["lr_server=0.1..0.2:five"], "tpe", "'five' after the range"),
        (["lr_server=high,low"], "grid", "--space lr_server=high"),
        (["lr_server=1,2", "lr_server=3,4"], "grid", "twice"),
        (["dim=4,8"], "hill", "unknown method 'hill'"),
    ],
)
def test_spaces_that_make_no_sense_are_refused(space: list[str], method: str, message: str) -> None:
    with pytest.raises(CoterieError, match=message):
        parse_space("fedmf", "coterie", {}, space, method)


def test_points_of_a_range_are_a_grid() -> None:
    axes = parse_space("fedmf", "coterie", {}, ["dim=8..64:log:4", "reg_item=0.1..0.3:3"], "grid")
    assert axes[0].values == (8, 16, 32, 64) and axes[1].values == (0.1, 0.2, 0.3)
    assert len(grid(axes)) == 12
    with pytest.raises(CoterieError, match=r"--space pi: 1\.5 cannot be run: pi is 1\.5; it is a share"):
        parse_space("federank", "coterie", {}, ["pi=0.5,1.5"], "grid")
    with pytest.raises(CoterieError, match="fixed by --set"):
        parse_space("fedmf", "coterie", {"dim": 8}, ["dim=8..64:log:4"], "grid")


def test_questions_without_an_answer_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(CoterieError, match=r"unknown metric 'full.NDCG@11'"):
        _sweep(tmp_path, metrics=["full.NDCG@11"])
    with pytest.raises(CoterieError, match="the grid has 4 points and --trials says 3"):
        _sweep(tmp_path, trials=3)
    with pytest.raises(CoterieError, match="how many to try"):
        _sweep(tmp_path, method="random")
    with pytest.raises(CoterieError, match="one run at a time"):
        coterie.sweep("fedmf", coterie.load(DATA), space={"dim": [4, 8]}, out=tmp_path, jobs=2)
    assert not list(tmp_path.iterdir())


def test_a_runs_key_follows_what_matters() -> None:
    spec = RunSpec(algorithm="fedmf", data=DataSpec(source="a"))
    key = run_key(spec, "1" * 64)
    assert key == run_key(spec.model_copy(update={"data": DataSpec(source="b"), "keep": "nothing"}), "1" * 64)
    assert key != run_key(spec, "2" * 64) and key != run_key(spec.model_copy(update={"seed": 1}), "1" * 64)
    assert key == run_key(spec.resolved(), "1" * 64)
    assert algorithm_version("fedrap") == algorithm_version("fedrap-c") != algorithm_version("fedmf")
