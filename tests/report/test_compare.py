"""Runs side by side: every figure against one worked out another way."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

import coterie
from coterie.cli import app
from coterie.errors import CoterieError
from coterie.evaluate.statistics import holm
from coterie.report import tables
from coterie.report.compare import collect, compare
from coterie.report.names import names
from coterie.report.words import statement, warnings

WORLD = "synthetic:users=60,items=80"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two systems with two seeds, a yardstick, a paper-protocol run, other data."""
    root = tmp_path_factory.mktemp("runs")
    data = coterie.load(WORLD)
    for name in ("fedrap", "fedmf"):
        for seed in (0, 1):
            coterie.run(name, data, rounds=4, evaluate_every=2, seed=seed, out=root / f"{name}{seed}", threads=1)
    coterie.run("mostpop", data, out=root / "mostpop", threads=1)
    coterie.run("fedrap", data, protocol="paper", rounds=4, out=root / "paper", threads=1)
    coterie.run("mostpop", coterie.load("synthetic:users=50,items=80"), out=root / "other", threads=1)
    return {one.name: one for one in root.iterdir()}


def _comparable(folders: dict[str, Path]) -> list[Path]:
    return [folders[name] for name in ("mostpop", "fedmf0", "fedmf1", "fedrap0", "fedrap1")]


def _users(folder: Path, column: str = "test.full.NDCG@10") -> np.ndarray:
    found: np.ndarray = pl.read_parquet(folder / "users.parquet").sort("user_id")[column].to_numpy().astype(np.float64)
    return found


def test_a_row_has_mean_deviation_and_interval(folders: dict[str, Path]) -> None:
    rows = compare(_comparable(folders))
    assert [row["name"] for row in rows] == ["mostpop", "fedmf", "fedrap"]
    assert [row["seeds"] for row in rows] == [[0], [0, 1], [0, 1]]
    one = rows[1]["full.NDCG@10"]
    seeds = [_users(folders[f"fedmf{k}"]).mean() for k in (0, 1)]
    assert one["mean"] == pytest.approx(np.mean(seeds), abs=1e-6)
    assert one["deviation"] == pytest.approx(abs(seeds[0] - seeds[1]) / math.sqrt(2), abs=1e-6)
    # The percentile bootstrap of a mean against the normal interval it must be near to.
    together = (_users(folders["fedmf0"]) + _users(folders["fedmf1"])) / 2
    half = 1.96 * together.std(ddof=1) / math.sqrt(len(together))
    assert one["low"] == pytest.approx(together.mean() - half, abs=0.25 * half)
    assert one["high"] == pytest.approx(together.mean() + half, abs=0.25 * half)
    assert rows[0]["full.NDCG@10"]["deviation"] is None


def test_paired_tests_are_scipys_on_the_means_over_seeds(folders: dict[str, Path]) -> None:
    rows = compare(_comparable(folders))
    base = _users(folders["mostpop"])
    raw: dict[str, list[float]] = {"p_t": [], "p_wilcoxon": []}
    for row in rows[1:]:
        mine = (_users(folders[f"{row['algorithm']}0"]) + _users(folders[f"{row['algorithm']}1"])) / 2
        test = row["test"]
        assert test["against"] == "mostpop" and test["users"] == len(base) and test["comparisons"] == 2
        assert test["difference"] == pytest.approx((mine - base).mean(), abs=1e-7)
        by_scipy = stats.ttest_rel(mine, base)
        assert test["t"] == pytest.approx(by_scipy.statistic, rel=1e-4)
        assert test["p_t"] == pytest.approx(by_scipy.pvalue, rel=1e-4)
        changed = np.round(mine - base, 7)
        assert test["p_wilcoxon"] == pytest.approx(stats.wilcoxon(changed[changed != 0]).pvalue, rel=0.02)
        for key, values in raw.items():
            values.append(test[key])
    for key, values in raw.items():  # Holm by hand: the smaller twice, the larger at least that
        small, large = min(values), max(values)
        by_hand = {small: min(2 * small, 1), large: max(min(2 * small, 1), large)}
        assert [row["test"][f"{key}_holm"] for row in rows[1:]] == pytest.approx([by_hand[one] for one in values])
    assert rows[0]["baseline"] and rows[0]["test"] is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_keeps_the_order_and_stays_below_bonferroni(values: list[float]) -> None:
    p, raised = np.array(values), holm(values)
    assert (raised >= p - 1e-15).all() and (raised <= np.minimum(1, p * len(p)) + 1e-15).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(raised[order]) >= 0).all()


def test_another_baseline_turns_the_difference_round(folders: dict[str, Path]) -> None:
    forth = {row["name"]: row for row in compare(_comparable(folders))}
    back = {row["name"]: row for row in compare(_comparable(folders), baseline="fedrap")}
    assert back["fedrap"]["baseline"] and not back["mostpop"]["baseline"]
    assert back["mostpop"]["test"]["difference"] == pytest.approx(-forth["fedrap"]["test"]["difference"])
    with pytest.raises(CoterieError, match="fedrap"):
        compare(_comparable(folders), baseline="fedrop")


def test_other_data_and_other_protocols_stand_apart(folders: dict[str, Path]) -> None:
    rows = compare([folders["mostpop"], folders["fedmf0"], folders["paper"], folders["other"]])
    assert [row["comparable"] for row in rows] == [1, 1, 2, 3]
    assert rows[1]["test"] is not None and rows[2]["test"] is None and rows[3]["test"] is None
    assert set(rows[3]["differs"]) == {"data_sha256"} and "negatives_avoid" in rows[2]["differs"]
    said = warnings(rows)
    assert "3 different kinds of measurement that cannot be compared" in said[0] and "different data" in said[0]
    assert any("paper protocol: held-out items shape the negatives" in line for line in said)
    assert warnings(compare([folders["mostpop"], folders["fedmf0"]])) == []


def test_people_and_their_histories(folders: dict[str, Path]) -> None:
    row = compare([folders["fedmf0"]], on="HR@50")[0]
    values, lengths = _users(folders["fedmf0"], "test.full.HR@50"), _users(folders["fedmf0"], "history")
    assert row["on"] == "full.HR@50" and row["people"]["above_zero"] == pytest.approx(values.mean())
    assert row["people"]["q75"] == np.quantile(values, 0.75)
    cold = row["groups"]["cold"]
    inside = lengths <= cold["longest"]
    assert cold["users"] == inside.sum() and cold["mean"] == pytest.approx(values[inside].mean(), abs=1e-6)


def test_more_seeds_do_not_lift_the_share_above_zero(folders: dict[str, Path]) -> None:
    both = compare([folders["fedmf0"], folders["fedmf1"]])[0]["people"]["above_zero"]
    single = [compare([folders[f"fedmf{k}"]])[0]["people"]["above_zero"] for k in (0, 1)]
    assert both == pytest.approx(np.mean(single))


def test_costs_come_from_the_record(folders: dict[str, Path]) -> None:
    row = compare([folders["fedmf0"]])[0]
    record = [json.loads(line) for line in (folders["fedmf0"] / "rounds.jsonl").read_text().splitlines()]
    total = sum(one["participants"] * (one["bytes"]["up"] + one["bytes"]["down"]) for one in record)
    assert row["bytes_a_client"] == pytest.approx(total / 60)
    assert row["peak_rss_bytes"] > 0 and row["train_seconds"] > 0 and row["client_seconds"] < row["train_seconds"]
    assert "nothing bounds" in row["statement"]
    assert "central" in compare([folders["mostpop"]])[0]["statement"]


def test_the_same_folder_twice_is_one_seed(folders: dict[str, Path]) -> None:
    rows, members = collect([folders["fedmf0"], folders["fedmf0"]])
    assert rows[0]["seeds"] == [0] and len(members[0]) == 1


def test_privacy_in_a_sentence() -> None:
    sends = "movement of rows"
    central = {
        "mechanism": "central", "epsilon": 8.0, "epsilon_server": 40.0, "delta": 1e-5, "secure_sum": False,
        "adversary": {"epsilon": "who sees every model", "epsilon_server": "the server: does NOT hold here"},
    }  # fmt: skip
    said = statement({"sends": sends, "privacy": central})
    assert "epsilon 8.00 at delta 1e-05" in said and "does not hold" in said and "40" not in said
    central["adversary"] = {"epsilon": "who sees every model", "epsilon_server": "it sees masked uploads"}
    assert "against the server, epsilon 40.00" in statement({"sends": sends, "privacy": central | {"secure_sum": True}})
    none = {"mechanism": "none", "epsilon": None, "secure_sum": True}
    assert statement({"sends": sends, "privacy": none}) == "no noise, so no epsilon; the server opens sums only"
    stamped = none | {"stamp": "not private: the noise follows from the run's seed"}
    assert statement({"sends": sends, "privacy": stamped}).startswith("not private")
    assert statement({"sends": "nothing", "exchange": "local-only"}) == "nothing leaves a device"


def test_names_tell_rows_apart() -> None:
    row = {"algorithm": "fedmf", "behaviour": "coterie", "exchange": "full", "protocol": "clean", "data": "d",
           "data_sha256": "s"}  # fmt: skip
    said: list[dict[str, Any]] = [
        {"settings": {"dim": 8, "lr": 0.1}, "rounds": 5, "privacy": None},
        {
            "settings": {"dim": 16, "lr": 0.1},
            "rounds": 5,
            "privacy": {"mechanism": "central", "noise": 1.25, "clip": 1.0},
        },
    ]
    assert names([row, row], said) == ["fedmf (dim=8)", "fedmf (dim=16, central noise 1.25 clip 1)"]
    assert names([row, {**row, "behaviour": "as_released", "protocol": "paper:fedrap"}], said) == [
        "fedmf", "fedmf as_released [paper:fedrap]",
    ]  # fmt: skip


def test_csv_reads_back(folders: dict[str, Path]) -> None:
    rows = compare([*_comparable(folders), folders["paper"]])
    read = list(csv.DictReader(io.StringIO(tables.as_csv(rows))))
    assert [one["name"] for one in read] == [row["name"] for row in rows]
    for one, row in zip(read, rows, strict=True):
        assert float(one["full.NDCG@10"]) == row["full.NDCG@10"]["mean"]
        assert float(one["full.NDCG@10 low"]) == row["full.NDCG@10"]["low"]
    assert read[-1]["warning"] == "paper protocol: held-out items shape the negatives" and read[-1]["comparable"] == "2"
    assert float(read[1]["test p_t_holm"]) == rows[1]["test"]["p_t_holm"]


def test_latex_is_a_table_with_everything_escaped(folders: dict[str, Path]) -> None:
    rows = compare([*_comparable(folders), folders["paper"]])
    rows[1]["name"] = r"50% & a_b #1 {x} \y"
    text = tables.as_latex(rows)
    assert r"50\% \& a\_b \#1 \{x\} \textbackslash{}y" in text
    body = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert len(body) == 1 + len(rows) and len({line.replace(r"\&", "").count("&") for line in body}) == 1
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    assert "paper protocol: held-out items shape the negatives" in text and r"\textbf{" in text


def test_the_command_line_prints_each_form(folders: dict[str, Path]) -> None:
    words = ["compare", *map(str, _comparable(folders)), str(folders["paper"])]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    for wanted in (
        "Wilcoxon",
        "Holm",
        "cold",
        "in all",
        "memory",
        "privacy",
        "held-out items shape",
        "cannot be compared",
    ):
        assert wanted in shown.stdout, wanted
    for flags in (["--json"], ["--format", "json"]):
        found = CliRunner().invoke(app, [*words, *flags])
        assert [one["algorithm"] for one in json.loads(found.stdout)] == ["mostpop", "fedmf", "fedrap", "fedrap"]
        assert "cannot be compared" in found.stderr
    assert CliRunner().invoke(app, [*words, "--format", "csv"]).stdout.startswith("name,system,comparable")
    assert "tabular" in CliRunner().invoke(app, [*words, "--format", "latex"]).stdout
    more = CliRunner().invoke(app, [*words, "--metric", "Recall@20", "--on", "sampled.Recall@20", "--json"])
    assert json.loads(more.stdout)[1]["sampled.Recall@20"]["low"] is not None
    assert isinstance(CliRunner().invoke(app, [*words, "--metric", "Recal@20"]).exception, CoterieError)


def test_what_cannot_be_asked_is_answered_with_what_can(folders: dict[str, Path]) -> None:
    for asked in ("HR@7", "sampled.HR@7", "Recal@10"):
        with pytest.raises(CoterieError, match=r"unknown metric .* Known: HR@5, .*, MAP@50\.$"):
            compare([folders["fedmf0"]], on=asked)
        with pytest.raises(CoterieError, match=r"unknown metric .* Known: HR@5, .*, Coverage@10, .*, Novelty@50\.$"):
            compare([folders["fedmf0"]], [asked])
    for asked in ("Coverage@10", "full.1-Gini@20", "novelty@5"):
        with pytest.raises(
            CoterieError, match=r"everybody's lists together.* a value for each person.* HR@5, .*MAP@50"
        ):
            compare([folders["fedmf0"]], on=asked)
    with pytest.raises(CoterieError, match=r"under full ranking only; ask for full\.Coverage@10"):
        compare([folders["fedmf0"]], ["sampled.Coverage@10"])
    with pytest.raises(CoterieError, match="unknown ranking 'ful'"):
        compare([folders["fedmf0"]], ["ful.HR@10"])


def test_a_metric_is_shown_under_each_ranking_it_has_or_the_one_asked_for(folders: dict[str, Path]) -> None:
    row = compare([folders["fedmf0"]], ["full.HR@10", "Coverage@10", "sampled.hit@20", "MRR@5", "full.MRR@5"])[0]
    assert tables.shown([row]) == [
        "sampled.HR@20", "sampled.MRR@5", "full.HR@10", "full.Coverage@10", "full.MRR@5",
    ]  # fmt: skip
    assert row["full.Coverage@10"] == {"mean": row["Coverage@10"], "deviation": None, "low": None, "high": None}
    assert tables.as_csv([row]) and tables.whole([row])


def test_popularity_is_not_better_for_being_more(folders: dict[str, Path]) -> None:
    rows = compare([folders["mostpop"], folders["fedmf0"]], ["AvgPopularity@10"])
    assert r"\textbf" not in tables.as_latex(rows)
    assert r"\textbf" in tables.as_latex(compare([folders["mostpop"], folders["fedmf0"]], ["full.HR@10"]))


@pytest.fixture
def mixed(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A folder as `runs/*` finds it: a run, an unfinished one, the cache of `coterie reproduce`, a page."""
    shutil.copytree(folders["fedmf0"], tmp_path / "runs" / "fedmf")
    half = shutil.copytree(folders["fedrap0"], tmp_path / "runs" / "half")
    (half / "summary.json").unlink()
    shutil.copytree(folders["fedrap0"], tmp_path / "runs" / "reproduce" / "fedrap")
    (tmp_path / "runs" / "report.html").write_text("<p>")
    return tmp_path / "runs"


@pytest.mark.parametrize("words", [["compare"], ["compare", "--json"], ["report", "-o", "page.html"]])
def test_what_is_no_finished_run_among_several_is_left_out_and_said(
    mixed: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mixed.parent)
    found = CliRunner().invoke(app, [*words, *(str(one) for one in sorted(Path("runs").iterdir()))])
    assert found.exit_code == 0, found.output
    assert found.stderr.splitlines() == [
        "coterie: left out: runs/half: the run is not finished; `coterie resume runs/half` goes on with it",
        *(
            f"coterie: left out: runs/{name}: no spec.json, so this is not a run folder; `coterie run --out` makes one"
            for name in ("report.html", "reproduce")
        ),
    ]
    if "--json" in words:
        assert [row["algorithm"] for row in json.loads(found.stdout)] == ["fedmf"]


def test_python_is_told_too_what_was_left_out(mixed: Path) -> None:
    said: list[str] = []
    half = coterie.open(mixed / "half")
    assert [row["name"] for row in compare([mixed / "fedmf", half], say=said.append)] == ["fedmf"]
    assert len(said) == 1 and f"`coterie resume {mixed / 'half'}`" in said[0]
    with pytest.raises(CoterieError, match="none of the 2 folders holds a finished run"):
        compare([half, mixed / "reproduce"], say=said.append)
    for alone, why in (("half", "not finished"), ("reproduce", "not a run folder")):
        with pytest.raises(CoterieError, match=why):
            compare([mixed / alone])
    with pytest.raises(CoterieError, match=r"nowhere: .* not a run folder"):  # mistyped, not found by a pattern
        compare([mixed / "fedmf", mixed / "nowhere"])


def test_a_damaged_record_is_named_with_what_to_do(folders: dict[str, Path], tmp_path: Path) -> None:
    def damaged(name: str, content: bytes) -> Path:
        copy = shutil.copytree(folders["fedmf0"], tmp_path / f"{len(list(tmp_path.iterdir()))}")
        (copy / name).write_bytes(content)
        return copy

    users = (folders["fedmf0"] / "users.parquet").read_bytes()
    for name, content in (
        ("summary.json", b"{{{x"), ("summary.json", b"\xff\xfe"), ("summary.json", b"[]"), ("spec.json", b"[]"),
        ("users.parquet", users[:20_000]), ("users.parquet", b"no table"),
    ):  # fmt: skip
        with pytest.raises(CoterieError, match=rf"{name}: damaged.*bring back a whole copy"):
            compare([damaged(name, content)])
    assert compare([damaged("rounds.jsonl", b"\xff\xfe\n")])[0]["name"] == "fedmf"  # as a line that was cut off


def test_a_narrow_terminal_cuts_no_word_of_privacy(folders: dict[str, Path]) -> None:
    from rich.console import Console

    console = Console(width=80, file=io.StringIO())
    rows = compare(_comparable(folders))
    with console.capture() as capture:
        console.print(tables.whole(rows))
    text = capture.get()
    lines = [line.rstrip() for line in text.splitlines()]
    assert "…" not in text and max(map(len, lines)) <= 80
    together = " ".join(lines[lines.index("what it costs") :])
    assert together.count("the server sees each upload, and nothing bounds what it learns from it") == 1
    assert "privacy of fedmf, fedrap: no noise" in together and "privacy of mostpop: central" in together


def test_latex_tells_costs_and_people_and_keeps_its_small_print_to_itself(folders: dict[str, Path]) -> None:
    rows = compare(_comparable(folders))
    text = tables.as_latex(rows)
    head = next(line for line in text.splitlines() if line.startswith("system &"))
    names = [one.strip(" \\") for one in head.split("&")]
    mine = next(line for line in text.splitlines() if line.startswith("fedmf &"))
    cells = dict(zip(names, (one.strip(" \\") for one in mine.split("&")), strict=True))
    assert cells["training"] == f"{rows[1]['train_seconds']:.1f} s" and cells["memory"].endswith(("MB", "GB"))
    assert cells["people"] == "60" and cells["above 0"] == f"{rows[1]['people']['above_zero']:.1%}".replace("%", r"\%")
    for group in ("cold", "middle", "warm"):
        assert cells[group] == f"{rows[1]['groups'][group]['mean']:.3f}"
    assert text.index(r"\end{tabular}") < text.index(r"{\footnotesize") and text.endswith("\\par}\n")
    plain = text.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")


def test_a_record_without_single_users_still_shows_its_means(folders: dict[str, Path], tmp_path: Path) -> None:
    bare = shutil.copytree(folders["fedmf0"], tmp_path / "bare")
    (bare / "users.parquet").unlink()
    rows = compare([folders["mostpop"], bare])
    assert rows[1]["full.NDCG@10"]["low"] is None and rows[1]["people"] is None and rows[1]["test"] is None
    assert any("no values of single users" in line for line in warnings(rows))
    assert tables.as_csv(rows) and tables.as_latex(rows) and tables.whole(rows)
