"""EASE's ridge by validation alone: the curves, and the rule that picks the default.

    python -m benchmarks.ease_reg docs/findings/ease-reg.json

Clean protocol, seed 0. The yardstick's four figures (HR and NDCG@10, sampled and full) are measured on validation for
each candidate on three data sets, unless the JSON has them. The rule: each figure as a share of the best one measured
for that data set; the candidate with the greatest mean of shares over four figures and three data sets is the default.
It was fixed before the first curve (of plain ridges) was drawn. The test is not read.

A candidate is a plain number, `auto` (chosen from the training data by `coterie.algorithms.central.ease.choose`), or a
number that follows the data:

- so many times the people: a ridge of c n beside the sum X^T X is c beside its mean over people. If everybody were
  there twice, X^T X would double, and only a ridge that doubles too gives the same weights;
- so many times the root of the people, or of the interactions: the ridge of a sum's noise, which grows with the root;
- so many times the mean owners of an item (the mean diagonal of X^T X), which doubles with the people too.

These grids were written down before any of their figures but those of `owners` was measured, and when the plain curves
of ml-100k and ml-1m were known. `owners` was refused before, by amazon-instant-video, and is here again for comparison.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg.lapack
import scipy.sparse

from coterie.algorithms.central.ease import EASE, Server, binary, choose, solve
from coterie.data.load import load
from coterie.evaluate.metrics import averages, per_user
from coterie.evaluate.ranks import Task, rank
from coterie.protocol import Prepared, prepare, resolve

GRIDS: dict[str, tuple[float, ...]] = {
    "": (100.0, 200.0, 300.0, 400.0, 600.0, 800.0, 1000.0, 1500.0),
    " people": (0.02, 0.05, 0.1, 0.15, 0.2, 0.3),
    " root people": (2.0, 4.0, 6.0, 8.0, 12.0),
    " root interactions": (0.25, 0.5, 0.75, 1.0, 1.5),
    " owners": (2.0, 3.0, 4.0, 6.0),
}
DATA = ("ml-100k", "ml-1m", "amazon-instant-video")
METRICS = ("HR@10", "NDCG@10")

Curve = dict[str, dict[str, float]]  # a ridge's name to its figures


def measures(prepared: Prepared) -> dict[str, float]:
    """What a unit of each form is on this data set."""
    had = np.bincount(prepared.history.items)
    people = float(np.count_nonzero(prepared.history.lengths))
    return {
        "": 1.0,
        " people": people,
        " root people": people**0.5,
        " root interactions": float(had.sum()) ** 0.5,
        " owners": float(had[had > 0].mean()),
    }


def scorer(prepared: Prepared, reg: float) -> Callable[[np.ndarray], np.ndarray]:
    """Scores of EASE with this ridge: from the shipped solution, or by the smaller inverse where people are few.

    X (X^T X + reg)^-1 = M X with M = (X X^T + reg)^-1, and diag(P) = (1 - diag(X^T M X)) / reg: the same scores.
    """
    owners = binary(prepared.history)
    if owners.shape[1] < owners.shape[0]:
        server = Server(solve((owners.T @ owners).toarray(), reg), np.array([reg]))
        return lambda users: EASE().score(server, (), prepared.history, users)
    owners = scipy.sparse.csr_matrix(owners, dtype=np.float64)
    inverse = (owners @ owners.T).toarray(order="F")
    inverse[np.diag_indices_from(inverse)] += reg
    inverse, _ = scipy.linalg.lapack.dpotrf(inverse, lower=1, overwrite_a=1)
    inverse, failed = scipy.linalg.lapack.dpotri(inverse, lower=1, overwrite_c=1)
    if failed:
        raise ArithmeticError(f"the matrix for ridge {reg} could not be inverted")
    for row in range(len(inverse)):  # the lower half is filled; the upper is its mirror
        inverse[row, row + 1 :] = inverse[row + 1 :, row]
    diagonal = np.zeros(owners.shape[1])
    for first in range(0, len(inverse), 1000):
        some = owners[first : first + 1000]
        diagonal += np.asarray(some.multiply((owners.T @ inverse[:, first : first + 1000]).T).sum(axis=0)).ravel()
    diagonal = (1.0 - diagonal) / reg

    def score(users: np.ndarray) -> np.ndarray:
        found: np.ndarray = owners[users].toarray() - (owners.T @ inverse[:, users]).T / diagonal
        return found.astype(np.float32)

    return score


def validated(prepared: Prepared, reg: float) -> dict[str, float]:
    tasks = {
        "full": Task(prepared.validation, (prepared.train,), top=0),
        "sampled": Task(prepared.validation, (), prepared.validation_candidates, top=0),
    }
    ranks = rank(scorer(prepared, reg), prepared.users, prepared.history.n_items, list(tasks.values()), 1)
    found = {}
    for kind, one in zip(tasks, ranks, strict=True):
        every = averages(per_user(one, (10,)))
        found |= {f"{kind} {metric}": every[metric] for metric in METRICS}
    return found


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
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    found = {key: found.get(key, {}) for key in ("ridges", "validation")}
    for name in DATA:
        prepared = prepare(load(name), resolve("clean"), 0)
        units, curve = measures(prepared), found["validation"].setdefault(name, {})
        ridges: dict[str, float] = found["ridges"].setdefault(name, {})
        if "auto" not in ridges:
            ridges["auto"] = choose(prepared.history, 0)
        ridges |= {f"{times:g}{form}": times * units[form] for form, grid in GRIDS.items() for times in grid}
        for text, reg in ridges.items():
            if text not in curve:
                same = f"{reg:g}"  # auto takes a plain ridge
                curve[text] = curve[same] if same in curve else validated(prepared, reg)
                out.write_text(json.dumps(found, indent=1) + "\n")  # what is measured is kept, should it be stopped
                print(name, text, f"{reg:.1f}", curve[text], flush=True)
        found["validation"][name] = {text: curve[text] for text in ridges}
    found["mean_share"] = shares(found["validation"])
    found["chosen"] = max(found["mean_share"], key=found["mean_share"].__getitem__)
    found["mean_share_for_one_set_alone"] = {name: shares({name: one}) for name, one in found["validation"].items()}
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({key: found[key] for key in ("mean_share", "chosen")}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
