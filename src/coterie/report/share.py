"""What would leave one person's device in the next round, and what stays: item by item, before it happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.algorithms.federank import FedeRank
from coterie.algorithms.interface import Federated, History, Sharing
from coterie.errors import CoterieError
from coterie.ragged import Ragged, ragged
from coterie.runs import tensors
from coterie.runs.run import Run

CONSUMED, UNSEEN = "consumed", "unseen"


def would_share(run: Run, user: str, pi: float | None = None, never: Sequence[str] = ()) -> dict[str, Any]:
    """Her client step on a copy of the trained state: nothing is sent, nothing changes.

    `pi` and `never` (item ids) are what-ifs on top of the choices the run was made with; only systems that let a person
    choose (FedeRank) take them.
    """
    algorithm, data = run.algorithm, run.prepared.data
    if not isinstance(algorithm, Federated):
        raise CoterieError(f"{run.spec.algorithm} is central: everything a person did lies on the server already")
    if user not in data.user_number:
        raise CoterieError(f"user {user!r} is not among the {data.n_users} users of {data.name}; ids are text")
    number = data.user_number[user]
    usual = getattr(algorithm, "pi", None)  # only some systems let a person choose
    chooses = usual is not None
    if not chooses and (pi is not None or never):
        raise CoterieError(f"{run.spec.algorithm} leaves her no choice of what to share; federank does")
    if pi is not None and not 0.0 <= pi <= 1.0:
        raise CoterieError(f"--pi {pi}: it is a share of her items, so give a number from 0 to 1")
    own = run.prepared.train.of(number)
    history = _with_choice(run, number, own, pi, never) if chooses else run.prepared.history
    done = run.summary["best_round"]
    cohort = run.spec.cohort if run.spec.cohort is not None else algorithm.default_cohort
    plan = algorithm.plan(history, cohort, run.spec.seed, done + 1)
    round_ = done + 1 if plan is None else done * plan.users + 1
    ids = np.array([number])
    download = algorithm.download(run.state.server, ids, round_)
    upload, report = algorithm.client_step(
        tensors.copy(run.state.clients), ids, history, download, round_, run.spec.seed
    )
    drawn = set() if report.negatives is None else set(report.negatives.items.tolist())
    consumed = set(own.tolist())
    sent = {int(j): UNSEEN if j in drawn or j not in consumed else CONSUMED for j in upload.rows}
    sizes = np.linalg.norm(upload.values, axis=1)
    reasons = _reasons(run, number, history, round_)
    leaves = [
        {"item_id": data.item_ids[j], "title": data.title(j), "as": sent[j], "hers": j in consumed, "size": float(size)}
        for j, size in sorted(zip(upload.rows.tolist(), sizes, strict=True), key=lambda one: (sent[one[0]], one[0]))
    ]
    stays = [
        {"item_id": data.item_ids[j], "title": data.title(j), "why": reasons.get(j, "not drawn this round")}
        for j in own.tolist()
        if sent.get(j) != CONSUMED
    ]
    share = None
    if chooses:
        chosen = np.nan if history.sharing is None else history.sharing.pi[number]
        share = float(usual if usual is not None and np.isnan(chosen) else chosen)
    return {
        "user": user,
        "algorithm": run.spec.algorithm,
        "pi": share,
        "exchange": round_,
        "leaves": leaves,
        "stays": stays,
        "always_stays": "her history itself, her own vector, and which items she was recommended",
        "bytes": {
            "up": int(upload.bytes_per_client(data.n_items)[0]), "down": round(download.bytes_per_client),
        },
        "note": (
            "pi is a control over sharing, not privacy: over many rounds the server learns more than one round shows"
            if chooses
            else None
        ),
    }  # fmt: skip


def _reasons(run: Run, number: int, history: History, round_: int) -> dict[int, str]:
    """Why items of hers stay, by her own choice: never shared, outside her fixed subset, or the coin of this round."""
    algorithm, seed = run.algorithm, run.spec.seed
    if not isinstance(algorithm, FedeRank):
        return {}
    own = run.prepared.train.of(number)
    if algorithm.sharing == "fixed-subset":
        found = {int(j): "not in her shared subset" for j in np.setdiff1d(own, algorithm.subset(history, number, seed))}
    else:  # what leaves with pi = 1 was drawn: the coins have numbers of their own
        ids, open_ = np.array([number]), history
        if history.sharing is not None:
            shares = history.sharing.pi.copy()
            shares[number] = 1.0
            open_ = history._replace(sharing=history.sharing._replace(pi=shares))
        download = algorithm.download(run.state.server, ids, round_)
        upload, _ = algorithm.client_step(tensors.copy(run.state.clients), ids, open_, download, round_, seed)
        found = {int(j): "kept by this round's coin" for j in np.intersect1d(own, upload.rows)}
    if history.sharing is not None:
        found |= {int(j): "never shared" for j in history.sharing.never.of(number)}
    return found


def _with_choice(run: Run, number: int, own: np.ndarray, pi: float | None, never: Sequence[str]) -> History:
    """Her choices in the run, and on top of them what is asked."""
    history, data = run.prepared.history, run.prepared.data
    n = history.n_clients
    before = history.sharing or Sharing(np.full(n, np.nan), Ragged(np.zeros(n + 1, np.int64), np.empty(0, np.int32)))
    shares = before.pi.copy()
    if pi is not None:
        shares[number] = pi
    for item in never:
        if item not in data.item_number:
            raise CoterieError(f"--never {item}: not among the {data.n_items} items of {data.name}; ids are text")
    hers = np.union1d(before.never.of(number), [data.item_number[item] for item in never])
    lists = [before.never.of(u) for u in range(n)]
    lists[number] = np.intersect1d(hers, own).astype(np.int32)
    return history._replace(sharing=Sharing(shares, ragged(lists)))


def render(found: dict[str, Any], most: int = 40) -> Any:
    """The same for the terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    consumed = [one for one in found["leaves"] if one["as"] == CONSUMED]
    others = [one for one in found["leaves"] if one["as"] == UNSEEN]
    share = "" if found["pi"] is None else f", pi {found['pi']:g}"
    head = Text(
        f"{found['user']} ({found['algorithm']}{share}): {len(consumed)} updates of items she consumed and "
        f"{len(others)} of items sent as unseen leave; {found['bytes']['up']:,} bytes up, "
        f"{found['bytes']['down']:,} down"
    )
    parts: list[Any] = [head]
    for title, rows, column in (
        ("leaves: updates of items she consumed", consumed, "size"),
        ("leaves: updates of items sent as unseen", others, "size"),
        ("stays: items she consumed", found["stays"], "why"),
    ):
        table = Table(title=f"{title} ({len(rows)})", title_justify="left")
        for heading in ("item", "title", column):
            table.add_column(heading)
        for one in rows[:most]:
            value = one[column]
            table.add_row(one["item_id"], one["title"], value if isinstance(value, str) else f"{value:.4f}")
        if len(rows) > most:
            table.add_row("...", f"{len(rows) - most} more; --json lists all", "")
        parts.append(table)
    parts.append(Text(f"always stays: {found['always_stays']}"))
    if found["note"]:
        parts.append(Text(found["note"], "yellow"))
    return Group(*parts)
