"""Differential privacy in a federation: the simulator's mechanisms, each half where it belongs.

Clipping, local noise and each person's coin for taking part are the node's, under a key of its own; central noise and
its ledger are the server's. The server does not see the coins, so how often the busiest person took part is not known
there: the ledger takes the worst, every round.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, final

import numpy as np

from coterie.algorithms.interface import Federated, Sum
from coterie.engine.simulate import UploadPath
from coterie.privacy import local, path
from coterie.privacy.central import CentralNoise, Ledger
from coterie.privacy.noise import Secret
from coterie.privacy.spec import PrivacySpec


def check(privacy: PrivacySpec, algorithm: Federated, cohort: float) -> None:
    """What a federation can do of a privacy section; the rest is refused with what to use instead."""
    from coterie.errors import CoterieError

    privacy.check(algorithm, cohort)
    if privacy.secure_sum or privacy.encrypted:
        raise CoterieError(
            "in a federation a secure sum is --send secure; --secure-sum and --encrypted are the simulator's"
        )
    if privacy.robust != "none" or privacy.norm_bound is not None or privacy.record_view:
        raise CoterieError("robust rules, norm bounds and the recorded view exist in the simulator only so far")


def _secret(privacy: PrivacySpec, folder: Path, seed: int) -> Secret:
    return Secret.from_seed(seed) if privacy.seeded_noise else Secret.in_file(folder / "privacy" / "key")


@final
class NodeNoise:
    """What happens to uploads before they leave a node, and who of its people takes part."""

    def __init__(
        self, privacy: PrivacySpec, algorithm: Federated, n_items: int, clients: int, folder: Path, seed: int
    ) -> None:
        self.privacy, self.clients = privacy, clients
        self.secret = _secret(privacy, folder, seed)
        neutral = float(getattr(algorithm, "dense_unchanged", 0.0))
        steps = [path.thin(privacy.send_rows, self.secret)] if privacy.send_rows is not None else []
        steps += local.steps(privacy, self.secret, n_items, clients, local.item_rate(algorithm), neutral)
        if privacy.bits is not None:
            steps.append(path.quantise(privacy.bits, self.secret))
        self.path: UploadPath | None = path.compose(*steps) if steps else None

    def draw(self, round_: int) -> np.ndarray | None:
        """int64[c]: who takes part, by a coin of her own each; None: nobody asked for coins."""
        if self.privacy.mechanism != "central":
            return None
        return np.flatnonzero(self.secret.uniform(self.clients, "cohort", round_) < (self.privacy.sampling or 1.0))


@final
class _WorstCase:
    """A ledger that charges every release to the busiest person."""

    def __init__(self, path: Path) -> None:
        self.inner = Ledger(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def charge(self, line: dict[str, Any]) -> None:
        self.inner.charge(line | {"busiest": len({one["round"] for one in self.inner.lines} | {line["round"]})})


@final
class ServerNoise:
    """Central noise on what was received, its ledger written first."""

    def __init__(self, privacy: PrivacySpec, algorithm: Federated, folder: Path, seed: int) -> None:
        assert privacy.clip is not None and privacy.noise is not None and privacy.sampling is not None
        assert privacy.delta is not None
        neutral = float(getattr(algorithm, "dense_unchanged", 0.0))
        ledger = cast(Ledger, _WorstCase(folder / "privacy" / "ledger.jsonl"))
        self.central = CentralNoise(
            privacy.clip, privacy.noise, privacy.sampling, privacy.delta, _secret(privacy, folder, seed), ledger,
            privacy.max_epsilon, neutral,
        )  # fmt: skip

    def release(self, received: Sum, round_: int, clients: int) -> Sum:
        self.central.draw(cast(Any, SimpleNamespace(n_clients=clients)), round_)  # tells it N; the coins are the nodes'
        return self.central.release(received, round_)

    def spent(self) -> dict[str, Any]:
        return self.central.spent()
