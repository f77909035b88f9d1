"""The rows of a comparison as a terminal table, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from coterie.report.asked import OF_PEOPLE
from coterie.report.names import label
from coterie.report.words import number, warnings
from coterie.runs.display import size

COLUMNS = (("sampled", "HR@10"), ("sampled", "NDCG@10"), ("full", "HR@10"), ("full", "NDCG@10"))


def shown(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The metric columns the rows have: `sampled.HR@10`, ..."""
    return [
        key for key, value in rows[0].items() if key.split(".")[0] in ("full", "sampled") and isinstance(value, dict)
    ]


def render(rows: list[dict[str, Any]]) -> Any:
    """The rows as one short terminal table, with what one has to know to believe it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    datasets = {row["data_sha256"]: row["data"] for row in rows}
    title = f"{', '.join(datasets.values())}: test metrics at the best validation round"
    table = Table(title=title, title_justify="left", pad_edge=False, show_edge=False)
    table.add_column("system", overflow="fold")  # on a narrow terminal names give way, not numbers
    for heading in ("HR@10\nsampled", "NDCG@10\nsampled", "HR@10\nfull", "NDCG@10\nfull", "canary\n/chance",
                    "sent up\na round", "train"):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = [figure(row[f"{kind}.{metric}"]) for kind, metric in COLUMNS]
        mark = "" if row["valid"] else " INVALID"
        table.add_row(
            Text(row["name"] + mark), *cells, canary(row), sent(row, "bytes_up"), f"{row['train_seconds']:.1f} s"
        )
    return Group(table, *(Text(line, "yellow") for line in warnings(rows)))


def whole(rows: list[dict[str, Any]]) -> Any:
    """Everything `compare` found, as a few tables for each kind of measurement; what must be known stands above."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(line, "bold yellow") for line in warnings(rows)]
    for kind in sorted({row["comparable"] for row in rows}):
        mine = [row for row in rows if row["comparable"] == kind]
        parts += [_metrics(mine), _tests(mine), _people(mine), _costs(mine), *_privacy(mine)]
    return Group(*(part for part in parts if part is not None))


def _table(title: str, headings: Sequence[str]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", pad_edge=False)
    table.add_column("system")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _metrics(rows: list[dict[str, Any]]) -> Any:
    from rich.text import Text

    first = rows[0]
    columns = shown(rows)
    title = (
        f"{first['data']}, {first['protocol']}, {first['split']}: test metrics at the best validation round; mean "
        f"±deviation over seeds, [{first['confidence']:.0%} bootstrap interval over users]"
    )
    table = _table(title, [*("\n".join(reversed(one.split("."))) for one in columns), "canary\n/chance", "seeds"])
    for row in rows:
        name = row["name"] + ("" if row["valid"] else " INVALID")
        cells = [Text(figure(row[one]) + interval(row[one], "\n")) for one in columns]
        table.add_row(Text(name), *cells, canary(row), str(len(row["seeds"])))
    return table


def _tests(rows: list[dict[str, Any]]) -> Any:
    from rich.text import Text

    tested = [row for row in rows if row["test"]]
    if not tested:
        return None
    one = tested[0]["test"]
    title = (
        f"{rows[0]['on']} against {one['against']}, paired over {one['users']:,} users; p Holm-corrected for "
        f"{number(one['comparisons'], 'comparison')}"
    )
    table = _table(title, ["difference", "t", "p (t)", "p (Wilcoxon)"])
    for row in tested:
        test = row["test"]
        t = "-" if test["t"] is None else f"{test['t']:.2f}"
        table.add_row(
            Text(row["name"]), f"{test['difference']:+.4f}", t, p(test["p_t_holm"]), p(test["p_wilcoxon_holm"])
        )
    return table


def _people(rows: list[dict[str, Any]]) -> Any:
    from rich.text import Text

    known = [row for row in rows if row["people"]]
    if not known:
        return None
    title = f"{rows[0]['on']} of people: share above 0, quantiles, and by the length of their history"
    groups = list(dict.fromkeys((name, one["shortest"], one["longest"]) for row in known for name, one in
                                row["groups"].items()))  # fmt: skip
    headings = ["above 0", "median", "75 %", "90 %"]
    table = _table(title, headings + [f"{name}\n{a}-{b}" for name, a, b in groups])
    for row in known:
        spread = row["people"]
        means = [f"{row['groups'][name]['mean']:.3f}" if name in row["groups"] else "-" for name, _, _ in groups]
        table.add_row(
            Text(row["name"]), f"{spread['above_zero']:.1%}", *(f"{spread[q]:.3f}" for q in ("q50", "q75", "q90")),
            *means,
        )  # fmt: skip
    return table


def _costs(rows: list[dict[str, Any]]) -> Any:
    from rich.text import Text

    headings = ["rounds", "best", "up\na round", "down\na round", "in all\na client", "train", "memory"]
    table = _table("what it costs", headings)
    for row in rows:
        best = ", ".join(map(str, row["best_round"]))
        table.add_row(
            Text(row["name"]), str(row["rounds"]), best, sent(row, "bytes_up", weight), sent(row, "bytes_down", weight),
            sent(row, "bytes_a_client", weight), f"{row['train_seconds']:.1f} s", weight(row["peak_rss_bytes"]),
        )  # fmt: skip
    return table


def _privacy(rows: list[dict[str, Any]]) -> list[Any]:
    """What may be said of privacy, each sentence once: a column of the table would be a few letters wide."""
    from rich.text import Text

    who: dict[str, list[str]] = {}
    for row in rows:
        who.setdefault(row["statement"], []).append(row["name"])
    return [Text(f"privacy of {', '.join(names)}: {said}") for said, names in who.items()]


def figure(value: dict[str, Any]) -> str:
    spread = "" if value["deviation"] is None else f" ±{value['deviation']:.3f}"
    return f"{value['mean']:.3f}{spread}"


def interval(value: dict[str, Any], before: str = " ") -> str:
    return "" if value["low"] is None else f"{before}[{value['low']:.3f}, {value['high']:.3f}]"


def p(value: float) -> str:
    return "<0.0001" if value < 1e-4 else f"{value:.4f}"


def canary(row: dict[str, Any]) -> str:
    return "" if row["canary"] is None else f"{row['canary']['HR@10']:.2f}/{row['canary']['chance']:.2f}"


def sent(row: dict[str, Any], key: str, worded: Callable[[float], str] = size) -> str:
    return worded(row[key]) if row[key] else "central" if "central" in row["sends"] else "-"


def weight(count: float) -> str:
    """Bytes in three digits."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return f"{count:.0f} {units[0]}" if units[0] == "B" or count >= 100 else f"{count:.3g} {units[0]}"


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row as plain columns, for CSV."""
    found: dict[str, Any] = {
        "name": row["name"], "system": label(row), "comparable": row["comparable"], "data": row["data"],
        "data_sha256": row["data_sha256"], "protocol": row["protocol"], "split": row["split"],
        "warning": row["warning"] or "", "valid": row["valid"], "seeds": " ".join(map(str, row["seeds"])),
        "rounds": row["rounds"], "best_round": " ".join(map(str, row["best_round"])),
    }  # fmt: skip
    for key in shown([row]):
        found |= {key: row[key]["mean"], **{f"{key} {one}": row[key][one] for one in ("deviation", "low", "high")}}
    for key in ("Coverage@10", "1-Gini@10", "AvgPopularity@10", "Novelty@10"):
        found[key] = row[key]
    canaries = row["canary"] or {}
    found |= {"canary": canaries.get("HR@10"), "chance": canaries.get("chance"), "tested on": row["on"]}
    test = row["test"] or {}
    names = ("against", "users", "difference", "t", "p_t", "p_t_holm", "p_wilcoxon", "p_wilcoxon_holm")
    found |= {f"test {one}": test.get(one) for one in names}
    people = row["people"] or {}
    found |= {f"people {one}": people.get(one) for one in ("above_zero", "q10", "q25", "q50", "q75", "q90")}
    found |= {name: row["groups"].get(name, {}).get("mean") for name in ("cold", "middle", "warm")}
    for key in ("bytes_up", "bytes_down", "bytes_a_client", "train_seconds", "total_seconds", "client_seconds",
                "peak_rss_bytes", "sends", "statement"):  # fmt: skip
        found[key] = row[key]
    return found


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """One line for each row; what two rows may be compared is in `comparable`, warnings are in `warning`."""
    lines = [flat(row) for row in rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def latex_text(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def as_latex(rows: Sequence[dict[str, Any]]) -> str:
    """A booktabs table: each kind of measurement under its own heading, the best accuracy of each column bold."""
    columns = shown(rows)
    groups = list(dict.fromkeys(name for row in rows for name in row["groups"]))
    heads = [rf"{latex_text(one.split('.')[1])} {one.split('.')[0]}" for one in columns]
    heads = ["system", *heads, "$p_t$", "$p_W$", "people", "above 0", *groups, "bytes/client", "training", "memory"]
    width = len(heads)
    lines = [
        r"% needs \usepackage{booktabs}; who has no room for a column takes it out of every line",
        rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}", r"\toprule", " & ".join(heads) + r" \\",
    ]  # fmt: skip
    for kind in sorted({row["comparable"] for row in rows}):
        mine = [row for row in rows if row["comparable"] == kind]
        first = mine[0]
        about = f"{first['data']}, {first['protocol']}, {first['split']}"
        if first["warning"]:
            about += f": {first['warning']}"
        lines += [r"\midrule", rf"\multicolumn{{{width}}}{{l}}{{\emph{{{latex_text(about)}}}}} \\"]
        # Of what is not accuracy, such as popularity, more is not better.
        best = {one: max(row[one]["mean"] for row in mine) for one in columns if one.split(".")[1] in OF_PEOPLE}
        for row in mine:
            cells = [latex_text(row["name"]) + ("" if row["valid"] else r" \textbf{INVALID}")]
            cells += [_latex_figure(row[one], row[one]["mean"] == best.get(one) and len(mine) > 1) for one in columns]
            test = row["test"]
            cells += [latex_text(p(test[one])) if test else "" for one in ("p_t_holm", "p_wilcoxon_holm")]
            spread = row["people"]
            cells += [f"{spread['users']:,}", latex_text(f"{spread['above_zero']:.1%}")] if spread else ["", ""]
            cells += [f"{row['groups'][one]['mean']:.3f}" if one in row["groups"] else "" for one in groups]
            cells += [sent(row, "bytes_a_client", weight), f"{row['train_seconds']:.1f} s"]
            lines.append(" & ".join([*cells, weight(row["peak_rss_bytes"])]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    notes = [
        f"mean ± deviation over seeds, [{rows[0]['confidence']:.0%} bootstrap interval over users]; p: paired over "
        f"users on {rows[0]['on']}, Holm-corrected; above 0: share of people with any {rows[0]['on']}"
        + (f"; {', '.join(groups)}: its mean by the length of people's histories" if groups else ""),
        *warnings(rows),
    ]
    tail = [r"\par " + latex_text(note).replace("±", r"$\pm$") for note in notes]
    return "\n".join([*lines, r"{\footnotesize", *tail, r"\par}"]) + "\n"  # a group: the text after it keeps its size


def _latex_figure(value: dict[str, Any], best: bool) -> str:
    mean = f"{value['mean']:.3f}"
    text = rf"\textbf{{{mean}}}" if best else mean
    if value["deviation"] is not None:
        text += rf" $\pm$ {value['deviation']:.3f}"
    return text + interval(value)
