"""The papers' figures as functions: each returns its numbers, and draws them where plotly is installed.

figures.convergence({"fedrap": run, "fedmf": other}).save(Path("figures"))   # convergence.json, convergence.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coterie.errors import CoterieError
from coterie.runs.run import Run


class Figure(NamedTuple):
    """A figure is its numbers; the drawing is made from them alone."""

    name: str
    title: str
    kind: str  # "lines", "bars", "maps" or "points"
    numbers: dict[str, Any]

    def save(self, folder: Path) -> list[Path]:
        """`name.json`, and beside it `name.html`, self-contained."""
        folder.mkdir(parents=True, exist_ok=True)
        data, page = folder / f"{self.name}.json", folder / f"{self.name}.html"
        data.write_text(json.dumps({"title": self.title, "kind": self.kind, **self.numbers}, indent=1) + "\n")
        page.write_text(self.draw().to_html(include_plotlyjs=True, full_html=True))
        return [data, page]

    def draw(self) -> Any:
        return {"lines": _lines, "bars": _bars, "maps": _maps, "points": _points}[self.kind](self)


def _plotly() -> Any:
    try:
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots
    except ImportError:
        raise CoterieError("drawing needs plotly: pip install 'coterie[report]'; the numbers need nothing") from None
    return go, make_subplots


def convergence(runs: Mapping[str, Run], metric: str = "HR@10", kind: str = "sampled", part: str = "test") -> Figure:
    """A metric by round, one line for each run (FedRAP's figure 3)."""
    lines = {}
    for label, run in runs.items():
        measured = [one for one in run.rounds if part in one]
        lines[label] = {
            "x": [one["round"] for one in measured], "y": [one[part][kind][metric] for one in measured],
        }  # fmt: skip
    return Figure(
        "convergence", f"{part} {metric}, {kind}, by round", "lines", {"lines": lines, "x": "round", "y": metric}
    )


def sparsity(runs: Mapping[str, Run], threshold: str = "1e-02") -> Figure:
    """Share of the shared table's entries above a threshold in size, by round."""
    lines = {}
    for label, run in runs.items():
        having = [one for one in run.rounds if threshold in one.get("shares", {})]
        if not having:
            raise CoterieError(f"{run.path} records no shares of |C|; only systems with a shared table do")
        lines[label] = {"x": [one["round"] for one in having], "y": [one["shares"][threshold] for one in having]}
    title = f"share of |C| above {float(threshold):g} by round"
    return Figure("sparsity", title, "lines", {"lines": lines, "x": "round", "y": "share"})


def sparsity_table(runs: Mapping[str, Sequence[Run]]) -> dict[str, dict[str, float]]:
    """Share of |C| above each recorded threshold after the last round, mean over seeds (FedRAP's sparsity table)."""
    last = {label: [run.rounds[-1].get("shares") or {} for run in some] for label, some in runs.items()}
    return {
        label: {key: float(np.mean([one[key] for one in shares])) for key in shares[0]}
        for label, shares in last.items()
        if shares[0]
    }


def ablation(runs: Mapping[str, Sequence[Run]], metric: str = "HR@10", kind: str = "sampled") -> Figure:
    """A metric of the last round for each variant, mean and deviation over its seeds (FedRAP's figure 4)."""
    bars = {}
    for label, some in runs.items():
        values = [run.summary["last"]["test"][kind][metric] for run in some]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        bars[label] = {"mean": float(np.mean(values)), "deviation": spread, "seeds": len(values)}
    name = f"ablation-{kind}-{metric.lower().replace('@', '-')}"
    return Figure(name, f"test {metric}, {kind}, last round", "bars", {"bars": bars, "y": metric})


def curricula(weights: Mapping[str, Sequence[float]]) -> Figure:
    """How each curriculum weighs its regulariser by round (FedRAP's appendix)."""
    lines = {
        name: {"x": list(range(1, len(values) + 1)), "y": [float(v) for v in values]}
        for name, values in weights.items()
    }
    return Figure(
        "curricula", "weight of the regulariser by round", "lines", {"lines": lines, "x": "round", "y": "weight"}
    )


def heat_map(run: Run, users: Sequence[str] | None = None, size: int = 16) -> Figure:
    """A corner of the shared table and of three people's own tables, on one scale."""
    names = list(users) if users is not None else run.prepared.data.user_ids[:3]
    maps = {}
    for name in names:
        views = _views(run, name)
        maps["C"] = views["C"][:size, :size].tolist()
        maps[f"D of {name}"] = views["D"][:size, :size].tolist()
    return Figure("heat-map", f"first {size} items x {size} dimensions", "maps", {"maps": maps})


def item_map(run: Run, user: str, seed: int = 0, most: int = 2000) -> Figure:
    """t-SNE of C, D and C + D of one person's items, rated and unrated apart (FedRAP's figures 5 and 6)."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise CoterieError("t-SNE needs scikit-learn: pip install 'coterie[report]'") from None
    views = _views(run, user)
    rated = np.zeros(len(views["C"]), bool)
    rated[run.prepared.train.of(run.prepared.data.user_number[user])] = True
    keep = np.arange(len(rated))
    if len(keep) > most:  # all she rated, and an even draw of the others
        others = np.flatnonzero(~rated)
        keep = np.sort(np.r_[np.flatnonzero(rated), others[:: -(-len(others) // most)]])
    points = {}
    for name, table in {**views, "C + D": views["C"] + views["D"]}.items():
        perplexity = min(30.0, (len(keep) - 1) / 3)
        places = TSNE(2, perplexity=perplexity, random_state=seed, init="pca").fit_transform(table[keep])
        points[name] = {"x": places[:, 0].tolist(), "y": places[:, 1].tolist()}
    numbers = {"points": points, "rated": rated[keep].tolist(), "items": [run.prepared.data.item_ids[i] for i in keep]}
    return Figure("item-map", f"items as {user} sees them (t-SNE)", "points", numbers)


def _views(run: Run, user: str) -> dict[str, np.ndarray]:
    if user not in run.prepared.data.user_number:
        raise CoterieError(f"user {user!r} is not among the users of {run.prepared.data.name}")
    if not hasattr(run.algorithm, "views"):
        raise CoterieError(f"{run.spec.algorithm} has no shared and private table to show")
    found: dict[str, np.ndarray] = run.algorithm.views(
        run.state.server, run.state.clients, run.prepared.data.user_number[user]
    )
    return found


def _lines(figure: Figure) -> Any:
    go, _ = _plotly()
    plot = go.Figure()
    for label, line in figure.numbers["lines"].items():
        plot.add_scatter(x=line["x"], y=line["y"], name=label, mode="lines")
    return plot.update_layout(title=figure.title, xaxis_title=figure.numbers["x"], yaxis_title=figure.numbers["y"])


def _bars(figure: Figure) -> Any:
    go, _ = _plotly()
    bars = figure.numbers["bars"]
    spread = {"type": "data", "array": [one["deviation"] or 0.0 for one in bars.values()]}
    plot = go.Figure(go.Bar(x=list(bars), y=[one["mean"] for one in bars.values()], error_y=spread))
    return plot.update_layout(title=figure.title, yaxis_title=figure.numbers["y"])


def _maps(figure: Figure) -> Any:
    go, make_subplots = _plotly()
    maps = figure.numbers["maps"]
    plot = make_subplots(1, len(maps), subplot_titles=list(maps))
    largest = max(np.abs(np.array(one)).max() for one in maps.values())
    for column, one in enumerate(maps.values(), 1):
        plot.add_trace(
            go.Heatmap(z=one, zmin=-largest, zmax=largest, colorscale="RdBu", showscale=column == 1), 1, column
        )
    return plot.update_layout(title=figure.title)


def _points(figure: Figure) -> Any:
    go, make_subplots = _plotly()
    points, rated = figure.numbers["points"], np.array(figure.numbers["rated"])
    plot = make_subplots(1, len(points), subplot_titles=list(points))
    for column, place in enumerate(points.values(), 1):
        x, y = np.array(place["x"]), np.array(place["y"])
        for label, some, colour in (("unrated", ~rated, "#9aa5b1"), ("rated", rated, "#c2410c")):
            marker = {"size": 4, "color": colour}
            dots = go.Scatter(x=x[some], y=y[some], mode="markers", name=label, marker=marker, showlegend=column == 1)
            plot.add_trace(dots, 1, column)
    return plot.update_layout(title=figure.title)
