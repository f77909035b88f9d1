"""`inspect`: what a data set is like, as numbers and as a picture in the terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.data.catalogue import CATALOGUE, Paper
from coterie.data.filters import filter_users
from coterie.data.interactions import Interactions
from coterie.data.rows import repeated_pairs

if TYPE_CHECKING:
    from rich.console import Group

BAR = " ▏▎▍▌▋▊▉█"
WIDTH = 36
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def inspect(data: Interactions) -> dict[str, Any]:
    """Counts, sparsity, histories, popularity, duplicates, ties in time, and which filters reach a paper's figures."""
    lengths = np.diff(data.indptr)
    popularity = np.sort(np.bincount(data.items, minlength=data.n_items))[::-1]
    return {
        "name": data.name,
        "users": data.n_users,
        "items": data.n_items,
        "interactions": len(data),
        "sparsity": 1 - len(data) / (data.n_users * data.n_items),
        "sha256": data.sha256,
        "titles": 0 if data.titles is None else sum(a != b for a, b in zip(data.titles, data.item_ids, strict=True)),
        "ratings": {"lowest": float(data.ratings.min()), "highest": float(data.ratings.max())},
        "rows": data.notes.get("rows"),
        "repeated_pairs": repeated_pairs(data.indptr, data.items, data.n_items),
        "times": _times(data),
        "histories": {
            "shortest": int(lengths.min()),
            "median": float(np.median(lengths)),
            "mean": float(lengths.mean()),
            "longest": int(lengths.max()),
            "plot": _by_powers(lengths),
        },
        "popularity": {
            "most": int(popularity[0]),
            "median": float(np.median(popularity)),
            "plot": _by_share(popularity),
        },
        "papers": [_against(data, paper) for paper in CATALOGUE[data.name].papers] if data.name in CATALOGUE else [],
        "announcements": list(data.notes.get("announcements") or []),  # type: ignore[call-overload]
        "warnings": list(data.notes.get("warnings") or []),  # type: ignore[call-overload]
    }


def _times(data: Interactions) -> dict[str, Any] | None:
    if data.times is None:
        return None
    users = np.repeat(np.arange(data.n_users), np.diff(data.indptr))
    order = np.lexsort((data.times, users))
    when, who = data.times[order], users[order]
    tied = (who[1:] == who[:-1]) & (when[1:] == when[:-1])
    ends = data.indptr[1:] - 1
    long = np.diff(data.indptr) > 1
    return {
        "first": _date(int(data.times.min())),
        "last": _date(int(data.times.max())),
        "tied_rows": int(tied.sum()),  # rows with the time of an earlier row of the same user
        "users_with_tied_last": int(tied[ends[long] - 1].sum()),  # for them, leave-one-out depends on the rule for ties
    }


def _date(seconds: int) -> str:
    try:
        return (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d")
    except OverflowError:
        return f"{seconds} s"


def _by_powers(lengths: np.ndarray) -> list[tuple[str, int]]:
    """How many users have 1, 2 to 3, 4 to 7, ... interactions."""
    power = np.floor(np.log2(lengths)).astype(int)
    counts = np.bincount(power)
    names = [f"{1 << p}" if p == 0 else f"{1 << p} to {(2 << p) - 1}" for p in range(len(counts))]
    return [(name, int(count)) for name, count in zip(names, counts, strict=True)][int(power.min()) :]


def _by_share(popularity: np.ndarray) -> list[tuple[str, float]]:
    """The share of all interactions that goes to each tenth of the items, the most popular first."""
    edges = np.arange(11) * len(popularity) // 10
    sums = np.concatenate([[0], np.cumsum(popularity)])
    return [
        (f"{10 * n} to {10 * n + 10} %", float((sums[edges[n + 1]] - sums[edges[n]]) / sums[-1])) for n in range(10)
    ]


def _against(data: Interactions, paper: Paper) -> dict[str, Any]:
    """What the filter of a paper leaves, beside what the paper prints."""
    told = {"paper": paper.paper, "figures": [paper.users, paper.items, paper.interactions], "remark": paper.remark}
    if paper.at_least is None:
        return {**told, "filter": "not known", "reached": None, "equal": False}
    longest = int(np.diff(data.indptr).max())
    kept = filter_users(data, at_least=paper.at_least) if paper.at_least <= longest else None
    words = f"users with at least {paper.at_least} rows" if paper.at_least else "none"
    if paper.unique_pairs:
        words = "different pairs only" if words == "none" else f"{words}, different pairs only"
    if kept is None:
        return {**told, "filter": words, "reached": [0, 0, 0], "equal": False}
    rows = len(kept) - (repeated_pairs(kept.indptr, kept.items, kept.n_items) if paper.unique_pairs else 0)
    reached = [kept.n_users, kept.n_items, rows]
    return {**told, "filter": words, "reached": reached, "equal": reached == told["figures"]}


def bar(share: float, width: int = WIDTH) -> str:
    """A bar of up to `width` cells, to an eighth of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + (BAR[eighths % 8] if eighths % 8 else "")


def render_inspection(report: dict[str, Any]) -> Group:
    """The report of `inspect` for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = [Text(report["name"], style="bold"), _facts(report)]
    histories, popularity = report["histories"], report["popularity"]
    tallest = max(count for _, count in histories["plot"])
    for title, rows in (
        (
            "users by length of history",
            [(name, f"{count:,}", bar(count / tallest)) for name, count in histories["plot"]],
        ),
        (
            "share of interactions by tenth of the items, most popular first",
            [(name, f"{share:.1%}", bar(share)) for name, share in popularity["plot"]],
        ),
    ):
        table = Table("", "", "", title=title, title_justify="left", show_header=False, box=None)
        for row in rows:
            table.add_row(*row)
        parts += [Text(), table]
    if report["papers"]:
        table = Table("paper", "filter", "users", "items", "interactions", "", title="figures of the papers", box=None)
        for one in report["papers"]:
            reached = one["reached"] or ["?"] * 3
            cells = [
                f"{a:,}" if a == b else f"{a} (paper: {b:,})" for a, b in zip(reached, one["figures"], strict=True)
            ]
            mark = "equal" if one["equal"] else "differs"
            table.add_row(one["paper"], one["filter"], *cells, f"{mark}{'; ' + one['remark'] if one['remark'] else ''}")
        parts += [Text(), table]
    parts += [Text(line) for line in report["announcements"]]
    parts += [Text(f"warning: {line}", style="yellow") for line in report["warnings"]]
    return Group(*parts)


def _facts(report: dict[str, Any]) -> Any:
    from rich.table import Table

    histories, times, rows = report["histories"], report["times"], report["rows"]
    table = Table("", "", show_header=False, box=None)
    table.add_row("users", f"{report['users']:,}")
    table.add_row("items", f"{report['items']:,}, {report['titles']:,} with a title")
    table.add_row(
        "interactions", f"{report['interactions']:,}, of which {report['repeated_pairs']:,} repeat an earlier pair"
    )
    if rows:
        table.add_row("rows", f"in {rows['in']:,} = kept {rows['kept']:,} + quarantined {rows['quarantined']:,}")
    table.add_row("sparsity", f"{report['sparsity']:.2%}")
    table.add_row(
        "histories",
        f"{histories['shortest']:,} to {histories['longest']:,}, median {histories['median']:g}, "
        f"mean {histories['mean']:.1f}",
    )
    table.add_row("ratings", f"{report['ratings']['lowest']:g} to {report['ratings']['highest']:g}")
    if times is None:
        table.add_row("times", "none: order in the file is the only clock")
    else:
        table.add_row("times", f"{times['first']} to {times['last']}")
        table.add_row(
            "ties in time", f"{times['tied_rows']:,} rows; {times['users_with_tied_last']:,} users at their last row"
        )
    table.add_row("sha256", report["sha256"])
    return table
