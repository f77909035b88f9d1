"""Reproducing a paper: descriptions that hold, a cache that is used, a page that says what the JSON says."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from benchmarks import same_bytes
from coterie.algorithms import algorithm_class
from coterie.errors import CoterieError
from coterie.protocol import resolve
from coterie.protocol.rules import PAPER_WARNING
from coterie.report import federank_study, plan
from coterie.report import reproduce as module
from coterie.report.federank_study import Study
from coterie.report.pages import _drawing, page, sentence, sentences, write_page
from coterie.report.plan import PAPERS, cells, chosen_entries, label, part_of, read_paper, with_rows, write_part
from coterie.report.reproduce import outlook, reproduce
from coterie.report.sweep_display import Remaining
from coterie.runs.api import run_spec
from coterie.runs.directory import RunDirectory
from coterie.runs.identity import algorithm_version
from coterie.runs.spec import DataSpec, spec_of

SMALL = "synthetic:users=40,items=150,seed=3,shortest=12,longest=20"


@pytest.mark.parametrize("name", PAPERS)
def test_every_row_of_a_paper_is_a_run_that_can_be_started(name: str) -> None:
    paper = read_paper(name)
    where = DataSpec(source="nowhere", sha256="0" * 64)
    for entry in paper["entries"]:
        for data in entry["datasets"]:
            parts = {plan.part_name(data, row["subset"]): where for row in entry.get("rows", []) if "subset" in row}
            for cell in cells(paper, entry, {data: where, **parts}, data, ("paper", "clean"), 2):
                assert len(cell.specs) == len(cell.candidates) >= 1
                for spec in cell.specs[0]:
                    resolved = spec.resolved()
                    assert resolved.rounds and algorithm_class(resolved.algorithm)
                assert [spec.seed for spec in cell.specs[0]] == [0, 1]
        for row in entry.get("rows", []):
            for data, printed in row.get("published", {}).items():
                assert data in paper["datasets"] and len(printed) == len(entry["metrics"])
    own = next(one for one in paper["entries"] if one["id"] == paper["headline"]["entry"])
    assert paper["own"] in [row["system"] for row in own["rows"]]


def test_papers_and_parts_that_are_not_there_are_answered_with_the_list() -> None:
    with pytest.raises(CoterieError, match="Known: fedrap, federank, gpfedrec"):
        read_paper("fedprox")
    with pytest.raises(CoterieError, match="unknown part of fedrap 'table 9'"):
        chosen_entries(read_paper("fedrap"), ["9"], [])
    with pytest.raises(CoterieError, match="unknown data set of fedrap 'netflix'"):
        reproduce("fedrap", data=["netflix"])
    assert [one["id"] for one in chosen_entries(read_paper("gpfedrec"), ["6"], ["3"])] == ["table 6", "figure 3"]
    assert "table 7" not in [one["id"] for one in chosen_entries(read_paper("gpfedrec"), [], [])]


def test_rows_are_named_alone_wherever_they_stand() -> None:
    paper = with_rows(read_paper("gpfedrec"), ["GPFedRec", "threshold factor 0.5"])
    rows = {one["id"]: [label(row) for row in one.get("rows", [])] for one in chosen_entries(paper, [], [])}
    assert rows == {
        "table 3": ["GPFedRec"], "table 4": ["GPFedRec"], "figure 3": ["threshold factor 0.5"], "figure 6": [],
    }  # fmt: skip
    assert with_rows(read_paper("gpfedrec"), []) == read_paper("gpfedrec")
    with pytest.raises(CoterieError, match="unknown row of fedrap 'FedRapp'"):
        reproduce("fedrap", rows=["FedRapp"])


def test_named_rows_are_run_and_the_others_stay_as_they_are(tiny: dict[str, Any], tmp_path: Path) -> None:
    options = {"out": tmp_path / "out", "cache": tmp_path / "cache", "jobs": 1}
    reproduce("fedrap", rows=["FedRAP"], protocol="clean", **options)
    record = json.loads((tmp_path / "out" / "ml-100k.json").read_text())
    assert [(one["row"], one["protocol"]) for one in record["cells"]] == [("FedRAP", "clean")]
    assert set(record["figures"]) == {"figure 3", "figure 5"}  # those that have this row
    assert [one.parent.name[:6] for one in (tmp_path / "cache").glob("*/summary.json")] == ["fedrap"]
    reproduce("fedrap", rows=["own"], **options)
    record = json.loads((tmp_path / "out" / "ml-100k.json").read_text())
    assert [(one["row"], one["protocol"]) for one in record["cells"]] == [("FedRAP", "clean"), ("own", "clean")]
    assert set(record["figures"]["figure 3"]["lines"]) == {"FedRAP [clean]", "own [clean]"}
    assert "| FedMF | 65.0" in (tmp_path / "out" / "README.md").read_text()  # the page has all rows


def test_time_left_begins_with_the_costs_on_record_and_ends_with_what_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    left = Remaining(1000.0, pace=0.5)  # two runs at once: half a second for each CPU-second
    assert left.seconds() == 500.0
    now[0], left.done = 30.0, 1.0  # the first one compiles
    assert left.seconds() == pytest.approx(90 / 121 * 999)
    now[0], left.done = 3000.0, 500.0  # the machine is slower than was thought
    assert left.seconds() == pytest.approx(500 * 3060 / 620)
    blind = Remaining(1000.0)
    assert blind.seconds() is None and str(blind) == "time left unknown yet"


def test_a_cost_may_differ_between_data_sets() -> None:
    paper = read_paper("fedrap")
    system = {"algorithm": "mostpop", "cost": {"ml-100k": 13, "ml-1m": 63}}
    paper = {**paper, "systems": {"it": system}}
    where = DataSpec(source="nowhere", sha256="0" * 64)
    for data, cost in (("ml-100k", 13), ("ml-1m", 63), ("ta-feng", 13)):
        entry = {"id": "table 1", "rows": [{"system": "it"}]}
        assert [cell.cost for cell in cells(paper, entry, {data: where}, data, ("clean",), 1)] == [cost]


def test_a_part_has_the_size_asked_for_and_the_nearest_sparsity(tmp_path: Path) -> None:
    data = coterie.load("synthetic:users=60,items=40,seed=1")
    sizes = np.sort(np.diff(data.indptr))[::-1]
    densest = 100 * (1 - sizes[:20].sum() / (20 * 40))
    rows, sparsity = part_of(data, {"users": 20, "sparsity": 0.0})
    assert sparsity == pytest.approx(densest)
    write_part(data, rows, tmp_path / "part.tsv")
    part = coterie.load(tmp_path / "part.tsv")
    assert part.n_users == 20 and len(part) == sizes[:20].sum()
    rows, sparsity = part_of(data, {"items": 10, "sparsity": 100.0})
    popularity = np.sort(np.bincount(data.items, minlength=40))
    assert len(rows) == popularity[:10].sum()
    with pytest.raises(CoterieError, match="fewer than 100"):
        part_of(data, {"users": 100, "sparsity": 50.0})


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A paper of two systems on a made-up data set."""
    table = {
        "id": "table 3", "title": "Two systems", "kind": "sampled", "metrics": ["HR@10"], "percent": True,
        "datasets": ["ml-100k", "douban"],
        "rows": [
            {"system": "FedRAP", "published": {"ml-100k": [{"value": 97.09, "deviation": 0.56}]}},
            {"system": "FedMF", "published": {"ml-100k": [{"value": 65.05}]}},
            {"system": "own"},
        ],
    }  # fmt: skip
    paper = {
        "name": "fedrap", "source": "A paper", "own": "FedRAP", "headline": {"entry": "table 3", "metric": "HR@10"},
        "protocols": {"paper": {"name": "paper:fedrap"}, "clean": {"name": "clean"}},
        "datasets": {"ml-100k": {}, "douban": {}},
        "systems": {
            "FedRAP": {"algorithm": "fedrap", "behaviour": "as_released", "rounds": 4, "keep": "model"},
            "FedMF": {"algorithm": "fedmf", "rounds": 2, "choose": {"lr_server": [0.02, 0.1]}},
            "own": {"algorithm": "mostpop", "protocols": ["clean"]},
        },
        "entries": [
            table,
            {"id": "figure 3", "title": "By round", "draw": "convergence", "of": "table 3", "datasets": ["ml-100k"]},
            {"id": "figure 5", "title": "C", "draw": "sparsity", "systems": ["FedRAP"], "datasets": ["ml-100k"]},
            {"id": "figure 7", "title": "Weights", "draw": "curricula", "datasets": ["ml-100k"]},
        ],
        "oddities": ["None."],
    }  # fmt: skip
    real = coterie.load

    def load(name: str, **more: Any) -> Any:
        if name == "douban":
            raise CoterieError("douban: not here")
        return real(SMALL)

    from coterie.runs import workers

    monkeypatch.setattr(module, "read_paper", lambda name: paper)
    monkeypatch.setattr(module, "load", load)
    monkeypatch.setattr(workers, "load_data", lambda spec, given=None: real(SMALL))
    return paper


def test_a_paper_is_run_once_recorded_and_told(tiny: dict[str, Any], tmp_path: Path) -> None:
    options = {"out": tmp_path / "out", "cache": tmp_path / "cache", "jobs": 1}
    reproduce("fedrap", **options)
    record = json.loads((tmp_path / "out" / "ml-100k.json").read_text())
    found = {(one["row"], one["protocol"]): one for one in record["cells"]}
    assert set(found) == {
        ("FedRAP", "paper"), ("FedRAP", "clean"), ("FedMF", "paper"), ("FedMF", "clean"), ("own", "clean"),
    }  # fmt: skip
    runs = list((tmp_path / "cache").glob("*/summary.json"))
    assert len(runs) == 2 + 4 + 1
    fedrap = [RunDirectory(one.parent).summary() for one in runs if one.parent.name.startswith("fedrap")]
    under = next(one for one in fedrap if one["protocol"]["name"] == "paper:fedrap")
    mine = found["FedRAP", "paper"]
    assert mine["values"]["HR@10"]["mean"] == 100 * under["metrics"]["test"]["sampled"]["HR@10"]
    assert mine["values"]["HR@10"]["low"] <= mine["values"]["HR@10"]["mean"] <= mine["values"]["HR@10"]["high"]
    assert mine["warning"] and found["FedRAP", "clean"]["warning"] is None
    assert found["FedMF", "clean"]["tried"] == [{"lr_server": 0.02}, {"lr_server": 0.1}]
    assert set(record["figures"]) == {"figure 3", "figure 5", "figure 7"}
    assert str(tmp_path) not in json.dumps(record)

    text = (tmp_path / "out" / "README.md").read_text()
    assert f"| FedRAP | 97.09 ± 0.56 | {mine['values']['HR@10']['mean']:.1f} [" in text
    assert "Of the paper's data sets, but not run here: douban." in text and "Not to be had" not in text
    tiny["unavailable"] = {"douban": "its source is unclear"}
    assert "Not to be had, so nothing is stated: douban (its source is unclear)." in page(tiny, {"ml-100k": record})
    assert "chosen on validation among 2" in text

    stamps = {one: one.stat().st_mtime_ns for one in runs}
    reproduce("fedrap", **options)
    assert {one: one.stat().st_mtime_ns for one in (tmp_path / "cache").glob("*/summary.json")} == stamps


def test_runs_made_elsewhere_are_taken_where_they_answer_the_question_and_marked(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    tiny["entries"] = tiny["entries"][:1]
    rules = resolve("paper:fedrap")
    algorithm = coterie.FedRAP(**coterie.FedRAP.behaviours["as_released"])
    spec = spec_of(algorithm, coterie.load(SMALL), protocol=rules, rounds=4)
    run_spec(spec, coterie.load(SMALL), tmp_path / "elsewhere" / "one")
    other = spec.model_copy(update={"rounds": 3})
    run_spec(other, coterie.load(SMALL), tmp_path / "elsewhere" / "two")
    reproduce("fedrap", out=tmp_path / "out", cache=tmp_path / "cache", collect=True, reuse=[tmp_path / "elsewhere"])
    (cell,) = json.loads((tmp_path / "out" / "ml-100k.json").read_text())["cells"]
    assert (cell["row"], cell["protocol"], cell["reused"]) == ("FedRAP", "paper", 1)
    found = RunDirectory(tmp_path / "elsewhere" / "one").summary()["metrics"]["test"]["sampled"]["HR@10"]
    assert cell["values"]["HR@10"]["mean"] == 100 * found
    assert "1 of the 1 rows by protocol come from runs made elsewhere" in (tmp_path / "out/README.md").read_text()


def test_two_seeds_have_a_deviation_and_fewer_do_not_replace_them(tiny: dict[str, Any], tmp_path: Path) -> None:
    tiny["entries"] = tiny["entries"][:1]
    tiny["entries"][0]["rows"] = tiny["entries"][0]["rows"][:1]
    options = {"out": tmp_path / "out", "cache": tmp_path / "cache", "jobs": 1, "protocol": "clean"}
    reproduce("fedrap", seeds=2, **options)
    reproduce("fedrap", seeds=1, **options)
    (cell,) = json.loads((tmp_path / "out" / "ml-100k.json").read_text())["cells"]
    assert cell["seeds"] == [0, 1] and cell["values"]["HR@10"]["over"] == "seeds"
    seen = cell["values"]["HR@10"]["seeds"]
    assert cell["values"]["HR@10"]["deviation"] == pytest.approx(np.std(seen, ddof=1))
    said = f"{np.mean(seen):.1f} ± {np.std(seen, ddof=1):.1f} ({seen[0]:.1f}, {seen[1]:.1f})"
    assert said in (tmp_path / "out" / "README.md").read_text()  # and no interval, which would say nothing


def test_seeds_that_all_give_the_same_say_nothing_about_chance(tiny: dict[str, Any], tmp_path: Path) -> None:
    """MostPop among all items: an interval of no width over five equal seeds would promise what nobody measured."""
    table, tiny["own"] = tiny["entries"][0], "own"
    table |= {"kind": "full", "metrics": ["HR@10", "Coverage@10"], "rows": table["rows"][2:]}
    options = {"out": tmp_path / "out", "cache": tmp_path / "cache", "jobs": 1, "protocol": "clean", "rows": ["own"]}
    found = []
    for seeds in (1, 2):
        reproduce("fedrap", seeds=seeds, **options)
        found += json.loads((tmp_path / "out" / "ml-100k.json").read_text())["cells"]
    one, two = (cell["values"]["HR@10"] for cell in found)
    assert (
        two == one | {"seeds": one["seeds"] * 2} and two["over"] == "users" and two["low"] < two["mean"] < two["high"]
    )
    assert "low" not in found[1]["values"]["Coverage@10"]  # a figure of all people together, and of no draw


def test_a_stop_leaves_first_seeds_and_records_those_that_are_done(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"rows": ["FedRAP", "own"], "seeds": 2, "protocol": "clean"}
    options = asked | {"out": tmp_path / "out", "cache": tmp_path / "cache", "jobs": 1}
    ended = 0

    def stop_after_three(self: Any, event: Any) -> None:
        nonlocal ended
        ended += event.kind == "done"
        if ended == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(module.Progress, "heard", stop_after_three)
        with pytest.raises(CoterieError, match="the same command goes on"):
            reproduce("fedrap", **options)
    cells = json.loads((tmp_path / "out" / "ml-100k.json").read_text())["cells"]
    assert sorted(one["seeds"] for one in cells) == [[0], [0, 1]]  # no row waits for another's second seed

    reproduce(
        "fedrap", **options | {"cache": tmp_path / "elsewhere"}, add_seeds=True
    )  # the cache is gone: one run is left
    assert len(list((tmp_path / "elsewhere").glob("*/summary.json"))) == 1
    assert [one["seeds"] for one in json.loads((tmp_path / "out" / "ml-100k.json").read_text())["cells"]] == [
        [0, 1]
    ] * 2


def test_a_candidate_is_chosen_by_the_first_seed_and_only_it_has_the_others(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    options = {"out": tmp_path / "out", "cache": tmp_path / "cache", "jobs": 1, "protocol": "clean"}
    reproduce("fedrap", rows=["FedMF"], seeds=3, **options)
    (cell,) = json.loads((tmp_path / "out" / "ml-100k.json").read_text())["cells"]
    by_seed: dict[int, dict[float, float]] = {}
    for file in (tmp_path / "cache").glob("*/summary.json"):
        spec, found = RunDirectory(file.parent).spec(), RunDirectory(file.parent).summary()
        rules = found["protocol"]
        value = found["metrics"]["validation"][rules["select_by"]][rules["select_metric"]]
        by_seed.setdefault(spec.seed, {})[spec.settings["lr_server"]] = value
    best = max(by_seed[0], key=lambda rate: by_seed[0][rate])
    assert len(by_seed[0]) == 2 and by_seed[0][0.02] != by_seed[0][0.1]
    assert list(by_seed[1]) == list(by_seed[2]) == [best] == [cell["settings"]["lr_server"]]
    assert cell["seeds"] == [0, 1, 2] and len(cell["values"]["HR@10"]["seeds"]) == 3


def test_seeds_are_added_to_those_on_record_if_the_code_is_the_same(tiny: dict[str, Any], tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "out" / "ml-100k.json"
    reproduce("fedrap", rows=["FedMF", "FedRAP"], seeds=3, out=tmp_path / "whole", cache=tmp_path / "one", jobs=1)
    reproduce("fedrap", rows=["FedMF", "FedRAP"], seeds=1, out=out, cache=tmp_path / "two", jobs=1)
    elsewhere = {"processor": "another", "cores": 1, "system": "Linux", "python": "3.11.0"}
    record = json.loads(file.read_text())
    for cell in record["cells"]:
        cell["hardware"] = [elsewhere]
    file.write_text(json.dumps(record))
    options = {"out": out, "cache": tmp_path / "three", "jobs": 1, "add_seeds": True}
    reproduce("fedrap", rows=["FedMF", "FedRAP"], seeds=3, **options)
    seeds = [RunDirectory(one.parent).spec().seed for one in (tmp_path / "three").glob("*/summary.json")]
    assert sorted(seeds) == [1] * 4 + [2] * 4  # two rows, two protocols; the rate was chosen by the first seed
    whole = json.loads((tmp_path / "whole" / "ml-100k.json").read_text())["cells"]
    record = json.loads(file.read_text())
    for one, other in zip(record["cells"], whole, strict=True):
        for key in ("row", "protocol", "settings", "seeds", "values", "best_rounds", "version"):
            assert one[key] == other[key]
        assert one["hardware"] == [elsewhere, *other["hardware"]]
    assert "another, 1 cores and " in (out / "README.md").read_text()

    for cell in record["cells"]:  # of other code: all seeds are run again
        cell["version"] = "0.0.1+0123456789"
    file.write_text(json.dumps(record))
    reproduce("fedrap", rows=["FedRAP"], seeds=3, protocol="clean", **options)
    again = json.loads(file.read_text())["cells"]
    assert [one["version"] == "0.0.1+0123456789" for one in again] == [True, True, False, True]
    assert {RunDirectory(one.parent).spec().seed for one in (tmp_path / "three").glob("fedrap*/summary.json")} == {
        0,
        1,
        2,
    }


def test_seeds_are_added_to_those_of_code_that_was_shown_to_give_the_same_bytes(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    out, file = tmp_path / "out", tmp_path / "out" / "ml-100k.json"
    options = {"rows": ["FedRAP"], "protocol": "clean", "out": out, "cache": tmp_path / "cache"}
    reproduce("fedrap", seeds=1, jobs=1, **options)
    record = json.loads(file.read_text())
    (first,) = record["cells"]
    now, first["version"] = first["version"], "0.0.1+first"
    file.write_text(json.dumps(record))
    changes = [
        {"algorithm": "fedmf", "before": "0.0.1+first", "now": now},  # of another system: says nothing about this one
        {"algorithm": "fedrap", "before": "0.0.1+first", "now": "0.0.1+second"},
    ]
    (out / "same-bytes.json").write_text(json.dumps({"changes": changes}))
    plan = outlook("fedrap", **options | {"seeds": 2, "add_seeds": True, "cache": tmp_path / "empty"})
    assert plan.count("2 runs to do") == 2  # in the table, and in all: the second version is not today's

    (out / "same-bytes.json").write_text(
        json.dumps({"changes": [*changes, {"algorithm": "fedrap", "before": "0.0.1+second", "now": now}]})
    )
    reproduce("fedrap", seeds=2, jobs=1, **options | {"add_seeds": True, "cache": tmp_path / "empty"})
    (both,) = json.loads(file.read_text())["cells"]
    assert both["seeds"] == [0, 1] and both["values"]["HR@10"]["seeds"][0] == first["values"]["HR@10"]["mean"]
    assert both["version"] == now and both["earlier_versions"] == ["0.0.1+first", "0.0.1+second"]
    assert [RunDirectory(one.parent).spec().seed for one in (tmp_path / "empty").glob("*/summary.json")] == [1]


def test_a_change_of_code_is_the_same_only_if_its_runs_are(tmp_path: Path) -> None:
    former, now, records = tmp_path / "former", tmp_path / "now", tmp_path / "records"
    for tree in (former, now):
        shutil.copytree(Path(coterie.__file__).parent, tree / "src" / "coterie")
    kernel = Path("src", "coterie", "algorithms", "central", "mostpop.py")
    text = (now / kernel).read_text()
    counted = "np.bincount(history.items, minlength=history.n_items).astype(np.float32)"
    assert counted in text
    (now / kernel).write_text(text.replace(counted, counted.replace(").astype(", ", weights=None).astype(")))
    row = {
        "entry": "table 3", "row": "MostPop", "protocol": "clean", "rules": "clean", "algorithm": "mostpop",
        "behaviour": "coterie", "version": algorithm_version("mostpop"), "settings": {}, "privacy": None,
        "seeds": [0], "values": {},
    }  # fmt: skip
    records.mkdir()
    (records / "made.json").write_text(json.dumps({"data": SMALL, "cells": [row]}))
    (change,), others = same_bytes.compare(records, former, now, rounds=1, most=3)
    assert not others
    assert (change["algorithm"], change["before"]) == ("mostpop", algorithm_version("mostpop"))
    assert change["now"] != change["before"] and len(change["shown"]) == 1

    older = {
        "algorithm": "mostpop",
        "before": "0.0.1+older",
        "now": row["version"],
    }  # shown of the change before this one
    (records / "made.json").write_text(json.dumps({"data": SMALL, "cells": [row | {"version": "0.0.1+older"}]}))
    assert same_bytes.compare(records, former, now, rounds=1, most=3) == ([], [])
    (records / "same-bytes.json").write_text(json.dumps({"changes": [older]}))
    assert same_bytes.compare(records, former, now, rounds=1, most=3) == ([change], [])

    (now / kernel).write_text(text.replace(counted, f"(1 + {counted})"))
    assert same_bytes.compare(records, former, now, rounds=1, most=3) == ([], ["mostpop"])

    other = Path("src", "coterie", "algorithms", "central", "ease.py")
    text = (now / other).read_text()
    (now / other).write_text(text.replace("each: float = 0.1", "each: float = 12.5"))
    row |= {"row": "EASE", "algorithm": "ease", "version": algorithm_version("ease")}
    (records / "made.json").write_text(json.dumps({"data": SMALL, "cells": [row]}))
    with pytest.raises(SystemExit, match=r"EASE \[clean\] means other settings now: each 0.1 -> 12.5; take it out"):
        same_bytes.compare(records, former, now, rounds=1, most=3)


def test_the_plan_names_as_many_runs_as_there_will_be(tiny: dict[str, Any], tmp_path: Path) -> None:
    options = {"seeds": 2, "out": tmp_path / "out", "cache": tmp_path / "cache"}
    before = outlook("fedrap", **options).splitlines()
    assert not (tmp_path / "cache").exists()
    reproduce("fedrap", **options, jobs=1)
    made = len(list((tmp_path / "cache").glob("*/summary.json")))
    assert before[0] == "table 3   Two systems" and before[2] == "          douban: not at hand"
    assert before[1].startswith(f"          ml-100k: {made} runs to do, about ")
    assert before[-2:-1] == ["          ml-100k: nothing to run"]  # figure 7 needs no run
    assert before[-1].startswith(f"in all    {made} runs to do")
    assert outlook("fedrap", **options).endswith("in all    nothing to run; one run may serve several of these")
    with pytest.raises(CoterieError, match="unknown data set of fedrap 'netflix'"):
        outlook("fedrap", data=["netflix"])


def test_collecting_runs_nothing_and_says_so(tiny: dict[str, Any], tmp_path: Path) -> None:
    reproduce("fedrap", out=tmp_path / "out", cache=tmp_path / "cache", collect=True)
    assert not list(tmp_path.glob("cache/*/spec.json"))
    assert json.loads((tmp_path / "out" / "ml-100k.json").read_text())["cells"] == []
    assert "Not run." in (tmp_path / "out" / "README.md").read_text()


def test_what_cannot_be_run_is_said_and_the_rest_goes_on(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"out": tmp_path / "out", "cache": tmp_path / "cache", "jobs": 1, "protocol": "clean"}
    tiny["entries"] = tiny["entries"][:1]

    def without_torch(self: Any) -> None:
        raise CoterieError("fedmf needs torch, which is not installed: pip install 'coterie[neural]'")

    with monkeypatch.context() as bare:
        bare.setattr(coterie.FedMF, "__post_init__", without_torch)
        reproduce("fedrap", quiet=False, **options)
        said = capsys.readouterr().err
        assert "left out: douban: not here" in said and "left out: FedMF: fedmf needs torch" in said
        with pytest.raises(CoterieError, match="pip install"):  # nothing is left
            reproduce("fedrap", rows=["FedMF"], **options)
    cells = json.loads((tmp_path / "out" / "ml-100k.json").read_text())["cells"]
    assert [one["row"] for one in cells] == ["FedRAP", "own"]

    def too_large(self: Any, history: Any, seed: int) -> None:
        raise CoterieError("mostpop will not")

    monkeypatch.setattr(coterie.MostPop, "init", too_large)
    with pytest.raises(CoterieError, match=r"(?s)1 runs failed, the first with: mostpop .*, clean, seed 0: .*again"):
        reproduce("fedrap", rows=["own"], **options | {"cache": tmp_path / "other"})


def test_without_any_data_or_with_none_of_the_part_asked_for_nothing_is_written(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"out": tmp_path / "out", "cache": tmp_path / "cache", "jobs": 1}
    with monkeypatch.context() as there:
        there.setattr(module, "load", lambda name, **more: coterie.load(SMALL))
        with pytest.raises(CoterieError, match="nothing of what was asked for is on douban: figure 3 is on ml-100k"):
            reproduce("fedrap", figures=["3"], data=["douban"], **options)

    def nowhere(name: str, **more: Any) -> Any:
        raise CoterieError(f"{name} is known but not here\nFetch it with: coterie data fetch {name}")

    monkeypatch.setattr(module, "load", nowhere)
    with pytest.raises(CoterieError, match=r"(?s)none of the paper's data sets is at hand.*data fetch ml-100k"):
        reproduce("fedrap", **options)
    assert not (tmp_path / "out").exists()


def test_rows_of_more_seeds_stay_and_that_is_said(
    tiny: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"rows": ["FedRAP"], "protocol": "clean", "out": tmp_path / "out", "jobs": 1, "quiet": False}
    reproduce("fedrap", seeds=2, cache=tmp_path / "one", **asked)
    assert "stay as" not in capsys.readouterr().err
    reproduce("fedrap", seeds=1, cache=tmp_path / "two", **asked)
    assert "1 rows stay as" in capsys.readouterr().err


def test_drawings_of_two_papers_lie_apart_and_say_what_made_them(tiny: dict[str, Any], tmp_path: Path) -> None:
    tiny["entries"].append({"id": "figure 6", "title": "t-SNE", "draw": "item-map", "system": "FedRAP",
                            "datasets": ["ml-100k"]})  # fmt: skip
    reproduce("fedrap", rows=["FedRAP"], out=tmp_path / "out", cache=tmp_path / "cache", jobs=1)
    drawn = tmp_path / "cache" / "figures" / "fedrap" / "ml-100k"
    made = {one.stem for one in drawn.glob("*.html")}
    assert made >= {"convergence", "sparsity", "item-map-paper", "item-map-clean"}
    numbers = json.loads((tmp_path / "out" / "ml-100k.json").read_text())["figures"]
    for figure in ("figure 3", "figure 5", "figure 6"):
        about = numbers[figure]["runs"]["FedRAP [clean]"]
        assert about["seed"] == 0 and about["version"] == algorithm_version("fedrap") and about["hardware"]["cores"]
    spots = numbers["figure 6"]["points"]
    assert set(spots) == {f"{view} [{who}]" for view in ("C", "D", "C + D") for who in ("paper", "clean")}
    shown = numbers["figure 6"]["rated"] + numbers["figure 6"]["unrated"]
    assert all(len(one["x"]) == len(one["y"]) == shown for one in spots.values())


def test_models_of_the_sharing_study_are_kept_by_the_code_that_made_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = coterie.load("synthetic:users=30,items=60,shortest=22,longest=30")
    study = Study(data, tmp_path, behaviour="as_published", epochs=1, triples=("average",), pis=(0.0, 1.0), threads=1)
    assert study.missing() == 2
    study.curve()
    assert study.missing() == 0
    monkeypatch.setattr(federank_study, "algorithm_version", lambda name: "another state of it")
    assert study.missing() == 2


def cell(mean: float) -> dict[str, Any]:
    return {"values": {"HR@10": {"mean": mean}}}


def test_the_sentence_names_the_difference() -> None:
    entry = {"id": "table 3", "metrics": ["HR@10"], "percent": True}
    row = {"system": "FedRAP", "published": {"ml-100k": [{"value": 97.09}]}}

    found = {("table 3", "FedRAP", "paper"): cell(100.0), ("table 3", "FedRAP", "clean"): cell(25.0)}
    told = sentence(entry, row, "ml-100k", found, "HR@10")
    assert told == (
        "FedRAP on ml-100k, HR@10: published 97.09, ours 100.0 under the paper's protocol, 25.0 clean: 75.0 points, "
        "75% of the figure, go where held-out items no longer shape the negatives."
    )
    found["table 3", "FedRAP", "clean"] = cell(100.5)
    assert str(sentence(entry, row, "ml-100k", found, "HR@10")).endswith(
        "it is no lower where held-out items do not shape the negatives."
    )
    assert sentence(entry, row, "ml-100k", {}, "HR@10") is None


def test_seeds_that_lie_further_apart_than_the_columns_are_told() -> None:
    entry = {"id": "table 3", "metrics": ["HR@10"], "percent": True}
    found = {("table 3", "FedRAP", "paper"): cell(66.0), ("table 3", "FedRAP", "clean"): cell(51.0)}
    found["table 3", "FedRAP", "clean"]["values"]["HR@10"]["seeds"] = [58.0, 30.0, 65.0]
    found["table 3", "FedRAP", "paper"]["values"]["HR@10"]["seeds"] = [65.0, 66.0, 67.0]
    said = sentence(entry, {"system": "FedRAP"}, "ml-100k", found, "HR@10")
    assert said is not None and said.endswith(" Seeds are further apart than that: 30.0 to 65.0 clean.")


def test_a_long_table_has_a_sentence_for_each_kind_of_row() -> None:
    names = ["BA graph, 10 % of pairs", "BA graph, 20 % of pairs", "WS graph, 10 % of pairs", "WS graph, 20 % of pairs"]
    rows = [{"system": one, "published": {"ml-100k": [{"value": 70.0 + k}]}} for k, one in enumerate(names)]
    entry = {"id": "table 7", "metrics": ["HR@10"], "percent": True, "rows": rows}

    found = {
        ("table 7", names[0], "paper"): cell(60.0), ("table 7", names[0], "clean"): cell(50.0),
        ("table 7", names[1], "paper"): cell(70.0), ("table 7", names[1], "clean"): cell(54.0),
        ("table 7", names[2], "paper"): cell(66.0), ("table 7", names[2], "clean"): cell(66.0),
        ("table 7", names[3], "paper"): cell(90.0),  # measured under one protocol only: not counted
    }  # fmt: skip
    assert list(sentences(entry, "ml-100k", found, "HR@10")) == [
        "BA graph on ml-100k, mean HR@10 of 2 rows: published 70.50, ours 65.0 (60.0 to 70.0) under the paper's "
        "protocol, 52.0 (50.0 to 54.0) clean: 13.0 points, 20% of the figure, go where held-out items no longer shape "
        "the negatives.",
        "WS graph on ml-100k, mean HR@10 of 1 row: published 72.00, ours 66.0 (66.0 to 66.0) under the paper's "
        "protocol, 66.0 (66.0 to 66.0) clean: it is no lower where held-out items do not shape the negatives.",
    ]


@pytest.mark.parametrize("name", PAPERS)
def test_committed_pages_are_those_of_their_records(name: str, tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "papers" / name
    if not folder.exists():
        pytest.skip(f"no results of {name} are committed")
    paper = read_paper(name)
    records = {one: json.loads((folder / f"{one}.json").read_text()) for one in paper["datasets"]
               if (folder / f"{one}.json").exists()}  # fmt: skip
    assert records
    assert (folder / "README.md").read_text() == page(paper, records)
    for record in records.values():
        (tmp_path / f"{record['data']}.json").write_text(json.dumps(record))
    assert write_page(paper, tmp_path).read_text() == page(paper, records)
    pictures = {one.name: one.read_text() for one in folder.glob("*.svg")}
    assert pictures == {one.name: one.read_text() for one in tmp_path.glob("*.svg")}
    if name != "federank":  # whose protocol leaks nothing
        assert all(PAPER_WARNING in text for text in pictures.values() if "paper&#x27;s protocol" in text)
        assert PAPER_WARNING in (folder / "README.md").read_text()


def test_curves_by_pi_are_a_table() -> None:
    def point(T: int | str, pi: float, value: float) -> dict[str, Any]:
        return {"T": T, "pi": pi, "test": {"F1@10": value, "1-Gini@10": value / 2}}

    numbers = {"points": [point("average", 0.0, 0.01), point("average", 1.0, 0.02), point(1, 0.0, 0.03),
                          point(1, 1.0, 0.04)], "found": ["T 1: it is so"]}  # fmt: skip
    lines = _drawing({"id": "figure 1", "title": "By pi"}, {"figures": {"figure 1": numbers}})
    assert lines[2:6] == [
        "| pi | F1@10, T average | F1@10, T 1 | 1-Gini@10, T average | 1-Gini@10, T 1 |",
        "| --- | --- | --- | --- | --- |",
        "| 0.0 | 0.0100 | 0.0300 | 0.0050 | 0.0150 |",
        "| 1.0 | 0.0200 | 0.0400 | 0.0100 | 0.0200 |",
    ]
    assert "- T 1: it is so" in lines


def test_a_drawing_keeps_the_lines_whose_runs_are_not_at_hand() -> None:
    before = {"title": "t", "lines": {"a": [1], "b": [2]}, "x": "round"}
    drawn = {"title": "new", "lines": {"b": [3]}, "x": "round"}
    assert module._over(before, drawn) == {"title": "new", "lines": {"a": [1], "b": [3]}, "x": "round"}
    assert module._over({}, drawn) == drawn
