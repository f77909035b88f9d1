"""The central rows of FedeRank's table: settings by validation, figures on 64 %, on 80 %, and on the paper's own cut.

    python -m benchmarks.central_rows FOLDER docs/findings/central-rows.json SYSTEM-DATA ...

A row (`userknn-ml-1m`) is chosen over the grid below by F1@10 on validation, epoch and settings, and only the choice is
tested: trained on 64 % (`test`), on 80 % (`refit`), and on 80 % where the last fifth is rounded to the nearest whole
number instead of down (`refit_nearest`), which is how the paper's histories were cut (federank.md). What is already in
the JSON stays unless it is measured anew. FOLDER keeps what was validated, so a row can be gone on with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import coterie
from benchmarks.federank_split import TINY
from coterie.algorithms import make
from coterie.protocol import Prepared
from coterie.ragged import from_pairs
from coterie.report.federank_rows import METRICS, Rows, refitted

# system: (grid to choose from on validation, epochs, epochs between validations)
ROWS: dict[str, tuple[dict[str, tuple[Any, ...]], int | None, int]] = {
    "userknn": ({"neighbours": (20, 50, 100, 200), "weighting": ("cosine", "tfidf")}, None, 1),
    "itemknn": (
        {
            "neighbours": (20, 50, 200),
            "weighting": ("cosine",),
            "shrink": (0.0, 1.0, 5.0, 20.0),
            "nearest_of": ("hers", "candidate"),
        },
        None,
        1,
    ),
    "bpr": ({"lr": (0.02, 0.05, 0.1), "reg": (0.003, 0.01, 0.05)}, 100, 10),
    "multvae": ({"beta": (0.05, 0.2), "lr": (0.001,)}, 40, 10),
}


def nearest(prepared: Prepared) -> Prepared:
    """The same histories, the last fifth of each rounded to the nearest whole number; the other 80 % are training and
    validation together (all of them validation here, for `refitted` to join)."""
    data = prepared.data
    assert data.times is not None and not prepared.counts["merged"]
    lengths = np.diff(data.indptr)
    user = np.repeat(np.arange(data.n_users), lengths)
    order = np.lexsort((np.arange(len(user)), data.times, user))
    from_end = np.empty(len(order), np.int64)
    from_end[order] = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(order))
    held = from_end <= np.floor(lengths / 5 + 0.5 + TINY)[user]
    nothing = from_pairs(user[:0], data.items[:0], data.n_users)
    rest, test = (from_pairs(user[part], data.items[part], data.n_users) for part in (~held, held))
    return prepared._replace(train=nothing, validation=rest, test=test)


def row(system: str, name: str, folder: Path) -> dict[str, Any]:
    grid, epochs, every = ROWS[system]
    rows = Rows(coterie.load(name), folder, threads=1, say=print)
    found = rows.row(system, grid, epochs, every)
    algorithm = make(system, **found["chosen"]["settings"])
    cut = nearest(rows.prepared)
    figures = refitted(algorithm, cut, found["chosen"]["epoch"], rows.seed, 1)
    items = rows.prepared.data.n_items
    for part in (found["test"], found["refit"], figures):
        part["items covered"] = round(part["Coverage@10"] * items)
    return found | {"refit_nearest": figures, "test_rows_nearest": len(cut.test.items)}


def main(folder: Path, out: Path, names: list[str]) -> None:
    for name in names:
        system, _, data = name.partition("-")
        one = row(system, data, folder)
        found = json.loads(out.read_text()) if out.exists() else {}
        found[name] = one
        out.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
        for part in ("test", "refit", "refit_nearest"):
            print(name, one["settings"], part, {metric: round(one[part][metric], 5) for metric in METRICS})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
