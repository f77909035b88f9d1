"""FedeRank's figures and those of its table's other rows: measure what is missing in a folder, gather all in one JSON.

    python -m benchmarks.federank_figures FOLDER docs/findings/federank.json [NAME ...]

Names pick what to measure: `study-DATA` (the curve by pi with the two analyses), `ALGORITHM-DATA` (a row), or
`run-ALGORITHM-DATA` (`coterie run` with shipped defaults). What is named is measured unless FOLDER has it; everything
FOLDER has is put over what the JSON held. Settings are chosen on validation.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import coterie
from coterie.algorithms import make
from coterie.report.federank_rows import METRICS, Rows
from coterie.report.federank_study import Study

PROTOCOL = "paper:federank"
DATA = ("amazon-digital-music", "ml-1m")
# system: (grid to choose from on validation, epochs, epochs between validations)
ROWS: dict[str, tuple[dict[str, tuple[Any, ...]], int | None, int]] = {
    "mostpop": ({}, None, 1),
    "federank": ({}, None, 5),
    "fcf": ({}, None, 10),
    "userknn": ({"neighbours": (50, 100, 200), "weighting": ("cosine", "tfidf")}, None, 1),
    "itemknn": ({"neighbours": (50, 200), "weighting": ("cosine",), "shrink": (0.0, 1.0, 5.0, 20.0)}, None, 1),
    "bpr": ({"lr": (0.02, 0.05), "reg": (0.01, 0.05)}, 60, 20),
    "multvae": ({"beta": (0.05, 0.2)}, 40, 10),
}


def study(data: str, folder: Path) -> None:
    one = Study(coterie.load(data), folder / f"study-{data}", threads=1, say=print, every=5)
    one.curve()
    one.updates()
    one.recommended()


def row(name: str, data: str, folder: Path) -> None:
    grid, epochs, every = ROWS[name]
    Rows(coterie.load(data), folder / "rows", threads=1, say=print).row(name, grid, epochs, every)


def run(name: str, data: str, folder: Path) -> None:
    out = folder / f"run-{name}-{data}"
    coterie.run(make(name), coterie.load(data), protocol=PROTOCOL, out=out, keep="nothing", threads=1)


def gather(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"runs": {}, "rows": {}, "curves": {}}
    for place in sorted(folder.glob("run-*/summary.json")):
        one = json.loads(place.read_text())
        name, data = one["algorithm"], one["data"]["name"]
        found["runs"][f"{name}-{data}"] = {
            "command": f"coterie run --algorithm {name} --data {data} --protocol {PROTOCOL}",
            **{key: one[key] for key in ("best_round", "rounds", "seed", "settings", "valid")},
            **{part: {key: one["metrics"][part]["full"][key] for key in METRICS} for part in ("validation", "test")},
        }
    for name in ROWS:
        for data in DATA:
            path = folder / "rows" / f"{name}-{data}.json"
            if path.exists():
                found["rows"][path.stem] = json.loads(path.read_text())
    for data in DATA:
        place = folder / f"study-{data}"
        if not (place / "curve.json").exists():
            continue
        curve, updates, shown = (json.loads((place / f"{one}.json").read_text()) for one in
                                 ("curve", "updates", "recommended"))  # fmt: skip
        curve["updates"] = updates["shares"]
        curve["recommended"] = {
            "popularity_share_of_first": shown["popularity_share_of_first"],
            "lines": shown["shares"],
        }
        found["curves"][data] = curve
    return found


def main(folder: Path, out: Path, names: list[str]) -> None:
    for name in names:
        kind, _, data = name.partition("-")
        if kind == "study" and not (folder / name / "recommended.json").exists():
            study(data, folder)
        elif kind == "run" and not (folder / name / "summary.json").exists():
            run(*data.split("-", 1), folder)
        elif kind in ROWS and not (folder / "rows" / f"{name}.json").exists():
            row(kind, data, folder)
    before = json.loads(out.read_text()) if out.exists() else {}
    found = {kind: before.get(kind, {}) | some for kind, some in gather(folder).items()}
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{', '.join(f'{len(one)} {kind}' for kind, one in found.items())}: {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
