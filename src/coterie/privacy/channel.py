"""From a spec to what stands between clients and server: the hooks the engine calls, the statement for the record."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, final

import numpy as np

from coterie.algorithms.interface import Collected, Federated, History, Sum, Upload
from coterie.algorithms.server import FIXED_POINT
from coterie.engine.simulate import Channel, concatenate
from coterie.errors import CoterieError
from coterie.privacy import local, path
from coterie.privacy.accountant import affordable
from coterie.privacy.central import CentralNoise, Ledger
from coterie.privacy.he import Keys, encrypted_sum
from coterie.privacy.noise import Secret
from coterie.privacy.robust import aggregate, only, screen
from coterie.privacy.secure import secure_sum
from coterie.privacy.spec import PrivacySpec
from coterie.privacy.view import Recorder
from coterie.ragged import Ragged

FOLDER = "privacy"  # in a run's directory: key and ledger


def _shape(algorithm: Federated, history: History, seed: int) -> tuple[int, int, int]:
    """Items, numbers of each and numbers that belong to none in an upload: seen on somebody made up, with one item."""
    own, one = Ragged(np.array([0, 1]), np.zeros(1, np.int32)), np.ones(1, np.float32)
    nobody = History(own.indptr, own.items, one, one, own, np.zeros(1, np.uint64), history.n_items)
    server = algorithm.enrol(algorithm.init_server(history.n_items, seed), 1, nobody)
    clients, ids = algorithm.init_clients(nobody, seed), np.zeros(1, np.int64)
    upload, _ = algorithm.client_step(clients, ids, nobody, algorithm.download(server, ids, 1), 1, seed)
    return history.n_items, upload.values.shape[1], upload.dense.shape[1]


@final
class Guard:
    """All that a run's privacy section asks for, with the state it needs: keys, ledger, recorder, counters."""

    def __init__(
        self, spec: PrivacySpec, algorithm: Federated, history: History, cohort: int, folder: Path | None, seed: int
    ) -> None:
        self.spec, self.algorithm, self.n_items = spec, algorithm, history.n_items
        home = None if folder is None else folder / FOLDER
        if spec.seeded_noise:
            self.secret = Secret.from_seed(seed)
        elif home is None:
            raise CoterieError("noise needs a folder to keep its key in, or seeded_noise=True, which is not private")
        else:
            self.secret = Secret.in_file(home / "key")
        neutral = algorithm.dense_unchanged
        self.neutral = neutral
        self.central: CentralNoise | None = None
        if spec.mechanism == "central":
            assert spec.clip is not None and spec.noise is not None and spec.sampling is not None
            assert spec.delta is not None
            ledger = Ledger(None if home is None else home / "ledger.jsonl")
            self.central = CentralNoise(
                spec.clip, spec.noise, spec.sampling, spec.delta, self.secret, ledger, spec.max_epsilon, neutral,
                lambda: _shape(algorithm, history, seed),
            )  # fmt: skip
            cohort = max(round(spec.sampling * history.n_clients), 1)
        self.cohort, self._history, self._seed = cohort, history, seed
        self._uploads, self._counted = np.zeros(history.n_clients, np.int64), 0
        steps = [path.thin(spec.send_rows, self.secret)] if spec.send_rows is not None else []
        self._rate = local.item_rate(algorithm)
        single = spec.secure_sum or spec.encrypted or spec.robust != "none" or spec.norm_bound is not None
        # Of clients whose single uploads nobody looks at, the Gaussian noise is drawn once, for their sum: the sum of
        # n draws of deviation d is one draw of sqrt(n) d, at a thousandth of the work.
        self._in_sum = (
            spec.mechanism in ("local-gaussian", "fedrap-noise") and spec.bits is None
            and not (single or algorithm.collects) and not (spec.record_view and spec.view_users is None)
        )  # fmt: skip
        self._lock, self._quiet = threading.Lock(), 0  # how many of the round's clients have no noise of their own
        own = local.steps(spec, self.secret, history.n_items, cohort, self._rate, neutral)
        if not self._in_sum:
            steps += own
        if spec.bits is not None:
            steps.append(path.quantise(spec.bits, self.secret))
        self.recorder: Recorder | None = None
        if spec.record_view:
            assert folder is not None
            about = {"algorithm": algorithm.name, "privacy": spec.model_dump(mode="json")}
            self.recorder = Recorder(folder, history, spec.view_users, about)
            if not spec.secure_sum and not self._in_sum:
                steps.append(self.recorder.upload)
        if self._in_sum:
            steps.append(
                self._noise_of_some(path.compose(*own), local.clipping(spec, self.n_items, self._rate, neutral))
            )
        self.path = path.compose(*steps) if steps else None
        self.rejected: dict[str, int] = {}
        self.abandoned = 0
        self._keys: Keys | None = None
        self.bytes_up: float | None = None  # of one client's message, where it is not the plain upload
        self.cost: dict[str, float] | None = None  # of the encrypted sum
        self.channel = Channel(
            draw=self.central.draw if self.central is not None else None,
            gather=self._gather if single else None,
            release=self._release if self.central is not None or spec.record_view or self._in_sum else None,
        )
        self._shape: tuple[int, int] | None = None

    # --- hooks ------------------------------------------------------------------------------------------------------

    def _gather(self, collected: Collected, round_: int) -> Sum | None:
        upload, ids = concatenate(collected.uploads), np.concatenate(collected.ids)
        if self.spec.secure_sum:
            return self._secure(upload, ids, round_)
        if self.spec.encrypted:
            self._keys = self._keys or Keys()
            total, cost = encrypted_sum(upload, self.n_items, self._keys)
            self.cost, self.bytes_up = cost._asdict(), cost.bytes_up
            return total
        self._shape = self._shape or (upload.values.shape[1], upload.dense.shape[1])
        found = screen(upload, ids, self.n_items, self._shape, self.spec.norm_bound, self.neutral)
        for reason, who in found.rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + len(who)
        if not len(found.ids) or len(found.ids) < (self.spec.min_clients or 1):
            self.abandoned += 1
            return None
        return aggregate(found.upload, self.n_items, self.spec.robust, self.spec.byzantine)

    def _secure(self, upload: Upload, ids: np.ndarray, round_: int) -> Sum | None:
        spec = self.spec
        lost = self.secret.uniform(len(ids), "lost", round_) < spec.secure_dropout
        least = self.least
        if (~lost).sum() < least:
            self.abandoned += 1
            return None
        noise = None
        if self.central is not None:
            assert spec.noise is not None and spec.clip is not None
            deviation = spec.noise * spec.clip / least**0.5

            def noise(client: int, count: int) -> np.ndarray:
                drawn = deviation * self.secret.normal(count, "share", round_, client)
                fixed: np.ndarray = np.rint(drawn * FIXED_POINT).astype(np.int64)
                return fixed

        seen = self.recorder
        watch = None if seen is None else (lambda client, numbers: seen.masked(round_, client, numbers))
        opened = secure_sum(upload, ids, self.n_items, round_, spec.neighbours, lost, watch, noise)
        self.bytes_up = float(opened.masked_bytes)
        return opened.total

    @property
    def least(self) -> int:
        """n_min: clients under which a round is abandoned."""
        if self.spec.min_clients is not None:
            return self.spec.min_clients
        return max(self.cohort // 2, 3) if self.spec.secure_sum else 1

    def _release(self, received: Any, round_: int) -> Any:
        if received is None and self.spec.secure_sum:  # an empty cohort has no shares of noise to hide behind
            self.abandoned += 1
            return None
        if self.central is not None:
            received = self.central.release(received, round_, shares=self.spec.secure_sum)
        if self._in_sum and received is not None:
            received = self._noised(received, round_)
        if self.recorder is not None and isinstance(received, Sum):
            self.recorder.total(received)
        return received

    def _noise_of_some(self, own: path.Step, clipping: list[path.Step]) -> path.Step:
        """Recorded clients add their own noise; the others' is added to the sum."""
        clipped, seen = path.compose(*clipping), self.recorder

        def step(upload: Upload, ids: np.ndarray, round_: int) -> Upload:
            watched = np.zeros(len(ids), bool) if seen is None else seen.wants(ids)
            with self._lock:
                self._quiet += int((~watched).sum())
            # On a device each upload would have every row: that is what it would cost.
            each = 4 * (self.n_items * upload.values.shape[1] + upload.dense.shape[1])
            sent = np.full(len(ids), each, np.int64)
            if seen is None or not watched.any():
                return clipped(upload, ids, round_)._replace(sent=sent)
            noised = seen.upload(own(only(upload, watched), ids[watched], round_), ids[watched], round_)
            rest = clipped(only(upload, ~watched), ids[~watched], round_)
            return concatenate([noised, rest])._replace(sent=sent)

        return step

    def _noised(self, received: Sum, round_: int) -> Sum:
        """The sum as it would be had each client sent every row, with noise of her own on it."""
        clients, rest = int(received.clients[0]), len(received.dense) if local.noised_rest(self.spec) else 0
        each = local.deviation(self.spec, self.n_items, self.cohort, self._rate, round_)
        quiet, self._quiet = self._quiet, 0
        drawn = quiet**0.5 * each * self.secret.normal(received.rows.size + rest, "local sum", round_)
        fixed = np.rint(drawn * FIXED_POINT).astype(np.int64)
        dense = received.dense.copy()
        dense[:rest] += fixed[received.rows.size :]
        rows = received.rows + fixed[: received.rows.size].reshape(received.rows.shape)
        return Sum(rows, np.full_like(received.touched, clients), dense, received.clients)

    # --- for the driver ---------------------------------------------------------------------------------------------

    def rounds(self, wanted: int) -> int:
        """How many of the wanted rounds the budget allows."""
        spec = self.spec
        if self.central is None or spec.max_epsilon is None:
            return wanted
        assert spec.sampling is not None and spec.noise is not None and spec.delta is not None
        found = affordable(spec.sampling, spec.noise, wanted, spec.delta, spec.max_epsilon)
        if not found:
            raise CoterieError(
                f"one round at noise {spec.noise} already exceeds --max-epsilon {spec.max_epsilon}; raise --noise, or "
                "leave it out and it is calibrated"
            )
        return found

    def busiest(self, rounds: int) -> int:
        """How many uploads at most came from one client in so many rounds: a round may be an epoch of many."""
        while self._counted < rounds:
            plan = self.algorithm.plan(self._history, self.cohort, self._seed, self._counted + 1)
            if plan is None:
                return rounds
            self._uploads += np.bincount(plan.items, minlength=len(self._uploads))
            self._counted += 1
        return int(self._uploads.max(initial=0))

    def round_over(self, number: int, server: Any) -> dict[str, Any]:
        """The record's `privacy` of one round."""
        if self.recorder is not None:
            download = self.algorithm.download(server, np.arange(1), number)
            only_own = download.own is not None and not download.table.size  # each client is sent a table of her own
            self.recorder.flush(number, download.own[0] if only_own and download.own is not None else download.table)
        found: dict[str, Any] = {"mechanism": self.spec.mechanism}
        if self.central is not None:
            found |= self.central.spent()
        elif self.spec.mechanism in ("local-gaussian", "local-laplace"):
            said = local.statement(self.spec, self.busiest(number))
            found |= {key: said[key] for key in ("epsilon", "epsilon_server", "delta")}
        if self.spec.secure_sum:
            found["secure_sum"] = True
        if self.cost is not None:
            found["encrypted"] = self.cost
        if self.rejected:
            found["rejected"] = dict(self.rejected)
        if self.abandoned:
            found["abandoned"] = self.abandoned
        return found

    def statement(self, rounds: int) -> dict[str, Any]:
        """What the finished run may claim, complete: unit, neighbours, delta, sampling, accountant, adversary."""
        spec = self.spec
        if self.central is None:
            found = local.statement(spec, self.busiest(rounds))
        else:
            holds = spec.secure_sum
            found = {
                "unit": "one user", "mechanism": "central", "neighbours": "add or remove one user",
                "sampling": f"Poisson, rate {spec.sampling}, divided by the fixed {self.cohort}",
                "accountant": "dp_accounting PLD (privacy loss distributions)", "clip": spec.clip, "noise": spec.noise,
                **self.central.spent(), "private": not spec.seeded_noise, "epsilon_server_holds": holds,
                "adversary": {
                    "epsilon": "who sees every model but not who took part",
                    "epsilon_server": "the server, which knows who took part: "
                    + ("it sees masked uploads and the noised sum only" if holds
                       else "does NOT hold here: it adds the noise itself and sees each upload (see --secure-sum)"),
                },
                "not_covered": "losses, metrics and participants in this record are the simulator's, not released",
            }  # fmt: skip
            if spec.seeded_noise:
                found["stamp"] = "not private: the noise follows from the run's seed"
        found["secure_sum"] = spec.secure_sum
        if found.get("delta") and found["delta"] * self._history.n_clients > 1:
            found["delta_too_large"] = f"delta {found['delta']:g} is above one over {self._history.n_clients} users"
        if self.cost is not None:
            found["encrypted"] = self.cost
        if spec.robust != "none" or spec.norm_bound is not None:
            found["robust"] = {"rule": spec.robust, "norm_bound": spec.norm_bound, "rejected": dict(self.rejected)}
        if self.abandoned:
            found["abandoned_rounds"] = self.abandoned
        return found
