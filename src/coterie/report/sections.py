"""The sections of the page about how good the systems are: what was run, results, curves, communication, coverage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from coterie.report import markup, svg
from coterie.report.tables import canary, figure, interval, p, sent, shown, weight
from coterie.report.words import counted, number
from coterie.runs.run import Run


class Kind(NamedTuple):
    """Rows that may be compared: the same data, cut by the same protocol."""

    rows: list[dict[str, Any]]
    members: list[list[Run]]  # the runs behind each row

    @property
    def warning(self) -> str | None:
        return next((row["warning"] for row in self.rows if row["warning"]), None)

    @property
    def title(self) -> str:
        first = self.rows[0]
        return f"{first['data']}, {first['protocol']} protocol, {first['split']}"

    @property
    def legend(self) -> str:
        return markup.legend([(row["name"], k) for k, row in enumerate(self.rows)])

    def some(self, wanted: Sequence[int]) -> str:
        return markup.legend([(self.rows[k]["name"], k) for k in wanted])

    def caption(self, text: str) -> str:
        return text if self.warning is None else f"{text} ({self.warning})"


def three(value: float) -> str:
    return f"{value:.3f}"


def valid(row: dict[str, Any]) -> str:
    """A paper's protocol may let held-out items shape the negatives: its runs keep their rules, and no more is said."""
    return "no" if not row["valid"] else "by its protocol" if row["warning"] else "yes"


def what_was_run(kind: Kind) -> list[str]:
    """Data, protocol, systems, settings; the warning before anything else."""
    summary = kind.members[0][0].summary
    data, rules = summary["data"], summary["protocol"]
    found = [markup.heading(3, "What was run")]
    found += [markup.warning(text) for text in dict.fromkeys(r["warning"] for r in kind.rows if r["warning"])]
    found.append(
        markup.paragraph(
            f"{data['name']}: {data['users']:,} people, {data['items']:,} items, {data['interactions']:,} "
            f"interactions; SHA-256 {data['sha256'][:16]}…"
        )
    )
    found.append(markup.paragraph(counted(summary), "plain"))
    avoid = "items she trained on" if rules["negatives_avoid"] == "train" else "everything she touched, held out or not"
    found.append(
        markup.paragraph(
            f"Training negatives avoid {avoid}. The reported round is the best by validation "
            f"{rules['select_metric']} ({rules['select_by']} ranking). “Full” ranks the held-out item among all items "
            f"she has not seen, “sampled” among {rules['candidates']} drawn ones."
        )
    )
    headings = ["system", "seeds", "rounds", "best round", "canary / chance", "valid", "made by coterie"]
    rows = [
        [
            row["name"], ", ".join(map(str, row["seeds"])), row["rounds"], ", ".join(map(str, row["best_round"])),
            canary(row) or "draws none", valid(row), ", ".join(row["versions"]),
        ]
        for row in kind.rows
    ]  # fmt: skip
    found.append(markup.table(headings, rows))
    settings = [
        [row["name"], json.dumps(group[0].summary["settings"], sort_keys=True)]
        for row, group in zip(kind.rows, kind.members, strict=True)
    ]
    found.append(markup.folded("All settings", markup.table(["system", "settings"], settings, text=(0, 1)), long=True))
    every = [[name, json.dumps(value)] for name, value in rules.items() if name != "counts"]
    found.append(markup.folded("The whole protocol", markup.table(["rule", "value"], every, text=(0, 1)), long=True))
    return found


def results(kind: Kind) -> list[str]:
    """Bars with intervals, and the table with paired tests."""
    columns = shown(kind.rows)
    share = f"{kind.rows[0]['confidence']:.0%}"
    plots = []
    for column in columns:
        ranking, metric = column.split(".")
        bars = [svg.Bar(row["name"], k, *(row[column][one] for one in ("mean", "low", "high"))) for k, row in
                enumerate(kind.rows)]  # fmt: skip
        said = "; ".join(f"{row['name']} {figure(row[column])}{interval(row[column])}" for row in kind.rows)
        plots.append(
            svg.bars(f"{metric}, {ranking}", f"Bars of test {metric}, {ranking} ranking: {said}.", bars, three)
        )
    headings = ["system", *(f"{c.split('.')[1]} {c.split('.')[0]}" for c in columns)]
    rows = [[row["name"], *(figure(row[c]) + interval(row[c]) for c in columns)] for row in kind.rows]
    found = [
        markup.heading(3, "Results"),
        markup.figure(
            kind.caption(
                f"Test metrics at the best validation round. Lines: {share} bootstrap interval over people; ± in the "
                "table: deviation over seeds."
            ),
            plots,
            markup.table(headings, rows),
        ),
    ]
    tested = [row for row in kind.rows if row["test"]]
    if tested:
        test = tested[0]["test"]
        headings = ["system", "difference", "t", "p (t)", "p (t), Holm", "p (Wilcoxon)", "p (Wilcoxon), Holm", "people"]
        rows = [
            [
                row["name"], f"{one['difference']:+.4f}", "–" if one["t"] is None else f"{one['t']:.2f}", p(one["p_t"]),
                p(one["p_t_holm"]), p(one["p_wilcoxon"]), p(one["p_wilcoxon_holm"]), one["users"],
            ]
            for row in tested
            for one in [row["test"]]
        ]  # fmt: skip
        found.append(
            markup.paragraph(
                kind.caption(
                    f"Paired tests on {tested[0]['on']} against {test['against']}: does the same person fare better? "
                    f"Two-sided, corrected by Holm for {number(test['comparisons'], 'comparison')} on this page."
                )
            )
        )
        found.append(markup.table(headings, rows))
    return found


def curves(kind: Kind) -> list[str]:
    """Metrics by round, mean over seeds with a band from the lowest to the highest."""
    wanted = [
        ("validation", "full", "NDCG@10"), ("validation", "sampled", "HR@10"), ("test", "full", "NDCG@10"),
        ("test", "sampled", "HR@10"),
    ]  # fmt: skip
    plots, rows = [], []
    for part, ranking, metric in wanted:
        series = []
        for k, (row, group) in enumerate(zip(kind.rows, kind.members, strict=True)):
            line = _curve(row["name"], k, group, part, ranking, metric)
            if line is not None:
                series.append(line)
                rows += [
                    [row["name"], f"{part} {metric} {ranking}", int(x), y] for x, y in zip(line.x, line.y, strict=True)
                ]
        if series:
            title = f"{part} {metric}, {ranking} ranking, by round"
            ends = "; ".join(f"{one.name} from {one.y[0]:.3f} to {one.y[-1]:.3f}" for one in series)
            plots.append(svg.lines(title, f"Curves, {title}: {ends}.", series, "round", f"{part} {metric} {ranking}"))
    text = (
        "Metrics by round; the mark is the reported round of the first seed, bands go from the lowest seed to the "
        "highest, level lines were measured once. The round was chosen by validation alone; test curves are shown "
        "afterwards."
    )
    found = [
        markup.heading(3, "Curves by round"),
        markup.figure(kind.caption(text), plots, markup.table(["system", "metric", "round", "mean"], rows, (0, 1)),
                    kind.legend, long=True),
    ]  # fmt: skip
    spent = [
        svg.Line(row["name"], k, [one["round"] for one in some], [one["privacy"]["epsilon"] for one in some])
        for k, (row, group) in enumerate(zip(kind.rows, kind.members, strict=True))
        if (some := [one for one in group[0].rounds if (one.get("privacy") or {}).get("epsilon") is not None])
    ]
    if spent:
        said = "; ".join(f"{one.name} ends at {one.y[-1]:.2f}" for one in spent)
        plot = svg.lines("epsilon by round", f"Epsilon spent by round: {said}.", spent, "round", "epsilon")
        numbers = [[one.name, int(x), y] for one in spent for x, y in zip(one.x, one.y, strict=True)]
        found.append(
            markup.figure("Epsilon spent, by round, of each system's first seed.", [plot],
                          markup.table(["system", "round", "epsilon"], numbers),
                          kind.some([one.style for one in spent]), long=True)
        )  # fmt: skip
    return found


def _curve(name: str, style: int, group: Sequence[Run], part: str, ranking: str, metric: str) -> svg.Line | None:
    seeds = []
    for run in group:
        seeds.append({one["round"]: one[part][ranking][metric] for one in run.rounds if part in one})
    shared = sorted(set.intersection(*(set(one) for one in seeds))) if seeds else []
    if not shared:
        return None
    values = np.array([[one[x] for x in shared] for one in seeds])
    mean = values.mean(axis=0).tolist()
    low, high = (values.min(axis=0).tolist(), values.max(axis=0).tolist()) if len(seeds) > 1 else (None, None)
    best = group[0].summary["best_round"]
    mark = (best, mean[shared.index(best)]) if best in shared and len(shared) > 1 else None
    return svg.Line(name, style, shared, mean, low, high, mark)


def communication(kind: Kind) -> list[str]:
    """What the quality costs in bytes on each person's line."""
    column = kind.rows[0]["on"] if kind.rows[0]["on"] in kind.rows[0] else shown(kind.rows)[-1]
    ranking, metric = column.split(".")
    points, levels, rows = [], [], []
    for k, row in enumerate(kind.rows):
        value = row[column]
        if row["bytes_a_client"]:
            points.append(svg.Point(row["name"], k, row["bytes_a_client"], value["mean"], value["low"], value["high"]))
        else:
            levels.append(svg.Bar(row["name"], k, value["mean"]))
        rows.append(
            [row["name"], figure(value) + interval(value), sent(row, "bytes_up", weight),
             sent(row, "bytes_down", weight), sent(row, "bytes_a_client", weight), row["rounds"],
             f"{row['train_seconds']:.1f} s", f"{1e3 * row['client_seconds']:.2f} ms", weight(row["peak_rss_bytes"])]
        )  # fmt: skip
    headings = [
        "system", f"{metric} {ranking}", "up a round", "down a round", "in all a client", "rounds", "training",
        "a client's step, at most", "peak memory",
    ]  # fmt: skip
    found = [markup.heading(3, "Communication against quality")]
    numbers = markup.table(headings, rows)
    if not points:
        return [*found, markup.paragraph("None of these systems sends anything over a network in rounds."), numbers]
    said = "; ".join(f"{one.name} {weight(one.x)} for {one.y:.3f}" for one in points)
    title = f"test {metric}, {ranking}, against bytes"
    plot = svg.points(
        title, f"Points, {title} of a client in all rounds: {said}.", points, levels,
        "bytes of one client, both ways, all rounds", f"test {metric} {ranking}", weight,
    )  # fmt: skip
    text = (
        "Each point is a system: what one person's device sends and receives over the whole training, against "
        "quality. Lines across are systems without rounds on a network: central ones hold everybody's history."
    )
    return [*found, markup.figure(kind.caption(text), [plot], numbers, kind.legend)]


def coverage(kind: Kind) -> list[str]:
    """What the lists are like, whoever likes them."""
    about = {
        "Coverage@10": "share of items shown to anybody",
        "1-Gini@10": "evenness over items; 1 is even",
        "AvgPopularity@10": "how often trained on",
        "Novelty@10": "bits; higher is rarer",
    }
    plots = []
    for metric, meaning in about.items():
        said = "; ".join(f"{row['name']} {row[metric]:.3g}" for row in kind.rows)
        bars = [svg.Bar(row["name"], k, row[metric]) for k, row in enumerate(kind.rows)]
        plots.append(
            svg.bars(
                f"{metric}: {meaning}", f"Bars of {metric}, {meaning}: {said}.", bars, lambda v: f"{v:#.3g}".rstrip(".")
            )
        )
    rows = [[row["name"], *(row[metric] for metric in about)] for row in kind.rows]
    return [
        markup.heading(3, "Coverage and popularity"),
        markup.figure(
            kind.caption(
                "The recommended lists themselves: how much of the catalogue they show, and how popular it is."
            ),
            plots,
            markup.table(["system", *about], rows),
        ),
    ]
