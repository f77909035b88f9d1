"""EASE's ridge by validation alone: the curves, and the rule that picks the default.

    python -m benchmarks.ease_reg docs/findings/ease-reg.json

Clean protocol, seed 0. The yardstick's four figures (HR and NDCG@10, sampled and full) are measured on validation for
each ridge, unless the JSON has them. The rule: each figure as a share of the best one measured for that data set; the
ridge with the greatest mean of shares over four figures and two data sets is the default. It was fixed before the first
curve (of plain ridges) was drawn. The test is not read.

A ridge is a plain number, or so many times the mean diagonal of X^T X (how many people have an item, on average): if
everybody were there twice, X^T X would double, and only a ridge that doubles too gives the same weights. This second
form was added later, when the plain curves were known and let one expect that ml-1m likes more of it than ml-100k; it
is judged by the same rule among all ridges of both forms, and refused in any case if on a third data set, looked at
only then, its choice has a lesser mean share than the best plain ridge of the first two.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from coterie.algorithms.central.ease import EASE, Server, binary, choose, solve
from coterie.data.load import load
from coterie.evaluate.metrics import averages, per_user
from coterie.evaluate.ranks import Task, rank
from coterie.protocol import Prepared, prepare, resolve

PLAIN = (100.0, 200.0, 300.0, 400.0, 600.0, 800.0, 1000.0, 1500.0)
OWNERS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
DATA = ("ml-100k", "ml-1m")
CHECK = "amazon-instant-video"
METRICS = ("HR@10", "NDCG@10")

Curve = dict[str, dict[str, float]]  # a ridge's name to its figures


def validated(prepared: Prepared, reg: float, gram: np.ndarray) -> dict[str, float]:
    server, history = Server(solve(gram, reg), np.array([reg])), prepared.history
    tasks = {
        "full": Task(prepared.validation, (prepared.train,), top=0),
        "sampled": Task(prepared.validation, (), prepared.validation_candidates, top=0),
    }
    ranks = rank(
        lambda users: EASE().score(server, (), history, users), prepared.users, history.n_items, list(tasks.values()), 1
    )
    found = {}
    for kind, one in zip(tasks, ranks, strict=True):
        every = averages(per_user(one, (10,)))
        found |= {f"{kind} {metric}": every[metric] for metric in METRICS}
    return found


def curve(name: str, plain: tuple[float, ...], owners: tuple[float, ...], known: Curve) -> tuple[float, Curve]:
    """The mean number of owners of an item that has any, and the figures of every ridge; what is known is taken."""
    prepared = prepare(load(name), resolve("clean"), 0)
    has = binary(prepared.history)
    gram = (has.T @ has).toarray()
    had = np.diag(gram)
    mean = float(had[had > 0].mean())
    ridges = {f"{reg:g}": reg for reg in plain} | {f"{reg:g} owners": reg * mean for reg in owners}
    found = {}
    for text, reg in ridges.items():
        found[text] = known.get(text) or validated(prepared, reg, gram)
        print(name, text, f"{reg:.1f}", found[text], flush=True)
    return mean, found


def shares(curves: dict[str, Curve]) -> dict[str, float]:
    """The rule: mean over data sets and figures of value / best value."""
    best = {
        (name, key): max(one[key] for one in curves[name].values())
        for name in curves
        for key in next(iter(curves[name].values()))
    }
    ridges = next(iter(curves.values()))
    return {
        text: sum(curves[name][text][key] / top for (name, key), top in best.items()) / len(best) for text in ridges
    }


def main(out: Path) -> None:
    before: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    known = before.get("validation", {})
    measured = {name: curve(name, PLAIN, OWNERS, known.get(name, {})) for name in DATA}
    by_rule = shares({name: one for name, (_, one) in measured.items()})
    chosen = max(by_rule, key=lambda text: by_rule[text])
    plain = max((text for text in by_rule if "owners" not in text), key=lambda text: by_rule[text])
    alone = {name: shares({name: {text: one[text] for text in one if "owners" not in text}})
             for name, (_, one) in measured.items()}  # fmt: skip
    found: dict[str, Any] = {
        "chosen": chosen,
        "best_of_both_forms": chosen,
        "best_plain": plain,
        "best_plain_for_one_set_alone": {name: max(one, key=one.__getitem__) for name, one in alone.items()},
        "mean_share": by_rule,
        "mean_owners": {name: mean for name, (mean, _) in measured.items()},
        "validation": {name: one for name, (_, one) in measured.items()},
    }
    if chosen != plain:
        third = before.get("check", {}).get("validation", {})
        mean, third = curve(CHECK, (float(plain),), (float(chosen.split()[0]),), third)
        check = shares({CHECK: third})
        found["check"] = {"data": CHECK, "mean_owners": mean, "validation": third, "mean_share": check}
        if check[chosen] < check[plain]:
            found["chosen"] = plain
    found["auto"] = _auto(plain, found | {"check": found.get("check", before.get("check", {}))})
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({key: found[key] for key in ("mean_share", "chosen", "auto")}, indent=1))


def _auto(plain: str, found: dict[str, Any]) -> dict[str, Any]:
    """`reg=auto` against the best single ridge on all three data sets, by the same rule."""
    pairs: dict[str, Curve] = {}
    regs: dict[str, float] = {}
    for name in (*DATA, CHECK):
        known = found["validation"].get(name) or found["check"].get("validation", {})
        regs[name] = choose(prepare(load(name), resolve("clean"), 0).history, 0)
        _, one = curve(name, (float(plain), regs[name]), (), known)
        pairs[name] = {"auto": one[f"{regs[name]:g}"], plain: one[plain]}
    return {"ridges": regs, "validation": pairs, "mean_share": shares(pairs)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
