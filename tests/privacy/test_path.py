"""Steps on an upload's way do what they say, for each client by herself."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.algorithms.interface import Upload
from coterie.privacy import path
from coterie.privacy.noise import Secret

SECRET = Secret.from_seed(3)


def upload(seed: int = 0, clients: int = 5, n_items: int = 20, width: int = 3, rest: int = 2) -> Upload:
    draw = np.random.default_rng(seed)
    rows = [np.sort(draw.choice(n_items, draw.integers(1, 9), replace=False)) for _ in range(clients)]
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in rows])])
    values = draw.normal(size=(indptr[-1], width)).astype(np.float32)
    return Upload(
        indptr, np.concatenate(rows).astype(np.int32), values, draw.normal(size=(clients, rest)).astype(np.float32)
    )


IDS = np.array([3, 7, 8, 20, 21])


@pytest.mark.parametrize("order", [1, 2])
def test_clip_bounds_the_norm_of_everything(order: int) -> None:
    one = upload()
    before = path.norms(one, order)
    after = path.norms(path.clip(1.5, order)(one, IDS, 1), order)
    assert (before > 1.5).any() and (after <= 1.5).all()
    small = path.clip(1e6, order)(one, IDS, 1)
    np.testing.assert_allclose(small.values, one.values, rtol=1e-6)


def test_clip_measures_dense_from_what_an_unchanged_client_sends() -> None:
    one = upload()._replace(values=np.zeros_like(upload().values), dense=np.ones((5, 2), np.float32))
    same = path.clip(0.1, neutral=1.0)(one, IDS, 1)
    np.testing.assert_array_equal(same.dense, one.dense)


def test_clip_leaves_nothing_of_what_is_not_finite() -> None:
    one = upload()
    one.values[0, 0] = np.nan
    clipped = path.clip(1.0)(one, IDS, 1)
    assert np.isfinite(clipped.values).all()
    assert not clipped.values[: one.indptr[1]].any()


def test_dense_sends_every_row_and_adds_up_repeats() -> None:
    one = Upload(
        np.array([0, 3]), np.array([1, 1, 2], np.int32), np.ones((3, 2), np.float32), np.empty((1, 0), np.float32)
    )
    all_rows = path.dense(4)(one, np.array([0]), 1)
    np.testing.assert_array_equal(all_rows.rows, [0, 1, 2, 3])
    np.testing.assert_array_equal(all_rows.values[:, 0], [0, 2, 1, 0])


@pytest.mark.parametrize(("kind", "deviation"), [("gaussian", 1.0), ("laplace", np.sqrt(2.0))])
def test_noise_has_its_deviation_and_depends_on_client_and_round_only(kind: str, deviation: float) -> None:
    flat = Upload(
        np.array([0, 4000]), np.zeros(4000, np.int32), np.zeros((4000, 5), np.float32), np.zeros((1, 4), np.float32)
    )
    step = path.add_noise(0.7, SECRET, kind)
    noised = step(flat, np.array([5]), 2)
    assert noised.values.std() == pytest.approx(0.7 * deviation, rel=0.03)
    assert abs(noised.values.mean()) < 0.02 and noised.dense.any()
    np.testing.assert_array_equal(noised.values, step(flat, np.array([5]), 2).values)
    assert not np.array_equal(noised.values, step(flat, np.array([6]), 2).values)
    assert not np.array_equal(noised.values, step(flat, np.array([5]), 3).values)


def test_a_cohort_equals_its_clients_one_at_a_time() -> None:
    way = path.compose(
        path.thin(0.7, SECRET), path.clip(1.0), path.dense(20), path.add_noise(0.5, SECRET), path.quantise(8, SECRET)
    )
    one = upload()
    together = way(one, IDS, 4)
    for place, client in enumerate(IDS):
        part = slice(one.indptr[place], one.indptr[place + 1])
        mine = Upload(
            np.array([0, part.stop - part.start]), one.rows[part], one.values[part], one.dense[place : place + 1]
        )
        alone = way(mine, np.array([client]), 4)
        whole = slice(together.indptr[place], together.indptr[place + 1])
        np.testing.assert_array_equal(alone.values, together.values[whole])
        np.testing.assert_array_equal(alone.rows, together.rows[whole])


def test_quantised_numbers_are_right_on_average_and_few() -> None:
    one = upload(clients=1, rest=0)
    rounds = [path.quantise(4, SECRET)(one, np.array([1]), r).values for r in range(400)]
    assert len(np.unique(np.abs(rounds[0]).round(6))) <= 8
    np.testing.assert_allclose(np.mean(rounds, axis=0), one.values, atol=0.06)


def test_thin_sends_about_that_share() -> None:
    flat = Upload(
        np.array([0, 5000]), np.zeros(5000, np.int32), np.ones((5000, 1), np.float32), np.empty((1, 0), np.float32)
    )
    assert len(path.thin(0.3, SECRET)(flat, np.array([0]), 1).rows) == pytest.approx(1500, rel=0.1)
