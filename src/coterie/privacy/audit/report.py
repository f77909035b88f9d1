"""The audit as a table for the terminal and as a page with one plot."""

from __future__ import annotations

import math
from typing import Any

from coterie.errors import CoterieError


def render(found: dict[str, Any]) -> Any:
    """A rich table: one line for each attack, strongest first, baselines below."""
    from rich.table import Table

    spec = found["privacy"]
    title = f"{found['algorithm']}, {spec['mechanism']}{', secure sum' if spec['secure_sum'] else ''}: "
    title += f"what the server learns in {found['rounds']} rounds about {found['users']} users"
    table = Table(title=title, caption=_caption(found), caption_justify="left")
    for name in ("attack", "AUC", "P@|pos|", "TPR at 1 % FPR", "uplift over popularity, 95 %", "AUC, touched items"):
        table.add_column(name, justify="left" if name == "attack" else "right")
    ordered = sorted(found["attacks"].items(), key=lambda one: -one[1]["auc"])
    baselines = [("popularity (baseline)", found["baselines"]["popularity"])]
    for name, one in ordered + baselines:
        low, high = one["uplift_interval"]
        among = one.get("touched", {}).get("auc")
        table.add_row(
            name, f"{one['auc']:.3f}", f"{one['precision_at_positives']:.3f}", f"{one['tpr_at_1_percent_fpr']:.3f}",
            f"{one['uplift']:+.4f} [{low:+.4f}, {high:+.4f}]", "-" if among is None else f"{among:.3f}",
        )  # fmt: skip
    table.add_row("shuffled labels", f"0.5 +- {found['baselines']['shuffled labels']['worst']:.3f}", "", "", "", "")
    return table


def _caption(found: dict[str, Any]) -> str:
    said = [f"strongest: {found['strongest']['attack']}"]
    if found.get("epsilon") is not None:
        server = server_epsilon(found)
        said.append(
            f"epsilon {found['epsilon']:.2f} (who sees the models), "
            + ("none against the server, which sees each upload" if server is None else f"{server:.2f} (server)")
        )
    else:
        said.append(f"no epsilon: {found.get('statement', {}).get('why', 'no noise')}")
    if found.get("empirical"):
        one = found["empirical"]
        said.append(f"by experiment epsilon >= {one['epsilon_lower_bound']:.2f}, claimed {one['epsilon_claimed']:.2f}")
    if found.get("quality"):
        full = found["quality"]["full"]
        said.append(f"test HR@10 {full['HR@10']:.4f}, NDCG@10 {full['NDCG@10']:.4f} (full ranking)")
    return "\n".join(said)


def server_epsilon(found: dict[str, Any]) -> float | None:
    """The epsilon that holds against the server itself, whose attacks these are; None where none does."""
    epsilon: float | None = found.get("epsilon_server")
    return epsilon if found.get("statement", {}).get("epsilon_server_holds", True) else None


def figure(results: list[dict[str, Any]]) -> str:
    """A self-contained page: uplift of the strongest attack against epsilon, and against quality."""
    try:
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots
    except ImportError:
        raise CoterieError("the plot needs plotly: pip install 'coterie[report]'") from None
    page = make_subplots(1, 2, subplot_titles=("against the server's epsilon", "against test NDCG@10, full"))
    known = [one for one in map(server_epsilon, results) if one]
    nowhere = 10.0 * max(known, default=1.0)  # where settings without an epsilon stand
    for found in results:
        best, epsilon = found["strongest"], server_epsilon(found)
        low, high = best["uplift_interval"]
        name = found.get("name") or (
            f"{found['algorithm']} {found['privacy']['mechanism']} {found['directory'].rsplit('/', 1)[-1]}"
        )
        up, down = high - best["uplift"], best["uplift"] - low
        error = {"type": "data", "symmetric": False, "array": [up], "arrayminus": [down]}
        quality = found.get("quality", {}).get("full", {}).get("NDCG@10")
        said = f"{name}: {best['attack']}, AUC {best['auc']:.3f}, epsilon {'none' if epsilon is None else epsilon}"
        for column, x in ((1, nowhere if epsilon is None else epsilon), (2, quality)):
            if x is not None:
                page.add_trace(
                    go.Scatter(x=[x], y=[best["uplift"]], error_y=error, mode="markers", name=name,
                               legendgroup=name, showlegend=column == 1, hovertext=said),
                    row=1, col=column,
                )  # fmt: skip
    ticks = sorted({*(float(10 ** round(math.log10(one))) for one in known)} - {nowhere})
    labels = [f"{one:g}" for one in ticks] + ["none"]
    page.update_xaxes(type="log", tickvals=[*ticks, nowhere], ticktext=labels, row=1, col=1)
    page.update_yaxes(title_text="AUC of the strongest attack above popularity", row=1, col=1)
    page.update_layout(title="What a curious server learns beyond what is popular", template="plotly_white")
    found_html: str = page.to_html(include_plotlyjs=True, full_html=True)
    return found_html
