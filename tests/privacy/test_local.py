"""Noise on the devices: how much it is, where it is drawn, and what each mechanism may claim."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.algorithms import make
from coterie.algorithms.server import add, empty_sum, real
from coterie.privacy import accountant, local, view
from coterie.privacy.channel import Guard
from coterie.privacy.noise import Secret
from coterie.privacy.path import norms
from coterie.privacy.spec import PrivacySpec
from tests.privacy.test_path import upload
from tests.worlds import random_history

HISTORY = random_history(12, 400, 8, seed=1)


def guard(folder: Path, **said: Any) -> Guard:
    spec = PrivacySpec(seeded_noise=True, **said).resolved(3)
    return Guard(spec, make("fedmf", dim=15, lr_item=2.0), HISTORY, 12, folder, 0)


@pytest.mark.parametrize("mechanism", ["local-gaussian", "fedrap-noise"])
def test_noise_drawn_for_the_sum_is_the_sum_of_the_clients_noise(mechanism: str, tmp_path: Path) -> None:
    """The short way (nobody looks at single uploads) and the long one: the same sum, the same deviation."""
    said = {"mechanism": mechanism, "clip": 0.5, "noise": 0.7}
    short, long = guard(tmp_path, **said), guard(tmp_path, record_view=True, **said)
    mixed = guard(tmp_path, record_view=True, view_users=5, **said)  # five clients by themselves, the others in sum
    sent = upload(clients=12, n_items=400, width=16, rest=0)
    ids, sums = np.arange(12), []
    for one in (short, long, mixed):
        total = empty_sum(400, 16, 0)
        assert one.path is not None
        add(total, one.path(sent, ids, 2), 12)
        sums.append(one.channel.release(total, 2))  # type: ignore[misc]
    quiet = empty_sum(400, 16, 0)
    add(quiet, local.clipping(short.spec, 400, short._rate)[0](sent, ids, 2), 12)
    each = local.deviation(short.spec, 400, 12, short._rate, 2)
    assert each == pytest.approx(0.35 if mechanism == "local-gaussian" else 0.7 * 2 * 2.0 * 0.5 / math.sqrt(12))
    for found in sums:
        drawn = real(found.rows) - real(quiet.rows)
        assert drawn.std() == pytest.approx(each * math.sqrt(12), rel=0.03)
        np.testing.assert_array_equal(found.touched, 12)  # every row came from everybody
    assert not np.array_equal(sums[0].rows, sums[1].rows)
    mixed.round_over(2, mixed.algorithm.init_server(400, 0))
    (kept,) = view.rounds(tmp_path)
    assert len(kept.ids) == 5 and kept.upload.values.shape == (5 * 400, 16) and (kept.upload.values != 0).all()
    assert short.path is not None
    assert (short.path(sent, ids, 3).bytes_per_client(400) == 400 * 16 * 4).all(), "as if every row were sent"


def test_fedraps_noise_follows_its_step_size(tmp_path: Path) -> None:
    """eta fades from round to round, and so do the norm uploads are cut to and the noise (Eq. 4 and 5)."""
    fedrap = make("fedrap", "as_released")
    spec = PrivacySpec(mechanism="fedrap-noise", seeded_noise=True).resolved(3)
    one = Guard(spec, fedrap, HISTORY, 12, tmp_path, 0)
    eta = 200.0 * 0.97**4
    assert local.deviation(spec, 400, 12, one._rate, 5) == pytest.approx(2 * eta * 0.1 / math.sqrt(12))
    sent = upload(clients=12, n_items=400, width=32, rest=1)
    large = sent._replace(values=1000 * sent.values, dense=np.ones_like(sent.dense))
    assert one.path is not None
    assert norms(one.path(large, np.arange(12), 5), neutral=1.0) == pytest.approx(eta * 0.1, rel=1e-4)
    by_items = local.item_rate(make("pfedrec", "as_released"))
    assert by_items(1682, 9) == pytest.approx(8.0 * 1682)


def test_what_each_mechanism_claims() -> None:
    def said(mechanism: Any, rounds: int = 100, **more: Any) -> dict[str, Any]:
        return local.statement(PrivacySpec(mechanism=mechanism, **more).resolved(rounds), rounds)

    paper = said("fedrap-noise")
    assert paper["epsilon"] is None and not paper["private"]
    assert paper["epsilon_if_only_the_mean_is_seen"] == pytest.approx(91.8, abs=0.1)
    assert said("gpfedrec-noise", noise=0.5)["epsilon"] is None
    assert "no epsilon exists" in said("gpfedrec-noise", noise=0.5)["why"]
    laplace = said("local-laplace", clip=3.0, noise=4.0)
    assert laplace["epsilon_per_upload"] == 0.5 and laplace["epsilon"] == 50.0
    gaussian = said("local-gaussian", clip=3.0, noise=4.0)
    assert gaussian["epsilon_server"] == pytest.approx(accountant.gaussian_epsilon(2 * 10 / 4.0, 1e-5))


@pytest.mark.parametrize("mechanism", ["local-gaussian", "local-laplace"])
def test_a_local_target_is_met(mechanism: Any) -> None:
    spec = PrivacySpec(mechanism=mechanism, clip=1.0, target_epsilon=12.0).resolved(30)
    assert 0.99 * 12.0 <= local.statement(spec, 30)["epsilon"] <= 12.0 * (1 + 1e-9)


def test_a_run_with_local_noise_sends_every_row(tmp_path: Path) -> None:
    run = coterie.run(
        make("fedmf", dim=4), "synthetic:users=30,items=40", rounds=2, out=tmp_path / "run", threads=1,
        privacy=PrivacySpec(mechanism="local-gaussian", clip=0.5, noise=1.0),
    )  # fmt: skip
    assert run.rounds[-1]["bytes"]["up"] == 40 * 5 * 4
    assert run.summary["privacy"]["epsilon"] > 0


def test_who_uploads_often_in_an_epoch_is_charged_for_each(tmp_path: Path) -> None:
    """FedeRank with one triple an exchange: an epoch has as many exchanges as interactions."""
    run = coterie.run(
        make("federank", dim=4, triples=1), "synthetic:users=20,items=40", rounds=2, out=tmp_path / "run", threads=1,
        privacy=PrivacySpec(mechanism="local-laplace", clip=1.0, noise=2.0),
    )  # fmt: skip
    stated = run.summary["privacy"]
    assert stated["rounds"] > 2 and stated["epsilon"] == stated["rounds"] * 1.0
    spent = [one["privacy"]["epsilon"] for one in run.rounds]
    assert spent[0] < spent[1] == stated["epsilon"]


def test_laplace_noise_is_laplace_and_the_kernel_is_its_formula() -> None:
    secret = Secret.from_seed(3)
    drawn, words = secret.laplace(400_001, "x", 5, 7), secret.words(400_001, "x", 5, 7)
    share = ((words >> np.uint64(12)) + 0.5) * 2.0**-52
    np.testing.assert_allclose(drawn, np.where(words & np.uint64(1), -1.0, 1.0) * np.log(share), rtol=1e-12)
    assert np.abs(drawn).mean() == pytest.approx(1.0, abs=0.01) and drawn.mean() == pytest.approx(0.0, abs=0.01)
    for size in (0.1, 1.0, 5.0):
        assert (np.abs(drawn) > size).mean() == pytest.approx(math.exp(-size), rel=0.05)
    assert np.array_equal(drawn, secret.laplace(400_001, "x", 5, 7)) and (drawn > 0).mean() == pytest.approx(
        0.5, abs=5e-3
    )
