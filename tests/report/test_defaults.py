"""Shipped defaults are what the searches on record chose, or it is said why not; the page of them is made, not written.

What is asserted of single records holds for those that were there when this was written, so that new ones need no
change here.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import defaults

RECORDS = defaults.read()
FIRST = {*defaults.ORDER, *defaults.ASIDE, "als", "als-ml-1m", "fcf", "fcf-2", "fedncf", "fedrap-recency"}
KNOWN = {one.name: one for one in RECORDS if one.name in FIRST}


def _one_more(folder: Path, best: int) -> list[defaults.Record]:
    """The records and a later one, of a search over FCF's vectors."""
    for file in defaults.FOLDER.glob("*.json"):
        (folder / file.name).symlink_to(file)
    said: dict[str, Any] = copy.deepcopy(KNOWN["fcf-2"].said)
    said["other_settings"] |= said["best"]["settings"]
    del said["other_settings"]["dim"]
    said["space"] = {"dim": [32, 64]}
    said["trials"] = [
        {**said["best"], "number": number, "settings": {"dim": dim}} for number, dim in enumerate((32, 64))
    ]
    said["best"] = {**said["best"], "settings": {"dim": best}}
    (folder / "fcf-99.json").write_text(json.dumps(said))
    return defaults.read(folder)


def test_the_page_is_what_the_command_makes() -> None:
    made = (defaults.FOLDER / "README.md").read_text()
    assert made == defaults.page(RECORDS), "a record or a default changed: run `python -m benchmarks.defaults`"


def test_what_ships_is_the_best_of_its_current_record_or_has_a_reason() -> None:
    found = {(one.algorithm, one.field): one for one in defaults.differences(RECORDS)}
    unexplained = [one for what, one in found.items() if what not in defaults.DEVIATIONS]
    assert not unexplained, "ship the best, or say in benchmarks/defaults.py why not"
    assert set(found) == set(defaults.DEVIATIONS), "a reason is given for what ships its record's best"
    assert set(defaults.better(RECORDS)) <= set(defaults.ASIDE), "a record beats what ships, and nothing says why"


def test_every_system_with_settings_has_a_record_or_a_reason() -> None:
    assert {name for name in defaults.systems() if not defaults.of(RECORDS, name)} == set(defaults.WITHOUT)
    assert {one.algorithm for one in RECORDS} <= set(defaults.systems()), "the page has no row for this record"


def test_reasons_and_order_speak_of_what_is_there() -> None:
    names = {one.name: one for one in RECORDS}
    assert {*defaults.ORDER, *defaults.ASIDE} <= set(names)
    assert {*defaults.OTHERWISE, *defaults.TAKES} <= set(defaults.systems())
    for name in defaults.ASIDE:  # a record of what ships chooses defaults, and must not be set aside
        ships = defaults.shipped(names[name].algorithm)
        assert any(ships[field] != value for field, value in names[name].said["settings"].items()), name
    for name, base in defaults.TAKES.items():
        ships, searched = defaults.shipped(name), defaults.current(RECORDS, name)
        for field in defaults.current(RECORDS, base):
            assert field in searched or field not in ships or ships[field] == defaults.shipped(base)[field], (
                name,
                field,
            )


def test_the_last_search_of_a_field_is_its_current_record() -> None:
    expected = {
        "als": {"dim": "als", "reg": "als-ml-1m"},
        "fcf": {"lr": "fcf-2"},
        "federank": {"reg": "federank-clean", "hardest": "federank-clean-2", "start": "federank-server"},
        "fedmf": {"lr_server": "fedmf-rates", "start": "fedmf-start", "beta2": "fedmf-server"},
        "fedncf": {"lr_network": "fedncf"},
    }
    for name, records in expected.items():
        found = defaults.current(KNOWN.values(), name)
        assert {field: found[field].name for field in records} == records
    assert "lr_server" not in defaults.current(KNOWN.values(), "fedncf")  # in a variant that does not ship


def test_the_page_says_what_no_search_covers() -> None:
    page = defaults.page(list(KNOWN.values()))
    assert "- federank: 6 of 8 records are of `paper:federank`" in page and "federank-clean" in page
    assert {"lr_own", "reg_own", "start_own"} <= set(defaults.never(KNOWN.values(), "fedrap"))
    assert "lr_own" not in defaults.never(RECORDS, "fedrap")  # searched later
    assert "half_life" not in defaults.never(KNOWN.values(), "fedrap")
    assert "no: fedncf-adam-2 is better" in page and "**better than what ships**" in page
    assert "other_settings" not in KNOWN["fedmf-rates"].said
    assert defaults.held(KNOWN["fedmf-rates"])[-1] == "the others are not on record"
    assert defaults.held(KNOWN["fedmf-negatives"])[-1].startswith("there was no `half_life` or `oldest`")
    assert "no reason given" not in defaults.page(RECORDS)


def test_an_end_of_what_was_tried_is_one_in_all_searches_of_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    ships = {"start": 0.02, "beta2": 0.99, "half_life": 8.0, "negatives": 16}
    monkeypatch.setattr(defaults, "shipped", lambda _: ships)
    found = defaults.ends(KNOWN.values(), "fedmf")  # start: the greatest in fedmf-start, not in fedmf-server
    assert found == {"half_life": "least", "negatives": "greatest"}


def test_a_new_record_is_taken_in(tmp_path: Path) -> None:
    ships = defaults.shipped("fcf")["dim"]
    records = _one_more(tmp_path, ships)
    assert defaults.current(records, "fcf")["dim"].name == "fcf-99"
    assert [one.name for one in defaults.of(records, "fcf")][:2] == ["fcf", "fcf-2"]
    assert defaults.differences(records) == defaults.differences(RECORDS)
    assert f"`dim` {ships} / {ships}" in defaults.page(records)


def test_a_best_that_does_not_ship_is_told_with_no_reason(tmp_path: Path) -> None:
    ships = defaults.shipped("fcf")["dim"]
    records = _one_more(tmp_path, 96 - ships)
    assert ("fcf", "dim", ships, 96 - ships, "fcf-99") in defaults.differences(records)
    assert f"- fcf `dim`: ships {ships}, best {96 - ships} ([fcf-99](fcf-99.json)): no reason" in defaults.page(records)


@pytest.mark.parametrize("name", defaults.systems())
def test_a_default_that_is_changed_in_silence_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {field: -1 for field in defaults.current(RECORDS, name)}
    shipped = defaults.shipped
    monkeypatch.setattr(defaults, "shipped", lambda one: shipped(one) | (changed if one == name else {}))
    assert {one.field for one in defaults.differences(RECORDS) if one.algorithm == name} == set(changed)
