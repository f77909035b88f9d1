"""Unlearning: exact is what never saw her; approximate says how close it comes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.algorithms import make
from coterie.engine.simulate import cohort
from coterie.errors import CoterieError
from coterie.privacy.forget import left_out
from coterie.protocol import Prepared, prepare
from coterie.runs import drive, tensors
from coterie.runs.continuing import continue_run
from coterie.runs.forgetting import forget
from coterie.runs.replay import beginning

SOURCE = "synthetic:users=50,items=50"


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    coterie.run(make("fedmf", dim=4, negatives=2), SOURCE, rounds=4, evaluate_every=2, out=tmp_path / "run", threads=1)
    return tmp_path / "run"


def test_exact_is_a_run_on_the_data_without_her(trained: Path, tmp_path: Path) -> None:
    found = forget(trained, "u07", out=tmp_path / "without", threads=1)
    after = coterie.open(tmp_path / "without")
    assert "u07" not in after.prepared.data.user_ids and after.state.clients.user.shape[0] == 49
    never = coterie.run(
        make("fedmf", dim=4, negatives=2), left_out(coterie.load(SOURCE), ["u07"]), rounds=4, evaluate_every=2,
        out=tmp_path / "never", threads=1,
    )  # fmt: skip
    assert after.summary["last_model_sha256"] == never.summary["last_model_sha256"]
    assert found["closeness"]["table_distance_after_to_exact"] == 0.0
    assert found["closeness"]["table_distance_before_to_exact"] > 0.0
    with pytest.raises(CoterieError, match="u07"):
        after.recommend("u07")


def test_approximate_goes_on_without_her_and_is_measured(trained: Path, tmp_path: Path) -> None:
    found = forget(trained, "u07", "approximate", rounds=2, compare=True, out=tmp_path / "near", threads=1)
    after = coterie.open(tmp_path / "near")
    assert after.spec.rounds == 6 and found["rounds_replayed"] == 2
    assert after.state.clients.user.shape[0] == 49 and "u07" not in after.prepared.data.user_ids
    closeness = found["closeness"]
    assert 0.0 < closeness["table_distance_after_to_exact"] < 1.0
    assert 0.0 <= closeness["top10_overlap_after_and_exact"] <= 1.0
    for name in ("before", "after", "exact"):
        assert 0.0 <= closeness[f"her_other_half_auc_{name}"] <= 1.0


def test_the_others_keep_their_rows(trained: Path) -> None:
    data = coterie.load(SOURCE)
    fewer = left_out(data, ["u07", "nobody"])
    assert fewer.n_users == data.n_users - 1 and fewer.item_ids == data.item_ids
    for name in ("u01", "u30"):
        one, other = data.user_number[name], fewer.user_number[name]
        np.testing.assert_array_equal(
            data.items[data.indptr[one] : data.indptr[one + 1]],
            fewer.items[fewer.indptr[other] : fewer.indptr[other + 1]],
        )


# --- where the replay begins ------------------------------------------------------------------------------------------

SAMPLED = {"rounds": 8, "evaluate_every": 2, "checkpoint_every": 1, "cohort": 4, "threads": 1}
SMALL = {"fedmf": {"dim": 4, "negatives": 2}, "fedrap": {"dim": 4, "negatives": 2, "epochs": 2}}


def _late(run: coterie.Run, least: int) -> tuple[str, int]:
    """Somebody who first took part after round `least`, and when."""
    history, ids = run.prepared.history, run.prepared.data.user_ids
    when = {}
    for number in range(run.spec.rounds, 0, -1):
        for one in cohort(history, run.spec.cohort, 0.0, run.spec.seed, number):
            when[ids[one]] = number
    return next((one, number) for one, number in when.items() if number > least)


def _rounds_trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which rounds a run really trains, seen from within."""
    trained: list[int] = []
    real = drive.simulate

    def seen(*args: Any, **more: Any) -> Any:
        for one in real(*args, **more):
            trained.append(one.number)
            yield one

    monkeypatch.setattr(drive, "simulate", seen)
    return trained


@pytest.mark.parametrize("name", ["fedmf", "fedrap"])
def test_the_replay_begins_at_the_last_checkpoint_before_her(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    system = make(name, **SMALL[name])
    run = coterie.run(system, SOURCE, out=tmp_path / "run", keep="history", **SAMPLED)
    assert list(run.directory.kept()) == [1, 2, 3, 4, 5, 6, 7, 8]
    user, first = _late(run, 4)
    never = coterie.run(
        system, left_out(coterie.load(SOURCE), [user]), out=tmp_path / "never", keep="history", **SAMPLED
    )
    monkeypatch.setattr(drive, "warm_up", lambda *_: None)  # a toy's round is not this run's
    trained = _rounds_trained(monkeypatch)
    found = forget(tmp_path / "run", user, out=tmp_path / "without", threads=1)
    assert trained == list(range(first, 9)), "not from round 1"
    assert found["replayed_after_round"] == first - 1 and found["rounds_replayed"] == 9 - first
    assert f"checkpoint of round {first - 1}" in found["replayed_from"]
    after = coterie.open(tmp_path / "without")
    for what in ("last_model_sha256", "model_sha256", "best_round", "metrics", "last", "canary"):
        assert after.summary[what] == never.summary[what], what
    for number, folder in never.directory.kept().items():  # so the next one who asks can be replayed from here as well
        kept = after.directory.kept()[number]
        assert tensors.read_manifest(kept / "last")["sha256"] == tensors.read_manifest(folder / "last")["sha256"]
    mine, theirs = ({one["round"]: (one["loss"], one.get("test")) for one in each.rounds} for each in (after, never))
    assert mine == theirs


def test_without_kept_checkpoints_or_from_round_one_it_is_the_start(tmp_path: Path) -> None:
    system = make("fedmf", **SMALL["fedmf"])
    run = coterie.run(system, SOURCE, out=tmp_path / "last", **SAMPLED)
    user, _ = _late(run, 4)
    found = forget(tmp_path / "last", user, out=tmp_path / "a", threads=1)
    assert found["replayed_after_round"] == 0 and "--keep history" in found["replayed_from"]
    coterie.run(system, SOURCE, out=tmp_path / "all", keep="history", **SAMPLED)
    there = run.prepared.data.user_ids[cohort(run.prepared.history, 4, 0.0, 0, 1)[0]]
    found = forget(tmp_path / "all", there, out=tmp_path / "b", threads=1)
    assert found["replayed_after_round"] == 0 and found["rounds_replayed"] == 8
    assert "round 1 is the first that goes otherwise" in found["replayed_from"]


def test_a_share_of_people_may_change_with_her(tmp_path: Path) -> None:
    """ceil(0.1 * 50) is ceil(0.1 * 49), but of 0.08 it is not: then round 1 differs although she was not in it."""
    system = make("fedmf", **SMALL["fedmf"])
    run = coterie.run(system, SOURCE, out=tmp_path / "run", keep="history", **{**SAMPLED, "cohort": 0.1})
    user, first = _late(run, 3)
    assert beginning(run, _without_her(run, user), 1).after == first - 1
    odd = coterie.run(system, SOURCE, out=tmp_path / "odd", keep="history", **{**SAMPLED, "cohort": 0.0801})
    assert beginning(odd, _without_her(odd, user), 1).differs == 1


def test_an_early_best_round_that_nobody_measured_again_sends_it_to_the_start(tmp_path: Path) -> None:
    """Checkpoints every third round, figures every second: rounds 2 and 4 cannot be measured again without her."""
    options = {**SAMPLED, "checkpoint_every": 3, "rounds": 9}
    system = make("fedmf", **SMALL["fedmf"])
    run = coterie.run(system, SOURCE, out=tmp_path / "run", keep="history", **options)
    user, _ = _late(run, 6)
    assert beginning(run, _without_her(run, user), 1).after == 6
    assert forget(tmp_path / "run", user, out=tmp_path / "sure", threads=1)["replayed_after_round"] == 6
    records = run.rounds
    records[3]["validation"]["full"]["NDCG@10"] = 0.9  # as if round 4 had been the best one
    run.directory.rounds_file.write_text("".join(json.dumps(one) + "\n" for one in records))
    found = forget(tmp_path / "run", user, out=tmp_path / "without", threads=1)
    assert found["replayed_after_round"] == 0 and "may have been the best" in found["replayed_from"]
    never = coterie.run(system, left_out(coterie.load(SOURCE), [user]), out=tmp_path / "never", **options)
    for name in ("sure", "without"):
        assert coterie.open(tmp_path / name).summary["model_sha256"] == never.summary["model_sha256"]


def test_a_system_that_numbers_people_is_not_replayed_from_the_middle(tmp_path: Path) -> None:
    """MetaMF's server draws vectors by place, so without her everybody after her begins elsewhere."""
    run = coterie.run(make("metamf"), SOURCE, out=tmp_path / "run", keep="history", **{**SAMPLED, "rounds": 4})
    user, _ = _late(run, 1)
    begin = beginning(run, _without_her(run, user), 1)
    assert begin.after == 0 and "looks at who is enrolled" in begin.why


def test_a_late_joiner_is_taken_out_of_what_came_after_her(tmp_path: Path) -> None:
    head = "user_id,item_id,timestamp\n"
    old = [f"p0,x{t},{t}\n" for t in range(20)]  # all items, so that their order is the same without anybody else
    old += [f"p{u},x{(u * 3 + t * t) % 20},{t}\n" for u in range(1, 15) for t in range(6)]
    new = [f"p{u},x{(u + 2 * t) % 20},{50 + t}\n" for u in (3, 15, 16, 17) for t in range(5)]
    (tmp_path / "old.csv").write_text(head + "".join(old))
    (tmp_path / "new.csv").write_text(head + "".join(new))
    system = make("fedmf", **SMALL["fedmf"])
    coterie.run(system, str(tmp_path / "old.csv"), rounds=3, out=tmp_path / "a", threads=1)
    continue_run(tmp_path / "a", tmp_path / "new.csv", 2, tmp_path / "b", threads=1)
    for user, rounds in (("p16", 2), ("p3", 5)):  # she came later; he was there from the beginning
        found = forget(tmp_path / "b", user, out=tmp_path / f"b-{user}", threads=1)
        assert found["rounds_replayed"] == rounds
        for name, lines in (("old", old), ("new", new)):
            (tmp_path / f"{name}-{user}.csv").write_text(
                head + "".join(one for one in lines if not one.startswith(f"{user},"))
            )
        coterie.run(system, str(tmp_path / f"old-{user}.csv"), rounds=3, out=tmp_path / f"c-{user}", threads=1)
        never = continue_run(tmp_path / f"c-{user}", tmp_path / f"new-{user}.csv", 2, tmp_path / f"d-{user}", threads=1)
        after = coterie.open(tmp_path / f"b-{user}")
        assert after.prepared.data.item_ids == never.prepared.data.item_ids
        assert after.summary["last_model_sha256"] == never.summary["last_model_sha256"]
    again = continue_run(tmp_path / "b-p3", tmp_path / "new.csv", 1, tmp_path / "e", threads=1)
    assert "p3" not in again.prepared.data.user_ids, "new rows do not bring back who was forgotten"
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(CoterieError, match="which is gone"):
        forget(tmp_path / "b", "p16", out=tmp_path / "x", threads=1)


def _without_her(run: coterie.Run, user: str) -> Prepared:
    return prepare(left_out(coterie.load(SOURCE), [user]), run.spec.protocol, run.spec.seed)


def test_bad_requests_are_answered(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(CoterieError, match="not among"):
        forget(trained, "nobody", out=tmp_path / "x")
    with pytest.raises(CoterieError, match="expected exact"):
        forget(trained, "u07", "softly", out=tmp_path / "x")
