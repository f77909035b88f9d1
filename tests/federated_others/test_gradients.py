"""Kernels against finite differences of the losses in plain NumPy, and against autograd where torch is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coterie.algorithms import negatives
from coterie.algorithms.fedlightgcn import FedLightGCN
from coterie.algorithms.fedpergnn import FedPerGNN, gradients
from coterie.algorithms.fedrecon import FedRecon
from coterie.algorithms.interface import Collected
from coterie.algorithms.metamf import Meta, MetaMF, back
from coterie.engine.simulate import start
from tests.federated_others.references import (
    bce,
    generated,
    gnn_scores,
    lightgcn_loss,
    meta_scores,
    slopes,
    star_layers,
    weights,
)
from tests.worlds import random_history

SEED, ROUND = 2, 3
EVERYBODY = np.arange(4)


def _step(algorithm: Any, change: Any = None) -> tuple[Any, Any, Any, Any]:
    """One client step in a small world, on a start with some life in it."""
    history = random_history(4, 18, 6, seed=5)
    state = start(algorithm, history, SEED)
    if change is not None:
        state = change(state)
    before = type(state.clients)(*(array.copy() for array in state.clients))
    download = algorithm.download(state.server, EVERYBODY, ROUND)
    upload, report = algorithm.client_step(state.clients, EVERYBODY, history, download, ROUND, SEED)
    return history, state, before, (download, upload, report)


def _mine(upload: Any, report: Any, history: Any, c: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    part = slice(upload.indptr[c], upload.indptr[c + 1])
    rows = upload.rows[part]
    own = history.items[history.indptr[c] : history.indptr[c + 1]]
    return rows, upload.values[part], *weights(own, report.negatives.of(c), rows)


def test_fedrecon_learns_from_the_query_with_the_vector_of_the_support() -> None:
    algorithm = FedRecon(dim=5, negatives=3, steps=4, lr_user=0.7, lr_item=0.1, reg_user=0.05, reg_item=0.02, start=0.5)
    history, state, _, (_, upload, report) = _step(algorithm)
    rate = algorithm.lr_user / np.sqrt(history.lengths)
    first, _ = algorithm._start(history, EVERYBODY, SEED)
    table = state.server.table.astype(np.float64)
    learnt = 0
    for c in EVERYBODY:
        rows, moved, _, _ = _mine(upload, report, history, c)
        support, query = _split(algorithm, history, report, c)
        u = first[c].astype(np.float64)
        for _ in range(algorithm.steps):
            g = slopes(lambda v: _pair_loss(v, table, support), u)  # noqa: B023
            u = u - rate[c] * (g + 0.05 * u)
        assert set(rows) == {j for j, _ in query}
        g = slopes(lambda t: _pair_loss(u, t, query), table)[rows]  # noqa: B023
        np.testing.assert_allclose(moved, -0.1 * (g + 0.02 * table[rows]), rtol=2e-3, atol=2e-5)
        if len(query):
            assert report.loss[c] == pytest.approx(_pair_loss(u, table, query) / len(query), rel=1e-4)
            learnt += 1
    assert learnt >= 2


def _split(algorithm: Any, history: Any, report: Any, c: int) -> tuple[list, list]:
    """(item, label) pairs of support and query, from the same random stream."""
    from coterie import rng

    own = history.items[history.indptr[c] : history.indptr[c + 1]]
    drawn = report.negatives.of(c).reshape(len(own), -1)
    state, parts = rng.stream(SEED, ROUND, history.keys[c], rng.SHUFFLE), ([], [])
    for item, others in zip(own, drawn, strict=True):
        state = np.uint64(rng.after(np.uint64(state)))
        parts[int(rng.uniform(state) >= algorithm.support)].extend([(item, 1), *((other, 0) for other in others)])
    return parts


def _pair_loss(u: np.ndarray, table: np.ndarray, pairs: list) -> float:
    if not pairs:
        return 0.0
    items, labels = (np.array(part) for part in zip(*pairs, strict=True))
    x = table[items, :-1] @ u + table[items, -1]
    return bce(x, (labels == 1).astype(float), (labels == 0).astype(float))


def test_fedrecon_scores_with_the_vector_of_the_whole_history() -> None:
    algorithm = FedRecon(dim=5, negatives=3, steps=4, lr_user=0.7, reg_user=0.05, start=0.5)
    history, state, _, _ = _step(algorithm)
    drawn = negatives.draw(history, EVERYBODY, 3, SEED, 0)
    first, _ = algorithm._start(history, EVERYBODY, SEED)
    table = state.server.table.astype(np.float64)
    scores = algorithm.score(state.server, state.clients, history, EVERYBODY)
    for c in EVERYBODY:
        own = history.items[history.indptr[c] : history.indptr[c + 1]]
        pairs = [(j, 1) for j in own] + [(j, 0) for j in drawn.of(c)]
        u = first[c].astype(np.float64)
        for _ in range(algorithm.steps):
            u = u - 0.7 / np.sqrt(len(own)) * (slopes(lambda v: _pair_loss(v, table, pairs), u) + 0.05 * u)  # noqa: B023
        np.testing.assert_allclose(scores[c], table[:, :-1] @ u + table[:, -1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("layers", [0, 1, 2, 3, 4])
def test_fedlightgcn_is_lightgcn_on_a_star(layers: int, plain: bool) -> None:
    algorithm = FedLightGCN(
        dim=4, layers=layers, plain=plain, negatives=2, start=0.7, lr_user=0.3, lr_item=0.2, reg_user=0.1, reg_item=0.05
    )
    history, state, before, (_, upload, report) = _step(algorithm)
    table = state.server.table.astype(np.float64)
    scores = algorithm.score(state.server, before, history, EVERYBODY)
    for c in EVERYBODY:
        rows, moved, positive, negative = _mine(upload, report, history, c)
        hers, u = int(history.lengths[c]), before.user[c].astype(np.float64)
        args = (hers, layers, plain, positive, negative)
        g_items = slopes(lambda e: lightgcn_loss(u, e, *args), table[rows])  # noqa: B023
        g_user = slopes(lambda v: lightgcn_loss(v, table[rows], *args), u)  # noqa: B023
        np.testing.assert_allclose(moved, -0.2 * (g_items + 0.05 * table[rows]), rtol=2e-3, atol=2e-5)
        rate = 0.3 / np.sqrt(hers)
        np.testing.assert_allclose(state.clients.user[c], u - rate * (g_user + 0.1 * u), rtol=1e-3, atol=1e-5)
        others = np.setdiff1d(np.arange(18), rows[:hers])
        e_user, e_items = star_layers(u, np.vstack([table[rows[:hers]], table[others]]), hers, layers, plain)
        np.testing.assert_allclose(scores[c, np.concatenate([rows[:hers], others])], e_items @ e_user, atol=1e-5)


def _lively(state: Any) -> Any:
    """FedPerGNN with weights off the identity and with neighbours."""
    draw = np.random.default_rng(0)
    weights = state.server.weights + draw.normal(0, 0.3, state.server.weights.shape).astype(np.float32)
    holders = np.hstack([draw.normal(0, 1, (18, 4)), draw.integers(0, 4, (18, 1))])
    state.clients.sent[:], state.clients.known[:] = draw.normal(0, 0.2, (4, 4)), [True, False, True, False]
    return state._replace(server=state.server._replace(weights=weights, holders=holders))


def _others(state: Any, clients: Any, rows: np.ndarray, c: int) -> np.ndarray:
    sums, count = state.server.holders[rows, :-1].copy(), state.server.holders[rows, -1].copy()
    if clients.known[c]:
        sums, count = sums - clients.sent[c], count - 1
    return np.where(count[:, None] > 0.5, sums / np.maximum(count, 1)[:, None], 0.0)


def test_fedpergnn_steps_along_the_gradient() -> None:
    algorithm = FedPerGNN(
        dim=4, negatives=2, start=0.7, lr_user=0.3, lr_item=0.2, lr_dense=0.1, reg_user=0.1, reg_item=0.05
    )
    history, state, before, (_, upload, report) = _step(algorithm, _lively)
    table, (W, V) = state.server.table.astype(np.float64), state.server.weights.astype(np.float64)
    for c in EVERYBODY:
        rows, moved, positive, negative = _mine(upload, report, history, c)
        hers, u = int(history.lengths[c]), before.user[c].astype(np.float64)
        others = _others(state, before, rows[:hers], c)

        def loss(u: Any, e: Any, W: Any, V: Any, n=hers, z=others, p=positive, q=negative) -> float:
            return bce(gnn_scores(u, e, z, n, W, V), p, q)

        e = table[rows]
        assert report.loss[c] == pytest.approx(loss(u, e, W, V) / report.examples[c], rel=1e-4)
        g = slopes(lambda x: loss(u, x, W, V), e)  # noqa: B023
        np.testing.assert_allclose(moved[:, :4], -0.2 * (g + 0.05 * e), rtol=2e-3, atol=2e-5)
        new_user = u - 0.3 / np.sqrt(hers) * (slopes(lambda x: loss(x, e, W, V), u) + 0.1 * u)  # noqa: B023
        np.testing.assert_allclose(state.clients.user[c], new_user, rtol=1e-3, atol=1e-5)
        g_dense = np.stack([slopes(lambda x: loss(u, e, x, V), W), slopes(lambda x: loss(u, e, W, x), V)])  # noqa: B023
        np.testing.assert_allclose(upload.dense[c].reshape(2, 4, 4), -0.1 * g_dense, rtol=2e-3, atol=2e-5)
        # to the third party: the change of her vector since she last sent it, and one more holder if she is new
        np.testing.assert_allclose(moved[:hers, 4:8], np.tile(new_user - before.sent[c], (hers, 1)), atol=1e-4)
        assert (moved[:hers, 8] == (not before.known[c])).all() and not moved[hers:, 4:].any()


def test_fedpergnn_scores_by_the_same_network() -> None:
    algorithm = FedPerGNN(dim=4, start=0.7)
    history, state, before, _ = _step(algorithm, _lively)
    scores = algorithm.score(state.server, before, history, EVERYBODY)
    table, (W, V) = state.server.table.astype(np.float64), state.server.weights.astype(np.float64)
    for c in EVERYBODY:
        own = history.items[history.indptr[c] : history.indptr[c + 1]]
        order = np.concatenate([own, np.setdiff1d(np.arange(18), own)])
        expected = gnn_scores(before.user[c], table[order], _others(state, before, own, c), len(own), W, V)
        np.testing.assert_allclose(scores[c, order], expected, atol=1e-4)


META = MetaMF(dim=5, low=3, hidden=4, size=4, memory=6, generator=5, negatives=2, start=1.0)


def test_metamf_predicts_as_the_paper_writes_it() -> None:
    history, state, _, _ = _step(META)
    scores = META.score(state.server, state.clients, history, EVERYBODY)
    for c in EVERYBODY:
        table, theta = generated(state.server.vectors[c].astype(np.float64), *state.server.meta, META.shape())
        np.testing.assert_allclose(scores[c], meta_scores(table, theta, META.shape()), rtol=1e-3, atol=1e-4)


def test_metamf_gradients_of_what_was_generated_and_of_the_generator() -> None:
    history, state, _, (_, upload, report) = _step(META)
    shape, meta = META.shape(), Meta(*(one.astype(np.float64) for one in state.server.meta))
    expected = [np.zeros(one.shape) for one in meta]
    vectors = state.server.vectors.astype(np.float64)
    g = Meta(*(np.zeros_like(one) for one in state.server.meta))
    g_vectors = np.empty_like(state.server.vectors)
    back(state.server.vectors, state.server.meta, shape, *upload[:4], g_vectors, g)
    for c in EVERYBODY:
        rows, sent, positive, negative = _mine(upload, report, history, c)
        table, theta = generated(vectors[c], *meta, shape)

        def loss(table: Any, theta: Any, rows=rows, p=positive, n=negative) -> float:
            return bce(meta_scores(table[rows], theta, shape), p, n)

        def whole(vector: Any, *parts: Any, loss: Any = loss) -> float:
            return loss(*generated(vector, *parts, shape))

        np.testing.assert_allclose(sent, slopes(lambda x: loss(x, theta), table)[rows], rtol=2e-3, atol=2e-4)  # noqa: B023
        np.testing.assert_allclose(upload.dense[c], slopes(lambda x: loss(table, x), theta), rtol=2e-3, atol=2e-4)  # noqa: B023
        np.testing.assert_allclose(g_vectors[c], slopes(lambda v: whole(v, *meta), vectors[c]), rtol=5e-3, atol=5e-4)
        for place, one in enumerate(meta):
            parts = list(meta)
            expected[place] += slopes(lambda x: whole(vectors[c], *parts[:place], x, *parts[place + 1 :]), one)  # noqa: B023
    for found, wanted in zip(g, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=5e-3, atol=2e-3)


def test_metamf_vectors_of_those_who_were_not_drawn_stay() -> None:
    history, state, _, (_, upload, _) = _step(META)
    some = np.array([1, 3])
    part, _ = META.client_step(state.clients, some, history, META.download(state.server, some, 1), 1, SEED)
    after = META.server_step(state.server, Collected([some], [part]), 1)
    moved = (after.vectors != state.server.vectors).any(1)
    np.testing.assert_array_equal(moved, [False, True, False, True])
    assert len(upload.indptr) == 5 and (after.steps == [0, 1, 0, 1]).all()


def test_fedrecon_against_autograd() -> None:
    """u rebuilt on the support and the query's rows after it, both by torch, weight decay as part of the loss."""
    torch = pytest.importorskip("torch")
    algorithm = FedRecon(dim=5, negatives=3, steps=4, lr_user=0.7, lr_item=0.1, reg_user=0.05, reg_item=0.02, start=0.5)
    history, state, _, (_, upload, report) = _step(algorithm)
    first, rates = algorithm._start(history, EVERYBODY, SEED)

    def loss(u: Any, table: Any, pairs: list) -> Any:
        if not pairs:
            return 0.0 * u.sum()
        items, labels = (torch.tensor(part) for part in zip(*pairs, strict=True))
        x = table[items, :-1] @ u + table[items, -1]
        return torch.nn.functional.binary_cross_entropy_with_logits(x, labels.float(), reduction="sum")

    learnt = 0
    for c in EVERYBODY:
        support, query = _split(algorithm, history, report, c)
        pairs = [[(int(j), label) for j, label in part] for part in (support, query)]
        table = torch.tensor(state.server.table, requires_grad=True)
        u = torch.tensor(first[c])
        for _ in range(algorithm.steps):
            u.requires_grad_()
            whole = loss(u, table, pairs[0]) + 0.05 / 2 * (u**2).sum()
            u = (u - float(rates[c]) * torch.autograd.grad(whole, u)[0]).detach()
        rows, moved, _, _ = _mine(upload, report, history, c)
        if not pairs[1]:
            assert not len(rows)
            continue
        held = torch.tensor(rows.astype(np.int64))
        whole = loss(u, table, pairs[1]) + 0.02 / 2 * (table[held] ** 2).sum()
        (grad,) = torch.autograd.grad(whole, table)
        np.testing.assert_allclose(moved, -0.1 * grad[held].numpy(), rtol=1e-3, atol=1e-5)
        learnt += 1
    assert learnt >= 2


def test_against_autograd() -> None:
    """The same gradients by torch: FedPerGNN's kernel, FedLightGCN's star and MetaMF's whole way back."""
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(3)
    n, d, k = 9, 4, 6
    C, Z = draw.normal(size=(n, k)).astype(np.float32), draw.normal(size=(n, k)).astype(np.float32)
    u = draw.normal(size=k).astype(np.float32)
    W, V = (draw.normal(0, 0.4, (k, k)).astype(np.float32) for _ in range(2))
    positive, negative = np.zeros(n, np.float32), np.zeros(n, np.float32)
    positive[:d], negative[d:] = 1, draw.integers(1, 3, n - d)
    mine = [np.empty_like(one) for one in (C, u, W, V)]
    H, mean, h = np.empty_like(C), np.empty_like(u), np.empty_like(u)
    loss = gradients(n, d, C, Z, u, W, V, positive, negative, *mine, H, mean, h)
    tC, tu, tW, tV = (torch.tensor(one, requires_grad=True) for one in (C, u, W, V))
    nodes = torch.tanh(tC[:d] + torch.tensor(Z[:d]) @ tW.T)
    x = tC @ (tu + tV @ nodes.mean(0))
    soft = torch.nn.functional.softplus
    total = (torch.tensor(positive) * soft(-x) + torch.tensor(negative) * soft(x)).sum()
    total.backward()
    assert loss == pytest.approx(total.item(), rel=1e-5)
    for found, wanted in zip(mine, (tC, tu, tW, tV), strict=True):
        np.testing.assert_allclose(found, wanted.grad.numpy(), rtol=1e-4, atol=1e-5)

    light = FedLightGCN(
        dim=4, layers=3, plain=False, negatives=2, start=0.7, lr_user=0.3, lr_item=1.0, reg_user=0.0, reg_item=0.0
    )
    history, state, before, (_, upload, report) = _step(light)
    rows, moved, p, q = _mine(upload, report, history, 0)
    hers = int(history.lengths[0])
    e, user = (torch.tensor(one, requires_grad=True) for one in (state.server.table[rows], before.user[0]))
    spread = torch.zeros(1 + len(rows), 1 + len(rows))
    spread[0, 1 : 1 + hers] = spread[1 : 1 + hers, 0] = hers**-0.5
    layer = torch.vstack([user, e])
    mean_layer = layer
    for _ in range(3):
        layer = spread @ layer
        mean_layer = mean_layer + layer
    x = mean_layer[1:] @ mean_layer[0] / 16
    (torch.tensor(p) * soft(-x) + torch.tensor(q) * soft(x)).sum().backward()
    np.testing.assert_allclose(-moved, e.grad.numpy(), rtol=1e-3, atol=1e-5)

    history, state, _, (_, upload, report) = _step(META)
    s = META.shape()
    leaves = [torch.tensor(one, requires_grad=True) for one in (state.server.vectors, *state.server.meta)]
    total = torch.zeros(())
    one = torch.ones(1)
    for c in EVERYBODY:
        rows, _, p, q = _mine(upload, report, history, c)
        v, memory, hidden, heads, low = leaves[0][c], *leaves[1:]
        inner = torch.cat([v @ memory, one])
        h = [torch.cat([torch.relu(inner @ layer), one]) for layer in hidden]
        theta = torch.cat([h[0] @ heads[:, : s.w1], h[1] @ heads[:, s.w1 : s.w2], h[2] @ heads[:, s.w2 :]])
        table = torch.einsum("q,jqd->jd", h[0], low[rows])
        z = table @ theta[: s.w1].view(s.low, s.dim) @ theta[s.w1 : s.b1].view(s.dim, s.hidden) + theta[s.b1 : s.w2]
        x = torch.relu(z) @ theta[s.w2 : s.b2] + theta[s.b2]
        total = total + (torch.tensor(p) * soft(-x) + torch.tensor(q) * soft(x)).sum()
    total.backward()
    g, g_vectors = Meta(*(np.zeros_like(one) for one in state.server.meta)), np.empty_like(state.server.vectors)
    back(state.server.vectors, state.server.meta, s, *upload[:4], g_vectors, g)
    for found, leaf in zip((g_vectors, *g), leaves, strict=True):
        np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=2e-3, atol=2e-4)
