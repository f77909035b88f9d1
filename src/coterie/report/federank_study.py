"""The FedeRank paper's study: what sharing less costs, whose rows are updated, what is recommended. Runs are kept.

    Study(coterie.load("ml-1m"), Path("runs/study")).curve()     # curve.json, curve.html

For each T the rate is chosen on validation with everything shared (pi = 1), then pi goes from 0.0 to 1.0 at that rate;
of each run the best epoch on validation counts. LibraryThing, the paper's third data set, has no times, so its temporal
split cannot be made from the public file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from coterie.algorithms import make
from coterie.data.interactions import Interactions
from coterie.evaluate.ranks import Task
from coterie.protocol import Prepared, prepare, resolve
from coterie.report.federank_rows import METRICS, best_epoch, measure, refitted
from coterie.report.figures import _plotly
from coterie.runs import tensors
from coterie.runs.identity import algorithm_version

PIS = tuple(round(0.1 * step, 1) for step in range(11))
MOST_UPDATED, MOST_POPULAR = 1000, 250


@dataclass(frozen=True)
class Study:
    data: Interactions
    out: Path
    behaviour: str = "coterie"
    epochs: int = 20
    triples: tuple[int | str, ...] = ("average", 1)
    rates: tuple[float, ...] | None = None  # to choose from on validation; None: the behaviour's own
    protocol: str = "paper:federank"
    seed: int = 0
    threads: int = 2
    say: Callable[[str], None] = lambda _: None
    every: int = 1  # epochs between validations
    pis: tuple[float, ...] = PIS

    @cached_property
    def prepared(self) -> Prepared:
        return prepare(self.data, resolve(self.protocol, "federank"), self.seed)

    def curve(self) -> dict[str, Any]:
        """F1, precision, recall, coverage and 1 - Gini by pi, for each T; and whether a tenth is nearly enough."""
        points = self._points()
        found = []
        for T in self.triples:
            mine = {one["pi"]: one["test"]["F1@10"] for one in points if one["T"] == T}
            top = max(mine, key=lambda pi: mine[pi])
            if 0.1 in mine and mine[top] > 0:
                found.append(
                    f"T {T}: best F1 {mine[top]:.5f} at pi {top}; pi 0.1 reaches {mine[0.1] / mine[top]:.1%} of it"
                )
        panels = {
            metric: {
                f"T {T}": {"x": list(self.pis), "y": [one["test"][metric] for one in points if one["T"] == T]}
                for T in self.triples
            }
            for metric in METRICS
        }
        kept = [{key: value for key, value in one.items() if key not in ("updated", "recommended")} for one in points]
        title = f"FedeRank on {self.data.name}: what sharing less costs"
        return self._save("curve", title, {"points": kept, "found": found}, panels, "pi")

    def updates(self) -> dict[str, Any]:
        """Share of all updates that each item gets: the most updated items in falling order, by pi."""
        lines = [
            {"T": one["T"], "pi": one["pi"], "y": one["updated"]["shares"], "items_updated": one["updated"]["items"],
             "updates": one["updated"]["all"]}
            for one in self._points()
        ]  # fmt: skip
        shares = [one | {"share_of_first": _first(one["y"], (10, 100, 1000))} for one in lines]
        found = [
            f"T {T}: the 100 most updated items get {self._by_pi(T, shares, '100')} of all updates"
            for T in self.triples
        ]
        title = f"FedeRank on {self.data.name}: updates per item, the {MOST_UPDATED} most updated"
        numbers = {"lines": lines, "shares": _without_lines(shares), "found": found}
        return self._save("updates", title, numbers, self._panels(lines), "item, by updates")

    def recommended(self) -> dict[str, Any]:
        """Share of all top-10 places that each of the most popular items gets, beside its share of the positives."""
        popularity = np.sort(np.bincount(self.prepared.history.items, minlength=self.data.n_items))[::-1]
        black = (popularity[:MOST_POPULAR] / popularity.sum()).tolist()
        lines = [{"T": one["T"], "pi": one["pi"], "y": one["recommended"]} for one in self._points()]
        panels = self._panels(lines)
        for panel in panels.values():
            panel["popularity"] = {"x": list(range(1, len(black) + 1)), "y": black}
        shares = [one | {"share_of_first": _first(one["y"], (10, 50, 250))} for one in lines]
        mine = _first(black, (10, 50, 250))
        found = [
            f"T {T}: the 50 most popular items, which have {mine['50']:.1%} of the positives, get "
            f"{self._by_pi(T, shares, '50')} of all places among the first ten"
            for T in self.triples
        ]
        title = f"FedeRank on {self.data.name}: recommendations per item, the {MOST_POPULAR} most popular"
        numbers = {
            "lines": lines, "popularity": black, "shares": _without_lines(shares), "popularity_share_of_first": mine,
            "found": found,
        }  # fmt: skip
        return self._save("recommended", title, numbers, panels, "item, by popularity")

    def table(self) -> dict[str, Any]:
        """For each T the pi that is best on validation, and the same trained again with the validation items in it.

        The paper's own MostPop row is that of 80 % of each history, so its figures are trained on validation too.
        """
        rows = []
        for T in self.triples:
            best = max(
                (one for one in self._points() if one["T"] == T), key=lambda one: float(one["validation"]["F1@10"])
            )
            row = {key: best[key] for key in ("T", "lr", "pi", "epoch", "validation", "test")}
            row["refit"] = self._cached(T, best["lr"], best["pi"], refit_epochs=best["epoch"])["test"]
            rows.append(row)
        title = f"FedeRank on {self.data.name}: rate and pi chosen on validation"
        panels = {
            metric: {
                label: {"x": [str(row["T"]) for row in rows], "y": [row[key][metric] for row in rows]}
                for label, key in (("64 % of each history", "test"), ("80 %", "refit"))
            }
            for metric in METRICS[:3]
        }
        return self._save("table", title, {"rows": rows}, panels, "T")

    def _points(self) -> list[dict[str, Any]]:
        return [self._cached(T, self._rate(T), pi) for T in self.triples for pi in self.pis]

    def _rate(self, T: int | str) -> float:
        """The rate that is best on validation with everything shared."""
        if self.rates is None:
            return float(make("federank", self.behaviour).lr)
        return max(self.rates, key=lambda lr: float(self._cached(T, lr, 1.0)["validation"]["F1@10"]))

    def _cached(self, T: int | str, lr: float, pi: float, refit_epochs: int | None = None) -> dict[str, Any]:
        algorithm = make("federank", self.behaviour, triples=T, lr=lr, pi=pi)
        place = self._place(algorithm, refit_epochs)
        if not place.exists():
            again = "" if refit_epochs is None else f", on 80 % for {refit_epochs} epochs"
            self.say(f"{self.data.name}: T {T}, lr {lr:g}, pi {pi}{again}")
            about = {"T": T, "lr": lr, "pi": pi}
            place.parent.mkdir(parents=True, exist_ok=True)
            if refit_epochs is None:
                measured = self._measure(algorithm, self.prepared)
            else:
                measured = {"test": refitted(algorithm, self.prepared, refit_epochs, self.seed, self.threads)}
            tensors.write_json(place, about | measured)
        found: dict[str, Any] = json.loads(place.read_text())
        return found

    def _place(self, algorithm: Any, refit_epochs: int | None = None) -> Path:
        """Where a model's figures are kept: by what was asked and the code that answers."""
        asked = [repr(algorithm), self.data.sha256, self.protocol, self.epochs, self.every, self.seed, refit_epochs]
        key = json.dumps([*asked, algorithm_version("federank")])
        return self.out / "measured" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"

    def missing(self) -> int:
        """Models of the curves that have still to be trained, at the behaviour's own rate."""
        every = (make("federank", self.behaviour, triples=T, pi=pi) for T in self.triples for pi in self.pis)
        return sum(not self._place(one).exists() for one in every)

    def _measure(self, algorithm: Any, prepared: Prepared) -> dict[str, Any]:
        """Train; the best epoch on validation is measured on the test."""
        history = prepared.history
        best = best_epoch(algorithm, prepared, self.epochs, self.every, self.seed, self.threads, self.say)
        task = Task(prepared.test, (prepared.train, prepared.validation))
        test, top = measure(algorithm, best.state, prepared, task, self.threads)
        shown = np.bincount(top[:, :10][top[:, :10] >= 0], minlength=history.n_items)
        popular = np.argsort(-np.bincount(history.items, minlength=history.n_items), kind="stable")[:MOST_POPULAR]
        ranked = np.sort(best.touched)[::-1][:MOST_UPDATED]
        total = int(best.touched.sum())
        return {
            "epoch": best.epoch, "validation": best.validation, "test": test,
            "updated": {
                "shares": (ranked / max(total, 1)).tolist(), "items": int((best.touched > 0).sum()), "all": total,
            },
            "recommended": (shown[popular] / max(int(shown.sum()), 1)).tolist(),
        }  # fmt: skip

    def _by_pi(self, T: int | str, shares: list[dict[str, Any]], first: str) -> str:
        """In words, for the least, a tenth and the most that is shared."""
        mine = {one["pi"]: one["share_of_first"][first] for one in shares if one["T"] == T}
        told = [pi for pi in dict.fromkeys((min(mine), 0.1, max(mine))) if pi in mine]
        return ", ".join(f"{mine[pi]:.1%} at pi {pi}" for pi in told)

    def _panels(self, lines: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, list[Any]]]]:
        panels: dict[str, dict[str, dict[str, list[Any]]]] = {}
        for one in lines:
            place = panels.setdefault(f"T {one['T']}", {})
            place[f"pi {one['pi']}"] = {"x": list(range(1, len(one["y"]) + 1)), "y": one["y"]}
        return panels

    def _save(
        self, name: str, title: str, numbers: dict[str, Any], panels: dict[str, dict[str, Any]], x: str
    ) -> dict[str, Any]:
        """`name.json`, and `name.html` with one panel for each metric or T, self-contained."""
        about = {
            "title": title, "data": self.data.name, "data_sha256": self.data.sha256, "protocol": self.protocol,
            "behaviour": self.behaviour, "epochs": self.epochs, "every": self.every, "seed": self.seed,
            "rates": self.rates, "settings": repr(make("federank", self.behaviour)), "counts": self.prepared.counts,
        }  # fmt: skip
        self.out.mkdir(parents=True, exist_ok=True)
        found = about | numbers
        tensors.write_json(self.out / f"{name}.json", found)
        (self.out / f"{name}.html").write_text(_page(title, panels, x))
        self.say(f"{self.out / name}.json and .html")
        return found


def _first(shares: list[float], counts: tuple[int, ...]) -> dict[str, float]:
    return {str(n): sum(shares[:n]) for n in counts}


def _without_lines(shares: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key != "y"} for one in shares]


def _page(title: str, panels: dict[str, dict[str, Any]], x: str) -> str:
    go, make_subplots = _plotly()
    plot = make_subplots(1, len(panels), subplot_titles=list(panels))
    for column, lines in enumerate(panels.values(), 1):
        for label, line in lines.items():
            dash = "dash" if label == "popularity" else "solid"
            trace = go.Scatter(
                x=line["x"], y=line["y"], name=label, legendgroup=label, showlegend=column == 1, line={"dash": dash}
            )
            plot.add_trace(trace, 1, column)
        plot.update_xaxes(title_text=x, row=1, col=column)
    page: str = plot.update_layout(title=title).to_html(include_plotlyjs=True, full_html=True)
    return page
