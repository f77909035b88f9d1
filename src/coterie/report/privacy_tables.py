"""FedRAP's tables 1, 5 and 6 and GPFedRec's table 6 on MovieLens-100K, with what each mechanism does not guarantee.

Each row is a run kept in a folder and opened again when it is there, so a table that was interrupted goes on. The JSON
holds all that stands on the page; the page is made from it alone.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from coterie import __version__
from coterie.algorithms import make
from coterie.data.interactions import Interactions
from coterie.engine.simulate import Diverged
from coterie.privacy import local
from coterie.privacy.spec import PrivacySpec
from coterie.protocol import resolve
from coterie.report.studies import cached_run
from coterie.runs.run import Run

TAU, Z = 0.1, 1.0  # FedRAP's clipping threshold and noise multiplier
L1 = 43_000.0  # about the L1 norm of a first table of 1,682 x 32 numbers of deviation 1
INTENSITIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # GPFedRec's delta

# HR@10, NDCG@10 in %, MovieLens-100K: without and with noise. Tables 5 and 6 print the two headings swapped.
FEDRAP = {
    "fedmf": ((65.05, 38.40), (62.57, 34.51)), "fedncf": ((60.89, 32.68), (43.48, 23.86)),
    "pfedrec": ((70.03, 41.38), (63.52, 35.49)), "fedrap": ((97.09, 87.81), (93.64, 80.15)),
}  # fmt: skip
GPFEDREC = dict(
    zip(
        INTENSITIES,
        ((72.85, 43.77), (71.89, 42.58), (71.32, 41.79), (70.41, 41.78), (69.99, 40.68), (69.35, 39.89)),
        strict=True,
    )
)
# Training as the papers have it: FedRAP's page 7, GPFedRec's appendix.
ROUNDS = {"fedmf": 200, "fedncf": 200, "pfedrec": 100, "fedrap": 100, "gpfedrec": 100}
BEHAVIOUR = {"fedmf": "as_published", "fedncf": "as_published", "pfedrec": "as_released", "fedrap": "as_released"}
# With everybody in a round FedMF's sum diverges at item rates of 0.0003 and more beside this user rate; of 0.0001 to
# 0.002 this one was best on validation (clean protocol, 200 rounds, no noise).
SETTINGS: dict[str, dict[str, Any]] = {"fedmf": {"lr_user": 0.05, "lr_item": 0.0002}}
Say = Callable[[str], None]


class Row(NamedTuple):
    """One run of a table."""

    system: str
    behaviour: str
    protocol: str
    noise: str  # what the table calls it
    privacy: dict[str, Any]  # of the run's spec
    published: tuple[float, float] | None


def circumstances() -> dict[str, Any]:
    """Version and hardware: what must stand beside a figure."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cpu = names[0] if names else platform.processor() or platform.machine()
    return {"coterie": __version__, "python": platform.python_version(), "cpu": cpu, "cores": os.cpu_count()}


def fedrap_rows(n_items: int) -> list[Row]:
    """Each system without noise, with the paper's, and with a local mechanism that has an epsilon (same norm and z)."""
    found = []
    for system, (without, with_) in FEDRAP.items():
        behaviour = BEHAVIOUR[system]
        norm = (
            local.item_rate(make(system, behaviour, **SETTINGS.get(system, {})))(n_items, 1) * TAU
        )  # eta tau: the paper's own, in the first round
        ways: tuple[tuple[str, dict[str, Any], Any], ...] = (
            ("none", {}, without),
            ("as the paper has it", {"mechanism": "fedrap-noise", "clip": TAU, "noise": Z}, with_),
            ("local Gaussian", {"mechanism": "local-gaussian", "clip": norm, "noise": Z}, None),
        )
        for protocol in ("paper:fedrap", "clean"):
            found += [Row(system, behaviour, protocol, name, said, figures) for name, said, figures in ways]
    return found


def gpfedrec_rows(intensities: tuple[float, ...] = INTENSITIES) -> list[Row]:
    """Laplace noise as published, and one run of the mechanism that has an epsilon."""
    found = []
    for protocol in ("paper:gpfedrec", "clean"):
        for one in intensities:
            said: dict[str, Any] = {"mechanism": "gpfedrec-noise", "noise": one} if one else {}
            found.append(Row("gpfedrec", "as_released", protocol, f"Laplace {one:g}", said, GPFEDREC[one]))
        real = {"mechanism": "local-laplace", "clip": L1, "noise": INTENSITIES[-1] / L1}
        found.append(Row("gpfedrec", "as_released", protocol, "local Laplace", real, None))
    return found


def measure(
    rows: list[Row], data: Interactions, folder: Path, rounds: int | None, seed: int, every: int, threads: int, say: Say
) -> list[dict[str, Any]]:
    """Run what is missing, and what the tables need of each run. `rounds` None: as many as the paper has."""
    found = []
    for row in rows:
        algorithm, wanted = (
            make(row.system, row.behaviour, **SETTINGS.get(row.system, {})),
            rounds or ROUNDS[row.system],
        )
        privacy = PrivacySpec(**row.privacy) if row.privacy else None
        try:
            run = cached_run(
                algorithm, data, folder, say, protocol=row.protocol, seed=seed, rounds=wanted, evaluate_every=every,
                privacy=privacy, threads=threads,
            )  # fmt: skip
        except Diverged as problem:  # that is what came of this row
            found.append(fallen(row, algorithm, privacy, wanted, seed, str(problem)))
            say(f"{row.system} {row.protocol} {row.noise}: {problem}")
            continue
        found.append(gathered(row, run))
        say(f"{row.system} {row.protocol} {row.noise}: HR@10 {found[-1]['last']['HR@10']:.2f} %")
    return found


def fallen(
    row: Row, algorithm: Any, privacy: PrivacySpec | None, rounds: int, seed: int, problem: str
) -> dict[str, Any]:
    """A row whose training diverged: what was promised, and no figures."""
    stated = local.statement((privacy or PrivacySpec()).resolved(rounds), rounds)
    return {
        **row._asdict(),
        "rounds": rounds,
        "rounds_published": ROUNDS[row.system],
        "seed": seed,
        "diverged": problem.partition(" (")[0],  # without the folder's name
        "last": None,
        "best_validation": None,
        "last_full": None,
        "warning": resolve(row.protocol, algorithm.home).warning,
        "guarantees": {key: stated[key] for key in _SAYS if key in stated},
        "settings": asdict(algorithm),
    }


def gathered(row: Row, run: Run) -> dict[str, Any]:
    summary = run.summary
    stated = summary.get("privacy") or {"epsilon": None, "why": "no noise: nothing bounds what a server learns"}
    says = {key: stated[key] for key in _SAYS if key in stated}
    return {
        **row._asdict(),
        "rounds": summary["rounds"],
        "rounds_published": ROUNDS[row.system],
        "seed": summary["seed"],
        "last": _figures(summary["last"]["test"]["sampled"]),
        "best_validation": _figures(summary["metrics"]["test"]["sampled"]) | {"round": summary["best_round"]},
        "last_full": _figures(summary["last"]["test"]["full"]),
        "warning": summary.get("warning"),
        "guarantees": says,
        "training_seconds": round(summary["seconds"]["train"], 1),
        "settings": summary["settings"],
    }


_SAYS = (
    "unit", "neighbours", "delta", "sampling", "accountant", "adversary", "clip", "noise", "epsilon",
    "epsilon_per_upload", "epsilon_server", "epsilon_if_only_the_mean_is_seen", "why", "private",
)  # fmt: skip


def _figures(metrics: dict[str, Any]) -> dict[str, float]:
    """HR@10 and NDCG@10 in %."""
    return {key: round(100 * metrics[key], 2) for key in ("HR@10", "NDCG@10")}


def page(found: dict[str, Any]) -> str:
    """The tables as Markdown, from the JSON."""
    lines = [f"# {found['title']}", "", found["about"], ""]
    for protocol in dict.fromkeys(row["protocol"] for row in found["rows"]):
        mine = [row for row in found["rows"] if row["protocol"] == protocol]
        lines += [f"## Protocol `{protocol}`", ""]
        if mine[0]["warning"]:
            lines += [f"**{mine[0]['warning']}**", ""]
        lines += [
            "| system | noise | published HR / NDCG | last round HR / NDCG | best validation HR / NDCG | full ranking, "
            "last | epsilon against the server |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for row in mine:
            published = "-" if row["published"] is None else _pair(row["published"])
            if protocol == "clean":
                published = "-"
            lines.append(
                f"| {row['system']} | {row['noise']} | {published} | {_two(row['last'])} | "
                f"{_two(row['best_validation'])} | {_two(row['last_full'])} | {_epsilon(row['guarantees'])} |"
            )
        lines.append("")
    lines += ["## What each mechanism guarantees", ""]
    for name, said in found["mechanisms"].items():
        lines.append(f"- **{name}**: {said}")
    lines += ["", "## How it was measured", ""]
    lines += [f"- {one}" for one in found["notes"]]
    lines += ["", f"`{found['command']}`", ""]
    return "\n".join(lines)


def _pair(two: Any) -> str:
    return f"{two[0]:.2f} / {two[1]:.2f}"


def _two(metrics: dict[str, float] | None) -> str:
    if metrics is None:
        return "diverged"
    return _pair((metrics["HR@10"], metrics["NDCG@10"]))


def _epsilon(said: dict[str, Any]) -> str:
    if said.get("epsilon_server") is not None:
        each = said.get("epsilon_per_upload")
        return f"{said['epsilon_server']:,.0f}" + ("" if each is None else f" ({each:.2f} an upload)")
    mean = said.get("epsilon_if_only_the_mean_is_seen")
    return "none" if mean is None else f"none (for who sees the mean alone: {mean:.0f})"
