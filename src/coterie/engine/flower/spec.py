"""What every member of a federation must agree on, and the hash by which they know that they do."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from coterie import __version__
from coterie.algorithms import make
from coterie.algorithms.interface import Federated
from coterie.errors import CoterieError
from coterie.privacy.spec import PrivacySpec
from coterie.protocol.rules import Protocol

FLOWER_HINT = "the distributed engine needs Flower: pip install 'coterie[flower]'"


class FederationSpec(BaseModel):
    """Sent to every node. Nothing in it is about any person, and nothing is a path of the server's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str  # a name of this training, unique enough to key a node's store
    algorithm: str
    behaviour: str = "coterie"
    settings: dict[str, Any]  # all fields of the algorithm, resolved
    protocol: Protocol = Protocol()
    seed: int = Field(default=0, ge=0)
    cohort: float = Field(default=1.0, gt=0.0, le=1.0)  # share of each node's clients in a round
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)  # share of them that drop out, simulated
    send: Literal["sum", "single", "secure"] = "sum"  # a shard's sum, each client's upload, or a masked sum
    half: bool = False  # single uploads carry float16
    reproducible: bool = False  # no node secret in the random numbers: equals the simulator, and is not private
    privacy: PrivacySpec | None = None  # clipping and noise, resolved
    n_items: int = Field(ge=1)
    catalogue: str  # SHA-256 of the item ids in their order
    coterie: str = __version__

    @property
    def sha256(self) -> str:
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def build(self) -> Federated:
        algorithm = make(self.algorithm, self.behaviour, **self.settings)
        check_federated(algorithm)
        if self.privacy is not None:
            from coterie.engine.flower.noise import check

            check(self.privacy, algorithm, self.cohort)
        if self.send != "single" and algorithm.collects:
            raise CoterieError(
                f"{self.algorithm} needs each client's own upload (its server compares them), so --send {self.send} "
                "cannot serve it; use --send single"
            )
        return algorithm  # type: ignore[no-any-return]


class Terms(BaseModel):
    """How the server runs its rounds. Nodes need not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: int = Field(ge=1)
    min_nodes: int = Field(default=1, ge=1)  # a round with fewer accepted replies is abandoned
    start_with: int | None = Field(default=None, ge=1)  # nodes to wait for before the first round; None: min_nodes
    close_at: int | None = Field(default=None, ge=1)  # over-selection: close once so many replies are in
    deadline: float = Field(default=120.0, gt=0)  # seconds until a round closes on whoever has answered
    patience: int = Field(default=3, ge=1)  # attempts at one round before the server stops
    evaluate_every: int = Field(default=5, ge=0)  # rounds between evaluations on the nodes; 0: never
    await_nodes: float = Field(default=300.0, gt=0)  # seconds to wait for `min_nodes` to be there at all


def check_federated(algorithm: Any) -> None:
    if not isinstance(algorithm, Federated):
        raise CoterieError(
            f"{algorithm.name} is trained centrally, on everybody's history; a federation runs federated systems: "
            "`coterie algorithms` says which"
        )


def catalogue_hash(item_ids: list[str]) -> str:
    return hashlib.sha256("\x1f".join(item_ids).encode()).hexdigest()


def default_send(algorithm: Federated) -> str:
    """What a shard sends unless told otherwise: its sum, where the method can live with a sum."""
    return "single" if algorithm.collects else "sum"
