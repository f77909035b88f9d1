"""`coterie report`: run directories -> one self-contained HTML file that opens offline, on a phone and on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from coterie import __version__
from coterie.errors import CoterieError
from coterie.report import markup
from coterie.report.compare import collect
from coterie.report.people_sections import maps_and_devices, people, sparsity
from coterie.report.sections import Kind, communication, coverage, curves, results, what_was_run
from coterie.report.words import number, warnings
from coterie.runs.run import Run

_GLOSSARY = {
    "HR@10": "share of people whose held-out item stands among their first ten",
    "NDCG@10": "the same, but a place further down counts less: 1 / log2(place + 1)",
    "full, sampled": "ranked among all items she has not seen; among a few drawn ones (easier, and biased)",
    "canary / chance": "HR@10 of a scorer that only counts how often an item was drawn as a negative, beside a random "
    "one: far above chance means that held-out items can be told from the negatives",
    "valid": "no: held-out items could be told from the training negatives under a protocol that forbids it, or were "
    "trained on before; by its protocol: the rules of a paper were kept, which let held-out items shape the negatives, "
    "so its canary may stand far above chance; yes: neither",
    "interval": "percentile bootstrap over people: what the figure might have been with other people of the same kind",
    "deviation": "over seeds: what the figure might have been with other random numbers",
    "p, Holm": "chance of a difference at least as large if there were none, paired over people; raised so that all "
    "comparisons of the page together are covered",
    "1-Gini@10": "evenness of how often items are recommended: 1 all equally, 0 always the same one",
}


def report(
    runs: Sequence[Run | str | Path],
    path: str | Path = "report.html",
    *,
    title: str | None = None,
    user: str | None = None,
    on: str = "full.NDCG@10",
    baseline: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the page and return where it is.

    Arguments:
        user: whose view of the items is drawn; without it somebody with a history of median length.
        on, baseline: as in `compare`.
        say: told of each part of the page before it is made.
    """
    out = _place(Path(path))
    rows, members = collect(runs, on=on, baseline=baseline)
    kinds = []
    for which in sorted({row["comparable"] for row in rows}):
        mine = [k for k, row in enumerate(rows) if row["comparable"] == which]
        kinds.append(Kind([rows[k] for k in mine], [members[k] for k in mine]))
    if user is not None:
        _check_user(user, kinds)
    heading = title or "Coterie report: " + ", ".join(dict.fromkeys(row["data"] for row in rows))
    count = sum(len(group) for group in members)
    body = [
        markup.heading(1, heading),
        markup.paragraph(
            f"{number(count, 'run')} of {number(len(rows), 'system')}; seeds of the "
            "same system and settings are one row. Everything here was read from run directories.",
            "lead",
        ),
    ]
    # The protocol's warning stands in a box of its own, and again where its numbers are.
    leaking = [row["name"] for row in rows if row["warning"]]
    for text in dict.fromkeys(row["warning"] for row in rows if row["warning"]):
        which = ", ".join(row["name"] for row in rows if row["warning"] == text)
        body.append(markup.warning(f"{text}. This concerns: {which}"))
    body += [markup.paragraph(line, "note") for line in warnings(rows) if line.split(": ")[0] not in leaking]
    for place, kind in enumerate(kinds, 1):
        say(f"{kind.title}: {number(len(kind.rows), 'row')}")
        body.append(markup.heading(2, kind.title, f"kind-{place}"))
        for section in (what_was_run, results, curves, communication, coverage, people, sparsity):
            body += section(kind)
        body += maps_and_devices(kind, user)
    body.append("<footer>")
    body.append(
        markup.folded("What the words mean", markup.table(["word", "meaning"], list(_GLOSSARY.items()), (0, 1)))
    )
    every = [[row["name"], ", ".join(row["runs"])] for row in rows]
    body.append(markup.folded("Run directories", markup.table(["system", "folders"], every, (0, 1)), long=True))
    body.append(markup.paragraph(f"Made by coterie {__version__}. This file fetches nothing and runs no script."))
    body.append("</footer>")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(markup.page(heading, body), encoding="utf-8")
    return out


def _place(out: Path) -> Path:
    """Where the page will stand, refused before it is made."""
    if out.is_dir():
        raise CoterieError(f"{out} is a folder; say which file to write, for example -o {out / 'report.html'}")
    above = next(one for one in out.parents if one.exists())
    if not above.is_dir():
        raise CoterieError(f"{out}: {above} is a file, so nothing can be written in it; choose another place with -o")
    return out


def _check_user(user: str, kinds: Sequence[Kind]) -> None:
    """Somebody asked for by name must be in the data of one of the runs; where that is gone, the page will say so."""
    sought = []
    for kind in kinds:
        try:
            data = kind.members[0][0].prepared.data
        except CoterieError:
            return
        if user in data.user_number:
            return
        sought.append(f"the {data.n_users} users of {data.name}")
    raise CoterieError(f"user {user!r} is not among {' or '.join(dict.fromkeys(sought))}; ids are text")
