"""The drawings of the papers from runs in the cache: numbers for the record, HTML beside the cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from coterie.data.interactions import Interactions
from coterie.errors import CoterieError
from coterie.report import figures
from coterie.report.studies import curriculum_shapes
from coterie.runs.run import Run

Say = Callable[[str], None]
_LARGE = ("updates", "recommended")  # of FedeRank's figures: the lines themselves stay beside the cache


def draw(
    entry: Mapping[str, Any], data: Interactions, places: Mapping[tuple[str, str], Path], cache: Path
) -> dict[str, Any] | None:
    """The numbers of a drawing, or None if its runs are not there."""
    kind = str(entry["draw"])
    folder = cache / "figures" / data.name
    if kind.startswith("federank-"):
        return _federank(kind.removeprefix("federank-"), data, cache)
    if kind == "curricula":
        return _kept(curriculum_shapes(), folder)
    if not places:
        return None
    runs = {f"{row} [{protocol}]": Run(place, data) for (row, protocol), place in places.items()}
    if kind == "convergence":
        return _kept(figures.convergence(runs), folder)
    if kind == "sparsity":
        last = {name: dict(run.rounds[-1]["shares"]) for name, run in runs.items()}
        return _kept(figures.sparsity(runs), folder) | {"last": last, "published": entry.get("published")}
    if kind == "item-map":
        return _item_map(next(iter(runs.values())), folder)
    raise CoterieError(f"{entry['id']}: no such drawing: {kind}")


def _kept(figure: figures.Figure, folder: Path) -> dict[str, Any]:
    _save(figure, folder)
    return {"title": figure.title, **figure.numbers}


def _save(figure: figures.Figure, folder: Path) -> None:
    with suppress(CoterieError):  # without plotly there are the numbers
        figure.save(folder)


def _item_map(run: Run, folder: Path) -> dict[str, Any] | None:
    """t-SNE of the most active person's items; in the record only how far rated and unrated items are apart."""
    import numpy as np

    if not run.directory.model.exists():
        return None
    data = run.prepared.data
    user = data.user_ids[int(np.argmax(run.prepared.train.lengths))]
    try:
        figure = figures.item_map(run, user, most=600)
    except CoterieError:
        return None
    _save(figure, folder)
    rated = np.array(figure.numbers["rated"])
    apart = {}
    for name, place in figure.numbers["points"].items():
        points = np.column_stack([place["x"], place["y"]])
        centres = points[rated].mean(0), points[~rated].mean(0)
        inside = np.concatenate([points[rated] - centres[0], points[~rated] - centres[1]])
        apart[name] = float(np.linalg.norm(centres[0] - centres[1]) / np.sqrt((inside**2).sum(1).mean()))
    return {"title": figure.title, "rated": int(rated.sum()), "unrated": int((~rated).sum()), "apart": apart}


def study(entry: Mapping[str, Any], data: Interactions, cache: Path, say: Say) -> None:
    """FedeRank's figures have a study of their own, which keeps what it measured in the cache."""
    from coterie.report.federank_study import Study

    which = str(entry["draw"]).removeprefix("federank-")
    getattr(Study(data, _study_folder(data, cache), behaviour="as_published", threads=1, say=say), which)()


def _study_folder(data: Interactions, cache: Path) -> Path:
    return cache / "federank-study" / data.name


def _federank(which: str, data: Interactions, cache: Path) -> dict[str, Any] | None:
    file = _study_folder(data, cache) / f"{which}.json"
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    return {key: value for key, value in found.items() if which not in _LARGE or key not in ("lines", "popularity")}
