"""What a curious server learns under many settings: runs, their audits, one JSON, a page and a drawing made from it."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from coterie.algorithms import make
from coterie.data.interactions import Interactions
from coterie.privacy import view
from coterie.privacy.audit.run import audit
from coterie.privacy.spec import PrivacySpec
from coterie.runs import tensors
from coterie.runs.api import run
from coterie.runs.run import Run


class Setting(NamedTuple):
    name: str
    algorithm: str
    settings: dict[str, Any]
    privacy: dict[str, Any]
    rounds: int | None = None  # None: as many as the study has
    cohort: float | int | None = None
    behaviour: str = "coterie"
    everybody: bool = True  # record all users; dense uploads are large, so a sample of them there


def _gaussian(z: float) -> Setting:
    said = {"mechanism": "local-gaussian", "clip": 0.5, "noise": z}
    return Setting(f"fedmf, local Gaussian z={z:g}", "fedmf", {}, said, everybody=z == 1.0)  # all where it is the gate


TWENTY = "fedmf, nothing, 20 rounds"  # what an audit of usual size costs
_CENTRAL = {"mechanism": "central", "clip": 0.5, "noise": 1.0, "sampling": 0.1}
SETTINGS = (
    Setting("fedmf, nothing", "fedmf", {}, {}),
    Setting(TWENTY, "fedmf", {}, {}, 20),
    *(_gaussian(z) for z in (0.001, 0.01, 0.1, 1.0)),
    Setting("fedmf, local Laplace b=1", "fedmf", {}, {"mechanism": "local-laplace", "clip": 5.0, "noise": 1.0}, 3,
            everybody=False),
    Setting("fedmf, central z=1, server trusted", "fedmf", {}, _CENTRAL),
    Setting("fedmf, central z=1, secure sum", "fedmf", {}, {**_CENTRAL, "secure_sum": True}, everybody=False),
    Setting("federank per-round, pi=1", "federank", {"pi": 1.0}, {}, 100, 50, everybody=False),
    Setting("federank per-round, pi=0", "federank", {"pi": 0.0}, {}, 100, 50),
    Setting("federank fixed-subset, pi=0", "federank", {"pi": 0.0, "sharing": "fixed-subset"}, {}, 100, 50),
    Setting("federank fixed-subset, pi=0, even negatives", "federank",
            {"pi": 0.0, "sharing": "fixed-subset", "hardest": 1}, {}, 100, 50, everybody=False),
    Setting("fedrap as released, nothing", "fedrap", {}, {}, behaviour="as_released", everybody=False),
    Setting("fedrap as released, its noise", "fedrap", {}, {"mechanism": "fedrap-noise"}, behaviour="as_released",
            everybody=False),
    Setting("gpfedrec as released, nothing", "gpfedrec", {}, {}, 3, behaviour="as_released", everybody=False),
    Setting("gpfedrec as released, Laplace 0.5", "gpfedrec", {}, {"mechanism": "gpfedrec-noise", "noise": 0.5}, 3,
            behaviour="as_released", everybody=False),
)  # fmt: skip


def place_of(folder: Path, setting: Setting) -> Path:
    return folder / setting.name.replace(", ", "-").replace(" ", "-")


def study(
    data: Interactions, folder: Path, rounds: int, users: int, seed: int, threads: int, say: Callable[[str], None],
    settings: tuple[Setting, ...],
) -> list[dict[str, Any]]:  # fmt: skip
    """Each setting run and audited; what is in the folder is not done again. Views are deleted once audited."""
    found = []
    for one in settings:
        place = place_of(folder, one)
        kept = place / "audit.json"
        if not kept.exists():
            say(f"running {place.name}")
            if (place / "summary.json").exists():
                done = Run(place, data)
            else:
                shutil.rmtree(place, ignore_errors=True)
                sample: dict[str, Any] = {} if one.everybody else {"view_users": users}
                done = run(
                    make(one.algorithm, one.behaviour, **one.settings), data, out=place, seed=seed, threads=threads,
                    rounds=one.rounds or rounds, evaluate_every=one.rounds or rounds, cohort=one.cohort,
                    privacy=PrivacySpec(record_view=True, **sample, **one.privacy), keep="nothing",
                )  # fmt: skip
            tensors.write_json(kept, audit(done.path, done.algorithm, done.summary, seed=seed))
            shutil.rmtree(place / view.FOLDER)
        result = json.loads(kept.read_text())
        found.append(_kept(one, result))
        best = found[-1]["strongest"]
        say(f"{one.name}: {best['attack']} {best['auc']:.3f}, uplift {best['uplift']:+.4f}")
    return found


def _kept(setting: Setting, result: dict[str, Any]) -> dict[str, Any]:
    """What page and drawing need, without what differs from machine to machine."""
    stated = result.get("statement", {})
    holds = stated.get("epsilon_server_holds", stated.get("epsilon_server") is not None)
    return {
        "name": setting.name,
        "algorithm": setting.algorithm,
        "behaviour": setting.behaviour,
        "settings": setting.settings,
        "privacy": setting.privacy,
        "rounds": result["rounds"],
        "users": result["users"],
        "uploads_per_user": result["uploads_per_user"],
        "strongest": result["strongest"],
        "attacks": {
            name: {key: one[key] for key in ("auc", "precision_at_positives", "uplift", "uplift_interval")}
            for name, one in result["attacks"].items()
        },
        "popularity": result["baselines"]["popularity"]["auc"],
        "shuffled_labels_worst": result["baselines"]["shuffled labels"]["worst"],
        "epsilon": result.get("epsilon"),
        "epsilon_server": result.get("epsilon_server") if holds else None,
        "why_no_epsilon": stated.get("why"),
        "empirical": result["empirical"],
        "quality": result["quality"],
        "audit_cpu_seconds": result.get("cpu_seconds", 0.0),
    }


def hidden_items(settings: list[dict[str, Any]]) -> list[str]:
    """Why FedeRank's fixed subset tells more than popularity, from the rows with hard and with even negatives."""
    rows = {one["name"]: one for one in settings}
    hard, even = (rows.get(f"federank fixed-subset, pi=0{more}") for more in ("", ", even negatives"))
    if hard is None or even is None:
        return []

    def auc(row: dict[str, Any], attack: str) -> str:
        return f"{row['attacks'][attack]['auc']:.3f}"

    def uplift(row: dict[str, Any], attack: str) -> str:
        one = row["attacks"][attack]
        return f"{one['uplift']:+.4f} [{one['uplift_interval'][0]:+.4f}, {one['uplift_interval'][1]:+.4f}]"

    both, knows = "frequency + popularity", "shadow that knows popularity"
    alone = max(row["attacks"][one]["uplift"] for row in (hard, even) for one in ("support", "frequency", "absence"))
    return [
        "Where that leaks: by default the negative of a triple is, of a few draws (four here), the one she would rank "
        "highest. Her vector has learnt her hidden items, so they win such draws more often: frequency alone has AUC "
        f"{auc(hard, 'frequency')}, added to popularity it brings {uplift(hard, both)}. With even draws (hardest=1) "
        f"frequency falls to {auc(even, 'frequency')} and has nothing to add: {uplift(even, both)}. The best of "
        f"support, frequency and absence alone is {alone:+.3f} from popularity.",
        "Even draws do not make it safe. A negative row moves the further the higher she scores it, and hidden items "
        f"score high: row norm has AUC {auc(even, 'row norm')} with even draws ({auc(hard, 'row norm')} with hard "
        f"ones), the rank-1 score {auc(even, 'rank-1 score')} ({auc(hard, 'rank-1 score')}), and a "
        f"shadow that knows popularity comes {uplift(even, knows)} above it ({uplift(hard, knows)}). The fixed subset "
        "is a sharing control, not privacy.",
    ]


def page(found: dict[str, Any]) -> str:
    """Markdown, from the JSON alone."""
    lines = [
        f"# {found['title']}", "", found["about"], "", "![uplift against epsilon and quality](privacy.svg)", "",
        "| setting | rounds | strongest attack | AUC | P@\\|pos\\| | uplift over popularity, 95 % | epsilon, who sees "
        "the models | epsilon, the server | HR@10 / NDCG@10, full |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for one in found["settings"]:
        best, full = one["strongest"], one["quality"]["full"]
        low, high = best["uplift_interval"]
        both = f"{_number(one['epsilon'])} | {_number(one['epsilon_server'])}"
        lines.append(
            f"| {one['name']} | {one['rounds']} | {best['attack']} | {best['auc']:.3f} | "
            f"{best['precision_at_positives']:.3f} | {best['uplift']:+.4f} [{low:+.4f}, {high:+.4f}] | "
            f"{both} | {full['HR@10']:.4f} / {full['NDCG@10']:.4f} |"
        )
    lines += ["", "AUC of each attack:", ""]
    names = sorted({name for one in found["settings"] for name in one["attacks"]})
    lines += ["| setting | " + " | ".join(names) + " | popularity |", "| --- |" + " --- |" * (len(names) + 1)]
    for one in found["settings"]:
        values = [f"{one['attacks'][name]['auc']:.3f}" if name in one["attacks"] else "-" for name in names]
        lines.append(f"| {one['name']} | " + " | ".join(values) + f" | {one['popularity']:.3f} |")
    tried = [(one["name"], one["empirical"]) for one in found["settings"] if one["empirical"]]
    lines += ["", "Epsilon by experiment (a lower bound, 2,000 trials, one release) beside the claimed one:", ""]
    lines += ["| setting | at least | claimed |", "| --- | --- | --- |"]
    lines += [f"| {name} | {one['epsilon_lower_bound']:.2f} | {one['epsilon_claimed']:,.2f} |" for name, one in tried]
    lines += ["", *[f"- {note}" for note in found["notes"]], "", f"`{found['command']}`", ""]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.1f}"


# --- the drawing ------------------------------------------------------------------------------------------------------

_W, _H, _LEFT, _TOP, _GAP = 420, 300, 60, 40, 90
_COLOURS = {"fedmf": "#1f77b4", "federank": "#d62728", "fedrap": "#2ca02c", "gpfedrec": "#9467bd"}


def svg(found: dict[str, Any]) -> str:
    """Uplift of the strongest attack against the server's epsilon, and against quality: two panels, no script."""
    points = found["settings"]
    ups = [one["strongest"]["uplift_interval"][1] for one in points]
    top = max(0.16, math.ceil(max(ups) * 50 + 0.5) / 50)
    known = [one["epsilon_server"] for one in points if one["epsilon_server"]]
    low, high = math.floor(math.log10(min(known, default=1))), math.ceil(math.log10(max(known, default=100)))
    high = max(high, low + 1)
    best = max(one["quality"]["full"]["NDCG@10"] for one in points) * 1.1

    def y(value: float) -> float:
        return _TOP + _H * (1 - (max(value, -0.02) + 0.02) / (top + 0.02))

    def left(one: dict[str, Any]) -> float:
        epsilon = one["epsilon_server"]
        share = 1.0 if epsilon is None else 0.85 * (math.log10(epsilon) - low) / (high - low)
        return _LEFT + _W * share

    def right(one: dict[str, Any]) -> float:
        return _LEFT + _W + _GAP + _W * float(one["quality"]["full"]["NDCG@10"]) / best

    width, height = 2 * _W + _GAP + _LEFT + 40, _H + _TOP + 60
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for start, title in (
        (_LEFT, "epsilon against the server (log)"),
        (_LEFT + _W + _GAP, "test NDCG@10, full ranking"),
    ):
        out.append(f'<path d="M{start} {_TOP}v{_H}h{_W}" fill="none" stroke="black"/>')
        out.append(f'<path d="M{start} {y(0):.1f}h{_W}" stroke="#999" stroke-dasharray="4"/>')
        out.append(f'<text x="{start + _W / 2}" y="{_TOP + _H + 40}" text-anchor="middle">{title}</text>')
        out += [
            f'<text x="{start - 6}" y="{y(v / 100) + 4:.1f}" text-anchor="end">{v / 100:.2f}</text>'
            for v in range(0, int(top * 100) + 1, 4)
        ]
    for power in range(low, high + 1):
        at = _LEFT + _W * 0.85 * (power - low) / (high - low)
        out.append(f'<text x="{at:.1f}" y="{_TOP + _H + 18}" text-anchor="middle">1e{power}</text>')
    out.append(f'<text x="{_LEFT + _W}" y="{_TOP + _H + 18}" text-anchor="middle">none</text>')
    for share in (0.0, 0.5, 1.0):
        at = _LEFT + _W + _GAP + _W * share
        out.append(f'<text x="{at:.1f}" y="{_TOP + _H + 18}" text-anchor="middle">{best * share:.3f}</text>')
    out.append(f'<text x="{_LEFT}" y="{_TOP - 16}">AUC of the strongest attack above popularity</text>')
    for place, (name, colour) in enumerate(_COLOURS.items()):
        at = _LEFT + _W + _GAP + 90 * place
        out.append(f'<circle cx="{at}" cy="{_TOP - 20}" r="5" fill="{colour}"/>')
        out.append(f'<text x="{at + 9}" y="{_TOP - 16}">{name}</text>')
    for one in points:
        colour, (least, most) = _COLOURS.get(one["algorithm"], "#555"), one["strongest"]["uplift_interval"]
        for x in (left(one), right(one)):
            out.append(f'<path d="M{x:.1f} {y(least):.1f}V{y(most):.1f}" stroke="{colour}"/>')
            out.append(
                f'<circle cx="{x:.1f}" cy="{y(one["strongest"]["uplift"]):.1f}" r="5" fill="{colour}" '
                f'fill-opacity="0.7"><title>{one["name"]}</title></circle>'
            )
    return "\n".join([*out, "</svg>"]) + "\n"
