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
from coterie.report.federank_study import Study
from coterie.report.studies import curriculum_shapes
from coterie.runs.identity import algorithm_version, hardware
from coterie.runs.run import Run

Say = Callable[[str], None]
_LARGE = ("updates", "recommended")  # of FedeRank's figures: the lines themselves stay beside the cache


def draw(
    entry: Mapping[str, Any], data: Interactions, places: Mapping[tuple[str, str], Path], cache: Path, folder: Path
) -> dict[str, Any] | None:
    """The numbers of a drawing, or None if its runs are not there; as HTML it goes to `folder`."""
    kind = str(entry["draw"])
    if has_study(entry):
        return _federank(kind.removeprefix("federank-"), data, cache)
    if kind == "curricula":
        return _kept(curriculum_shapes(), folder)
    if not places:
        return None
    runs = {f"{row} [{protocol}]": Run(place, data) for (row, protocol), place in places.items()}
    made = {"runs": {name: _origin(run) for name, run in runs.items()}}
    if kind == "convergence":
        return _kept(figures.convergence(runs), folder) | made
    if kind == "sparsity":
        last = {name: dict(run.rounds[-1]["shares"]) for name, run in runs.items()}
        return _kept(figures.sparsity(runs), folder) | made | {"last": last, "published": entry.get("published")}
    if kind == "item-map":
        drawn = _item_map(runs, folder)
        return None if drawn is None else drawn | made
    raise CoterieError(f"{entry['id']}: no such drawing: {kind}")


def _origin(run: Run) -> dict[str, Any]:
    """By what a curve was made; a run in the cache is of the present code, as its place says."""
    return {"seed": run.spec.seed, "version": algorithm_version(run.spec.algorithm), "hardware": hardware()}


def _kept(figure: figures.Figure, folder: Path) -> dict[str, Any]:
    _save(figure, folder)
    return {"title": figure.title, **figure.numbers}


def _save(figure: figures.Figure, folder: Path) -> None:
    with suppress(CoterieError):  # without plotly there are the numbers
        figure.save(folder)


def _item_map(runs: Mapping[str, Run], folder: Path) -> dict[str, Any] | None:
    """t-SNE of the most active person's items in each run, those she rated first; how far they are from the others."""
    import numpy as np

    found: dict[str, Any] = {"points": {}, "apart": {}}
    for label, run in runs.items():
        if not run.directory.model.exists():
            continue
        user = run.prepared.data.user_ids[int(np.argmax(run.prepared.train.lengths))]
        try:
            figure = figures.item_map(run, user, most=400)
        except CoterieError:  # without scikit-learn there is no map
            return None
        protocol = label[label.rindex("[") :]
        _save(figure._replace(name=f"item-map-{protocol.strip('[]')}"), folder)
        rated = np.array(figure.numbers["rated"])
        order = np.argsort(~rated, kind="stable")
        for view, place in figure.numbers["points"].items():
            points, name = np.column_stack([place["x"], place["y"]]), f"{view} {protocol}"
            found["points"][name] = dict(zip("xy", points[order].T.round(1).tolist(), strict=True))
            centres = points[rated].mean(0), points[~rated].mean(0)
            inside = np.concatenate([points[rated] - centres[0], points[~rated] - centres[1]])
            apart = np.linalg.norm(centres[0] - centres[1]) / np.sqrt((inside**2).sum(1).mean())
            found["apart"][name] = float(apart)
        found |= {"title": figure.title, "rated": int(rated.sum()), "unrated": int((~rated).sum())}
    return found if found["points"] else None


def study(entry: Mapping[str, Any], data: Interactions, cache: Path, say: Say) -> None:
    """FedeRank's figures have a study of their own, which keeps what it measured in the cache."""
    which = str(entry["draw"]).removeprefix("federank-")
    getattr(_study(data, cache, say), which)()


def has_study(entry: Mapping[str, Any]) -> bool:
    return str(entry.get("draw", "")).startswith("federank-")


def models_to_train(data: Interactions, cache: Path) -> int:
    """How many models FedeRank's figures have still to train; all three are made of the same ones."""
    return _study(data, cache, lambda _: None).missing()


def _study(data: Interactions, cache: Path, say: Say) -> Study:
    return Study(data, _study_folder(data, cache), behaviour="as_published", threads=1, say=say)


def _study_folder(data: Interactions, cache: Path) -> Path:
    return cache / "federank-study" / data.name


def _federank(which: str, data: Interactions, cache: Path) -> dict[str, Any] | None:
    file = _study_folder(data, cache) / f"{which}.json"
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    return {key: value for key, value in found.items() if which not in _LARGE or key not in ("lines", "popularity")}
