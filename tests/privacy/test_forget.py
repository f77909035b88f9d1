"""Unlearning: exact is what never saw her; approximate says how close it comes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.algorithms import make
from coterie.errors import CoterieError
from coterie.privacy.forget import left_out
from coterie.runs.forgetting import forget

SOURCE = "synthetic:users=50,items=50"


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    coterie.run(make("fedmf", dim=4, negatives=2), SOURCE, rounds=4, evaluate_every=2, out=tmp_path / "run", threads=1)
    return tmp_path / "run"


def test_exact_is_a_run_on_the_data_without_her(trained: Path, tmp_path: Path) -> None:
    found = forget(trained, "u07", out=tmp_path / "without", threads=1)
    after = coterie.open(tmp_path / "without")
    assert "u07" not in after.prepared.data.user_ids and after.state.clients.user.shape[0] == 49
    never = coterie.run(
        make("fedmf", dim=4, negatives=2), left_out(coterie.load(SOURCE), ["u07"]), rounds=4, evaluate_every=2,
        out=tmp_path / "never", threads=1,
    )  # fmt: skip
    assert after.summary["last_model_sha256"] == never.summary["last_model_sha256"]
    assert found["closeness"]["table_distance_after_to_exact"] == 0.0
    assert found["closeness"]["table_distance_before_to_exact"] > 0.0
    with pytest.raises(CoterieError, match="u07"):
        after.recommend("u07")


def test_approximate_goes_on_without_her_and_is_measured(trained: Path, tmp_path: Path) -> None:
    found = forget(trained, "u07", "approximate", rounds=2, compare=True, out=tmp_path / "near", threads=1)
    after = coterie.open(tmp_path / "near")
    assert after.spec.rounds == 6 and found["rounds_replayed"] == 2
    assert after.state.clients.user.shape[0] == 49 and "u07" not in after.prepared.data.user_ids
    closeness = found["closeness"]
    assert 0.0 < closeness["table_distance_after_to_exact"] < 1.0
    assert 0.0 <= closeness["top10_overlap_after_and_exact"] <= 1.0
    for name in ("before", "after", "exact"):
        assert 0.0 <= closeness[f"her_other_half_auc_{name}"] <= 1.0


def test_the_others_keep_their_rows(trained: Path) -> None:
    data = coterie.load(SOURCE)
    fewer = left_out(data, ["u07", "nobody"])
    assert fewer.n_users == data.n_users - 1 and fewer.item_ids == data.item_ids
    for name in ("u01", "u30"):
        one, other = data.user_number[name], fewer.user_number[name]
        np.testing.assert_array_equal(
            data.items[data.indptr[one] : data.indptr[one + 1]],
            fewer.items[fewer.indptr[other] : fewer.indptr[other + 1]],
        )


def test_bad_requests_are_answered(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(CoterieError, match="not among"):
        forget(trained, "nobody", out=tmp_path / "x")
    with pytest.raises(CoterieError, match="expected exact"):
        forget(trained, "u07", "softly", out=tmp_path / "x")
