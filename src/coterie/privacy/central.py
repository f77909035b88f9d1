"""Central user-level differential privacy: Poisson cohorts, a fixed divisor, noise on the sum, a ledger written first.

A round: every client takes part with chance q, by coins nobody can recompute; each upload was cut to norm S; the sum
gets N(0, (z S)^2) on every number, and the server divides by q N, never by how many came. How many clients touched an
item is not released: the server's step gets the same number for all items, so a normaliser by touch counts is off.

The ledger's line is on the disk before the noised sum is handed on. The noise follows from the run's secret key and the
round, so a round done again after a crash releases the same bytes and is charged once; should its sum differ, it gets
other noise and is charged again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np

from coterie.algorithms.interface import History, Sum
from coterie.algorithms.server import FIXED_POINT, empty_sum
from coterie.errors import CoterieError
from coterie.privacy import accountant
from coterie.privacy.noise import Secret


@final
class Ledger:
    """What was spent: a line for each release."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                try:
                    self.lines.append(json.loads(line))
                except ValueError:  # cut off by a crash, so nothing was released after it
                    self._mend(path)
                    break

    def _mend(self, path: Path) -> None:
        part = path.with_suffix(".part")
        part.write_text("".join(json.dumps(one) + "\n" for one in self.lines))
        part.replace(path)

    def find(self, round_: int, sha256: str) -> dict[str, Any] | None:
        return next((one for one in self.lines if one["round"] == round_ and one["sum_sha256"] == sha256), None)

    def charge(self, line: dict[str, Any]) -> None:
        """On the disk when this returns."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        self.lines.append(line)

    @property
    def releases(self) -> int:
        return len(self.lines)

    @property
    def participations(self) -> int:
        """In how many releases the busiest client took part."""
        return max((int(one["busiest"]) for one in self.lines), default=0)


@final
class CentralNoise:
    def __init__(
        self,
        clip: float,
        noise: float,
        rate: float,
        delta: float,
        secret: Secret,
        ledger: Ledger,
        most: float | None = None,
        neutral: float = 0.0,
        shape: Callable[[], tuple[int, int, int]] | None = None,  # items, numbers of each, numbers that belong to none
    ) -> None:
        self.clip, self.noise, self.rate, self.delta = clip, noise, rate, delta
        self.secret, self.ledger, self.most, self.neutral = secret, ledger, most, neutral
        self._n = 0
        self._shape_of = shape
        self._shape: tuple[int, int, int] | None = None
        self._last: tuple[int, np.ndarray] = (0, np.empty(0, np.int64))

    def draw(self, history: History, round_: int) -> np.ndarray:
        """int64[c]: who takes part: each by a coin of her own, whatever the others do."""
        self._n = history.n_clients
        ids = np.flatnonzero(self.secret.uniform(self._n, "cohort", round_) < self.rate)
        self._last = (round_, ids)
        return ids

    def busiest(self, round_: int) -> int:
        """In how many of the rounds so far the busiest client was drawn: what the server knows."""
        counts = np.zeros(self._n, np.int64)
        for one in {int(line["round"]) for line in self.ledger.lines} | {round_}:
            counts += self.secret.uniform(self._n, "cohort", one) < self.rate
        return int(counts.max(initial=0))

    def release(self, received: Sum | None, round_: int, shares: bool = False) -> Sum:
        """The sum under noise; `shares`: the clients have added theirs already (secure sum)."""
        if received is None:
            # Nobody was drawn, which must not show: noise alone is released, and charged, as in any other round.
            if self._shape is None:
                if self._shape_of is None:
                    raise CoterieError(f"round {round_}: nobody was drawn, and what they would have sent is not known")
                self._shape = self._shape_of()
            received = empty_sum(*self._shape)
        self._shape = (*received.rows.shape, len(received.dense))
        came = int(received.clients[0])
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in received)).hexdigest()
        known = self.ledger.find(round_, digest)
        salt = "" if known is None else str(known["salt"])
        if known is None:
            salt = str(sum(one["round"] == round_ for one in self.ledger.lines))
            spent = accountant.epsilon(self.rate, self.noise, self.ledger.releases + 1, self.delta)
            if self.most is not None and spent > self.most:
                raise CoterieError(
                    f"round {round_} would bring epsilon to {spent:.3f}, above --max-epsilon {self.most}; "
                    "nothing was released"
                )
            self.ledger.charge({
                "round": round_, "noise": self.noise, "clip": self.clip, "sampling": self.rate, "delta": self.delta,
                "epsilon": spent, "busiest": self.busiest(round_), "salt": salt, "sum_sha256": digest,
            })  # fmt: skip
        count = received.rows.size + len(received.dense)
        rows, rest_sum = received.rows, received.dense
        if not shares:
            drawn = self.noise * self.clip * self.secret.normal(count, f"central{salt}", round_)
            fixed = np.rint(drawn * FIXED_POINT).astype(np.int64)
            rows = rows + fixed[: rows.size].reshape(rows.shape)
            rest_sum = rest_sum + fixed[received.rows.size :]
        divisor = max(round(self.rate * self._n), 1)
        # What `dense` holds of an unchanged client counts for those who were to come, not for those who came.
        lift = round(self.neutral * FIXED_POINT) * (divisor - came)
        return Sum(rows, np.ones_like(received.touched), rest_sum + lift, np.array([divisor], np.int64))

    def spent(self) -> dict[str, Any]:
        """Both epsilons so far."""
        releases, busiest = self.ledger.releases, self.ledger.participations
        return {
            "releases": releases,
            "epsilon": accountant.epsilon(self.rate, self.noise, releases, self.delta),
            "epsilon_server": accountant.known_epsilon(self.noise, busiest, self.delta),
            "busiest": busiest,
            "delta": self.delta,
        }
