"""The audit of one run: all attacks, baselines, intervals. What it reads is the view; the truth only judges."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import CoterieError
from coterie.privacy import view
from coterie.privacy.audit import attacks, bound, shadow
from coterie.privacy.audit.evidence import Evidence, collect
from coterie.privacy.audit.measure import Quality, auc, interval, quality
from coterie.privacy.audit.retrain import retrain
from coterie.privacy.spec import PrivacySpec

_RETRAINED = 200  # users the membership attack is run on: each costs a training of her own


def audit(
    directory: Path,
    algorithm: Any,
    summary: dict[str, Any] | None,
    rounds: int | None = None,
    users: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """JSON-ready: AUC, P@|pos|, TPR at 1 % FPR and uplift over popularity of each attack, on all and touched items."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise CoterieError("the audit needs scikit-learn and threadpoolctl: pip install 'coterie[privacy]'") from None
    began = time.process_time()
    with threadpool_limits(1):  # thousands of small products: threads waiting for each other cost 70 times the work
        found = _audit(directory, algorithm, summary, rounds, users, seed)
    return found | {"cpu_seconds": round(time.process_time() - began, 1)}


def _audit(
    directory: Path, algorithm: Any, summary: dict[str, Any] | None, rounds: int | None, users: int | None, seed: int
) -> dict[str, Any]:
    about = view.about(directory)
    indptr, items = view.truth(directory)
    seen = collect(directory, rounds, users, seed)
    m = int(about["items"])
    truth = attacks.labels(indptr, items, seen.ids, m)
    popular = attacks.popularity(indptr, items, seen.ids, m)
    scores = {name: attack(seen) for name, attack in attacks.SIMPLE.items()}
    scores["shadow"] = shadow.predict(seen, truth, seed)
    scores["shadow that knows popularity"] = shadow.predict(seen, truth, seed, popular)
    few = np.sort(np.random.default_rng(seed).permutation(len(seen.ids))[:_RETRAINED])
    member = np.full(truth.shape, np.nan)
    if not seen.masked:
        member[few] = retrain(seen.single, algorithm, seen.ids[few], m, seed)
        scores["membership"] = member
    scores["shadow + popularity"] = shadow.with_popularity(scores["shadow"], popular, truth, seed)
    scores["frequency + popularity"] = shadow.with_popularity(scores["frequency"], popular, truth, seed)
    scores["rank-1 score + popularity"] = shadow.with_popularity(scores["rank-1 score"], popular, truth, seed)
    touched = seen.came > 0
    base = quality(popular, truth, seed=seed)
    base_touched = quality(popular, truth, touched, seed)
    found: dict[str, Any] = {
        "directory": str(directory), "algorithm": about["algorithm"], "privacy": about["privacy"],
        "rounds": seen.rounds, "users": len(seen.ids), "items": m, "masked": seen.masked,
        "uploads_per_user": float(seen.uploads.mean()), "touched_share": float(touched.mean()),
        "baselines": {
            "random": 0.5, "popularity": _one(base, base, seed),
            "popularity, touched items": _plain(_one(base_touched, base_touched, seed)),
            "shuffled labels": _shuffled(seen, scores, truth, seed),
        },
        "attacks": {
            name: _judged(values, truth, touched, base, base_touched, few, name, seed)
            for name, values in scores.items()
        },
    }  # fmt: skip
    strongest = max(found["attacks"], key=lambda name: found["attacks"][name]["auc"])
    found["strongest"] = {"attack": strongest, **found["attacks"][strongest]}
    spec = PrivacySpec.model_validate(about["privacy"])
    found["empirical"] = bound.experiment(spec)
    if summary is not None:
        stated = summary.get("privacy", {})
        found["statement"] = stated
        found["epsilon"], found["epsilon_server"] = stated.get("epsilon"), stated.get("epsilon_server")
        found["quality"] = {
            kind: {key: summary["metrics"]["test"][kind][key] for key in ("HR@10", "NDCG@10")}
            for kind in ("full", "sampled")
        }  # fmt: skip
    return found


def _one(values: Quality, base: Quality, seed: int) -> dict[str, Any]:
    mean, low, high = interval(values.auc, seed)
    uplift, least, most = interval(values.auc - base.auc, seed)
    return {
        "auc": mean, "auc_interval": [low, high], "precision_at_positives": _mean(values.precision),
        "tpr_at_1_percent_fpr": _mean(values.caught), "uplift": uplift, "uplift_interval": [least, most],
    }  # fmt: skip


def _mean(values: np.ndarray) -> float:
    """Over the users for whom there is a value; NaN where there is none."""
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def _judged(
    values: np.ndarray, truth: np.ndarray, touched: np.ndarray, base: Quality, base_touched: Quality, few: np.ndarray,
    name: str, seed: int,
) -> dict[str, Any]:  # fmt: skip
    who = few if name == "membership" else np.arange(len(truth))
    found = _one(quality(values[who], truth[who], None, seed), _some(base, who), seed)
    some = touched[who]
    if some.all():  # every row came: the same candidates
        return found
    among = _one(quality(values[who], truth[who], some, seed), _some(base_touched, who), seed)
    return found | {"touched": _plain(among)}


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """Without NaN, which JSON does not have: no user has both kinds among the candidates."""

    def known(one: Any) -> Any:
        if isinstance(one, list):
            return [known(each) for each in one]
        return None if isinstance(one, float) and one != one else one

    return {key: known(one) for key, one in found.items()}


def _some(values: Quality, who: np.ndarray) -> Quality:
    return Quality(*(one[who] for one in values))


def _shuffled(seen: Evidence, scores: dict[str, np.ndarray], truth: np.ndarray, seed: int) -> dict[str, Any]:
    """The same attacks against labels that mean nothing: what is not 0.50 here is a fault of the audit."""
    draw = np.random.default_rng(seed + 1)
    wrong = np.array([row[draw.permutation(truth.shape[1])] for row in truth])
    found = {
        name: float(np.nanmean(auc(values, wrong))) for name, values in scores.items() if not np.isnan(values).any()
    }
    found["shadow, trained on them"] = float(np.nanmean(auc(shadow.predict(seen, wrong, seed), wrong)))
    return {"auc": found, "worst": max(abs(one - 0.5) for one in found.values())}
