"""Robust rules bear bad clients, and bad uploads are rejected by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.algorithms import make
from coterie.algorithms.interface import Upload
from coterie.algorithms.server import real
from coterie.privacy.robust import aggregate, krum_order, screen
from coterie.privacy.spec import PrivacySpec
from tests.privacy.test_path import upload


def agreeing(clients: int = 20, bad: int = 0) -> Upload:
    """Everybody sends rows 0..9 near (1, -1); the bad ones send a thousand times the opposite."""
    draw = np.random.default_rng(0)
    values = np.array([1.0, -1.0]) + 0.1 * draw.normal(size=(clients, 10, 2))
    values[:bad] = -1000.0 * values[:bad]
    indptr = np.arange(clients + 1) * 10
    rows = np.tile(np.arange(10, dtype=np.int32), clients)
    return Upload(indptr, rows, values.reshape(-1, 2).astype(np.float32), np.empty((clients, 0), np.float32))


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "krum"])
def test_bad_clients_do_not_move_the_result(rule: str) -> None:
    total = aggregate(agreeing(20, bad=3), 12, rule, 0.2)
    mean = real(total.rows)[:10] / (20 if rule != "krum" else total.clients[0])
    np.testing.assert_allclose(mean, np.tile([1.0, -1.0], (10, 1)), atol=0.15)
    plain = real(aggregate(agreeing(20, bad=3), 12, "none", 0.2).rows)[:10] / 20
    assert abs(plain).min() > 50, "the plain mean is lost"
    assert not total.rows[10:].any()


def test_median_and_trimmed_mean_by_hand_over_touching_clients_only() -> None:
    values = np.array([[1.0], [2.0], [6.0], [5.0]], np.float32)
    one = Upload(np.array([0, 1, 2, 4]), np.array([0, 0, 0, 1], np.int32), values, np.empty((3, 0), np.float32))
    median = aggregate(one, 3, "median", 0.1)
    np.testing.assert_allclose(real(median.rows)[:, 0], [2.0 * 3, 5.0, 0.0])
    np.testing.assert_array_equal(median.touched, [3, 1, 0])
    trimmed = aggregate(one, 3, "trimmed-mean", 0.3)
    np.testing.assert_allclose(real(trimmed.rows)[:, 0], [2.0 * 3, 5.0, 0.0])
    np.testing.assert_allclose(real(aggregate(one, 3, "trimmed-mean", 0.0).rows)[0, 0], 9.0, rtol=1e-6)


def test_krum_puts_bad_clients_last() -> None:
    order = krum_order(agreeing(20, bad=3), 12, 3)
    assert set(order[-3:]) == {0, 1, 2}


def test_bad_uploads_are_rejected_by_name() -> None:
    one, ids = upload(clients=5), np.array([10, 11, 12, 13, 14])
    one.values[one.indptr[1], 0] = np.nan
    one.values[one.indptr[2]] = 1e4
    one.rows[one.indptr[3]] = 99
    found = screen(one, ids, 20, (3, 2), most=100.0)
    assert found.rejected == {"rows": [13], "not-finite": [11], "over-norm": [12]}
    np.testing.assert_array_equal(found.ids, [10, 14])
    assert len(found.upload.indptr) == 3
    assert screen(one, ids, 20, (4, 2)).rejected == {"shape": [10, 11, 12, 13, 14]}


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "krum"])
def test_runs_with_robust_rules_learn(rule: str, tmp_path: Path) -> None:
    found = coterie.run(
        make("fedmf", dim=4), "synthetic:users=60,items=50", rounds=6, evaluate_every=6, out=tmp_path / "r", threads=1,
        privacy=PrivacySpec(robust=rule, norm_bound=1e3),  # type: ignore[arg-type]
    )  # fmt: skip
    losses = [one["loss"] for one in found.rounds]
    assert losses[-1] < losses[0]
    assert found.summary["privacy"]["robust"]["rule"] == rule


def test_a_norm_bound_rejects_and_counts(tmp_path: Path) -> None:
    found = coterie.run(
        make("fedmf", dim=4), "synthetic:users=60,items=50", rounds=2, evaluate_every=2, out=tmp_path / "r", threads=1,
        privacy=PrivacySpec(norm_bound=0.02),
    )  # fmt: skip
    assert 0 < found.summary["privacy"]["robust"]["rejected"]["over-norm"] <= 120
