"""The sections about people: how the metric spreads over them, the two tables of FedRAP, what leaves a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from coterie.algorithms.interface import Federated
from coterie.errors import CoterieError
from coterie.protocol import Prepared
from coterie.report import markup, svg
from coterie.report.sections import Kind, three
from coterie.report.tables import sent, weight
from coterie.report.words import number
from coterie.runs.run import Run

_DEVICES = 300  # so many devices make one more round to count what they would send
_MAPPED = 350  # so many items she has not rated, at most, on the map


def people(kind: Kind) -> list[str]:
    """Share of people who get at least so much, and means by the length of their history."""
    known = [k for k, row in enumerate(kind.rows) if row["people"]]
    found = [markup.heading(3, "How it spreads over people")]
    if not known:
        return [*found, markup.paragraph("These records hold no values of single users.")]
    on = kind.rows[0]["on"]
    series, rows = [], []
    for k in known:
        row = kind.rows[k]
        levels = np.linspace(0.0, 1.0, 41)
        share = _at_least(kind.members[k], on, levels)
        series.append(svg.Line(row["name"], k, levels[1:].tolist(), share[1:].tolist()))
        spread = row["people"]
        rows.append([row["name"], spread["users"], spread["above_zero"],
                     *(spread[q] for q in ("q10", "q25", "q50", "q75", "q90"))])  # fmt: skip
    title = f"share of people whose {on} is at least x"
    said = "; ".join(f"{kind.rows[k]['name']} above 0 for {kind.rows[k]['people']['above_zero']:.1%}" for k in known)
    plots = [svg.lines(title, f"Falling curves, {title}: {said}.", series, on, "share of people")]
    groups = list(dict.fromkeys(name for k in known for name in kind.rows[k]["groups"]))
    cold = []
    for name in groups:
        having = [k for k in known if name in kind.rows[k]["groups"]]
        one = kind.rows[having[0]]["groups"][name]
        head = f"{name}: {number(one['users'], 'person', 'people')} with {one['shortest']} to {one['longest']} items"
        bars = [svg.Bar(kind.rows[k]["name"], k, kind.rows[k]["groups"][name]["mean"]) for k in having]
        values = "; ".join(f"{bar.name} {bar.value:.3f}" for bar in bars)
        plots.append(svg.bars(head, f"Bars of the mean {on}, {head}: {values}.", bars, three))
        cold += [[kind.rows[k]["name"], name, kind.rows[k]["groups"][name]["mean"]] for k in having]
    headings = ["system", "people", "share above 0", "10 %", "25 %", "median", "75 %", "90 %"]
    numbers = markup.table(headings, rows) + markup.table(["system", "group", f"mean {on}"], cold, (0, 1))
    text = (
        f"{on}, person by person: how many get at least so much; and the mean for people with short (cold), middling "
        "and long (warm) training histories."
    )
    return [*found, markup.figure(kind.caption(text), plots, numbers, kind.some(known))]


def _at_least(group: Sequence[Run], on: str, levels: np.ndarray) -> np.ndarray:
    shares = []
    for run in group:
        values = run.directory.users([f"test.{on}"]).to_series().to_numpy()
        values = values[~np.isnan(values)]
        shares.append([(values >= level - 1e-6).mean() for level in levels])
    mean: np.ndarray = np.mean(shares, axis=0)
    return mean


def sparsity(kind: Kind, threshold: str = "1e-02") -> list[str]:
    """How much of the shared table C is not small, by round and by threshold."""
    series, last, rows, wanted = [], [], [], []
    for k, (row, group) in enumerate(zip(kind.rows, kind.members, strict=True)):
        having = [one for one in group[0].rounds if threshold in one.get("shares", {})]
        if not having:
            continue
        wanted.append(k)
        series.append(svg.Line(row["name"], k, [one["round"] for one in having],
                               [one["shares"][threshold] for one in having]))  # fmt: skip
        at = {float(key): value for key, value in having[-1]["shares"].items()}
        order = sorted(at)
        last.append(svg.Line(row["name"], k, [float(np.log10(x)) for x in order], [at[x] for x in order]))
        rows += [[row["name"], f"{x:g}", at[x]] for x in order]
    found = [markup.heading(3, "Sparsity of the shared table C")]
    if not wanted:
        return [*found, markup.paragraph("None of these systems records it; FedRAP does.")]
    said = "; ".join(f"{one.name} from {one.y[0]:.1%} to {one.y[-1]:.1%}" for one in series)
    title = f"share of |C| above {float(threshold):g}, by round"
    plots = [svg.lines(title, f"Curves, {title}: {said}.", series, "round", f"share of |C| > {float(threshold):g}")]
    title = "share of |C| above a size, in the last round"
    said = "; ".join(f"{one.name} {one.y[-1]:.1%} above 0.1" for one in last)
    plots.append(svg.lines(title, f"Curves, {title}: {said}.", last, "size (powers of ten)", "share of |C| above",
                           x_words=lambda power: f"{10**power:.0e}".replace("e-0", "e-")))  # fmt: skip
    text = (
        "What a sparse exchange could leave out: entries of the shared table that are smaller than a threshold need "
        "not be sent. Of each system its first seed."
    )
    numbers = markup.table(["system", "size", "share above, last round"], rows, (0, 1))
    return [*found, markup.figure(kind.caption(text), plots, numbers, kind.some(wanted))]


def median_person(prepared: Prepared) -> str:
    """Somebody ordinary: of the tested people the one in the middle by the length of her history."""
    ids, lengths = prepared.data.user_ids, prepared.history.lengths
    who = sorted((int(lengths[u]), ids[u]) for u in prepared.users)
    return who[len(who) // 2][1]


def maps_and_devices(kind: Kind, user: str | None) -> list[str]:
    """What needs the model itself: the map of the items for one person, and what her device sends."""
    drawn: list[str] = []
    undrawn: list[str] = []
    missing: list[str] = []
    rows: list[list[Any]] = []
    said: list[tuple[str, str]] = []
    series: list[svg.Line] = []
    for k, (row, group) in enumerate(zip(kind.rows, kind.members, strict=True)):
        fresh = Run(group[0].path, group[0]._data)  # of its own: one more round changes its state
        try:
            if not drawn and hasattr(fresh.algorithm, "views"):
                drawn = _item_map(kind, row["name"], fresh, user)
        except CoterieError as problem:
            undrawn.append(f"{row['name']}: no map: {problem}")
        counts, why = _rows_sent(fresh)
        cells = ["–"] * 3
        if counts is not None:
            cells = [f"{q:,.0f}" for q in np.quantile(counts, (0.0, 0.5, 1.0))]
            levels = np.unique(np.quantile(counts, np.linspace(0, 1, 60)))
            share = [float((counts >= level).mean()) for level in levels]
            series.append(svg.Line(row["name"], k, [0.0, *levels.tolist()], [1.0, *share]))
        elif why:
            missing.append(f"{row['name']}: rows not counted: {why}")
        sizes = [sent(row, key, weight) for key in ("bytes_up", "bytes_down", "bytes_a_client")]
        rows.append([row["name"], *cells, *sizes])
        said.append((row["name"], f"Sends {row['sends']}. Privacy: {row['statement']}."))
    found = [markup.heading(3, "A map of the items, as one person sees them")]
    if not drawn and not undrawn:
        drawn = [markup.paragraph("None of these runs has a shared and a private table of items to show.")]
    found += drawn + [markup.paragraph(line, "note") for line in undrawn]
    found.append(markup.heading(3, "What left each device"))
    found.append(markup.told(said))
    if series:
        items = kind.members[0][0].summary["data"]["items"]
        medians = "; ".join(f"{row[0]} median {row[2]} of {items:,} rows" for row in rows if row[2] != "–")
        title = "share of devices that send at least x rows in a round"
        plot = svg.lines(title, f"Falling curves, {title}: {medians}.", series, "item rows in one upload",
                         "share of devices")  # fmt: skip
        text = (
            f"Item rows in one upload, counted by letting up to {_DEVICES} devices of each system's first seed make "
            "one more round (before any clipping, noise, thinning or masks on its way). Which rows come tells a server "
            "that sees single uploads something about her history; `coterie audit` measures how much."
        )
        steps = [[one.name, int(x), y] for one in series for x, y in zip(one.x, one.y, strict=True)]
        alternative = markup.table(["system", "rows", "share of devices"], steps)
        found.append(markup.figure(kind.caption(text), [plot], alternative, kind.some([one.style for one in series]),
                                 long=True))  # fmt: skip
    headings = ["system", "rows: fewest", "median", "most", "up a round", "down a round", "in all, both ways"]
    found.append(markup.table(headings, rows))
    found += [markup.paragraph(line, "note") for line in missing]
    return found


def _rows_sent(run: Run) -> tuple[np.ndarray | None, str | None]:
    """How many item rows each of some devices would send in one more round; or why that cannot be said."""
    algorithm = run.algorithm
    if not isinstance(algorithm, Federated):
        return None, None  # central, or each client alone: nothing is sent in rounds
    try:
        state, history = run.state, run.prepared.history
    except CoterieError as problem:
        return None, str(problem)
    n = history.n_clients
    done = 0 if run.summary["rounds"] == 1 else run.summary["best_round"]  # what is sent once is sent in the first
    ids = np.unique(np.linspace(0, n - 1, min(n, _DEVICES)).astype(np.int64))
    cohort = run.spec.cohort if run.spec.cohort is not None else algorithm.default_cohort
    plan = algorithm.plan(history, cohort, run.spec.seed, done + 1)
    round_ = done + 1 if plan is None else done * plan.users + 1
    download = algorithm.download(state.server, ids, round_)
    upload, _ = algorithm.client_step(state.clients, ids, history, download, round_, run.spec.seed)
    counts = np.diff(upload.indptr)
    return (counts if counts.any() else None), None  # what goes is not made of item rows, or nothing goes


def _item_map(kind: Kind, name: str, run: Run, user: str | None) -> list[str]:
    who = user if user is not None else median_person(run.prepared)
    data = run.prepared.data
    if who not in data.user_number:
        raise CoterieError(f"user {who!r} is not among the {data.n_users} users of {data.name}; ids are text")
    she = data.user_number[who]
    views = run.algorithm.views(run.state.server, run.state.clients, she)
    rated = np.zeros(data.n_items, bool)
    rated[run.prepared.train.of(she)] = True
    others = np.flatnonzero(~rated)
    keep = np.sort(np.r_[np.flatnonzero(rated), others[:: max(1, -(-len(others) // _MAPPED))]])
    plots, places, notes, how = [], {}, [], ""
    names = {"C": "C, shared", "D": "D, her own", "C + D": "C + D, the sum"}
    for key, table in {**views, "C + D": views["C"] + views["D"]}.items():
        some = keep[np.abs(table[keep]).max(axis=1) > 0]  # rows that are still nothing say nothing
        if len(some) < 5:
            notes.append(f"{names[key]}: only {len(some)} of these items have anything in it, so there is no map.")
            continue
        spots, how = flat_places(table[some])
        places[key] = dict(zip(some.tolist(), spots.tolist(), strict=True))
        left = (
            f"; {len(keep) - len(some)} items with nothing in this table are left out" if len(some) < len(keep) else ""
        )
        said = f"{int(rated[some].sum())} items she rated among {len(some)}{left}"
        marked = rated[some].tolist()
        plots.append(svg.cloud(names[key], f"Points, {names[key]} ({how}): {said}.", spots.tolist(), marked))
        if left:
            notes.append(f"{names[key]}: {said}.")
    rows = [
        [data.title(j) or data.item_ids[j], bool(rated[j]),
         *(f"{at[0]:.1f}, {at[1]:.1f}" if (at := places[key].get(j)) else None for key in places)]
        for j in keep.tolist()
    ]  # fmt: skip
    text = (
        f"{name}, its first seed: items as the device of person {who} sees them ({how}), dark the "
        f"{int(rated.sum())} she trained on. Only nearness has a meaning, not the place on the paper."
    )
    numbers = markup.table(["item", "hers", *(names[key] for key in places)], rows)
    found = [markup.figure(kind.caption(text), plots, numbers, long=True, kind="three")] if plots else []
    return found + [markup.paragraph(note) for note in notes]


def flat_places(table: np.ndarray, seed: int = 0) -> tuple[np.ndarray, str]:
    """float64[n, 2]: rows laid out in the plane, and how: t-SNE where scikit-learn is, else principal components."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        middle = table.astype(np.float64) - table.mean(axis=0, dtype=np.float64)
        u, s, _ = np.linalg.svd(middle, full_matrices=False)
        return u[:, :2] * s[:2], "principal components; t-SNE needs scikit-learn: pip install 'coterie[report]'"
    perplexity = min(30.0, (len(table) - 1) / 3)
    start = "pca" if len(np.unique(table, axis=0)) > 2 else "random"
    with threadpool_limits(1):  # a few hundred points: more threads only wait for each other
        places = TSNE(2, perplexity=perplexity, random_state=seed, init=start).fit_transform(table)
    return places.astype(np.float64), "t-SNE"
