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
from coterie.engine.simulate import Diverged, State, simulate, start
from coterie.evaluate.metrics import averages, beyond_accuracy, per_user
from coterie.evaluate.ranks import Task, rank
from coterie.protocol import Prepared, prepare, resolve
from coterie.ragged import Ragged, from_pairs
from coterie.report.figures import _plotly
from coterie.runs import tensors

PIS = tuple(round(0.1 * step, 1) for step in range(11))
METRICS = ("F1@10", "Precision@10", "Recall@10", "Coverage@10", "1-Gini@10")
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
        title = f"FedeRank on {self.data.name}: updates per item, the {MOST_UPDATED} most updated"
        return self._save("updates", title, {"lines": lines}, self._panels(lines), "item, by updates")

    def recommended(self) -> dict[str, Any]:
        """Share of all top-10 places that each of the most popular items gets, beside its share of the positives."""
        popularity = np.sort(np.bincount(self.prepared.history.items, minlength=self.data.n_items))[::-1]
        black = (popularity[:MOST_POPULAR] / popularity.sum()).tolist()
        lines = [{"T": one["T"], "pi": one["pi"], "y": one["recommended"]} for one in self._points()]
        panels = self._panels(lines)
        for panel in panels.values():
            panel["popularity"] = {"x": list(range(1, len(black) + 1)), "y": black}
        title = f"FedeRank on {self.data.name}: recommendations per item, the {MOST_POPULAR} most popular"
        return self._save("recommended", title, {"lines": lines, "popularity": black}, panels, "item, by popularity")

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
        key = [repr(algorithm), self.data.sha256, self.protocol, self.epochs, self.seed, refit_epochs]
        place = self.out / "measured" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"
        if not place.exists():
            again = "" if refit_epochs is None else f", on 80 % for {refit_epochs} epochs"
            self.say(f"{self.data.name}: T {T}, lr {lr:g}, pi {pi}{again}")
            about = {"T": T, "lr": lr, "pi": pi}
            place.parent.mkdir(parents=True, exist_ok=True)
            prepared = self.prepared if refit_epochs is None else with_validation(self.prepared)
            tensors.write_json(place, about | self._measure(algorithm, prepared, refit_epochs))
        found: dict[str, Any] = json.loads(place.read_text())
        return found

    def _measure(self, algorithm: Any, prepared: Prepared, refit_epochs: int | None) -> dict[str, Any]:
        """Train; the best epoch on validation (or the last of a refit) is measured on the test."""
        history = prepared.history
        state, best, epoch = start(algorithm, history, self.seed), None, 0
        validation: dict[str, float] = {"F1@10": -1.0}
        touched = np.zeros(history.n_items, np.int64)
        try:
            for one in simulate(
                algorithm,
                history,
                state,
                range(1, (refit_epochs or self.epochs) + 1),
                self.seed,
                algorithm.default_cohort,
            ):
                touched += one.touched if one.touched is not None else 0
                if refit_epochs is not None:
                    best, epoch = one.state, one.number
                    continue
                now, _ = self._metrics(algorithm, one.state, prepared, Task(prepared.validation, (prepared.train,)))
                if now["F1@10"] > validation["F1@10"]:
                    validation, best, epoch = now, tensors.copy(one.state), one.number
        except Diverged as problem:
            if best is None:
                raise
            self.say(str(problem))
        assert best is not None
        excluded = (prepared.train,) if refit_epochs is not None else (prepared.train, prepared.validation)
        test, top = self._metrics(algorithm, best, prepared, Task(prepared.test, excluded))
        shown = np.bincount(top[:, :10][top[:, :10] >= 0], minlength=history.n_items)
        popular = np.argsort(-np.bincount(history.items, minlength=history.n_items), kind="stable")[:MOST_POPULAR]
        ranked = np.sort(touched)[::-1][:MOST_UPDATED]
        return {
            "epoch": epoch, "validation": validation, "test": test,
            "updated": {
                "shares": (ranked / max(int(touched.sum()), 1)).tolist(), "items": int((touched > 0).sum()),
                "all": int(touched.sum()),
            },
            "recommended": (shown[popular] / max(int(shown.sum()), 1)).tolist(),
        }  # fmt: skip

    def _metrics(
        self, algorithm: Any, state: State, prepared: Prepared, task: Task
    ) -> tuple[dict[str, float], np.ndarray]:
        found = rank(
            lambda users: algorithm.score(state.server, state.clients, prepared.history, users),
            prepared.users, prepared.data.n_items, [task], self.threads,
        )[0]  # fmt: skip
        assert found.top is not None
        popularity = np.bincount(prepared.history.items, minlength=prepared.data.n_items)
        every = averages(per_user(found, (10,)))
        every |= beyond_accuracy(found.top, popularity, prepared.history.n_clients, (10,))
        return {metric: every[metric] for metric in METRICS}, found.top

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
            "behaviour": self.behaviour, "epochs": self.epochs, "seed": self.seed,
            "settings": repr(make("federank", self.behaviour)), "counts": self.prepared.counts,
        }  # fmt: skip
        self.out.mkdir(parents=True, exist_ok=True)
        found = about | numbers
        tensors.write_json(self.out / f"{name}.json", found)
        (self.out / f"{name}.html").write_text(_page(title, panels, x))
        self.say(f"{self.out / name}.json and .html")
        return found


def with_validation(prepared: Prepared) -> Prepared:
    """The validation items join the training histories: for figures of papers that trained on both."""
    n = prepared.data.n_users
    parts = (prepared.train, prepared.validation)
    owner = np.concatenate([np.repeat(np.arange(n), part.lengths) for part in parts])
    own = from_pairs(owner, np.concatenate([part.items for part in parts]), n)
    ones = np.ones(len(own.items), np.float32)
    history = prepared.history._replace(
        indptr=own.indptr, items=own.items, counts=ones, ratings=ones, forbidden=Ragged(own.indptr, own.items)
    )
    return prepared._replace(history=history, train=own)


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
