"""What the systems promise beside their gradients: the third party's sums, disguise, statelessness, generated sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coterie.algorithms import make
from coterie.algorithms.fedpergnn import FedPerGNN
from coterie.algorithms.fedrecon import FedRecon
from coterie.engine.simulate import simulate, start
from tests.worlds import random_history


def _run(algorithm: Any, history: Any, rounds: int, **how: Any) -> Any:
    state = start(algorithm, history, 0)
    for one in simulate(algorithm, history, state, range(1, rounds + 1), 0, **how):
        state = one.state
    return state


def test_the_third_party_has_the_sum_of_everybodys_last_vector() -> None:
    history = random_history(30, 20, 6, seed=1)
    state = _run(FedPerGNN(dim=4, lr_user=1.0), history, 8, size=0.2, dropout=0.2)
    clients = state.clients
    assert 0 < clients.known.sum() < 30
    sums, count = np.zeros((20, 4)), np.zeros(20)
    for i in np.flatnonzero(clients.known):
        own = history.items[history.indptr[i] : history.indptr[i + 1]]
        sums[own] += clients.user[i]  # nobody trains without sending
        count[own] += 1
    np.testing.assert_allclose(state.server.holders[:, :4], sums, atol=1e-5)
    np.testing.assert_array_equal(state.server.holders[:, 4], count)


def test_pseudo_items_clipping_and_noise() -> None:
    history = random_history(5, 60, 6, seed=2)
    everybody = np.arange(5)

    def upload(**settings: Any) -> Any:
        algorithm = FedPerGNN(dim=4, negatives=2, **settings)
        state = start(algorithm, history, 0)
        download = algorithm.download(state.server, everybody, 1)
        return algorithm.client_step(state.clients, everybody, history, download, 1, 0)[0]

    plain, more = upload(), upload(pseudo=20)
    np.testing.assert_array_equal(np.diff(more.indptr), np.diff(plain.indptr) + 20)
    for c in everybody:
        rows = more.rows[more.indptr[c] : more.indptr[c + 1]]
        assert len(set(rows)) == len(rows)
        real = plain.values[plain.indptr[c] : plain.indptr[c + 1], :4]
        made = more.values[more.indptr[c] : more.indptr[c + 1]][len(real) :]
        assert not made[:, 4:].any() and made[:, :4].any()
        assert abs(made[:, :4].std() / real.std() - 1) < 0.5, "they look like the real ones"
    everything = upload(pseudo=1000)
    assert (np.diff(everything.indptr) == 60).all(), "more than there are: all items"

    clipped = upload(clip=0.001)
    for c in everybody:
        sent = clipped.values[clipped.indptr[c] : clipped.indptr[c + 1], :4]
        assert np.abs(sent).sum() + np.abs(clipped.dense[c]).sum() == pytest.approx(0.001, rel=1e-3)

    noisy = upload(pseudo=1000, clip=1e-9, noise=0.5)
    values = np.concatenate([noisy.values[:, :4].ravel(), noisy.dense.ravel()])
    assert np.abs(values).mean() == pytest.approx(0.5, rel=0.15), "the mean size of Laplace noise is its scale"
    assert abs(values.mean()) < 0.1
    np.testing.assert_array_equal(noisy.values, upload(pseudo=1000, clip=1e-9, noise=0.5).values)


def test_fedrecon_keeps_no_vector_and_may_use_everything_twice() -> None:
    history = random_history(12, 20, 6, seed=3)
    algorithm = FedRecon(dim=4, negatives=2)
    state = _run(algorithm, history, 3, size=0.3)
    fresh = algorithm.init_clients(history, 0)
    everybody = np.arange(12)
    np.testing.assert_array_equal(
        algorithm.score(state.server, state.clients, history, everybody),
        algorithm.score(state.server, fresh, history, everybody),
    )
    whole = FedRecon(dim=4, negatives=2, split=False)
    start_state = start(whole, history, 0)
    download = whole.download(start_state.server, everybody, 1)
    upload, report = whole.client_step(start_state.clients, everybody, history, download, 1, 0)
    np.testing.assert_array_equal(report.examples, history.lengths * 3)
    for c in everybody:
        own = history.items[history.indptr[c] : history.indptr[c + 1]]
        assert set(upload.rows[upload.indptr[c] : upload.indptr[c + 1]]) == set(own) | set(report.negatives.of(c))


def test_fedrecon_works_on_a_table_for_each_client() -> None:
    """Whatever makes the tables, such as a graph: equal ones give the shared table's upload."""
    history = random_history(4, 20, 6, seed=4)
    algorithm, everybody = FedRecon(dim=4, negatives=2), np.arange(4)
    state = start(algorithm, history, 0)
    download = algorithm.download(state.server, everybody, 1)
    own = download._replace(own=np.repeat(download.table[None], 4, 0))
    shared, _ = algorithm.client_step(state.clients, everybody, history, download, 1, 0)
    apart, _ = algorithm.client_step(state.clients, everybody, history, own, 1, 0)
    np.testing.assert_array_equal(shared.values, apart.values)
    np.testing.assert_array_equal(
        algorithm.vectors(download.table, state.clients, history, everybody),
        algorithm.vectors(own.own, state.clients, history, everybody),
    )


def test_the_fedavg_mean_is_weighted_by_examples() -> None:
    history = random_history(6, 20, 8, seed=5)
    algorithm, everybody = make("fedrecon", "as_published", dim=4), np.arange(6)
    state = start(algorithm, history, 0)
    upload, report = algorithm.client_step(
        state.clients, everybody, history, algorithm.download(state.server, everybody, 1), 1, 0
    )
    after = _run(algorithm, history, 1).server.table
    total = np.zeros_like(state.server.table, np.float64)
    for c in everybody:
        part = slice(upload.indptr[c], upload.indptr[c + 1])
        np.add.at(total, upload.rows[part], upload.values[part])  # already times her examples
    np.testing.assert_allclose(after, state.server.table + total / report.examples.sum(), atol=1e-6)


@pytest.mark.parametrize("n_items", [5, 40])
def test_metamf_sends_the_network_beside_the_table(n_items: int) -> None:
    algorithm = make("metamf")
    history = random_history(3, n_items, 3, seed=6)
    state = start(algorithm, history, 0)
    download = algorithm.download(state.server, np.arange(3), 1)
    assert download.own is not None and download.own.shape[2] == 8 + -(-algorithm.shape().p // n_items)
    seen = algorithm.seen(download, n_items, 0)
    np.testing.assert_array_equal(
        algorithm.score(seen, state.clients, history, np.arange(3)),
        algorithm.score(state.server, state.clients, history, np.arange(3)),
    )


@pytest.mark.parametrize("name", ["fedease", "fedrecon", "fedlightgcn", "fedpergnn"])
def test_a_device_scores_from_its_download(name: str) -> None:
    algorithm, history = make(name), random_history(5, 20, 6, seed=7)
    state = _run(algorithm, history, 2)
    seen = algorithm.seen(algorithm.download(state.server, np.arange(5), 3), 20, 0)
    np.testing.assert_allclose(
        algorithm.score(seen, state.clients, history, np.arange(5)),
        algorithm.score(state.server, state.clients, history, np.arange(5)),
        atol=1e-6,
    )


@pytest.mark.parametrize("name", ["fedease", "fedrecon", "metamf", "fedlightgcn", "fedpergnn"])
def test_somebody_without_any_item_does_no_harm(name: str) -> None:
    algorithm, history = make(name), random_history(4, 20, 6, seed=8)
    nobody = history._replace(
        indptr=np.append(history.indptr, history.indptr[-1]), keys=np.append(history.keys, np.uint64(7)),
        forbidden=history.forbidden._replace(indptr=np.append(history.forbidden.indptr, history.forbidden.indptr[-1])),
    )  # fmt: skip
    state = _run(algorithm, nobody, 2)
    assert np.isfinite(algorithm.score(state.server, state.clients, nobody, np.arange(5))).all()
