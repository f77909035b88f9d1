"""`coterie study privacy`: the papers' tables with noise, and what a curious server learns, by one command each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="The papers' tables with noise; uplift against epsilon.", no_args_is_help=True)

Data = Annotated[str, typer.Option(help="A named data set, a file, or `synthetic`.")]
Runs = Annotated[Path, typer.Option(help="Folder in which runs are kept, so that an interrupted study goes on.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="The JSON; the page goes beside it, as .md.")]
Rounds = Annotated[int, typer.Option(help="Rounds of training.")]
Every = Annotated[int, typer.Option("--evaluate-every", help="Rounds from one evaluation to the next.")]
Seed = Annotated[int, typer.Option(help="Every random number but the noise follows from it.")]
Threads = Annotated[int, typer.Option(help="Threads.")]
Only = Annotated[str | None, typer.Option(help="Run the rows whose name holds this, and write nothing yet.")]

_FEDRAP = {
    "none": "nothing bounds what a server learns from what it is sent; `coterie audit` measures it.",
    "as the paper has it": "Equations 4 and 5, tau = 0.1, z = 1: Gaussian noise of deviation 2 z eta tau / n_s on the "
    "mean. Against the server it guarantees nothing: it sees every upload and knows what it sent, and each upload "
    "carries only its share of the noise. For somebody who sees the mean alone, epsilon is about 92 over 100 rounds "
    "with everybody in each, and only because here a round's whole movement is cut once to eta tau; where each of ten "
    "local steps is cut, as the paper has it, it is about 5,400. The authors' released code has no such noise at all.",
    "local Gaussian": "the real one: the whole upload cut to L2 norm S = eta tau (of the first round), Gaussian noise "
    "of deviation S on every number, analytic Gaussian mechanism, any two uploads, composed over rounds. Holds against "
    "the server.",
}
_GPFEDREC = {
    "Laplace 0 to 0.5": "Equation 9: Laplace noise on a table that is not clipped. Its sensitivity is unbounded, so no "
    "epsilon exists.",
    "local Laplace": "the real one at the paper's loudest noise: the uploaded table cut to L1 norm 43,000 (that of a "
    "first table), Laplace noise of scale 0.5: epsilon 2 x 43,000 / 0.5 = 172,000 an upload, added up over rounds. It "
    "holds against the server and says how little the noise of this table protects: epsilon 2 an upload would need "
    "noise of scale 43,000 on numbers of size 1.",
}


def _command(name: str, options: dict[str, Any]) -> str:
    said = [
        f"--{key} {one}" for key, value in options.items() for one in (value if isinstance(value, list) else [value])
    ]
    return f"coterie study privacy {name} " + " ".join(said)


def _write(out: Path, found: dict[str, Any]) -> None:
    from coterie.report.privacy_tables import page
    from coterie.runs import tensors

    out.parent.mkdir(parents=True, exist_ok=True)
    tensors.write_json(out, found)
    out.with_suffix(".md").write_text(page(found))
    print(f"{out}\n{out.with_suffix('.md')}")


@app.command()
def fedrap(
    data: Data = "ml-100k",
    runs: Runs = Path("runs/privacy-fedrap"),
    out: Out = Path("papers/fedrap/privacy.json"),
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of training; default as many as the paper has for each system.")
    ] = None,
    every: Every = 20,
    seed: Seed = 0,
    threads: Threads = 1,
    only: Only = None,
    system: Annotated[
        list[str] | None, typer.Option(help="Systems of the table, repeatable; default all four.")
    ] = None,
) -> None:
    """FedRAP's tables 1, 5 and 6: each system without noise, with the paper's, and with a real local mechanism."""
    from coterie.data import load
    from coterie.report.privacy_tables import FEDRAP, ROUNDS, circumstances, fedrap_rows, measure

    loaded = load(data)
    table = [row for row in fedrap_rows(loaded.n_items) if not system or row.system in system]
    wanted = [row for row in table if only is None or only in " ".join(row[:4])]
    rows = measure(wanted, loaded, runs, rounds, seed, every, threads, print)
    if only is not None:
        return
    trained = {row["system"]: row["rounds"] for row in rows}
    if rounds is None:
        lengths = ", ".join(f"{one} {count}" for one, count in trained.items()) + " rounds as in the paper"
    else:
        fewer = [f"{one} {ROUNDS[one]}" for one in trained if ROUNDS[one] != rounds]
        lengths = f"{rounds} rounds" + (f" (**the paper has other numbers: {', '.join(fewer)}**)" if fewer else "")
    notes = [
        f"{loaded.name}, seed {seed}, {lengths}, everybody in each round; HR@10 and NDCG@10 in %, on 99 sampled "
        "candidates unless it says full ranking. One seed: differences of a point or two mean nothing.",
        "FedRAP and PFedRec as_released, FedMF and FedNCF as_published. The paper says neither the rates of the latter "
        "two nor how many clients are in a round.",
        "The paper reports, in its released code, the round with the best test HR; here are the last round and the "
        "round with the best validation.",
        "eta is the item step size of the round, so cut and noise fade with it. The simulator draws the noise of all "
        "clients once, for their sum: the same distribution.",
        "What is private is neither cut nor noised, and in FedRAP that is a whole item table. In the others a round "
        "moves items only by what is left of it at norm eta tau, so with noise they fall further than published: the "
        "paper cuts each local step instead, and does not say how it did so in systems other than its own.",
        "Tables 5 and 6 print their headings with and without noise swapped; here they are in their places.",
    ]
    if "fedmf" in trained:
        notes.insert(
            2, "FedMF's item rate is 0.0002 in all rows: with everybody in a round its sum diverges without noise at "
            "0.005 and down to 0.0003; 0.0002 was better than 0.0001 on validation (clean protocol)."
        )  # fmt: skip
    fallen = [one for one in rows if "diverged" in one]
    if fallen:
        told = [f"{one['system']}, {one['noise']}, {one['protocol']} ({one['diverged']})" for one in fallen]
        notes.append(f"Diverged: {'; '.join(told)}. Local noise goes on all that is sent, a shared network too.")
    left_out = [one for one in FEDRAP if system and one not in system]
    if left_out:
        notes.insert(0, f"**Tables 5 and 6 are incomplete: {', '.join(left_out)} were not run.**")
    found = {
        "title": "FedRAP's tables 1, 5 and 6: noise, and what it guarantees", "command": _command(
            "fedrap", {"data": data, "rounds": rounds or [], "evaluate-every": every, "seed": seed,
                       "system": system or []}
        ),
        "about": "Table 1 is the row of FedRAP, tables 5 and 6 are all four systems. No row but the last of each "
        "system has an epsilon against the server.",
        "data": {"name": loaded.name, "sha256": loaded.sha256}, "seeds": [seed], "rounds": trained,
        "circumstances": circumstances(), "mechanisms": _FEDRAP, "notes": notes, "rows": rows,
    }  # fmt: skip
    _write(out, found)


@app.command()
def gpfedrec(
    data: Data = "ml-100k",
    runs: Runs = Path("runs/privacy-gpfedrec"),
    out: Out = Path("papers/gpfedrec/privacy.json"),
    rounds: Rounds = 20,
    every: Every = 10,
    seed: Seed = 0,
    threads: Threads = 1,
    only: Only = None,
    noise: Annotated[list[float] | None, typer.Option(help="Noise intensities, repeatable; default 0 to 0.5.")] = None,
    whole: Annotated[
        list[float] | None,
        typer.Option(help="Intensities trained also for the paper's 100 rounds, under its protocol, repeatable."),
    ] = None,
) -> None:
    """GPFedRec's table 6: Laplace noise 0 to 0.5 as published, and a real local mechanism."""
    from coterie.data import load
    from coterie.report.privacy_tables import INTENSITIES, ROUNDS, circumstances, gpfedrec_rows, measure

    loaded = load(data)
    table, length = gpfedrec_rows(tuple(noise or INTENSITIES)), ROUNDS["gpfedrec"]
    longer = [
        row._replace(noise=f"{row.noise}, {length} rounds")
        for row in gpfedrec_rows(tuple(whole or ()))
        if row.protocol != "clean" and row.noise != "local Laplace"
    ]
    pairs = [(row, rounds) for row in table] + [(row, length) for row in longer]
    rows: list[dict[str, Any]] = []
    for row, count in pairs:
        if only is None or only in " ".join(row[:4]):
            rows += measure([row], loaded, runs, count, seed, every, threads, print)
    if only is not None:
        return
    notes = [
        f"{loaded.name}, seed {seed}, {rounds} rounds, everybody in each round; HR@10 and NDCG@10 in %, on 99 sampled "
        "candidates unless it says full ranking. One seed: differences of a point or two mean nothing.",
        "gpfedrec as_released.",
    ]
    if rounds < 100:
        notes.insert(1, f"**{rounds} rounds, where the paper has 100**: the levels are not comparable with the "
                     "published ones, and so early there is little that noise could spoil"
                     + ("; the rows of 100 rounds are as long as the paper's." if whole else "."))  # fmt: skip
    left_out = [f"{one:g}" for one in INTENSITIES if noise and one not in noise]
    if left_out:
        notes.insert(0, f"**Table 6 is incomplete: intensities {', '.join(left_out)} were not run.**")
    found = {
        "title": "GPFedRec's table 6: Laplace noise, and what it guarantees",
        "command": _command(
            "gpfedrec", {"data": data, "rounds": rounds, "evaluate-every": every, "seed": seed, "noise": noise or [],
                         "whole": whole or []}
        ),
        "about": "Laplace noise on the uploaded item table, as the paper has it, and one run with the mechanism that "
        "has an epsilon.",
        "data": {"name": loaded.name, "sha256": loaded.sha256}, "seeds": [seed], "rounds": rounds,
        "circumstances": circumstances(), "mechanisms": _GPFEDREC, "notes": notes, "rows": rows,
    }  # fmt: skip
    _write(out, found)


@app.command("audit")
def audits(
    data: Data = "ml-100k",
    runs: Runs = Path("runs/privacy-audit"),
    out: Out = Path("docs/findings/privacy.json"),
    rounds: Rounds = 3,
    users: Annotated[int, typer.Option(help="Users recorded where uploads are dense.")] = 100,
    seed: Seed = 0,
    threads: Threads = 1,
    only: Only = None,
    done: Annotated[
        bool, typer.Option("--done", help="Run nothing: write what is in the folder, name the rest.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Also an interactive page with the same points.")] = None,
) -> None:
    """Uplift of the strongest attack against epsilon and quality: many settings run and audited."""
    from coterie.data import load
    from coterie.privacy.audit.report import figure
    from coterie.report.privacy_audit import SETTINGS, TWENTY, hidden_items, page, place_of, study, svg
    from coterie.report.privacy_tables import circumstances
    from coterie.runs import tensors

    loaded = load(data)
    wanted = tuple(one for one in SETTINGS if only is None or only in one.name)
    if done:
        wanted = tuple(one for one in wanted if (place_of(runs, one) / "audit.json").exists())
    settings = study(loaded, runs, rounds, users, seed, threads, print, wanted)
    if only is not None:
        return
    slowest = max(settings, key=lambda one: one["audit_cpu_seconds"])
    notes = [
        f"{loaded.name}, clean protocol, seed {seed}, {rounds} rounds unless the row says otherwise; quality is that "
        f"of so short a training. Popularity alone reaches AUC {settings[0]['popularity']:.3f}: "
        "uplift is counted from there. Shuffled labels are within "
        f"{max(one['shuffled_labels_worst'] for one in settings):.3f} of 0.5 in every setting.",
        "An attack may end below popularity, and the strongest of them exactly on it: attacks that add popularity fall "
        "back on it alone where nothing else helped on other users.",
        "The server's epsilon is none where it sees single uploads (central noise without a secure sum) or where there "
        "is none at all. Of central noise with a secure sum it sees masked uploads and the noised sum.",
        f"The longest audit took {slowest['audit_cpu_seconds']:.0f} CPU-seconds ({slowest['name']}, "
        f"{slowest['rounds']} rounds, {slowest['users']} users).",
        "FedeRank's rounds are epochs in which each person uploads once. With the fixed subset and pi = 0 nothing she "
        "has is ever sent as such, but her hidden items are drawn as negatives like any other.",
        *hidden_items(settings),
    ]
    usual = next((one for one in settings if one["name"] == TWENTY), None)
    if usual is not None:
        seconds = usual["audit_cpu_seconds"]
        notes.insert(4, f"An audit of {usual['rounds']} rounds with all {usual['users']} users took {seconds:.0f} "
                     f"CPU-seconds ({seconds / 60:.1f} minutes of one core).")  # fmt: skip
    if len(wanted) < len(SETTINGS):
        notes.append("Not run yet: " + "; ".join(one.name for one in SETTINGS if one not in wanted) + ".")
    found = {
        "title": "What a curious server learns beyond what is popular",
        "about": "Each setting was run with its server's view recorded and attacked from that view alone.",
        "command": _command("audit", {"data": data, "rounds": rounds, "users": users, "seed": seed}),
        "data": {"name": loaded.name, "sha256": loaded.sha256}, "seeds": [seed], "circumstances": circumstances(),
        "notes": notes, "settings": settings,
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    tensors.write_json(out, found)
    out.with_suffix(".md").write_text(page(found))
    out.with_suffix(".svg").write_text(svg(found))
    print(f"{out}\n{out.with_suffix('.md')}\n{out.with_suffix('.svg')}")
    if html is not None:
        html.write_text(figure(settings))
