"""Noise on the devices: the mechanisms that guarantee something, and the papers' own, each with what it guarantees."""

from __future__ import annotations

import math
from typing import Any

from coterie.privacy import accountant, path
from coterie.privacy.noise import Secret
from coterie.privacy.spec import PrivacySpec


def steps(
    spec: PrivacySpec, secret: Secret, n_items: int, cohort: int, rate: float, neutral: float = 0.0
) -> list[path.Step]:
    """What happens on a device under this mechanism. `cohort` is n_s, `rate` the item step size (FedRAP's eta)."""
    clip, noise = spec.clip, spec.noise or 0.0
    if spec.mechanism == "local-gaussian":
        assert clip is not None
        return [path.clip(clip, 2, neutral), path.dense(n_items), path.add_noise(noise * clip, secret)]
    if spec.mechanism == "local-laplace":
        assert clip is not None
        return [path.clip(clip, 1, neutral), path.dense(n_items), path.add_noise(noise * clip, secret, "laplace")]
    if spec.mechanism == "fedrap-noise":
        assert clip is not None
        # e = z 2 eta tau / n_s on the mean of n_s clients (Eq. 5), so sqrt(n_s) times that on each of them.
        deviation = noise * 2.0 * rate * clip / math.sqrt(max(cohort, 1))
        return [
            path.clip(rate * clip, 2, neutral), path.dense(n_items), path.add_noise(deviation, secret, rest=False),
        ]  # fmt: skip
    if spec.mechanism == "gpfedrec-noise":
        return [path.dense(n_items), path.add_noise(noise, secret, "laplace", rest=False)]
    if clip is not None:
        return [path.clip(clip, 2, neutral)]
    return []


def statement(spec: PrivacySpec, rounds: int) -> dict[str, Any]:
    """Unit, neighbours, delta, sampling, accountant, adversary; and why there is no epsilon where there is none.

    `rounds` is how often the busiest user has uploaded.
    """
    common = {
        "unit": "one user", "mechanism": spec.mechanism, "clip": spec.clip, "noise": spec.noise, "rounds": rounds,
        "private": spec.mechanism not in ("none", "fedrap-noise", "gpfedrec-noise") and not spec.seeded_noise,
    }  # fmt: skip
    if spec.seeded_noise:
        common["stamp"] = "not private: the noise follows from the run's seed"
    if spec.mechanism == "local-gaussian":
        delta, z = spec.delta or 1e-5, spec.noise or 0.0
        each = accountant.gaussian_epsilon(2.0 / z, delta) if z else None
        total = accountant.gaussian_epsilon(2.0 * math.sqrt(rounds) / z, delta) if z else None
        return common | {
            "neighbours": "any two uploads (local): sensitivity 2 S", "delta": delta, "sampling": "none",
            "accountant": "analytic Gaussian mechanism, composed as one Gaussian", "adversary": "the server itself",
            "epsilon_per_upload": each, "epsilon": total, "epsilon_server": total,
        }  # fmt: skip
    if spec.mechanism == "local-laplace":
        each = 2.0 / spec.noise if spec.noise else None
        total = None if each is None else each * rounds
        return common | {
            "neighbours": "any two uploads (local): L1 sensitivity 2 S", "delta": 0.0, "sampling": "none",
            "accountant": "sum over uploads", "adversary": "the server itself",
            "epsilon_per_upload": each, "epsilon": total, "epsilon_server": total,
        }  # fmt: skip
    if spec.mechanism == "fedrap-noise":
        delta, z = spec.delta or 1e-5, spec.noise or 0.0
        honest = accountant.known_epsilon(z, rounds, delta) if z else None
        return common | {
            "neighbours": "replace one user: sensitivity 2 eta tau / n_s of the mean (Eq. 5)", "delta": delta,
            "sampling": "none claimed", "accountant": "Gaussian, composed",
            "adversary": "somebody who sees the averaged model only, never an upload",
            "epsilon": None, "epsilon_server": None, "epsilon_if_only_the_mean_is_seen": honest,
            "why": "as the FedRAP paper has it (Eq. 4-5), for its tables: each upload carries a small share of the "
            "noise, and the server sees every upload and knows what it sent, so against it this guarantees nothing; "
            "the number beside it holds for the mean alone, a round's whole movement (all local steps) cut once",
        }  # fmt: skip
    if spec.mechanism == "gpfedrec-noise":
        return common | {
            "epsilon": None, "epsilon_server": None, "adversary": "the server itself",
            "why": "as the GPFedRec paper has it (Eq. 9), for its table 6: Laplace noise on an upload that is not "
            "clipped. Its sensitivity is unbounded, so no epsilon exists; local-laplace is the mechanism that has one",
        }  # fmt: skip
    return common | {
        "epsilon": None, "epsilon_server": None,
        "why": "no noise: nothing bounds what a server learns from what it is sent (`coterie audit` measures it)",
    }  # fmt: skip
