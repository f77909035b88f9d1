"""What a run asks for on the way of its uploads, and what may not be asked for together."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from coterie.algorithms.interface import Central, Federated
from coterie.errors import CoterieError
from coterie.privacy import accountant

Mechanism = Literal["none", "central", "local-gaussian", "local-laplace", "fedrap-noise", "gpfedrec-noise"]
Rule = Literal["none", "median", "trimmed-mean", "krum"]


class PrivacySpec(BaseModel):
    """Every field is a flag of `coterie run`. Nothing here is private by itself: the statement says what is."""

    model_config = ConfigDict(extra="forbid")

    mechanism: Mechanism = "none"
    clip: float | None = Field(default=None, gt=0)  # S: norm to which each client's whole upload is cut (L1: laplace)
    noise: float | None = Field(default=None, ge=0)  # z x S: deviation of the noise; of the papers' own: their number
    sampling: float | None = Field(default=None, gt=0, le=1)  # q: each client takes part with this chance (Poisson)
    delta: float | None = Field(default=None, gt=0, lt=1)  # None: 1e-5; give less for more than 10,000 users
    target_epsilon: float | None = Field(default=None, gt=0)  # the noise is calibrated to end at this
    max_epsilon: float | None = Field(default=None, gt=0)  # the run stops before a round that would exceed this
    seeded_noise: bool = False  # noise from the run's seed, for tests: the run is "not private"
    bits: int | None = Field(default=None, ge=2, le=16)  # uploads are rounded to so many bits for each number
    send_rows: float | None = Field(default=None, gt=0, le=1)  # each touched row is sent with this chance only
    secure_sum: bool = False  # the server gets masked uploads and opens their sum only
    neighbours: int = Field(default=16, ge=2)  # with how many others each client masks
    secure_dropout: float = Field(default=0.0, ge=0, lt=1)  # share of clients lost after they shared their keys
    min_clients: int | None = Field(default=None, ge=1)  # n_min: under this a round is abandoned
    encrypted: bool = False  # CKKS: the server adds ciphertexts; keys stay with the clients (extra `he`)
    robust: Rule = "none"
    byzantine: float = Field(default=0.1, ge=0, lt=0.5)  # share of clients the robust rule has to bear
    norm_bound: float | None = Field(default=None, gt=0)  # uploads of a larger norm are rejected and counted
    record_view: bool = False  # keep what the server sees, for `coterie audit`
    view_users: int | None = Field(default=None, ge=1)  # of so many clients only (dense uploads are large)

    @property
    def noised(self) -> bool:
        return self.mechanism != "none"

    @property
    def active(self) -> bool:
        return self != PrivacySpec()

    def resolved(self, rounds: int) -> PrivacySpec:
        """Noise calibrated and defaults written out, so that the record says what was done."""
        said = self
        if self.mechanism == "central":
            if said.clip is None:
                raise CoterieError("central differential privacy needs --clip S: the norm to which each upload is cut")
            said = said.model_copy(update={"sampling": said.sampling or 1.0, "delta": said.delta or 1e-5})
            assert said.sampling is not None and said.delta is not None
            if said.noise is None:
                target = said.target_epsilon or said.max_epsilon
                if target is None:
                    raise CoterieError("central noise: how much? Give --noise Z, --target-epsilon or --max-epsilon")
                z = accountant.calibrate(said.sampling, rounds, said.delta, target)
                said = said.model_copy(update={"noise": z})
        elif self.mechanism in ("local-gaussian", "local-laplace"):
            if said.clip is None or (said.noise is None and said.target_epsilon is None):
                raise CoterieError(f"{self.mechanism} needs --clip S and --noise Z (deviation or scale, in clip norms)")
            said = said.model_copy(update={"delta": said.delta or 1e-5})
            if said.noise is None:
                assert said.target_epsilon is not None and said.delta is not None
                said = said.model_copy(update={"noise": _local_noise(said, rounds)})
        elif self.mechanism == "fedrap-noise":
            clip, noise = (0.1 if said.clip is None else said.clip), (1.0 if said.noise is None else said.noise)
            said = said.model_copy(update={"clip": clip, "noise": noise})
        elif self.mechanism == "gpfedrec-noise" and said.noise is None:
            raise CoterieError("gpfedrec-noise needs --noise: the Laplace scale, 0 to 0.5 in the paper's table 6")
        return said

    def check(self, algorithm: Any, cohort: float | int) -> None:
        """Refuse what cannot be had together, with the reason."""
        if not self.active:
            return
        if isinstance(algorithm, Central) or not isinstance(algorithm, Federated):
            raise CoterieError(
                f"{algorithm.name} has no uploads, so nothing can be clipped, noised, masked or recorded on their way"
            )
        single = algorithm.collects
        if self.encrypted and (self.secure_sum or self.mechanism == "central"):
            raise CoterieError(
                "--encrypted is a sum by itself: it goes neither with --secure-sum nor with central noise"
            )
        if self.encrypted and (self.robust != "none" or self.norm_bound is not None or self.record_view):
            raise CoterieError(
                "robust rules and the recorded view need uploads that can be read; --encrypted ones cannot be"
            )
        if self.secure_sum and self.robust != "none":
            raise CoterieError(
                f"--robust {self.robust} compares single uploads and --secure-sum hides them: the server cannot do "
                "both. Choose whom you trust less: the clients (robust) or the server (secure sum)"
            )
        if self.secure_sum and self.norm_bound is not None:
            raise CoterieError(
                "--norm-bound looks at single uploads and --secure-sum hides them; use --clip, which the clients do"
            )
        if single and (self.secure_sum or self.encrypted or self.robust != "none" or self.mechanism == "central"):
            raise CoterieError(
                f"the server of {algorithm.name} compares single uploads, so there is no sum to hide, to make robust "
                "or to add noise to; the local mechanisms work with it"
            )
        if self.mechanism == "central" and self.robust != "none":
            raise CoterieError(
                f"the noise of central differential privacy is made for a sum; what one person can change in a "
                f"{self.robust} is not bounded by the clip norm, so no epsilon could be stated"
            )
        if self.mechanism != "central" and (self.sampling is not None or self.max_epsilon is not None):
            raise CoterieError("--sampling and --max-epsilon belong to --privacy central")
        if self.mechanism == "central" and self.sampling is not None and cohort not in (1.0, algorithm.default_cohort):
            raise CoterieError(
                "--privacy central draws its own cohorts (--sampling Q); --cohort draws a fixed number: give one"
            )
        if self.mechanism in ("none",) and (self.noise is not None or self.target_epsilon is not None):
            raise CoterieError("noise for what? Name it with --privacy central, local-gaussian or local-laplace")


def _local_noise(said: PrivacySpec, rounds: int) -> float:
    """Noise of a local mechanism for a target epsilon, if everybody takes part in every round."""
    assert said.target_epsilon is not None and said.delta is not None
    if said.mechanism == "local-laplace":
        return 2.0 * rounds / said.target_epsilon
    low, high = 1e-3, 1e6  # any two uploads may be 2 S apart
    for _ in range(200):
        middle = (low * high) ** 0.5
        worse = accountant.gaussian_epsilon(2.0 * rounds**0.5 / middle, said.delta) > said.target_epsilon
        low, high = (middle, high) if worse else (low, middle)
    return high
