"""A paper's page from its records: published, under its protocol, under the clean one, and what lies between."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from coterie.errors import CoterieError
from coterie.protocol.rules import PAPER_WARNING
from coterie.report.pictures import Key, percent, pictures, split
from coterie.report.plan import label

_NOT = "not run"
_TOO_FEW = 2  # seeds: a t interval of two is 13 times as wide as they lie apart: both stand there instead
_MANY = 20  # a table with more rows has one sentence for all rows of a kind (their names up to the comma)


def write_page(paper: Mapping[str, Any], out: Path) -> Path:
    """README.md of the folder and the pictures it shows, made from the JSON files in it and nothing else."""
    records = read_records(paper, out)
    for name, record in records.items():
        for one in pictures(paper, name, record, _by_key(record)).values():
            (out / one.file).write_text(one.text)
    file = out / "README.md"
    file.write_text(page(paper, records))
    return file


def read_records(paper: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """The records of a folder by data set."""
    if not out.is_dir():
        raise CoterieError(f"{out} is no folder of records; `coterie reproduce {paper['name']}` makes one")
    found = {}
    for name in paper["datasets"]:
        file = out / f"{name}.json"
        if not file.exists():
            continue
        try:
            found[name] = json.loads(file.read_text())
        except ValueError as problem:
            raise CoterieError(f"{file} is damaged ({problem}); take it from its last commit, or remove it") from None
    return found


def _by_key(record: Mapping[str, Any]) -> dict[Key, dict[str, Any]]:
    return {(one["entry"], one["row"], one["protocol"]): one for one in record["cells"]}


def page(paper: Mapping[str, Any], records: Mapping[str, Any]) -> str:
    without = [name for name in paper["datasets"] if name not in records]
    lines = [
        f"# {paper['source']}", "",
        f"Made by `coterie reproduce {paper['name']}` from the JSON files beside it, and made again by "
        f"`coterie reproduce {paper['name']} --pages`. Figures are in % where the paper's are. An interval in brackets "
        "is 95 %: over seeds (Student's t) where there are three or more, over users (bootstrap) where there is one or "
        "where all seeds give the same. Of two seeds both figures stand in parentheses.", "",
        *_protocols(paper), "",
    ]  # fmt: skip
    for name, record in records.items():
        lines += _data_set(paper, name, record)
    if without:
        reasons = {**paper.get("missing", {}), **paper.get("unavailable", {})}
        told = "; ".join(f"{name} ({reasons[name]})" for name in without if name in reasons)
        rest = ", ".join(name for name in without if name not in reasons)
        lines += ["## Missing", ""]
        lines += [f"Not to be had, so nothing is stated: {told}.", ""] if told else []
        lines += [f"Of the paper's data sets, but not run here: {rest}.", ""] if rest else []
    lines += ["## Oddities of the paper, and choices made here", "", *(f"- {one}" for one in paper["oddities"]), ""]
    return "\n".join(lines)


def _protocols(paper: Mapping[str, Any]) -> list[str]:
    rules = paper["protocols"]["paper"]["name"]
    if paper["name"] == "federank":
        return [
            f"**paper** is `{rules}`: users with 20 ratings or more, each history's last fifth is the test, full "
            "ranking; training negatives avoid training items only, so nothing held out leaks. **clean** is the same "
            "split of all users with 3 or more. Everybody here has 20 or more: the columns differ in the validation "
            "metric alone (F1@10, NDCG@10 among all items), which chooses the epoch and settings."
        ]
    return [
        f"**paper** is `{rules}`; {PAPER_WARNING}, as in the released code: they are never drawn. No device could do "
        "so: it does not know its person's future. **clean** draws negatives from all she has not trained on. The "
        "settings of a row are the same in both; the protocols differ besides in the order of equal times, in short "
        "histories and repeated pairs, in the sampled candidates and in the validation metric that picks the round."
    ]


def _data_set(paper: Mapping[str, Any], name: str, record: Mapping[str, Any]) -> list[str]:
    found = _by_key(record)
    lines = [
        f"## {name}", "",
        f"{record['users']:,} users, {record['items']:,} items, {record['interactions']:,} interactions "
        f"(hash {record['data_sha256'][:12]}). {_made(record)}", "",
    ]  # fmt: skip
    reused = sum(one.get("reused", 0) > 0 for one in record["cells"])
    if reused:
        lines += [
            f"{reused} of the {len(record['cells'])} rows by protocol come from runs made elsewhere with the same "
            "spec and data (`reused` in the JSON); which state of the code made them is not on record.", "",
        ]  # fmt: skip
    summary = headline(paper, name, found)
    if summary:
        lines += [f"**{summary}**", ""]
    drawn = pictures(paper, name, record, found)
    for entry in paper["entries"]:
        if name in entry["datasets"]:
            shown = _table(paper, entry, record, found) if "rows" in entry else _drawing(entry, record)
            picture = drawn.get(entry["id"])
            lines += [*shown, *([f"![{picture.about}]({picture.file})", ""] if picture else [])]
    if any(_NOT in line for line in lines):
        lines += [f"What was not run: `coterie reproduce {paper['name']} --data {name} --plan` says what it takes.", ""]
    return lines


def _made(record: Mapping[str, Any]) -> str:
    """By how many seeds, by which code, on which machines, and for how long a processor worked."""
    cells = record["cells"]
    if not cells:
        return f"Coterie {record['coterie']}."
    seeds = sorted({len(one["seeds"]) for one in cells})
    counts = " to ".join(str(one) for one in dict.fromkeys((seeds[0], seeds[-1])))
    machines = dict.fromkeys(f"{at['processor']}, {at['cores']} cores" for one in cells for at in one["hardware"])
    states = {(one["algorithm"], one["version"]) for one in cells}
    systems = {one["algorithm"] for one in cells}
    return (
        f"{counts} seed{'' if counts == '1' else 's'} for each row; coterie {record['coterie']}, {len(systems)} "
        f"algorithms in {len(states)} states of their code (`version` in the JSON: rounding may differ from state to "
        f"state); {' and '.join(machines)}; {_cpu(record) / 60:.0f} CPU-minutes in all, reused runs not counted."
    )


def _cpu(record: Mapping[str, Any]) -> float:
    """CPU-seconds of the runs behind a record; tables that share a run count it once."""
    runs = {}
    for one in record["cells"]:
        said = (one["algorithm"], one["behaviour"], one["settings"], one["privacy"], one["rounds"], one["rules"])
        key = json.dumps([*said, one["row"] if "sparsity" in one["row"] else ""], sort_keys=True)
        runs[key] = one["cpu_seconds"]
    return float(sum(runs.values()))


def headline(paper: Mapping[str, Any], name: str, found: Mapping[Key, Mapping[str, Any]]) -> str | None:
    """What the leak accounts for, for the paper's own system; None while its runs are missing."""
    entry = next(one for one in paper["entries"] if one["id"] == paper["headline"]["entry"])
    metric = paper["headline"]["metric"]
    row = next(one for one in entry["rows"] if one["system"] == paper["own"])
    return sentence(entry, row, name, found, metric, leak=paper["name"] != "federank")


def sentence(
    entry: Mapping[str, Any],
    row: Mapping[str, Any],
    name: str,
    found: Mapping[Key, Mapping[str, Any]],
    metric: str,
    leak: bool = True,
) -> str | None:
    """The difference in words, from the numbers."""
    ours, without = (_value(found.get((entry["id"], label(row), one)), metric) for one in ("paper", "clean"))
    if ours is None or without is None:
        return None
    published = row.get("published", {}).get(name)
    printed = published[entry["metrics"].index(metric)] if published else None
    under, clean = ours["mean"], without["mean"]
    form = _form(entry, metric)
    told = "" if printed is None else f"published {_printed(entry, metric, printed['value'])}, "
    told = f"{label(row)} on {name}, {metric}: {told}ours {form(under)} under the paper's protocol, {form(clean)} clean"
    if not leak:
        if printed is None:
            return f"{told}: nothing held out leaks in this paper."
        far = under - printed["value"]
        side = "above" if far > 0 else "below"
        return f"{told}: nothing held out leaks in this paper; ours is {form(abs(far))} {side} the published figure."
    return f"{told}: {_lost(entry, metric, under, clean)}{_apart(entry, metric, ours, without)}"


def _apart(entry: Mapping[str, Any], metric: str, paper: Mapping[str, Any], clean: Mapping[str, Any]) -> str:
    """Between what figures the seeds lie, where they are so far apart that the difference of the means says little."""
    form, told = _form(entry, metric), []
    for column, words in ((paper, "under the paper's protocol"), (clean, "clean")):
        seeds = column.get("seeds", [column["mean"]])
        low, high = min(seeds), max(seeds)
        if high - low > abs(paper["mean"] - clean["mean"]):
            told.append(f"{form(low)} to {form(high)} {words}")
    return f" Seeds are further apart than that: {', '.join(told)}." if told else ""


def sentences(
    entry: Mapping[str, Any], name: str, found: Mapping[Key, Mapping[str, Any]], metric: str
) -> Iterator[str]:
    """The difference in words for each kind of row in a long table, over the rows measured under both protocols."""
    form = _form(entry, metric)
    kinds: dict[str, list[tuple[float, float, float]]] = {}
    for row in entry["rows"]:
        ours = [_value(found.get((entry["id"], label(row), protocol)), metric) for protocol in ("paper", "clean")]
        printed = row.get("published", {}).get(name)
        if ours[0] is not None and ours[1] is not None and printed:
            figures = (printed[entry["metrics"].index(metric)]["value"], ours[0]["mean"], ours[1]["mean"])
            kinds.setdefault(label(row).partition(",")[0], []).append(figures)
    for kind, rows in kinds.items():
        columns = list(zip(*rows, strict=True))
        published, under, clean = (mean(one) for one in columns)
        (low, high), (least, most) = ((form(min(one)), form(max(one))) for one in columns[1:])
        yield (
            f"{kind} on {name}, mean {metric} of {len(rows)} row{'' if len(rows) == 1 else 's'}: published "
            f"{_printed(entry, metric, published)}, ours {form(under)} ({low} to {high}) under the paper's protocol, "
            f"{form(clean)} ({least} to {most}) clean: {_lost(entry, metric, under, clean)}"
        )


def _lost(entry: Mapping[str, Any], metric: str, under: float, clean: float) -> str:
    gap = under - clean
    if gap <= 0:
        return "it is no lower where held-out items do not shape the negatives."
    unit = " points" if entry["percent"] else ""
    share = f", {gap / under:.0%} of the figure," if under > 0 else ""
    return f"{_form(entry, metric)(gap)}{unit}{share} go where held-out items no longer shape the negatives."


def _table(
    paper: Mapping[str, Any], entry: Mapping[str, Any], record: Mapping[str, Any],
    found: Mapping[Key, Mapping[str, Any]],
) -> list[str]:  # fmt: skip
    metrics, name = entry["metrics"], record["data"]
    if not any(key[0] == entry["id"] for key in found):
        return [
            f"### {_title(entry)}",
            "",
            f"{_NOT.capitalize()}.",
            "",
            *([entry["note"], ""] if "note" in entry else []),
        ]
    heads = [f"{metric} {who}" for metric in metrics for who in ("published", "paper", "clean")]
    if not any(row.get("published", {}).get(name) for row in entry["rows"]):
        heads = [one for one in heads if not one.endswith("published")]
    leak = paper["name"] != "federank"
    lines = [f"### {_title(entry)}", "", *([f"Columns *paper*: {PAPER_WARNING}.", ""] if leak else [])]
    lines += [f"| | {' | '.join(heads)} |", "| --- " * (len(heads) + 1) + "|"]
    for row in entry["rows"]:
        shown = []
        for head in heads:
            metric, _, who = head.rpartition(" ")
            shown.append(_cell(entry, row, name, metric, who, found, paper))
        lines.append(f"| {label(row)} | {' | '.join(shown)} |")
    lines.append("")
    if any("subset" in row for row in entry["rows"]) and record["parts"]:
        made = ", ".join(f"{part.removeprefix(f'{name}-')} has {value:.2f}" for part, value in record["parts"].items())
        lines += [f"Sparsity of the parts as they could be made, in %: {made}.", ""]
    if entry.get("last"):
        lines += ["Test figures of the last round.", ""]
    if "note" in entry:
        lines += [entry["note"], ""]
    if leak and len(entry["rows"]) > _MANY:
        lines += [f"- {told}" for told in sentences(entry, name, found, metrics[0])]
    else:
        others = [row for row in entry["rows"] if row.get("published", {}).get(name) and row["system"] != paper["own"]]
        each = (sentence(entry, row, name, found, metrics[0], leak) for row in others)
        lines += [f"- {told}" for told in each if told]
    for row in entry["rows"]:
        for protocol in ("paper", "clean"):
            one = found.get((entry["id"], label(row), protocol))
            if one and one["values"] is None:
                lines.append(f"- {label(row)} [{protocol}]: {one['diverged']}.")
            if one and one.get("tried"):
                chosen = ", ".join(f"{key} {one['settings'][key]}" for key in one["tried"][0])
                lines.append(f"- {label(row)} [{protocol}]: {chosen}, chosen on validation among {len(one['tried'])}.")
    return [*lines, ""]


def _cell(
    entry: Mapping[str, Any], row: Mapping[str, Any], name: str, metric: str, who: str,
    found: Mapping[Key, Mapping[str, Any]], paper: Mapping[str, Any],
) -> str:  # fmt: skip
    form = _form(entry, metric)
    if who == "published":
        printed = row.get("published", {}).get(name)
        one = printed[entry["metrics"].index(metric)] if printed else None
        if one is None:
            return ""
        return _printed(entry, metric, one["value"]) + (
            f" ± {_printed(entry, metric, one['deviation'])}" if "deviation" in one else ""
        )
    if who not in paper["systems"][row["system"]].get("protocols", ("paper", "clean")):
        return ""
    measured = found.get((entry["id"], label(row), who))
    if measured is None:
        return _NOT
    value = _value(measured, metric)
    if value is None:
        return "diverged"
    spread = f" ± {form(value['deviation'])}" if value.get("deviation") is not None else ""
    interval = f" [{form(value['low'])}, {form(value['high'])}]" if "low" in value else ""
    if spread and len(value["seeds"]) == _TOO_FEW:
        interval = f" ({', '.join(map(form, value['seeds']))})"
    return f"{form(value['mean'])}{spread}{interval}"


def _value(cell: Mapping[str, Any] | None, metric: str) -> dict[str, Any] | None:
    if cell is None or cell["values"] is None:
        return None
    found: dict[str, Any] = cell["values"][metric]
    return found


def _form(entry: Mapping[str, Any], metric: str) -> Any:
    digits = 1 if entry["percent"] else 0 if metric.startswith("ItemCoverage") else 4
    return lambda value: f"{value:,.{digits}f}"


def _printed(entry: Mapping[str, Any], metric: str, value: float) -> str:
    """A published figure, with the digits it was printed with."""
    return f"{value:.2f}" if entry["percent"] else f"{value:,.0f}" if metric.startswith("ItemC") else f"{value:.5f}"


def _title(entry: Mapping[str, Any]) -> str:
    return f"{str(entry['id']).capitalize()}: {entry['title']}"


def _drawing(entry: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    """A drawing's numbers are in the JSON; here what can be said in a line or a small table."""
    lines = [f"### {_title(entry)}", "", *([entry["note"], ""] if "note" in entry else [])]
    numbers = record["figures"].get(entry["id"])
    if numbers is None:
        return [*lines, f"{_NOT.capitalize()}.", ""]
    where = f"The numbers are in the JSON file under `figures`, `{entry['id']}`."
    if "last" in numbers:
        lines += ["| share of entries of C above | 1e-1 | 1e-2 |", "| --- | --- | --- |"]
        for system, printed in (numbers.get("published") or {}).items():
            lines.append(f"| {system}, published | {printed['1e-01']:.3f} | {printed['1e-02']:.3f} |")
        for run, shares in numbers["last"].items():
            lines.append(
                f"| {run} | {shares.get('1e-01', float('nan')):.3f} | {shares.get('1e-02', float('nan')):.3f} |"
            )
        return [*lines, "", where, ""]
    if "apart" in numbers:
        told = ", ".join(f"{name} {value:.2f}" for name, value in numbers["apart"].items())
        return [
            *lines,
            f"{numbers['rated']} rated and {numbers['unrated']} other items of the most active person. Distance of the "
            f"two groups' centres over the spread within them: {told}.", "",
        ]  # fmt: skip
    if "found" in numbers:
        return [*lines, *_points(numbers.get("points", [])), *(f"- {one}" for one in numbers["found"]), "", where, ""]
    if "lines" in numbers:
        return [*lines, *_ends(numbers, *percent(numbers["y"])), where, ""]
    return [*lines, where, ""]


def _ends(numbers: Mapping[str, Any], scale: float, words: str) -> list[str]:
    """The last value of each curve of a metric, a column for each protocol."""
    if scale == 1:
        return []
    ends = {split(name): (line["x"][-1], line["y"][-1]) for name, line in numbers["lines"].items() if line["y"]}
    columns = list(dict.fromkeys(who for _, who in ends))
    heads = " | ".join(f"{words}{who and f', {who}'}" for who in columns)
    lines = [f"One run of each; the last {numbers['x']} in parentheses.", "", f"| | {heads} |"]
    lines.append("| --- " * (len(columns) + 1) + "|")
    for system in dict.fromkeys(system for system, _ in ends):
        shown = [f"{scale * at[1]:.1f} ({at[0]})" if (at := ends.get((system, who))) else "" for who in columns]
        lines.append(f"| {system} | {' | '.join(shown)} |")
    return [*lines, ""]


def _points(points: list[dict[str, Any]]) -> list[str]:
    """FedeRank's curves: a line for each pi, a column for each metric and T."""
    if not points:
        return []
    found = {(one["T"], one["pi"]): one["test"] for one in points}
    many, metrics = list(dict.fromkeys(one["T"] for one in points)), list(points[0]["test"])
    heads = [f"{metric}, T {T}" for metric in metrics for T in many]
    lines = [f"| pi | {' | '.join(heads)} |", "| --- " * (len(heads) + 1) + "|"]
    for pi in dict.fromkeys(one["pi"] for one in points):
        shown = [f"{found[T, pi][metric]:.4f}" for metric in metrics for T in many]
        lines.append(f"| {pi} | {' | '.join(shown)} |")
    return [*lines, ""]
