"""The summary of a run: what was done, to which data, by which rules, and what came of it."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np

from coterie import __version__
from coterie.evaluate.canary import canary
from coterie.evaluate.corrected import GAMMA, corrected
from coterie.evaluate.statistics import group_averages, history_groups
from coterie.protocol import CanaryWatch, Prepared
from coterie.ragged import Ragged
from coterie.runs.measure import Measured
from coterie.runs.spec import RunSpec


def users_table(measured: Measured, prepared: Prepared) -> Any:
    """A polars table: one row for each tested user, with her history's length and every metric."""
    import polars as pl

    who = measured.users["user"]
    columns: dict[str, Any] = {
        "user_id": [prepared.data.user_ids[u] for u in who],
        "history": prepared.history.lengths[who],
    }
    columns |= {key: value.astype(np.float32) for key, value in measured.users.items() if key != "user"}
    return pl.DataFrame(columns)


def summarise(
    spec: RunSpec,
    algorithm: Any,
    prepared: Prepared,
    best_round: int,
    records: list[dict[str, Any]],
    watch: CanaryWatch | None,
    best: Measured,
    last: Measured,
    threads: int,
) -> dict[str, Any]:
    """Everything but the seconds and the hashes, which are known last."""
    data, counts = prepared.data, prepared.counts
    found: dict[str, Any] = {
        "coterie": __version__,
        "algorithm": spec.algorithm,
        "behaviour": spec.behaviour,
        "settings": spec.settings,
        "exchange": spec.exchange,
        "sends": algorithm.sends,
        "data": {
            "name": data.name, "users": data.n_users, "items": data.n_items, "interactions": counts["interactions"],
            "sha256": spec.data.sha256,
        },
        "protocol": {**spec.protocol.model_dump(mode="json"), "counts": counts},
        "seed": spec.seed,
        "cohort": spec.cohort,
        "rounds": spec.rounds,
        "best_round": best_round,
        "metrics": best.metrics,
        "last": last.metrics,
        "estimated_full": _estimated(best),
        "groups": _groups(best, prepared),
    }  # fmt: skip
    if spec.protocol.warning:
        found["warning"] = spec.protocol.warning
        tested = [one for one in records if "test" in one]
        top = max(tested, key=lambda one: one["test"]["sampled"]["HR@10"])
        found["best_test"] = {"round": top["round"], "validation": top["validation"], "test": top["test"]}
    found["canary"], found["valid"] = None, True
    if watch is not None:
        held, lists, drawn = watch.draws()
        sung = canary(held, Ragged(lists.indptr, drawn))
        found["canary"] = {"HR@10": sung.hr, "chance": sung.chance, "standard_error": sung.standard_error}
        if sung.leaks and spec.protocol.negatives_avoid == "train":
            found["valid"] = False
            found["warning"] = "INVALID: the leak canary sings: held-out items can be told from the training negatives"
    if spec.continued:
        found["continued"] = spec.continued
        if spec.continued["held_out_but_trained_before"]:
            found["valid"] = False
            count = spec.continued["held_out_but_trained_before"]
            found["warning"] = (
                f"INVALID as a measurement: {count} held-out items were trained on before the run went on"
            )
    up, down = (float(np.mean([one["bytes"][way] for one in records])) for way in ("up", "down"))
    found["bytes"] = {"up": up, "down": down}
    found["threads"] = threads
    found["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return found


def _estimated(measured: Measured) -> dict[str, Any]:
    """The full-ranking metrics as estimated from the sampled ranks alone (Krichene and Rendle 2020)."""
    found: dict[str, Any] = {"gamma": GAMMA}
    for part in ("validation", "test"):
        full, sampled = measured.ranks[f"{part}.full"], measured.ranks[f"{part}.sampled"]
        found[part] = corrected(sampled, full.candidates)
    return found


def _groups(measured: Measured, prepared: Prepared) -> dict[str, Any]:
    """Test metrics of people with short, middling and long histories."""
    who = measured.users["user"]
    tested = ~np.isnan(measured.users["test.full.HR@10"])
    lengths = prepared.history.lengths[who][tested]
    names = [f"test.{kind}.{metric}" for kind in ("full", "sampled") for metric in ("HR@10", "NDCG@10")]
    values = {name: measured.users[name][tested] for name in names}
    groups = history_groups(lengths)
    means = group_averages(values, groups)
    return {
        one.name: {"shortest": one.shortest, "longest": one.longest, "users": len(one.members), **means[one.name]}
        for one in groups
    }
