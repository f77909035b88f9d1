"""People's choices: from a table or a function into a run, and `coterie share`, which says what would leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import coterie
from coterie.cli import app
from coterie.errors import CoterieError
from coterie.protocol import prepare, resolve
from coterie.report.federank_rows import Rows, with_validation
from coterie.report.federank_study import Study
from coterie.report.share import would_share
from coterie.sharing import choose, read_choices


@pytest.fixture(scope="module")
def world() -> Any:
    return coterie.load("synthetic:users=60,items=80,shortest=20,longest=30")


def test_choices_reach_the_devices(world: Any, tmp_path: Path) -> None:
    user, other = world.user_ids[0], world.user_ids[1]
    prepared = prepare(world, resolve("paper:federank"), 0)
    item = prepared.data.item_ids[prepared.train.of(0)[0]]
    file = tmp_path / "choices.csv"
    file.write_text(f"user_id,pi,item_id,never_share,mood\n{user},0.25,{item},1,glad\n{other},,{item},0,sad\n")
    chosen = choose(world, table=file)
    assert chosen.sha256 != world.sha256
    sharing = prepare(chosen, resolve("paper:federank"), 0).history.sharing
    assert sharing is not None and sharing.pi[0] == 0.25 and np.isnan(sharing.pi[1:]).all()
    assert sharing.never.of(0).tolist() == [prepared.train.of(0)[0]] and len(sharing.never.items) == 1
    by_function = choose(world, pi=lambda one: 0.5 if one == user else None)
    again = prepare(by_function, resolve("clean"), 0).history.sharing
    assert again is not None and again.pi[0] == 0.5 and np.isnan(again.pi[1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("user_id,pi\nu,1.5\n", r":2: pi is 1.5, expected a number from 0 to 1"),
        ("user_id,pi\nu,half\n", r":2: pi is 'half'"),
        ("user_id,pi\nu,0.5\nu,0.6\n", r":3: user 'u' has pi 0.6, but 0.5 above"),
        ("user_id,pi,never_share\nu,1,1\n", "expected user_id and pi, or user_id, item_id and never_share"),
        ("user_id,item_id\nu,1\n", "expected user_id and pi, or user_id, item_id and never_share"),
        ("user_id,item_id,never_share\nu,1,perhaps\n", ":2: never_share is 'perhaps'"),
    ],
)
def test_wrong_tables(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "choices.csv"
    file.write_text(text)
    with pytest.raises(CoterieError, match=words):
        read_choices(file)


def test_choices_that_name_nobody(world: Any) -> None:
    for settings, words in (
        ({"pi": {"nobody": 0.5}}, "names user 'nobody'"),
        ({"pi": 1.2}, "from 0 to 1"),
        ({"never": {world.user_ids[0]: ["nothing"]}}, "never shares item 'nothing'"),
    ):
        with pytest.raises(CoterieError, match=words):
            choose(world, **settings)


def test_share_shows_what_would_leave(world: Any, tmp_path: Path) -> None:
    user = world.user_ids[3]
    run = coterie.run(
        coterie.FedeRank(dim=8), world, protocol="paper", rounds=2, evaluate_every=1, threads=1, out=tmp_path / "run"
    )
    before = run.state.clients.user.copy()
    everything, nothing = would_share(run, user, 1.0), would_share(run, user, 0.0)
    own = {run.prepared.data.item_ids[j] for j in run.prepared.train.of(3)}
    sent = {one["item_id"] for one in everything["leaves"] if one["as"] == "consumed"}
    assert sent and sent <= own and sent | {one["item_id"] for one in everything["stays"]} == own
    assert not [one for one in nothing["leaves"] if one["as"] == "consumed"] and len(nothing["stays"]) == len(own)
    assert (
        nothing["bytes"]["up"] < everything["bytes"]["up"]
        and everything["bytes"]["up"] == len(everything["leaves"]) * 40
    )
    kept = sorted(sent)[0]
    what_if = would_share(run, user, 1.0, [kept])
    assert {"item_id": kept, "title": kept, "why": "never shared"} in [
        one | {"title": one["item_id"]} for one in what_if["stays"]
    ]
    np.testing.assert_array_equal(run.state.clients.user, before)
    for arguments, words in (
        ((user, 1.5), "from 0 to 1"),
        (("nobody",), "not among"),
        ((user, 0.5, ["x"]), "--never x"),
    ):
        with pytest.raises(CoterieError, match=words):
            would_share(run, *arguments)
    said = CliRunner().invoke(app, ["share", str(tmp_path / "run"), "--user", user, "--pi", "0.5", "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["pi"] == 0.5
    shown = CliRunner().invoke(app, ["share", str(tmp_path / "run"), "--user", user])
    assert "leaves: updates of items she consumed" in shown.stdout and "bytes up" in shown.stdout


@pytest.mark.parametrize("sharing", ["per-round", "fixed-subset"])
def test_share_says_why_an_item_stays(world: Any, tmp_path: Path, sharing: Any) -> None:
    user, triples = world.user_ids[3], 6
    run = coterie.run(
        coterie.FedeRank(dim=8, sharing=sharing, triples=triples), world, protocol="paper", rounds=1, threads=1,
        out=tmp_path / "run",
    )  # fmt: skip
    own = [run.prepared.data.item_ids[j] for j in run.prepared.train.of(3)]
    found = would_share(run, user, 0.5, own[:1])
    why = {one["item_id"]: one["why"] for one in found["stays"]}
    assert why[own[0]] == "never shared"
    counts = {reason: list(why.values()).count(reason) for reason in set(why.values())}
    sent = [one["item_id"] for one in found["leaves"] if one["as"] == "consumed"]
    assert len(sent) + len(why) == len(own) and isinstance(found["bytes"]["down"], int)
    with_all = would_share(run, user, 1.0, own[:1])
    if sharing == "per-round":  # what the coin kept, and nothing else, leaves where everything is shared
        drawn = {one["item_id"] for one in with_all["leaves"] if one["as"] == "consumed"}
        assert drawn == set(sent) | {item for item, reason in why.items() if reason == "kept by this round's coin"}
        assert counts["not drawn this round"] == len(own) - 1 - len(drawn) > 0
    else:  # the subset is the same in the next round, whatever is drawn then
        assert counts["not in her shared subset"] > 0 and not set(sent) & set(why)
        run.summary["best_round"] = 4
        later = would_share(run, user, 0.5, own[:1])
        hidden = {one["item_id"] for one in later["stays"] if one["why"] == "not in her shared subset"}
        assert hidden == {item for item, reason in why.items() if reason == "not in her shared subset"}
        assert not hidden & {one["item_id"] for one in later["leaves"] if one["as"] == "consumed"}
    assert {one["why"] for one in with_all["stays"]} <= {"never shared", "not drawn this round"}


def test_a_run_with_a_table_of_choices(world: Any, tmp_path: Path) -> None:
    file = tmp_path / "choices.csv"
    file.write_text("user_id,pi\n" + "".join(f"{user},0\n" for user in world.user_ids))
    arguments = ["run", "--algorithm", "federank", "--data", "synthetic:users=60,items=80,shortest=20,longest=30"]
    arguments += ["--protocol", "paper", "--rounds", "1", "--evaluate-every", "1", "--threads", "1", "--quiet"]
    with_all = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "all")])
    with_none = CliRunner().invoke(app, [*arguments, "--sharing", str(file), "--out", str(tmp_path / "none")])
    assert with_all.exit_code == 0 and with_none.exit_code == 0, with_all.output + with_none.output
    everything, nothing = (json.loads((tmp_path / one / "summary.json").read_text()) for one in ("all", "none"))
    assert nothing["bytes"]["up"] < everything["bytes"]["up"]
    reopened = coterie.open(tmp_path / "none")
    assert would_share(reopened, world.user_ids[0])["pi"] == 0.0


def test_the_study_measures_every_point(world: Any, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    said: list[str] = []
    study = Study(
        world,
        tmp_path,
        epochs=2,
        triples=("average", 1),
        rates=(0.1, 1.0),
        threads=1,
        say=said.append,
        pis=(0.0, 0.1, 1.0),
    )
    found = study.curve()
    assert [(one["T"], one["pi"]) for one in found["points"]] == [
        (T, pi) for T in ("average", 1) for pi in (0.0, 0.1, 1.0)
    ]
    assert all(0.0 <= one["test"]["F1@10"] <= 1.0 for one in found["points"]) and len(found["found"]) == 2
    trained = len([line for line in said if ": T " in line])
    updates, recommended, table = study.updates(), study.recommended(), study.table()
    assert len([line for line in said if ": T " in line]) == trained + 2  # the two refits: all else was kept
    by_pi = {(one["T"], one["pi"]): one for one in updates["lines"]}
    assert by_pi["average", 0.0]["updates"] < by_pi["average", 1.0]["updates"]
    assert all(abs(sum(one["y"]) - 1.0) < 1e-6 for one in updates["lines"])  # fewer than 1,000 items: all are shown
    assert len(recommended["popularity"]) == 80 and all(abs(sum(one["y"]) - 1.0) < 1e-6 for one in recommended["lines"])
    mine = next(one for one in updates["shares"] if (one["T"], one["pi"]) == ("average", 0.1))
    assert mine["share_of_first"]["10"] == pytest.approx(sum(by_pi["average", 0.1]["y"][:10])) and "y" not in mine
    last = next(one for one in recommended["shares"] if (one["T"], one["pi"]) == (1, 1.0))["share_of_first"]["50"]
    assert recommended["found"][1].startswith("T 1: the 50 most popular items") and len(updates["found"]) == 2
    assert f"{last:.1%} at pi 1.0 of all places" in recommended["found"][1]
    assert {row["T"] for row in table["rows"]} == {"average", 1} and all(
        "F1@10" in row["refit"] for row in table["rows"]
    )
    for name in ("curve", "updates", "recommended", "table"):
        assert (tmp_path / f"{name}.json").exists() and "plotly" in (tmp_path / f"{name}.html").read_text()[
            :5000
        ].lower()
    prepared = study.prepared
    assert len(with_validation(prepared).train.items) == len(prepared.train.items) + len(prepared.validation.items)


def test_a_row_tests_only_what_validation_chose(world: Any, tmp_path: Path) -> None:
    rows = Rows(world, tmp_path, threads=1)
    found = rows.row("federank", {"lr": (0.0, 1.0)}, epochs=3)
    best = max(found["tried"], key=lambda one: one["validation"]["F1@10"])
    assert len(found["tried"]) == 2 and found["chosen"] == best and f"lr={best['settings']['lr']}" in found["settings"]
    again = rows.row("federank", {"lr": (0.0, 1.0)}, epochs=3)  # from what was kept: trained to that epoch once more
    assert again == found
    popular = rows.row("mostpop")
    mostpop = np.bincount(with_validation(rows.prepared).history.items, minlength=world.n_items)
    assert (
        popular["chosen"]["epoch"] == 1
        and mostpop.sum() == popular["counts"]["train"] + popular["counts"]["validation"]
    )
    typed = ["study", "federank-row", "--algorithm", "fcf", "--data", "synthetic:users=60,items=80", "--epochs", "1"]
    printed = CliRunner().invoke(app, [*typed, "--grid", "lr=0.01,0.1", "--threads", "1", "--out", str(tmp_path)])
    assert printed.exit_code == 0 and "on 80 %" in printed.output and printed.output.count("F1 0.") == 2
    wrong = CliRunner().invoke(app, [*typed, "--grid", "rate=1", "--out", str(tmp_path)])
    assert wrong.exit_code != 0
