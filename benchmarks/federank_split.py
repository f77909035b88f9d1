"""How did the FedeRank paper cut its histories? Its Most Popular row, which has nothing to tune, tells.

    python -m benchmarks.federank_split docs/findings/federank-split.json

The last fifth of each history is the test; a fifth that is no whole number can be rounded down (as Coterie does), to
the nearest, or up. Popularity is counted on all the rest (80 %).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import coterie
from coterie.evaluate.metrics import averages, beyond_accuracy, per_user
from coterie.evaluate.ranks import Task, rank
from coterie.ragged import from_pairs

PUBLISHED = {"amazon-digital-music": (0.00469, 0.00603, 24, 0.00023), "ml-1m": (0.10224, 0.03924, 118, 0.00569)}
TINY = 1e-9  # a fifth of 15 is 3, whatever floating point says


def popular(name: str) -> dict[str, dict[str, float]]:
    data = coterie.load(name)
    assert data.times is not None
    lengths = np.diff(data.indptr)
    user, fifth = np.repeat(np.arange(data.n_users), lengths), lengths / 5
    order = np.lexsort((np.arange(len(user)), data.times, user))
    from_end = np.empty(len(order), np.int64)
    from_end[order] = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(order))
    found = {}
    for rounding, held in {
        "down": np.floor(fifth + TINY),
        "nearest": np.floor(fifth + 0.5 + TINY),
        "up": np.ceil(fifth - TINY),
    }.items():
        test = from_end <= held[user]
        train = from_pairs(user[~test], data.items[~test], data.n_users)
        had = np.bincount(train.items, minlength=data.n_items)
        ranks = rank(
            lambda users, had=had: np.tile(had.astype(np.float32), (len(users), 1)),  # type: ignore[misc]
            np.arange(data.n_users), data.n_items,
            [Task(from_pairs(user[test], data.items[test], data.n_users), (train,))], 1,
        )[0]  # fmt: skip
        assert ranks.top is not None
        every = averages(per_user(ranks, (10,))) | beyond_accuracy(ranks.top, had, data.n_users, (10,))
        found[rounding] = {
            "test_rows": int(test.sum()),
            "P@10": every["Precision@10"],
            "R@10": every["Recall@10"],
            "items": round(every["Coverage@10"] * data.n_items),
            "1-Gini": every["1-Gini@10"],
        }
    return found


if __name__ == "__main__":
    both = {name: {"published_P_R_items_Gini": PUBLISHED[name], **popular(name)} for name in PUBLISHED}
    Path(sys.argv[1]).write_text(json.dumps(both, indent=1) + "\n")
    print(json.dumps(both, indent=1))
