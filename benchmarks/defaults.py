"""Which searches the shipped defaults come from: papers/defaults/README.md, from the records beside it and the code.

    coterie sweep ... --record papers/defaults/fedmf-start.json && python -m benchmarks.defaults

Run it again after a new record or a changed default. What neither records nor code can tell stands below: the order in
which searches were made, and why a best was not followed. `tests/report/test_defaults.py` refuses a page that is not
what this makes, and a default that left its record's best without a reason here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from coterie.algorithms import CATALOGUE, algorithm_class, make, presets
from coterie.protocol.rules import PROTOCOLS

FOLDER = Path(__file__).parents[1] / "papers" / "defaults"

# As they were made, where names do not tell (NAME, NAME-2, NAME-3 do); others come after these.
ORDER = (
    "fedmf-rates", "fedmf-negatives", "fedmf-user", "fedmf-server", "fedmf-start", "fedmf-recency",
    "federank", "federank-server", "federank-reg", "federank-hardest", "federank-rates", "federank-rates-edge",
    "federank-clean", "federank-clean-2",
)  # fmt: skip

_CENTRAL = "[central.md](../../docs/findings/central.md)"
_FEDERANK = "[federank.md](../../docs/findings/federank.md)"
_OTHERS = "[other-federated.md](../../docs/findings/other-federated.md)"
_PRIVATE = "[private-table.md](../../docs/findings/private-table.md)"

# Fields that do not ship what their current record found best, and why.
DEVIATIONS = {
    ("fedrap", "lr_own"): "without a step there is no private table and the system is fedmf; the least step tried is "
    f"within a hundredth of that ({_PRIVATE})",
    ("federank", "hardest"): "the best number followed the size of the catalogue, so a rule ships; on two sets not "
    f"seen before, 4 draws and the rule are level, .967 and .964 of the best ({_FEDERANK})",
}

# Records of a variant that does not ship, and why it does not; they are no field's current record.
ASIDE = dict.fromkeys(
    ("fedncf-adam", "fedncf-adam-2", "fedncf-adam-3"),
    f"Adam's best lies beside settings that learn nothing, so the plain mean stays ({_OTHERS})",
)

# Systems that ship another's values where they have the same fields.
TAKES = {"fedease": "ease", "fedrap": "fedmf"}

# Systems with settings and without a record of their own, and why.
WITHOUT = {"fedease": "the same counts give the same weights as in ease, bit for bit, so ease's ridge was searched"}

# Settings that were chosen otherwise than by a sweep on record.
OTHERWISE = {
    "ease": f"the form of `reg` was chosen on validation by `python -m benchmarks.ease_reg` ({_CENTRAL})",
    "federank": "`dim`, `optimiser`, `first_square`, `rate_by_history` and `reg_negative` are of former defaults, set "
    f"on the same two data sets with test figures in sight ({_FEDERANK})",
    "fedrap": f"`own_items` was chosen on ml-100k's validation ({_PRIVATE})",
}

_SYSTEMS = ("system", "ships / best on record", "records, in order", "data; protocol; chosen by validation",
            "trials, CPU-seconds", "ships the best", "never searched")  # fmt: skip
_RECORDS = ("record", "current for", "tried", "data", "protocol", "seeds", "trials, CPU-seconds", "best on validation",
            "held, other than ships now")  # fmt: skip


class Record(NamedTuple):
    name: str  # of the file, without .json
    said: dict[str, Any]

    @property
    def algorithm(self) -> str:
        return str(self.said["algorithm"])

    @property
    def best(self) -> dict[str, Any]:
        """The searched fields' values in the best trial."""
        return dict(self.said["best"]["settings"])

    @property
    def rules(self) -> dict[str, Any]:
        """In what its protocol differs from clean."""
        clean = PROTOCOLS["clean"].model_dump(mode="json")
        return {key: value for key, value in self.said["protocol"].items() if key != "name" and value != clean.get(key)}

    def alike(self, other: Record) -> bool:
        """Their figures can be held against each other."""
        return all(self.said[key] == other.said[key] for key in ("data", "protocol", "metrics", "rounds", "seeds"))

    def as_shipped(self) -> list[float]:
        """The figures of the trial that is what ships, in all settings and rounds; empty where none is."""
        ships = shipped(self.algorithm)
        if self.said["rounds"] != algorithm_class(self.algorithm).default_rounds:
            return []
        for one in self.said["trials"]:
            if one["values"] and self.said.get("other_settings", {}) | one["settings"] == ships:
                return figures(one)
        return []


class Difference(NamedTuple):
    """A default that is not what its current record found best."""

    algorithm: str
    field: str
    ships: Any
    best: Any
    record: str


def figures(trial: dict[str, Any]) -> list[float]:
    return [value for mine in trial["values"].values() for value in mine.values()]


def read(folder: Path = FOLDER) -> list[Record]:
    """All records, in the order in which they were made."""
    found = [Record(file.stem, json.loads(file.read_text())) for file in folder.glob("*.json")]
    return sorted(found, key=lambda one: (ORDER.index(one.name) if one.name in ORDER else len(ORDER), _parts(one.name)))


def systems() -> list[str]:
    """Those that have settings; variants are settings of one of these."""
    return [name for name in CATALOGUE if not presets(name) and fields(algorithm_class(name))]


def shipped(algorithm: str) -> dict[str, Any]:
    made = make(algorithm)
    return {one.name: getattr(made, one.name) for one in fields(made)}


def of(records: Iterable[Record], algorithm: str) -> list[Record]:
    return [one for one in records if one.algorithm == algorithm]


def current(records: Iterable[Record], algorithm: str) -> dict[str, Record]:
    """The last record that searched each field."""
    last = {field: one for one in of(records, algorithm) if one.name not in ASIDE for field in one.best}
    return {field: last[field] for field in shipped(algorithm) if field in last}


def never(records: Iterable[Record], algorithm: str) -> list[str]:
    searched = current(records, algorithm)
    return [field for field in shipped(algorithm) if field not in searched]


def ends(records: Iterable[Record], algorithm: str) -> dict[str, str]:
    """Fields that ship the least or the greatest number that any record tried."""
    found: dict[str, str] = {}
    mine = [one for one in of(records, algorithm) if one.name not in ASIDE]
    for field in current(records, algorithm):
        spaces = [one.said["space"][field] for one in mine if field in one.said["space"]]
        tried = list(chain.from_iterable([s["low"], s["high"]] if isinstance(s, dict) else s for s in spaces))
        ships = shipped(algorithm)[field]
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (*tried, ships))
        if numbers and not min(tried) < ships < max(tried):
            found[field] = "least" if ships <= min(tried) else "greatest"
    return found


def differences(records: list[Record]) -> list[Difference]:
    return [
        Difference(name, field, shipped(name)[field], one.best[field], one.name)
        for name in systems()
        for field, one in current(records, name).items()
        if shipped(name)[field] != one.best[field]
    ]


def better(records: list[Record]) -> dict[str, tuple[Record, list[float]]]:
    """Other records whose best beats what ships in every figure, with the record that measured it alike, and how."""
    told = {one.record for one in differences(records)}
    return {
        one.name: (other, ships)
        for one in records
        if one.name not in told
        for other in of(records, one.algorithm)
        if (ships := other.as_shipped()) and one.alike(other)
        if all(mine > theirs for mine, theirs in zip(figures(one.said["best"]), ships, strict=True))
    }


def held(record: Record) -> list[str]:
    """What a search held at other values than ship now, as far as its record says."""
    ships, whole = shipped(record.algorithm), record.said.get("other_settings")
    known = record.said["settings"] if whole is None else whole
    found = [_assigned({field: value}) for field, value in known.items() if value != ships.get(field)]
    rounds = algorithm_class(record.algorithm).default_rounds
    if record.said["rounds"] != rounds:
        found.append(f"{record.said['rounds']} rounds, not {rounds}")
    if whole is None:
        return [*found, "the others are not on record"]
    later = [field for field in ships if field not in whole and field not in record.best]
    return [*found, f"there was no {_codes(later, ' or ')} yet"] if later else found


def page(records: list[Record]) -> str:
    trials, seconds = _cost(records)
    without = [name for name in CATALOGUE if not presets(name) and name not in systems()]
    variants = [name for name in CATALOGUE if presets(name)]
    untried = [name for name in systems() if (mine := of(records, name)) and not any(one.as_shipped() for one in mine)]
    return "\n\n".join([
        "# Where the shipped defaults come from",
        "Made by `python -m benchmarks.defaults` from the JSON files beside it and from the code; not written by hand. "
        f"{len(records)} searches, {trials:,} trials, {seconds / 3600:.1f} CPU-hours. Each file is the record of a "
        "`coterie sweep`: its command, every trial and its cost. Validation chose; no record holds a test figure. With "
        "several data sets or metrics the best trial has the greatest mean of value / best value.",
        "A search varies a few fields and holds the others, so its best is the best beside those; the last table says "
        "where they were not what ships now. A field's current record is the last that searched it.",
        "## By system",
        "Current records are bold, those of a variant that does not ship in italics.",
        _table(_SYSTEMS, [_system(records, name) for name in systems()]),
        "With all its settings and rounds together, what ships is a trial of one of the records, but not for "
        f"{', '.join(untried) or 'none of these'}.",
        f"Without settings: {', '.join(without)}. Settings of one of the above, and else its defaults: "
        f"{', '.join(variants)}.",
        "## What ships is not the best on record", _list(_deviations(records)),
        "## Not the clean protocol", _list(_protocols(records)),
        "## No record of its own",
        _list(f"{name}: {WITHOUT.get(name, 'no reason given')}." for name in systems() if not of(records, name)),
        "## At an end of what was tried",
        "The least or the greatest number tried in any search of that field: what lies beyond is not known.",
        _list(_ends(records)),
        "## Never searched",
        "Also fields that say what a system is (a loss, a graph's form) rather than how well it is set.",
        _list(_never(records, name) for name in systems() if never(records, name)),
        "## The records",
        "The best value is bold.",
        _table(_RECORDS, [_record(records, one) for name in systems() for one in of(records, name)]),
    ]) + "\n"  # fmt: skip


def _system(records: list[Record], name: str) -> list[str]:
    mine, ships, last = of(records, name), shipped(name), current(records, name)
    left = f"{len(never(records, name))} of {len(ships)} fields"
    if not mine:
        return [name, "", "none", "", "", "no record", left]
    marks = dict.fromkeys(ASIDE, "*") | {one.name: "**" for one in last.values()}
    where = [list(one.said["data"]) for one in mine], [[one.said["protocol"]["name"]] for one in mine]
    by = [one.said["metrics"] for one in mine]
    trials, seconds = _cost(mine)
    but = [_codes([one.field]) for one in differences(records) if one.algorithm == name]
    but += [f"{one.name} is better" for one in mine if one.name in better(records)]
    return [
        name,
        ", ".join(f"`{field}` {_value(ships[field])} / {_value(one.best[field])}" for field, one in last.items()),
        ", ".join(f"{(mark := marks.get(one.name, ''))}{_link(one.name)}{mark}" for one in mine),
        "; ".join(", ".join(dict.fromkeys(chain.from_iterable(each))) for each in (*where, by)),
        f"{trials}, {seconds:,.0f}",
        f"no: {', '.join(but)}" if but else "yes",
        left,
    ]


def _record(records: list[Record], one: Record) -> list[str]:
    said, budget = one.said, one.said["budget"]
    mine = [field for field, last in current(records, one.algorithm).items() if last.name == one.name]
    best = (
        f"{data} {', '.join(f'{value:.4f} {metric}' for metric, value in values.items())}"
        for data, values in said["best"]["values"].items()
    )
    diverged = f" ({budget['diverged']} diverged)" if budget["diverged"] else ""
    return [
        _link(one.name),
        "*a variant*" if one.name in ASIDE else _codes(mine),
        "; ".join(f"`{field}` {_tried(space, one.best[field])}" for field, space in said["space"].items()),
        ", ".join(said["data"]),
        said["protocol"]["name"],
        str(said["seeds"]),
        f"{budget['trials']}{diverged}, {budget['cpu_seconds']:,.0f}",
        "; ".join(best),
        ", ".join(held(one)),
    ]


def _deviations(records: list[Record]) -> Iterator[str]:
    for one in differences(records):
        why = DEVIATIONS.get((one.algorithm, one.field), "no reason given")
        yield f"{one.algorithm} `{one.field}`: ships {one.ships}, best {one.best} ({_link(one.record)}): {why}."
    ahead = better(records)
    for record in records:
        if record.name in ASIDE or record.name in ahead:
            told = f"{record.algorithm}, {_link(record.name)}: {_assigned(record.said['settings'] | record.best)} has "
            told += _figures(figures(record.said["best"]))
            if record.name in ahead:
                other, ships = ahead[record.name]
                told += f", **better than what ships**: {_figures(ships)} ({_link(other.name)})"
            yield f"{told}. {ASIDE.get(record.name, 'no reason given')}."


def _protocols(records: list[Record]) -> Iterator[str]:
    for name in systems():
        mine = of(records, name)
        other = {one.said["protocol"]["name"]: one.rules for one in mine if one.rules}
        for protocol, rules in other.items():
            count = sum(one.rules == rules for one in mine)
            shape = "shape" if rules.get("negatives_avoid") == "everything" else "do not shape"
            clean = "was never searched" if all(one.rules for one in mine) else "was searched in the others"
            yield (
                f"{name}: {count} of {len(mine)} records are of `{protocol}` ({_assigned(rules)}; held-out items "
                f"{shape} the training negatives). Under `clean` it {clean}."
            )


def _ends(records: list[Record]) -> Iterator[str]:
    for name in systems():
        if found := ends(records, name):
            ships = shipped(name)
            yield f"{name}: {', '.join(f'`{field}` {_value(ships[field])} ({end})' for field, end in found.items())}."


def _never(records: list[Record], name: str) -> str:
    left, ships = never(records, name), shipped(name)
    told = f"{name}: {_codes(left)}."
    base = current(records, TAKES[name]) if name in TAKES else {}
    taken = [field for field, one in base.items() if field in left and one.best[field] == ships[field]]
    if taken:
        told += f" The best of {TAKES[name]}'s records ships for {_codes(taken)}."
    aside = dict.fromkeys(field for one in of(records, name) if one.name in ASIDE for field in one.best)
    if aside:
        told += f" Only in a variant that does not ship: {_codes(aside)}."
    return f"{told} Not by a sweep: {OTHERWISE[name]}." if name in OTHERWISE else told


def _cost(records: list[Record]) -> tuple[int, float]:
    budgets = [one.said["budget"] for one in records]
    return sum(one["trials"] for one in budgets), sum(one["cpu_seconds"] for one in budgets)


def _parts(name: str) -> list[Any]:
    """NAME-2 before NAME-10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _tried(space: Any, best: Any) -> str:
    if isinstance(space, dict):
        return f"{space['low']:g} to {space['high']:g}{' (log)' if space['log'] else ''}, **{_value(best)}**"
    return ", ".join(f"**{_value(value)}**" if value == best else _value(value) for value in space)


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _assigned(settings: dict[str, Any]) -> str:
    return " ".join(f"`{field}={_value(value)}`" for field, value in settings.items())


def _figures(values: list[float]) -> str:
    return " / ".join(f"{value:.4f}" for value in values)


def _codes(names: Iterable[str], between: str = ", ") -> str:
    return between.join(f"`{name}`" for name in names)


def _link(name: str) -> str:
    return f"[{name}]({name}.json)"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "None."


def _table(head: Iterable[str], rows: Iterable[list[str]]) -> str:
    head = list(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def main() -> None:
    file = FOLDER / "README.md"
    file.write_text(page(read()))
    print(file)


if __name__ == "__main__":
    main()
