"""Noise on the devices: the mechanisms that guarantee something, and the papers' own, each with what it guarantees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coterie.algorithms.interface import Upload
from coterie.privacy import accountant, path
from coterie.privacy.noise import Secret
from coterie.privacy.spec import PrivacySpec

Rate = Callable[[int, int], float]  # (items, round) -> the step size of item rows on a client: FedRAP's eta


def item_rate(algorithm: Any) -> Rate:
    """The step size with which a client moves item rows, as it is in a round; 1 where the system has none."""
    known = (getattr(algorithm, name, None) for name in ("lr_item", "lr_items", "lr"))
    first = next((float(one) for one in known if isinstance(one, (int, float))), 1.0)
    fades = float(getattr(algorithm, "round_decay", 1.0))
    by_items = bool(getattr(algorithm, "rate_by_items", False))
    return lambda n_items, round_: first * (n_items if by_items else 1) * fades ** (round_ - 1)


def deviation(spec: PrivacySpec, n_items: int, cohort: int, rate: Rate, round_: int) -> float:
    """Of the Gaussian noise one client adds to each number. `cohort` is n_s."""
    noise, clip = spec.noise or 0.0, spec.clip or 0.0
    if spec.mechanism == "fedrap-noise":
        # e = z 2 eta tau / n_s on the mean of n_s clients (Eq. 5), so sqrt(n_s) times that on each of them.
        return noise * 2.0 * rate(n_items, round_) * clip / math.sqrt(max(cohort, 1))
    return noise * clip


def clipping(spec: PrivacySpec, n_items: int, rate: Rate, neutral: float = 0.0) -> list[path.Step]:
    """How an upload is cut before anything is added to it."""
    if spec.clip is None or spec.mechanism == "gpfedrec-noise":
        return []
    most, order = spec.clip, 1 if spec.mechanism == "local-laplace" else 2
    if spec.mechanism != "fedrap-noise":
        return [path.clip(most, order, neutral)]

    def step(upload: Upload, ids: np.ndarray, round_: int) -> Upload:
        return path.clip(rate(n_items, round_) * most, order, neutral)(upload, ids, round_)

    return [step]


def steps(
    spec: PrivacySpec, secret: Secret, n_items: int, cohort: int, rate: Rate, neutral: float = 0.0
) -> list[path.Step]:
    """What happens on a device under this mechanism."""
    found, noise = clipping(spec, n_items, rate, neutral), spec.noise or 0.0
    if spec.mechanism in ("none", "central"):
        return found
    found.append(path.dense(n_items))
    if spec.mechanism == "local-laplace":
        return [*found, path.add_noise(noise * (spec.clip or 0.0), secret, "laplace")]
    if spec.mechanism == "gpfedrec-noise":
        return [*found, path.add_noise(noise, secret, "laplace", rest=False)]

    def gaussian(upload: Upload, ids: np.ndarray, round_: int) -> Upload:
        each = deviation(spec, n_items, cohort, rate, round_)
        return path.add_noise(each, secret, rest=noised_rest(spec))(upload, ids, round_)

    return [*found, gaussian]


def noised_rest(spec: PrivacySpec) -> bool:
    """Whether numbers that belong to no item get noise too; the papers' own mechanisms leave them."""
    return spec.mechanism not in ("fedrap-noise", "gpfedrec-noise")


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
            "the number beside it holds for the mean alone, and because here a round's whole movement (all local "
            "steps) is cut once to eta tau; the paper cuts each step, and ten of them move ten times as far",
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
