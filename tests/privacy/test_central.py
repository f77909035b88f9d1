"""Central noise: the right amount, the fixed divisor, the ledger before the release, the budget kept."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.algorithms import make
from coterie.algorithms.interface import Sum
from coterie.algorithms.server import FIXED_POINT, empty_sum, real
from coterie.errors import CoterieError
from coterie.privacy.central import CentralNoise, Ledger
from coterie.privacy.noise import Secret
from coterie.privacy.spec import PrivacySpec
from tests.worlds import random_history

HISTORY = random_history(200, 30, 8, seed=1)


def noise(path: Path | None = None, **more: Any) -> CentralNoise:
    return CentralNoise(0.5, 2.0, 0.25, 1e-5, Secret.from_seed(1), Ledger(path), **more)


def total(value: float = 1.0, clients: int = 44) -> Sum:
    found = empty_sum(30, 4, 1)
    found.rows[:] = int(value * FIXED_POINT)
    found.touched[:5] = 9
    found.clients[0] = clients
    return found


def test_noise_has_its_deviation_and_touch_counts_are_gone() -> None:
    one = noise()
    one.draw(HISTORY, 1)
    drawn = np.concatenate([(real(one.release(total(), r).rows) - 1.0).ravel() for r in range(1, 60)])
    assert drawn.std() == pytest.approx(2.0 * 0.5, rel=0.03)
    released = one.release(total(), 1)
    assert (released.touched == 1).all()
    assert released.clients[0] == 50, "q N, not the 44 who came"


def test_what_an_unchanged_client_sends_is_counted_for_all_who_were_to_come() -> None:
    one = noise(neutral=1.0)
    one.draw(HISTORY, 1)
    came = total(clients=44)
    came.dense[:] = int(44 * FIXED_POINT)
    dense = [float(real(one.release(came, r).dense)[0]) for r in range(1, 200)]
    assert np.mean(dense) == pytest.approx(50.0, abs=0.3)


def test_cohorts_are_poisson() -> None:
    one = noise()
    sizes = [len(one.draw(HISTORY, r)) for r in range(300)]
    assert np.mean(sizes) == pytest.approx(50, abs=2) and np.std(sizes) == pytest.approx(
        np.sqrt(200 * 0.25 * 0.75), rel=0.2
    )


def test_the_ledger_is_written_before_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = noise(tmp_path / "ledger.jsonl")
    one.draw(HISTORY, 1)
    monkeypatch.setattr(one.secret, "normal", None)  # the process dies while it makes the noise
    with pytest.raises(TypeError):
        one.release(total(), 1)
    assert Ledger(tmp_path / "ledger.jsonl").releases == 1


_DIES = """
import os, signal, sys
from coterie.privacy import noise
whole = noise.Secret.normal
def dies(self, count, what, round_, who=0):
    if what.startswith("central") and round_ == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, count, what, round_, who)
noise.Secret.normal = dies
from coterie.cli import main
main()
"""


def test_a_process_killed_at_a_release_has_paid_for_it_and_pays_once(tmp_path: Path) -> None:
    """SIGKILL after the ledger's line and before the noise: the line is there; resumed, the round is charged once."""
    flags = [
        "run", "--algorithm", "fedmf", "--data", "synthetic:users=60,items=50", "--rounds", "5", "--set", "dim=4",
        "--privacy", "central", "--clip", "0.5", "--noise", "1", "--sampling", "0.4", "--checkpoint-every", "1",
        "--privacy-set", "seeded_noise=true", "--threads", "1", "--quiet", "--out",
    ]  # fmt: skip
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    ended = subprocess.run([sys.executable, "-c", _DIES, *flags, str(killed)], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    charged = [json.loads(one)["round"] for one in (killed / "privacy/ledger.jsonl").read_text().splitlines()]
    recorded = (killed / "rounds.jsonl").read_text().splitlines()
    assert charged == [1, 2, 3] and len(recorded) == 2, "paid for a release that never came"
    cli = [sys.executable, "-m", "coterie.cli"]
    subprocess.run([*cli, "resume", str(killed), "--threads", "1", "--quiet"], check=True, capture_output=True)
    subprocess.run([*cli, *flags, str(whole)], check=True, capture_output=True)
    one, other = coterie.open(killed).summary, coterie.open(whole).summary
    assert one["last_model_sha256"] == other["last_model_sha256"] and one["privacy"] == other["privacy"]
    assert (killed / "privacy/ledger.jsonl").read_text() == (whole / "privacy/ledger.jsonl").read_text()


def test_a_round_done_again_releases_the_same_and_is_charged_once(tmp_path: Path) -> None:
    first = noise(tmp_path / "ledger.jsonl")
    first.draw(HISTORY, 1)
    before = first.release(total(), 1)
    again = noise(tmp_path / "ledger.jsonl")
    again.draw(HISTORY, 1)
    np.testing.assert_array_equal(before.rows, again.release(total(), 1).rows)
    assert again.ledger.releases == 1
    other = again.release(total(2.0), 1)  # another sum: other noise, and it costs
    assert again.ledger.releases == 2
    difference = real(other.rows) - real(before.rows)
    assert difference.std() > 0.1, "the same noise twice would cancel"


def test_a_ledger_cut_off_by_a_crash_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    one = noise(path)
    one.draw(HISTORY, 1)
    one.release(total(), 1)
    path.write_text(path.read_text() + '{"round": 2, "noi')
    assert Ledger(path).releases == 1
    assert len(path.read_text().splitlines()) == 1


def test_nothing_is_released_above_the_budget() -> None:
    one = noise(most=0.01)
    one.draw(HISTORY, 1)
    with pytest.raises(CoterieError, match="nothing was released"):
        one.release(total(), 1)
    assert one.ledger.releases == 0


def test_the_key_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    one, again = Secret.in_file(tmp_path / "key"), Secret.in_file(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    np.testing.assert_array_equal(one.words(4, "a", 1), again.words(4, "a", 1))
    assert not np.array_equal(one.words(4, "a", 1), Secret.in_file(tmp_path / "other").words(4, "a", 1))


def _run(tmp_path: Path, name: str = "run", rounds: int = 6, **privacy: Any) -> Any:
    said = {"mechanism": "central", "clip": 0.5, "sampling": 0.4, **privacy}
    return coterie.run(
        make("fedmf", dim=4, negatives=2), "synthetic:users=60,items=50", rounds=rounds, evaluate_every=3,
        privacy=PrivacySpec(**said), out=tmp_path / name, threads=1,
    )  # fmt: skip


def test_a_run_with_a_target_ends_there_and_says_so(tmp_path: Path) -> None:
    found = _run(tmp_path, target_epsilon=6.0)
    stated = found.summary["privacy"]
    assert 0.99 * 6.0 <= stated["epsilon"] <= 6.0
    assert stated["epsilon_server"] > stated["epsilon"] and stated["private"]
    for key in ("unit", "neighbours", "delta", "sampling", "accountant", "adversary"):
        assert stated[key]
    spent = [one["privacy"]["epsilon"] for one in found.rounds]
    assert spent == sorted(spent) and len(spent) == 6
    lines = [json.loads(one) for one in (tmp_path / "run/privacy/ledger.jsonl").read_text().splitlines()]
    assert [one["round"] for one in lines] == list(range(1, 7))


def test_a_run_stops_before_its_budget(tmp_path: Path) -> None:
    found = _run(tmp_path, noise=1.0, max_epsilon=6.5)
    assert 1 <= len(found.rounds) < 6
    assert found.summary["privacy"]["epsilon"] <= 6.5
    with pytest.raises(CoterieError, match="already exceeds"):
        _run(tmp_path, "none", noise=0.3, max_epsilon=1.0)


def test_seeded_noise_is_stamped(tmp_path: Path) -> None:
    one, two = _run(tmp_path, "a", noise=1.0, seeded_noise=True), _run(tmp_path, "b", noise=1.0, seeded_noise=True)
    assert one.summary["privacy"]["stamp"].startswith("not private") and not one.summary["privacy"]["private"]
    assert one.summary["model_sha256"] == two.summary["model_sha256"]
    secret = _run(tmp_path, "c", noise=1.0)
    assert secret.summary["model_sha256"] != one.summary["model_sha256"]


def test_what_cannot_be_had_together_is_refused_with_the_reason(tmp_path: Path) -> None:
    for bad, why in [
        ({"noise": 1.0, "robust": "median"}, "made for a sum"),
        ({"noise": 1.0, "clip": None}, "needs --clip"),
        ({"mechanism": "none", "sampling": None, "clip": None, "secure_sum": True, "robust": "krum"}, "hides them"),
        ({"mechanism": "none", "noise": 1.0, "sampling": None}, "noise for what"),
    ]:
        with pytest.raises(CoterieError, match=why):
            _run(tmp_path, "bad", **bad)
    with pytest.raises(CoterieError, match="no uploads"):
        coterie.run(
            "mostpop", "synthetic:users=60,items=50", privacy=PrivacySpec(robust="median"), out=tmp_path / "central"
        )
