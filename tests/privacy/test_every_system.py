"""The upload path knows no system: clip, noise, rounding, masks and the recorded view work with each of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.algorithms import CATALOGUE, algorithm_class, make
from coterie.algorithms.interface import Federated
from coterie.engine.simulate import start
from coterie.errors import CoterieError
from coterie.privacy import view
from coterie.privacy.spec import PrivacySpec
from coterie.runs import tensors

SYSTEMS = [
    name for name, entry in CATALOGUE.items() if len(entry) == 2 and issubclass(algorithm_class(name), Federated)
]


def _run(name: str, folder: Path, **said: object) -> coterie.Run:
    small = {"dim": 4} if "dim" in algorithm_class(name).__dataclass_fields__ else {}
    return coterie.run(
        make(name, **small), "synthetic:users=24,items=30", rounds=1, evaluate_every=1, out=folder, threads=1,
        privacy=PrivacySpec.model_validate({"seeded_noise": True, **said}),
    )  # fmt: skip


@pytest.mark.parametrize("name", SYSTEMS)
def test_local_noise_and_view(name: str, tmp_path: Path) -> None:
    found = _run(
        name, tmp_path / "run", mechanism="local-gaussian", clip=0.5, noise=0.1, bits=8, send_rows=0.9, record_view=True
    )
    assert found.summary["privacy"]["epsilon_server"] > 0
    (seen,) = view.rounds(found.path)
    sizes = np.diff(seen.upload.indptr)
    assert len(np.unique(seen.ids)) == 24 and (sizes == sizes[0]).all(), "every row comes, from everybody"
    assert np.isfinite(seen.upload.values).all() and len(np.unique(np.abs(seen.upload.values[: sizes[0]]))) <= 128


@pytest.mark.parametrize("name", SYSTEMS)
def test_central_noise_under_a_secure_sum_or_a_reason_why_not(name: str, tmp_path: Path) -> None:
    said = {"mechanism": "central", "clip": 0.5, "noise": 0.5, "sampling": 1.0, "secure_sum": True, "neighbours": 4}
    if algorithm_class(name).collects:
        with pytest.raises(CoterieError, match="compares single uploads"):
            _run(name, tmp_path / "run", **said)
        return
    found = _run(name, tmp_path / "run", **said)
    stated = found.summary["privacy"]
    assert stated["releases"] == 1 and stated["epsilon_server_holds"] and stated["epsilon"] == stated["epsilon_server"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_round_nobody_was_drawn_for_releases_noise_like_any_other(name: str, tmp_path: Path) -> None:
    said = {"mechanism": "central", "clip": 0.5, "noise": 0.5, "sampling": 0.001}
    if algorithm_class(name).collects:
        with pytest.raises(CoterieError, match="compares single uploads"):
            _run(name, tmp_path / "run", **said)
        return
    found = _run(name, tmp_path / "run", **said)
    assert [one["participants"] for one in found.rounds] == [0] and found.summary["privacy"]["releases"] == 1
    first = start(found.algorithm, found.prepared.history, found.spec.seed)
    pairs = zip(tensors.leaves(found.state.server), tensors.leaves(first.server), strict=True)
    assert any(not np.array_equal(one, other) for (_, one), (_, other) in pairs), "noise is in the model"
    masked = _run(name, tmp_path / "masked", **said, secure_sum=True, neighbours=4)
    assert masked.summary["privacy"]["releases"] == 0 and masked.summary["privacy"]["abandoned_rounds"] == 1
