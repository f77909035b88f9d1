"""The encrypted sum equals the plain one within 1e-5, and the server cannot read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.algorithms import make
from coterie.algorithms.server import add, empty_sum, real
from coterie.errors import CoterieError
from coterie.privacy.spec import PrivacySpec
from tests.privacy.test_path import upload

pytest.importorskip("tenseal")
from coterie.privacy.he import Adder, Keys, encrypted_sum


def test_the_encrypted_sum_is_the_plain_one() -> None:
    one = upload(clients=3, n_items=20)
    found, cost = encrypted_sum(one, 20, Keys())
    plain = empty_sum(20, 3, 2)
    add(plain, one, 3)
    np.testing.assert_allclose(real(found.rows), real(plain.rows), atol=1e-5)
    np.testing.assert_allclose(real(found.dense), real(plain.dense), atol=1e-5)
    assert cost.clients == 3 and cost.bytes_up > 10_000 and cost.encrypt_seconds > 0


def test_the_server_has_no_secret_key() -> None:
    import tenseal

    keys = Keys()
    letter = keys.encrypt(np.arange(4.0))
    public = tenseal.context_from(keys.public())
    assert not public.is_private()
    with pytest.raises(ValueError, match=r"secret|private|decrypt"):
        tenseal.ckks_vector_from(public, letter[0]).decrypt()
    with pytest.raises(CoterieError, match="public part only"):
        Adder(keys._context.serialize(save_secret_key=True))


def test_an_encrypted_run_is_the_plain_one_and_says_its_cost(tmp_path: Path) -> None:
    """FedMF by plain mean, which needs no touch counts: the same table within 1e-5 after two rounds."""
    fedmf, world = make("fedmf", dim=4, negatives=2, aggregate="mean"), "synthetic:users=12,items=30"
    plain = coterie.run(fedmf, world, rounds=2, out=tmp_path / "plain", threads=1)
    hidden = coterie.run(
        fedmf, world, rounds=2, out=tmp_path / "hidden", threads=1, privacy=PrivacySpec(encrypted=True)
    )
    np.testing.assert_allclose(hidden.state.server.table, plain.state.server.table, atol=1e-5)
    cost = hidden.rounds[-1]["privacy"]["encrypted"]
    assert cost["clients"] == 12 and cost["bytes_up"] == hidden.rounds[-1]["bytes"]["up"] > 100_000
    assert hidden.summary["privacy"]["encrypted"]["encrypt_seconds"] > 0
