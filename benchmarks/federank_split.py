"""How did the FedeRank paper cut its histories? Its Most Popular row, which has nothing to tune, tells.

    python -m benchmarks.federank_split docs/findings/federank-split.json

The last fifth of each history is the test; a fifth that is no whole number can be rounded down (as Coterie does), to
the nearest, or up. Popularity is counted on all the rest (80 %). FedeRank and FCF with shipped defaults are measured on
the paper's cut too, trained on all the rest for as many epochs as validation chose on Coterie's own cut
(docs/findings/federank.json).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import coterie
from coterie.algorithms import make
from coterie.evaluate.metrics import averages, beyond_accuracy, per_user
from coterie.evaluate.ranks import Task, rank
from coterie.protocol import prepare, resolve
from coterie.ragged import Ragged, from_pairs
from coterie.report.federank_rows import refitted

PUBLISHED = {"amazon-digital-music": (0.00469, 0.00603, 24, 0.00023), "ml-1m": (0.10224, 0.03924, 118, 0.00569)}
TINY = 1e-9  # a fifth of 15 is 3, whatever floating point says


CHOSEN = Path(__file__).parents[1] / "docs" / "findings" / "federank.json"


def cut(data: coterie.Interactions, rounding: str) -> tuple[Ragged, Ragged]:
    """Everybody's items but the last fifth, and the last fifth."""
    assert data.times is not None
    lengths = np.diff(data.indptr)
    user, fifth = np.repeat(np.arange(data.n_users), lengths), lengths / 5
    order = np.lexsort((np.arange(len(user)), data.times, user))
    from_end = np.empty(len(order), np.int64)
    from_end[order] = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(order))
    ways = {"down": np.floor(fifth + TINY), "nearest": np.floor(fifth + 0.5 + TINY), "up": np.ceil(fifth - TINY)}
    test = from_end <= ways[rounding][user]
    train, held = (from_pairs(user[part], data.items[part], data.n_users) for part in (~test, test))
    return train, held


def popular(name: str) -> dict[str, dict[str, float]]:
    data, found = coterie.load(name), {}
    for rounding in ("down", "nearest", "up"):
        train, test = cut(data, rounding)
        had = np.bincount(train.items, minlength=data.n_items)
        ranks = rank(
            lambda users, had=had: np.tile(had.astype(np.float32), (len(users), 1)),  # type: ignore[misc]
            np.arange(data.n_users), data.n_items, [Task(test, (train,))], 1,
        )[0]  # fmt: skip
        assert ranks.top is not None
        every = averages(per_user(ranks, (10,))) | beyond_accuracy(ranks.top, had, data.n_users, (10,))
        found[rounding] = {
            "test_rows": len(test.items),
            "P@10": every["Precision@10"],
            "R@10": every["Recall@10"],
            "items": round(every["Coverage@10"] * data.n_items),
            "1-Gini": every["1-Gini@10"],
        }
    return found


def trained(system: str, name: str) -> dict[str, Any] | None:
    """The paper's cut: what `refit` of a row is on ours."""
    row = json.loads(CHOSEN.read_text())["rows"].get(f"{system}-{name}")
    algorithm = make(system)
    if row is None or row["settings"] != repr(algorithm):
        return None  # the row is of other defaults: measure it first
    prepared = prepare(coterie.load(name), resolve("paper:federank"), 0)
    train, test = cut(prepared.data, "nearest")
    nothing = Ragged(np.zeros(train.users + 1, np.int64), np.empty(0, np.int32))
    paper = prepared._replace(train=train, validation=nothing, test=test)
    epochs = row["chosen"]["epoch"]
    return {"settings": repr(algorithm), "epochs": epochs, **refitted(algorithm, paper, epochs, 0, 1)}


if __name__ == "__main__":
    both: dict[str, Any] = {}
    for name in PUBLISHED:
        both[name] = {"published_P_R_items_Gini": PUBLISHED[name], **popular(name)}
        both[name] |= {f"{system}, nearest": trained(system, name) for system in ("federank", "fcf")}
    Path(sys.argv[1]).write_text(json.dumps(both, indent=1) + "\n")
    print(json.dumps(both, indent=1))
