"""A run directory from the first round to recommendations, in process."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import coterie
from coterie.engine.simulate import start
from coterie.errors import CoterieError
from coterie.runs import tensors
from coterie.runs.drive import Interrupted

WORLD = "synthetic:users=60,items=80,seed=1"
FEDERATED = [("fedmf", {}), ("fedrap", {}), ("fedrap", {"behaviour": "as_released"})]


def _run(out: Path, name: str = "fedmf", behaviour: str = "coterie", **options: Any) -> coterie.Run:
    from coterie.algorithms import make

    return coterie.run(make(name, behaviour), coterie.load(WORLD), out=out, **({"rounds": 12} | options))


def test_the_record_says_everything(tmp_path: Path) -> None:
    run = _run(tmp_path / "a", evaluate_every=4)
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["algorithm"] == "fedmf" and summary["behaviour"] == "coterie" and summary["seed"] == 0
    assert set(summary["data"]) == {"name", "users", "items", "interactions", "sha256"}
    assert summary["data"]["sha256"] == coterie.load(WORLD).sha256 and summary["rounds"] == 12
    for where in ("metrics", "last"):
        for part in ("validation", "test"):
            for kind in ("full", "sampled"):
                values = summary[where][part][kind]
                assert {
                    f"{m}@{k}" for m in ("HR", "NDCG", "Precision", "Recall", "MRR") for k in (5, 10, 20, 50)
                } <= set(values)
                assert all(0 <= values[f"{m}@10"] <= 1 for m in ("HR", "NDCG", "Precision", "Recall", "MRR"))
    assert set(summary["canary"]) == {"HR@10", "chance", "standard_error"} and summary["valid"]
    assert summary["bytes"]["up"] > 0 and summary["bytes"]["down"] == 80 * (run.algorithm.dim + 1) * 4
    assert set(summary["seconds"]) == {"compile", "train", "evaluate", "total"}
    assert summary["peak_rss_bytes"] > 0 and len(summary["model_sha256"]) == 64
    lines = [json.loads(line) for line in (tmp_path / "a" / "rounds.jsonl").read_text().splitlines()]
    assert [one["round"] for one in lines] == list(range(1, 13))
    assert [one["round"] for one in lines if "test" in one] == [4, 8, 12]
    best = max((one for one in lines if "test" in one), key=lambda one: one["validation"]["full"]["NDCG@10"])
    assert summary["best_round"] == best["round"] and summary["metrics"]["test"] == best["test"]
    users = pl.read_parquet(tmp_path / "a" / "users.parquet")
    assert users["test.full.NDCG@10"].mean() == pytest.approx(summary["metrics"]["test"]["full"]["NDCG@10"], abs=1e-6)


@pytest.mark.parametrize(("name", "how"), FEDERATED)
def test_the_same_bytes_on_any_number_of_threads(tmp_path: Path, name: str, how: dict[str, str]) -> None:
    hashes = {
        _run(tmp_path / str(threads), name, threads=threads, cohort=0.6, dropout=0.1, **how).summary[
            "last_model_sha256"
        ]
        for threads in (1, 2, 4)
    }
    assert len(hashes) == 1


@pytest.mark.parametrize(("name", "how"), FEDERATED)
def test_ctrl_c_then_resume_gives_the_same_result(tmp_path: Path, name: str, how: dict[str, str]) -> None:
    from coterie.runs.directory import RunDirectory
    from coterie.runs.drive import drive

    whole = _run(tmp_path / "whole", name, **how)
    part = RunDirectory(tmp_path / "part")
    rounds = drive(whole.spec, coterie.load(WORLD), part)
    with pytest.raises(Interrupted, match=r"after round \d+ of 12; `coterie resume"):
        for record in rounds:
            if record["round"] == 7:
                signal.raise_signal(signal.SIGINT)
    again = coterie.resume(tmp_path / "part", coterie.load(WORLD))
    assert again.summary["last_model_sha256"] == whole.summary["last_model_sha256"]
    assert again.summary["model_sha256"] == whole.summary["model_sha256"]
    for key in ("metrics", "last", "canary", "best_round", "bytes"):
        assert again.summary[key] == whole.summary[key], key
    assert [one["round"] for one in again.rounds] == list(range(1, 13))


def test_a_folder_takes_one_run(tmp_path: Path) -> None:
    _run(tmp_path / "a")
    with pytest.raises(CoterieError, match="already holds a run; `coterie resume"):
        _run(tmp_path / "a")
    with pytest.raises(CoterieError, match="the run is finished"):
        coterie.resume(tmp_path / "a")


def test_recommendations(tmp_path: Path) -> None:
    run = _run(tmp_path / "a", rounds=30)
    data = coterie.load(WORLD)
    picked = run.recommend("u01" if "u01" in data.user_number else data.user_ids[0], n=10)
    assert len(picked) == 10 and [one.score for one in picked] == sorted((one.score for one in picked), reverse=True)
    number = data.user_number[data.user_ids[3]]
    trained = {data.item_ids[i] for i in run.prepared.train.of(number)}
    assert not trained & {one.item_id for one in run.recommend(data.user_ids[3], 20)}
    liked = run.recommend(data.user_ids[3], 80, filter_already_liked_items=False)
    assert {one.item_id for one in liked} == set(data.item_ids)
    table = run.recommend_all(5)
    assert len(table["item_id"]) == 5 * 60 and table["rank"][:5] == [1, 2, 3, 4, 5]
    mine = [i for u, i in zip(table["user_id"], table["item_id"], strict=True) if u == data.user_ids[3]]
    assert mine == [one.item_id for one in run.recommend(data.user_ids[3], 5)]
    with pytest.raises(CoterieError, match="user 'nobody' is not among the 60 users"):
        run.recommend("nobody")
    again = coterie.open(tmp_path / "a")
    assert again.recommend(data.user_ids[3], 5) == run.recommend(data.user_ids[3], 5)


def test_somebody_new_is_served_from_her_history(tmp_path: Path) -> None:
    run = _run(tmp_path / "a", rounds=30)
    data = coterie.load(WORLD)
    before = tensors.nbytes(run.state), run.state.server.table.copy()
    like = [data.item_ids[i] for i in run.prepared.train.of(5)]
    picked = run.recommend(history=like, n=10)
    assert len(picked) == 10 and not {one.item_id for one in picked} & set(like)
    np.testing.assert_array_equal(before[1], run.state.server.table)  # nothing was retrained
    with pytest.raises(CoterieError, match="none of the history's items"):
        run.recommend(history=["no such item"])


def test_similar_items(tmp_path: Path) -> None:
    run = _run(tmp_path / "a")
    item = coterie.load(WORLD).item_ids[0]
    alike = run.similar_items(item, 5)
    assert len(alike) == 5 and item not in {one.item_id for one in alike} and alike[0].score <= 1 + 1e-5
    with pytest.raises(CoterieError, match="mostpop has no item vectors"):
        _run(tmp_path / "b", "mostpop", rounds=1).similar_items(item)


def test_evaluate_under_another_protocol_leaves_out_what_was_trained_on(tmp_path: Path) -> None:
    from coterie.protocol import resolve

    run = _run(tmp_path / "a")
    same = run.evaluate(resolve("clean"))
    assert same["users_left_out_as_trained_on"] == 0
    assert same["metrics"]["test"]["full"] == run.summary["metrics"]["test"]["full"]
    with pytest.raises(CoterieError, match="was in this model's training"):
        run.evaluate(resolve("clean", split="temporal-ratio"))


def test_paper_protocol_is_labelled(tmp_path: Path) -> None:
    from coterie.report.compare import compare

    run = _run(tmp_path / "a", "fedrap", "as_released", protocol="paper")
    assert run.summary["warning"] == "paper protocol: held-out items shape the negatives"
    assert run.summary["protocol"]["name"] == "paper:fedrap" and run.summary["best_test"]["round"] >= 1
    assert (
        run.summary["canary"]["HR@10"] > run.summary["canary"]["chance"] + 4 * run.summary["canary"]["standard_error"]
    )
    assert compare([run])[0]["warning"] == run.summary["warning"]


def test_compare_makes_one_row_of_several_seeds(tmp_path: Path) -> None:
    runs = [_run(tmp_path / str(seed), seed=seed) for seed in range(3)] + [_run(tmp_path / "pop", "mostpop", rounds=1)]
    rows = coterie.compare(runs)
    assert [row["algorithm"] for row in rows] == ["fedmf", "mostpop"] and rows[0]["seeds"] == [0, 1, 2]
    values = [run.summary["metrics"]["test"]["full"]["NDCG@10"] for run in runs[:3]]
    assert rows[0]["full.NDCG@10"]["mean"] == pytest.approx(np.mean(values))
    assert rows[0]["full.NDCG@10"]["deviation"] == pytest.approx(np.std(values, ddof=1))


def test_divergence_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    from coterie.algorithms import make
    from coterie.engine.simulate import Diverged

    wild = make("fedrap", "as_released", apart=1.0, lr_own=300.0, tolerance=0.0)
    with pytest.raises(Diverged, match=r"round \d+: .*the checkpoint of round \d+ is kept"):
        coterie.run(wild, coterie.load(WORLD), rounds=200, out=tmp_path / "a", checkpoint_every=1)
    run = coterie.Run(tmp_path / "a")
    found = run.directory.latest_checkpoint()
    assert found is not None, "one round went well"
    kept = tensors.load(found / "last", start(run.algorithm, run.prepared.history, 0))
    assert tensors.finite(kept) is None and np.isfinite(kept.clients.own.pool).all()


@pytest.mark.parametrize("when", ["evaluated", "kept"])
def test_large_arrays_are_looked_at_before_anything_is_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    from coterie.engine.simulate import Diverged
    from coterie.runs import drive

    def spoilt(*asked: Any) -> Any:
        for one in simulate(*asked):
            if one.number == 4:
                one.state.clients.user[:, 0] = np.nan
            yield one

    simulate = drive.simulate
    monkeypatch.setattr(drive, "simulate", spoilt)
    monkeypatch.setattr(drive, "_LARGE", 0)
    every = {
        "evaluated": {"evaluate_every": 4, "checkpoint_every": 3},
        "kept": {"evaluate_every": 9, "keep": "history"},
    }[when]
    with pytest.raises(Diverged, match=r"round 4: clients\.user holds numbers that are not finite"):
        _run(tmp_path / "a", **({"checkpoint_every": 2} | every))
    found = coterie.Run(tmp_path / "a").directory
    assert [one["round"] for one in found.rounds()] == [1, 2, 3] and max(found.kept()) < 4


def test_changed_data_is_noticed(tmp_path: Path) -> None:
    _run(tmp_path / "a")
    with pytest.raises(CoterieError, match="bring back the same data"):
        coterie.open(tmp_path / "a", coterie.load("synthetic:users=60,items=80,seed=2")).recommend("u01")


def test_an_old_folder_says_which_version_wrote_it(tmp_path: Path) -> None:
    _run(tmp_path / "a")
    spec = tmp_path / "a" / "spec.json"
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "format": 99, "coterie": "7.0.0"}))
    with pytest.raises(CoterieError, match=r"run format 99, written by coterie 7\.0\.0"):
        coterie.open(tmp_path / "a")


def test_a_thousand_flipped_bits_and_cut_files_are_refused(tmp_path: Path) -> None:
    from coterie.runs.directory import RunDirectory
    from coterie.runs.drive import drive

    whole = _run(tmp_path / "whole", "fedrap", rounds=4, evaluate_every=1)
    half = RunDirectory(tmp_path / "half")
    with pytest.raises(Interrupted):
        for _ in drive(whole.spec, coterie.load(WORLD), half):
            signal.raise_signal(signal.SIGINT)
    found = half.latest_checkpoint()
    assert found is not None
    places = {"model": whole.directory.model, **{one: found / one for one in ("last", "best", "progress")}}
    template = start(whole.algorithm, whole.prepared.history, 0)
    for place in places.values():
        tensors.check(place)  # whole, it is taken
    files = sorted(file for place in places.values() for file in place.iterdir())
    draw = np.random.default_rng(0)
    for _ in range(1000):
        file = files[int(draw.integers(len(files)))]
        sound = file.read_bytes()
        place = int(draw.integers(len(sound)))
        flipped = sound[:place] + bytes([sound[place] ^ (1 << int(draw.integers(8)))]) + sound[place + 1 :]
        file.unlink()  # some folders share files by hard links
        file.write_bytes(sound[:place] if draw.random() < 0.2 else flipped)
        with pytest.raises(CoterieError):
            if file.parent == places["model"]:
                tensors.load(file.parent, template)
            else:
                for _ in drive(whole.spec, coterie.load(WORLD), half, resume=True):
                    raise AssertionError(f"{file}, changed at byte {place}, was taken for sound")
        file.write_bytes(sound)
    again = coterie.resume(tmp_path / "half", coterie.load(WORLD))
    assert again.summary["last_model_sha256"] == whole.summary["last_model_sha256"]
