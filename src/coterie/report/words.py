"""What must be said beside the numbers: of privacy, of what cannot be compared, of the rows that were read."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any


def aside(text: str) -> None:
    """A line for a person, beside what a program reads."""
    print(f"coterie: {text}", file=sys.stderr, flush=True)


def number(count: int, one: str, more: str = "") -> str:
    """A count with its noun: `1 run`, `2 runs`, `1 person`."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def statement(summary: Mapping[str, Any]) -> str:
    """What a run may claim of privacy, in a sentence."""
    said = summary.get("privacy")
    if "central" in summary["sends"]:
        return "central: everybody's history lies on the server"
    if summary.get("exchange") == "local-only":
        return "nothing leaves a device"
    hidden = said and (said.get("secure_sum") or said.get("encrypted"))
    if not said or (said["mechanism"] == "none" and not hidden and not said.get("stamp")):
        return "no noise, no masks: the server sees each upload, and nothing bounds what it learns from it"
    parts = [said["stamp"]] if said.get("stamp") else []
    if said.get("epsilon") is not None:
        held = f"{said['mechanism']}: epsilon {said['epsilon']:.2f} at delta {said.get('delta') or 0:g} for one user"
        adversary = said.get("adversary")
        if isinstance(adversary, Mapping):
            parts.append(f"{held} against one {adversary['epsilon']}")
            if "NOT hold" in adversary["epsilon_server"]:
                parts.append("against the server itself it does not hold (no secure sum)")
            else:
                parts.append(f"against the server, epsilon {said['epsilon_server']:.2f}")
        else:
            parts.append(f"{held} against {adversary}")
    else:
        parts.append("no noise, so no epsilon" if said["mechanism"] == "none" else f"{said['mechanism']}: no epsilon")
    if said.get("secure_sum"):
        parts.append("the server opens sums only")
    if said.get("encrypted"):
        parts.append("uploads are encrypted: the server adds what it cannot read")
    return "; ".join(parts)


def warnings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader must know before she believes the table."""
    found = [f"{row['name']}: {row['warning']}" for row in rows if row["warning"]]
    kinds = {row["comparable"]: row for row in rows}
    if len(kinds) > 1:
        ways = sorted({name for row in rows for name in row["differs"]})
        how = [way for way in ways if way not in ("data", "data_sha256", "name")]
        which = " and ".join(dict.fromkeys(row["protocol"] for row in rows))
        found.insert(
            0,
            f"{len(kinds)} different kinds of measurement that cannot be compared with each other: "
            + ("different data" if "data_sha256" in ways else "one data set")
            + (f", different protocols ({which}; {', '.join(how)})" if how else "")
            + ". Each stands by itself, and none is tested against another",
        )
    for kind in sorted(kinds):
        mine = [row for row in rows if row["comparable"] == kind]
        if len(mine) > 1 and len({tuple(sorted(row["seeds"])) for row in mine}) > 1:
            where = "" if len(kinds) == 1 else f" of {mine[0]['data']} [{mine[0]['protocol']}]"
            found.append(f"rows{where} have different seeds, and sampled candidates follow from the seed")
    versions = sorted({version for row in rows for version in row["versions"]})
    if len(versions) > 1:
        found.append(f"made by different versions of coterie: {', '.join(versions)}")
    without = [row["name"] for row in rows if row["people"] is None]
    if without:
        found.append(f"no values of single users, so neither interval nor test: {', '.join(without)}")
    return found


def counted(summary: dict[str, Any]) -> str:
    """What became of the rows that were read, and how the protocol cut them: sums that always hold."""
    rules, c = summary["protocol"], summary["protocol"]["counts"]
    read = c["rows"] + c["quarantined"]
    gone = {
        "quarantined": c["quarantined"], "below the rating threshold": c["below_threshold"],
        f"of users with fewer than {rules['min_interactions']}": c["in_dropped_users"], "merged repeats": c["merged"],
    }  # fmt: skip
    taken = "".join(f" - {count:,} {why}" for why, count in gone.items() if count)
    lines = [
        f"{read:,} rows read{taken} = {c['interactions']:,} interactions; {c['users']:,} users, {c['items']:,} items",
        f"{rules['split']}: {c['train']:,} train, {c['validation']:,} validation, {c['test']:,} test; "
        f"{c['users_tested']:,} users tested, {c['users_training_only']:,} only train"
        + (f"; {c['set_aside']:,} rows set aside" if c["set_aside"] else ""),
    ]
    if c["test_with_later_training"]:
        share = c["test_with_later_training"] / c["test"]
        lines.append(f"{share:.1%} of the test interactions have training rows of the same item from their future")
    if c["users_with_few_candidates"]:
        few = number(c["users_with_few_candidates"], "user has", "users have")
        lines.append(f"{few} fewer sampled candidates than asked for")
    return "\n".join(lines)
