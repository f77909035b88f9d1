"""The central yardsticks: their parts against plain NumPy, the same bytes after a stop, and people outside training."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import coterie
from coterie import rng
from coterie.algorithms import make
from coterie.algorithms.central import ease, fitting, itemknn, lightgcn, ncf, sgl
from coterie.algorithms.central.ease import binary
from coterie.algorithms.interface import Report
from coterie.engine.simulate import simulate, start
from coterie.errors import CoterieError
from coterie.protocol import CanaryWatch, prepare, resolve
from coterie.ragged import Ragged, from_pairs
from coterie.runs import tensors
from coterie.runs.api import resume
from tests.worlds import checkerboard, history, interactions, random_history

OURS = ["userknn", "itemknn", "als", "bpr", "mf", "ncf", "lightgcn", "sgl", "multvae"]
TORCH = ["mf", "ncf", "lightgcn", "sgl", "multvae"]
DRAWING = ["mf", "ncf", "lightgcn", "sgl"]


def _trained(algorithm: Any, world: Any, rounds: int, seed: int = 0) -> Any:
    state = start(algorithm, world, seed)
    for one in simulate(algorithm, world, state, range(1, rounds + 1), seed):
        state = one.state
    return state.server


def _same(one: Any, other: Any) -> None:
    left, right = dict(tensors.leaves(one)), dict(tensors.leaves(other))
    assert left.keys() == right.keys() and left
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@pytest.mark.parametrize("name", OURS)
def test_a_missing_extra_is_answered_with_the_install_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, extra = ("torch", "neural") if name in TORCH else ("implicit", "central")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CoterieError, match=rf"{name} needs {module}.*pip install 'coterie\[{extra}\]'"):
        make(name)


@pytest.mark.parametrize("name", OURS)
def test_stopped_and_resumed_is_the_same_bytes(name: str, tmp_path: Any) -> None:
    algorithm, world = make(name), random_history(30, 40, 12, seed=1)
    whole = _trained(algorithm, world, 4)
    half = start(algorithm, world, 0)
    for one in simulate(algorithm, world, half, range(1, 3), 0):
        half = one.state
    tensors.save(tmp_path / "half", half, {})
    again = tensors.load(tmp_path / "half", start(algorithm, world, 0))
    threads = torch.get_num_threads()
    for one in simulate(algorithm, world, again, range(3, 5), 0):
        again = one.state
    assert torch.get_num_threads() == threads, "the caller's setting is given back"
    _same(whole, again.server)


@pytest.mark.parametrize("name", OURS)
def test_training_leaves_the_state_it_began_with_alone(name: str) -> None:
    """The engine keeps the best round's state while training goes on."""
    algorithm, world = make(name), random_history(20, 30, 10, seed=2)
    before = start(algorithm, world, 0).server
    kept = tensors.copy(before)
    algorithm.train(before, world, 1, 0)
    _same(before, kept)


@pytest.mark.parametrize("name", OURS)
def test_somebody_outside_training_is_scored_like_herself(name: str) -> None:
    """A person of the training, brought back as a stranger, gets about the list she had."""
    algorithm = make(name)
    world, _ = checkerboard()
    server = _trained(algorithm, world, min(algorithm.default_rounds, 60))
    own = Ragged(world.indptr[:9], world.items[: world.indptr[8]])
    strangers = history(own, world.n_items)
    clients = algorithm.newcomer(server, strangers, 0)
    as_strangers = algorithm.score(server, clients, strangers, np.arange(8))
    as_members = algorithm.score(server, (), world, np.arange(8))
    assert as_strangers.shape == as_members.shape == (8, world.n_items)
    alike = [np.corrcoef(a, b)[0, 1] for a, b in zip(as_strangers, as_members, strict=True)]
    assert np.mean(alike) > 0.8, alike


@pytest.mark.parametrize("name", DRAWING)
def test_the_canary_sees_the_real_draws(name: str) -> None:
    """Clean draws say nothing about held-out items; the papers' spare them, and the canary must notice."""
    algorithm = make(name)
    draw = np.random.default_rng(0)
    data = interactions([list(draw.choice(150, 20, replace=False)) for _ in range(120)], n_items=150)
    counts = {}
    for protocol in ("clean", "paper:fedrap"):
        prepared = prepare(data, resolve(protocol), 0)
        watch, seen = CanaryWatch(prepared), []

        def observe(ids: np.ndarray, report: Report, watch: Any = watch, seen: Any = seen) -> None:
            watch.observe(ids, report)
            seen.append((ids, report))

        state = start(algorithm, prepared.history, 0)
        for one in simulate(algorithm, prepared.history, state, range(1, 3), 0, observe=observe):
            assert one.loss is not None and np.isfinite(one.loss)
        each = getattr(algorithm, "negatives", 1)
        for ids, report in seen:
            np.testing.assert_array_equal(ids, np.arange(prepared.history.n_clients))
            np.testing.assert_array_equal(report.negatives.lengths, each * prepared.history.lengths)
            owner = np.repeat(ids, report.negatives.lengths)
            drawn = set(zip(owner.tolist(), report.negatives.items.tolist(), strict=True))
            spared = prepared.history.forbidden
            told = set(zip(np.repeat(ids, spared.lengths).tolist(), spared.items.tolist(), strict=True))
            assert not drawn & told
        held, _, others = watch.draws()
        counts[protocol] = held.sum(), others.sum()
    assert counts["clean"][0] > 0 and counts["paper:fedrap"][0] == 0 and counts["paper:fedrap"][1] > 0


def test_points_and_pairs_are_every_positive_once_with_its_negatives() -> None:
    world = random_history(12, 30, 9, seed=5)
    world = world._replace(counts=np.where(np.arange(len(world.items)) % 3 == 0, 2, 1).astype(np.float32))
    user, item = fitting.positives(world)
    expected = sorted(zip(user.tolist(), item.tolist(), strict=True))
    assert len(expected) == int(world.counts.sum())
    users, items, labels, drawn = fitting.points(world, 3, 1, 2)
    assert sorted(zip(users[labels == 1].tolist(), items[labels == 1].tolist(), strict=True)) == expected
    assert (labels == 0).sum() == len(drawn.items) == 3 * len(expected)
    users, better, worse, drawn = fitting.pairs(world, 1, 2)
    assert sorted(zip(users.tolist(), better.tolist(), strict=True)) == expected
    has = binary(world).toarray().astype(bool)
    assert has[users, better].all() and not has[users, worse].any()
    np.testing.assert_array_equal(np.sort(worse), np.sort(drawn.items))
    users, better, worse, drawn = fitting.pairs(world, 1, 2, 3)
    assert sorted(zip(users.tolist(), better.tolist(), strict=True)) == sorted(expected * 3)
    assert not has[users, worse].any()
    for one in range(12):
        np.testing.assert_array_equal(np.sort(worse[users == one]), np.sort(drawn.of(one)))


def test_who_has_everything_trains_without_negatives() -> None:
    own = from_pairs(np.array([0, 0, 0, 1]), np.array([0, 1, 2, 1]), 2)
    for name in DRAWING:
        server, loss, drawn = make(name).train(make(name).init(history(own, 3), 0), history(own, 3), 1, 0)
        assert np.isfinite(loss) and drawn.lengths[0] == 0 and tensors.finite(server) is None


def test_logistic_is_at_its_minimum() -> None:
    draw = np.random.default_rng(0)
    rows, offset = draw.standard_normal((50, 4)), draw.standard_normal(50)
    labels, ridge = (draw.random(50) < 0.5).astype(float), 0.7

    def loss(w: np.ndarray) -> float:
        logit = rows @ w + offset
        return float(np.sum(np.logaddexp(0, logit) - labels * logit) + ridge / 2 * w @ w)

    w = fitting.logistic(rows, offset, labels, ridge).astype(float)
    for d in range(4):
        step = 1e-4 * np.eye(4)[d]
        assert abs(loss(w + step) - loss(w - step)) / 2e-4 < 1e-3


def _dense_graph(world: Any) -> np.ndarray:
    has = binary(world).toarray()
    weight = has / np.sqrt(np.maximum(np.outer(has.sum(1), has.sum(0)), 1))
    n, m = has.shape
    whole = np.zeros((n + m, n + m))
    whole[:n, n:], whole[n:, :n] = weight, weight.T
    return whole


def test_propagation_is_the_mean_of_powers_of_the_graph() -> None:
    world = random_history(7, 11, 6, seed=3)
    dense, nodes = _dense_graph(world), np.random.default_rng(0).standard_normal((18, 5)).astype(np.float32)
    graph = lightgcn.adjacency(torch, *lightgcn.edges(world, "train"), 7, 11)
    found = lightgcn.propagate(graph, torch.from_numpy(nodes), 2).numpy()
    np.testing.assert_allclose(found, (nodes + dense @ nodes + dense @ dense @ nodes) / 3, atol=1e-6)


@pytest.mark.parametrize("kind", ["lightgcn", "points", "sgl"])
def test_a_step_follows_the_gradient(kind: str) -> None:
    """The gradient sent through the symmetric graph by hand is the one of finite differences."""
    world = random_history(7, 11, 6, seed=4)
    reg, contrast, n = 0.03, 0.2, 7
    first = np.random.default_rng(1).standard_normal((18, 4))
    user, better, worse, _ = fitting.pairs(world, 0, 1)
    graphs = [_dense_graph(world)]
    if kind == "sgl":
        user_edge, item_edge = lightgcn.edges(world, "train")
        for part in (0, 1):
            kept = np.arange(len(user_edge)) % 4 != part
            thin = from_pairs(user_edge[kept], item_edge[kept], 7)
            graphs.append(_dense_graph(world._replace(indptr=thin.indptr, items=thin.items)))
    powers = [(np.eye(18) + one + one @ one) / 3 for one in graphs]

    def loss(nodes: np.ndarray) -> float:
        e = powers[0] @ nodes
        up, down = ((e[user] * e[place + n]).sum(1) for place in (better, worse))
        touched = sum((nodes[place] ** 2).sum() for place in (user, better + n, worse + n))
        apart = np.logaddexp(0, -up) + np.logaddexp(0, down) if kind == "points" else np.logaddexp(0, down - up)
        total = apart.mean() + reg / 2 * touched / len(user)
        for places in (np.unique(user), np.unique(better) + n) if kind == "sgl" else ():
            views = [one @ nodes for one in powers[1:]]
            left, right = (v[places] / np.linalg.norm(v[places], axis=1, keepdims=True) for v in views)
            likeness = left @ right.T / 0.2
            total += contrast * np.mean(np.log(np.exp(likeness).sum(1)) - np.diag(likeness))
        return float(total)

    nodes = torch.tensor(first, requires_grad=True)
    sparse = [torch.from_numpy(one).to_sparse() for one in graphs]
    views = [lightgcn.propagate(one, nodes.detach(), 2).requires_grad_() for one in sparse]
    triple = tuple(torch.from_numpy(one) for one in (user, better, worse))
    found, rest = lightgcn.bpr_step(torch, nodes, views[0], n, triple, reg, None, kind == "points")
    if kind == "sgl":
        for side in (triple[0], triple[1] + n):
            rest = rest + contrast * sgl.contrastive(torch, views[1], views[2], torch.unique(side), 0.2)
    (found + rest).backward()
    gradient = nodes.grad + sum(lightgcn.propagate(one, v.grad, 2) for one, v in zip(sparse, views, strict=True))
    assert float(found.detach() + rest.detach()) == pytest.approx(loss(first), rel=1e-9)
    draw = np.random.default_rng(2)
    for _ in range(5):
        way = draw.standard_normal(first.shape)
        slope = (loss(first + 1e-5 * way) - loss(first - 1e-5 * way)) / 2e-5
        assert float((gradient.numpy() * way).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_the_leaky_graph_is_refused_where_nobody_knows_the_future() -> None:
    leaky, data = make("lightgcn", graph="everything"), interactions([list(range(u, u + 12)) for u in range(15)])
    clean = prepare(data, resolve("clean"), 0).history
    with pytest.raises(CoterieError, match=r"graph=everything.*paper:fedrap"):
        leaky.train(leaky.init(clean, 0), clean, 1, 0)
    paper = prepare(data, resolve("paper:fedrap"), 0).history
    user, _ = lightgcn.edges(paper, "everything")
    assert len(user) == len(paper.items) + 2 * paper.n_clients
    assert len(lightgcn.edges(paper, "train")[0]) == len(paper.items)


def test_ncf_scores_are_the_networks() -> None:
    algorithm, world = make("ncf"), random_history(9, 20, 8, seed=6)
    server = _trained(algorithm, world, 2)
    p = ncf.Parameters(*(torch.tensor(one) for one in server.now))
    both = torch.cat([p.user[:, None, :].expand(-1, 20, -1), p.item[None].expand(9, -1, -1)], 2)
    hidden = torch.relu(both @ torch.cat([p.of_user, p.of_item]) + p.bias1)
    hidden = torch.relu(torch.relu(hidden @ p.weight2 + p.bias2) @ p.weight3 + p.bias3)
    expected = (hidden @ p.out + p.bias_out).numpy()
    found = algorithm.score(server, (), world, np.arange(9))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_knn_by_hand() -> None:
    """Three people, four items: cosines one can work out on paper."""
    world = history(from_pairs(np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 2, 3]), 3), 4)
    item = make("itemknn", neighbours=4, weighting="cosine")
    server = _trained(item, world, 1)
    half = 1 / np.sqrt(2)
    np.testing.assert_allclose(
        item.score(server, (), world, np.array([0]))[0], [1 + half, 1 + half, half, 0], atol=1e-6
    )
    user = make("userknn", neighbours=2, weighting="cosine")
    scores = user.score(_trained(user, world, 1), (), world, np.arange(3))
    np.testing.assert_allclose(scores, [[1.5, 1, 0.5, 0], [1.5, 0.5, 1, 0], [0, 0, 0, 1]], atol=1e-6)


def test_als_is_the_ridge_solution() -> None:
    algorithm, world = make("als", dim=3, reg=0.5, alpha=4.0), random_history(10, 15, 6, seed=7)
    server = _trained(algorithm, world, 3)
    has = binary(world).toarray().astype(float)
    y = server.item.astype(float)
    for u in range(10):
        weight = np.where(has[u] > 0, 4.0, 1.0)
        expected = np.linalg.solve((y * weight[:, None]).T @ y + 0.5 * np.eye(3), y.T @ (weight * has[u]))
        np.testing.assert_allclose(server.user[u], expected, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("name", OURS)
def test_run_recommend_similar_compare(name: str, tmp_path: Any) -> None:
    data = coterie.synthetic(users=40, items=30, seed=1)
    found = coterie.run(make(name), data, rounds=2, evaluate_every=1, out=tmp_path / name)
    assert found.summary["valid"] and (found.summary["canary"] is not None) == (name in DRAWING)
    ids = found.prepared.data.item_ids
    assert len(found.recommend(found.prepared.data.user_ids[0], n=5)) == 5
    newcomer = found.recommend(history=ids[:3], n=5)
    assert len(newcomer) == 5 and not {one.item_id for one in newcomer} & set(ids[:3])
    assert len(found.similar_items(ids[0], 4)) == 4
    assert len(coterie.compare([found])) == 1


def test_an_interrupted_run_resumes_to_the_same_model(tmp_path: Any) -> None:
    from coterie.runs.directory import RunDirectory
    from coterie.runs.drive import drive
    from coterie.runs.spec import spec_of

    data = coterie.synthetic(users=40, items=30, seed=1)
    whole = coterie.run(make("lightgcn"), data, rounds=4, out=tmp_path / "whole")
    spec = spec_of(make("lightgcn"), data, rounds=4, checkpoint_every=1)
    rounds = drive(spec, data, RunDirectory(tmp_path / "half"), 1)
    next(rounds)
    next(rounds)
    rounds.close()
    again = resume(tmp_path / "half", data)
    assert again.summary["last_model_sha256"] == whole.summary["last_model_sha256"]


@pytest.mark.parametrize("loss", ["pairs", "points"])
def test_free_numbers_remember_what_was_drawn(loss: str) -> None:
    data = interactions([list(range(u, u + 12)) for u in range(15)])
    for protocol, found_by_memory in (("paper:fedrap", True), ("clean", False)):
        prepared = prepare(data, resolve(protocol), 0)
        algorithm = make(
            "lightgcn", own_lr=0.5, lr=0.0, start=0.0, loss=loss
        )  # the vectors stay at nought: memory alone
        state = start(algorithm, prepared.history, 0)
        for one in simulate(algorithm, prepared.history, state, range(1, 31), 0):
            state = one.state
        users = np.arange(data.n_users)
        scores = algorithm.score(state.server, (), prepared.history, users)
        held, own = prepared.test, Ragged(prepared.history.indptr, prepared.history.items)
        for user in users:
            assert all(scores[user, own.of(user)] > 0)
            assert all(scores[user, held.of(user)] == 0) == found_by_memory  # never drawn, or drawn like any other
            assert scores[user].min() < 0


def test_shrinkage_believes_what_many_had_together() -> None:
    world = random_history(30, 12, 5, seed=4)
    owners = binary(world).toarray().astype(float)
    both = owners.T @ owners
    length = np.sqrt(np.diag(both))
    for shrink in (0.001, 3.0):
        algorithm = make("itemknn", neighbours=5, weighting="cosine", shrink=shrink)
        server = _trained(algorithm, world, 1)
        found = itemknn.matrix(server, 12).toarray()
        wanted = both / np.outer(length, length) * both / (both + shrink)
        for item in range(12):
            kept = np.argsort(-wanted[item], kind="stable")[:5]
            assert np.count_nonzero(found[item]) <= 5
            assert np.sort(found[item])[-5:] == pytest.approx(np.sort(wanted[item][kept]), abs=1e-6)
        plain = _trained(make("itemknn", neighbours=12, weighting="cosine"), world, 1)
        if shrink == 0.001:
            whole = itemknn.matrix(itemknn.shrunk(binary(world), 12, 1e-9), 12).toarray()
            assert whole == pytest.approx(itemknn.matrix(plain, 12).toarray(), abs=1e-5)
    with pytest.raises(CoterieError, match="goes with weighting=cosine only"):
        make("itemknn", weighting="bm25", shrink=1.0)


def test_whose_nearest_items_count() -> None:
    """Of the candidate's two nearest only those she has speak for it; or hers speak for their two nearest."""
    world = random_history(30, 12, 5, seed=4)
    owners = binary(world).toarray().astype(float)
    both = owners.T @ owners
    likeness = both / np.sqrt(np.outer(np.diag(both), np.diag(both))) * both / (both + 2.0)
    kept = np.zeros_like(likeness)
    for item in range(12):
        first = np.argsort(-likeness[item], kind="stable")[:3]
        kept[item, first] = likeness[item, first]
    assert not np.allclose(kept, kept.T)
    for whose, weights in (("hers", kept), ("candidate", kept.T)):
        algorithm = make("itemknn", neighbours=3, weighting="cosine", shrink=2.0, nearest_of=whose)
        scores = algorithm.score(_trained(algorithm, world, 1), (), world, np.arange(30))
        np.testing.assert_allclose(scores, owners @ weights, atol=1e-5)


def test_ease_chooses_its_ridge_by_items_set_aside_from_training() -> None:
    """Against a plain loop: who is shown what, what is asked for, and how each ridge ranks it."""
    world = random_history(600, 25, 12, seed=3)
    draws = rng.uniforms(7, 0, world.keys, rng.SHUFFLE)
    shown, asked = np.zeros((600, 25)), {}
    for user in range(600):
        own = np.sort(world.items[world.indptr[user] : world.indptr[user + 1]])
        shown[user, own] = 1.0
        if len(own) > 1:
            asked[user] = own[int(draws[user] * len(own))]
            shown[user, asked[user]] = 0.0
    quality = {}
    for reg in ease.TRIED:
        inverse = np.linalg.inv(shown.T @ shown + reg * np.eye(25))
        weights = inverse / -np.diag(inverse)
        np.fill_diagonal(weights, 0.0)
        quality[reg] = 0.0
        for user, item in asked.items():
            scores = shown[user] @ weights
            rank = sum(scores[j] > scores[item] for j in range(25) if not shown[user, j])
            quality[reg] += 1.0 / np.log2(rank + 2) if rank < 10 else 0.0
    chosen = ease.choose(world, 7)
    assert quality[chosen] == pytest.approx(max(quality.values()), rel=1e-3)
    assert len(set(quality.values())) > 1  # the ridges differ here, so there was something to choose
    auto = make("ease", reg="auto")
    server, _ = auto.train(auto.init(world, 7), world, 1, 7)
    np.testing.assert_array_equal(server.weights, make("ease", reg=chosen).train(server, world, 1, 7)[0].weights)
    assert auto.record(server) == {"reg": chosen}
