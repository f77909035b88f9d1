"""The secure sum: exact, also when some drop out, and nothing but noise to look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.algorithms import make
from coterie.algorithms.server import add, empty_sum
from coterie.errors import CoterieError
from coterie.privacy.robust import only
from coterie.privacy.spec import PrivacySpec
from tests.privacy.test_path import upload

pytest.importorskip("flwr")
from coterie.privacy.secure import secure_sum


@pytest.mark.parametrize(("neighbours", "lost"), [(16, []), (4, []), (4, [2]), (16, [0, 7, 8])])
def test_the_sum_is_exact_over_survivors(neighbours: int, lost: list[int]) -> None:
    one = upload(clients=12)
    gone = np.zeros(12, bool)
    gone[lost] = True
    ids = np.arange(100, 112)
    seen: dict[int, np.ndarray] = {}
    found = secure_sum(one, ids, 20, 1, neighbours, gone, seen.__setitem__)
    plain = empty_sum(20, 3, 2)
    add(plain, only(one, ~gone), 12)
    np.testing.assert_array_equal(found.total.rows, plain.rows)
    np.testing.assert_array_equal(found.total.dense, plain.dense)
    assert found.total.clients[0] == plain.clients[0] == 12 - len(lost)
    assert sorted(seen) == [int(one) for one in ids[~gone]], "of those who dropped nothing came"


def test_masked_uploads_look_like_nothing() -> None:
    one = upload(clients=6)
    seen: dict[int, np.ndarray] = {}
    secure_sum(one, np.arange(6), 20, 1, 16, None, seen.__setitem__)
    again: dict[int, np.ndarray] = {}
    secure_sum(one, np.arange(6), 20, 1, 16, None, again.__setitem__)
    shares = np.concatenate([numbers.astype(np.float64) / 2.0**64 for numbers in seen.values()])
    assert abs(shares.mean() - 0.5) < 0.05 and abs(shares.var() - 1 / 12) < 0.02  # 500 numbers, uniform
    assert not any((seen[c] == again[c]).any() for c in seen), "masks are fresh each time"


def test_too_few_are_refused() -> None:
    with pytest.raises(CoterieError, match="at least 3"):
        secure_sum(upload(clients=2), np.arange(2), 20, 1)
    gone = np.array([False, True, True, True, True])
    with pytest.raises(CoterieError, match=r"at least 3|neighbours of one client"):
        secure_sum(upload(clients=5), np.arange(5), 20, 1, 4, gone)


def test_a_run_with_secure_sums_equals_one_that_only_hides_touch_counts(tmp_path: Path) -> None:
    algorithm = make("fedmf", dim=4, negatives=2, aggregate="mean")
    plain = coterie.run(algorithm, "synthetic:users=20,items=30", rounds=2, out=tmp_path / "plain", threads=1)
    secure = coterie.run(
        algorithm, "synthetic:users=20,items=30", rounds=2, out=tmp_path / "secure", threads=1,
        privacy=PrivacySpec(secure_sum=True, neighbours=4, record_view=True),
    )  # fmt: skip
    assert plain.summary["last_model_sha256"] == secure.summary["last_model_sha256"]
    assert secure.rounds[0]["bytes"]["up"] > plain.rounds[0]["bytes"]["up"]
    assert secure.summary["privacy"]["secure_sum"]


def test_rounds_under_the_least_number_are_abandoned(tmp_path: Path) -> None:
    found = coterie.run(
        make("fedmf", dim=4, negatives=2), "synthetic:users=20,items=30", rounds=2, out=tmp_path / "few", threads=1,
        privacy=PrivacySpec(secure_sum=True, mechanism="central", clip=0.5, noise=1.0, sampling=0.5, min_clients=19),
    )  # fmt: skip
    assert found.rounds[-1]["privacy"]["abandoned"] == 2
    assert found.summary["privacy"]["releases"] == 0, "what was not released is not charged"


def test_noise_shares_add_up_to_at_least_the_promised_noise(tmp_path: Path) -> None:
    """With nothing to learn from (clip near 0) the sum is noise alone: its deviation is z S sqrt(clients / n_min)."""
    from coterie.privacy.channel import Guard
    from tests.worlds import random_history

    history = random_history(12, 40, 8, seed=1)
    spec = PrivacySpec(
        secure_sum=True,
        mechanism="central",
        clip=1e-3,
        noise=2.0,
        sampling=1.0,
        delta=1e-5,
        min_clients=6,
        neighbours=4,
    )
    guard = Guard(spec, make("fedmf", dim=15), history, 12, tmp_path, 0)
    guard.central.draw(history, 1)  # type: ignore[union-attr]
    from coterie.algorithms.interface import Collected

    nothing = upload(clients=12, n_items=40, width=16, rest=0)
    nothing.values[:] = 0
    total = guard.channel.gather(Collected([np.arange(12)], [nothing]), 1)  # type: ignore[misc]
    deviation = (total.rows / 2.0**34).std()
    assert deviation == pytest.approx(2e-3 * np.sqrt(12 / 6), rel=0.1)
