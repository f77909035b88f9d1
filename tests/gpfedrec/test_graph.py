"""User graphs: likeness, links, what neighbours hold, and where newcomers stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coterie.algorithms import graph
from coterie.algorithms.graph import Rules
from coterie.algorithms.graph_sources import fixed_graph
from coterie.algorithms.interface import Collected, Upload
from coterie.algorithms.server import Refused
from coterie.errors import CoterieError
from tests.worlds import random_history


def _rules(**changes: Any) -> Rules:
    return Rules("cosine", 1.0, "row", 1, 0, 0, 1.0)._replace(**changes)


def _uploaded(tables: np.ndarray, layers: int = 1, who: np.ndarray | None = None, n: int | None = None) -> graph.Graph:
    c, m, w = tables.shape
    ids = np.arange(c) if who is None else who
    made = graph.empty(n or c, m, w, layers, seed=5)
    rows = np.tile(np.arange(m, dtype=np.int32), c)
    upload = Upload(np.arange(c + 1) * m, rows, tables.reshape(-1, w), np.empty((c, 0), np.float32))
    graph.receive(made, Collected([ids], [upload]), lambda ids: np.zeros((m, w), np.float32))
    return made


def _tables(n: int = 23, m: int = 9, w: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, m, w)).astype(np.float32)


def _cosine(tables: np.ndarray) -> np.ndarray:
    flat = tables.reshape(len(tables), -1).astype(float)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    return flat @ flat.T


@pytest.mark.parametrize("n", [23, 300])  # one block of the Gram matrix, and several
def test_likeness(n: int) -> None:
    tables, everybody = _tables(n), np.arange(n)
    expected = _cosine(tables)
    np.testing.assert_allclose(graph.alike(tables, everybody, everybody, "cosine"), expected, atol=1e-5)
    distance = graph.alike(tables, everybody, everybody, "cosine-distance")
    np.testing.assert_allclose(distance, 1 - expected, atol=1e-5)
    assert (np.diagonal(distance) == 0).all()
    flat = tables.reshape(n, -1).astype(float)
    gaps = np.sqrt(((flat[:, None] - flat[None]) ** 2).sum(-1))
    np.testing.assert_allclose(graph.alike(tables, everybody, everybody, "euclidean"), -gaps, atol=5e-3)
    some = np.array([3, 4, 9])
    np.testing.assert_allclose(graph.alike(tables, some, everybody, "cosine"), expected[some], atol=1e-5)


def test_links_are_those_above_the_mean() -> None:
    tables = _tables()
    made = graph.rebuild(_uploaded(tables), _rules(gamma=1.2), 1, 0)
    likeness = _cosine(tables)
    np.testing.assert_array_equal(made.linked, likeness > 1.2 * likeness.mean())
    assert made.level[0] == pytest.approx(likeness.mean(), abs=1e-6)
    unlike = graph.rebuild(_uploaded(tables), _rules(similarity="cosine-distance"), 1, 0)
    np.testing.assert_array_equal(unlike.linked, 1 - likeness > (1 - likeness).mean())
    alone = graph.rebuild(_uploaded(tables), _rules(gamma=1e6), 1, 0)
    np.testing.assert_array_equal(alone.linked, np.eye(len(tables), dtype=bool))


@pytest.mark.parametrize("normalise", ["row", "none", "laplacian"])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("neighbours", [0, 4])
def test_views_are_a_matrix_product(normalise: Any, layers: int, neighbours: int) -> None:
    tables, rules = _tables(37, 30, 5), _rules(normalise=normalise, layers=layers, neighbours=neighbours)
    made = graph.rebuild(_uploaded(tables, layers), rules, 1, 0)
    graph.propagate(made, rules)
    a = made.linked.astype(float)
    if normalise == "row":
        a /= a.sum(1, keepdims=True)
    elif normalise == "laplacian":
        a /= np.sqrt(a.sum(1, keepdims=True)) * np.sqrt(np.maximum(a.sum(0, keepdims=True), 1))
    expected = np.linalg.matrix_power(a, layers) @ tables.reshape(37, -1)
    shared = np.zeros((30, 5), np.float32)
    found = graph.views(made, np.arange(37), rules, shared)
    np.testing.assert_allclose(found.reshape(37, -1), expected, rtol=1e-4, atol=1e-4)
    one_by_one = [graph.views(made, np.array([i]), rules, shared)[0] for i in range(37)]
    np.testing.assert_array_equal(found, np.stack(one_by_one))  # bit for bit: cuts of a cohort do not matter
    mean = graph.overall(made, rules, "mean-view")
    np.testing.assert_allclose(mean.ravel(), expected.mean(0), rtol=1e-4, atol=1e-4)
    by_degree = made.linked.sum(0) @ tables.reshape(37, -1) / made.linked.sum()
    np.testing.assert_allclose(graph.overall(made, rules, "degree").ravel(), by_degree, atol=1e-5)
    np.testing.assert_allclose(graph.overall(made, rules, "mean"), tables.mean(0), atol=1e-5)


def test_only_those_who_uploaded_are_in_the_graph() -> None:
    tables, who, rules = _tables(6), np.array([0, 2, 3, 7, 8, 9]), _rules()
    made = graph.rebuild(_uploaded(tables, who=who, n=12), rules, 1, 0)
    assert not made.linked[[1, 4, 5, 6, 10, 11]].any() and not made.linked[:, [1, 4, 5, 6, 10, 11]].any()
    whole = graph.rebuild(_uploaded(tables), rules, 1, 0)
    np.testing.assert_array_equal(made.linked[np.ix_(who, who)], whole.linked)
    shared = np.full(tables.shape[1:], 3.0, np.float32)
    views = graph.views(made, np.array([1, 2]), rules, shared)
    np.testing.assert_array_equal(views[0], shared)
    expected = tables[whole.linked[1]].mean(0)
    np.testing.assert_allclose(views[1], expected, atol=1e-5)
    np.testing.assert_allclose(graph.overall(made, rules, "mean"), tables.mean(0), atol=1e-5)


def test_a_later_upload_replaces_only_its_sender() -> None:
    made = _uploaded(_tables())
    before = made.uploads.copy()
    m, w = before.shape[1:]
    some = Upload(np.array([0, 2, 3]), np.array([1, 4, 0], np.int32), np.ones((3, w), np.float32), np.empty((2, 0)))
    graph.receive(made, Collected([np.array([2, 11])], [some]), lambda ids: np.full((m, w), 9.0, np.float32))
    others = np.setdiff1d(np.arange(len(before)), [2, 11])
    np.testing.assert_array_equal(made.uploads[others], before[others])
    assert (made.uploads[2, [1, 4]] == 1).all() and (made.uploads[2, [0, 2, 3, 5]] == 9).all()
    assert (made.uploads[11, 0] == 1).all() and (made.uploads[11, 1:] == 9).all()


def test_where_one_upload_is_not_finite_nothing_of_the_round_is_taken_in() -> None:
    tables = _tables()
    tables[3, 1, 2] = np.nan
    with pytest.raises(Refused):
        _uploaded(tables)
    made = _uploaded(_tables(seed=1))
    before = made.uploads.copy()
    w = tables.shape[2]
    fine, bad = (
        Upload(np.array([0, 1]), np.array([4], np.int32), np.full((1, w), value, np.float32), np.empty((1, 0)))
        for value in (1.0, np.inf)
    )
    with pytest.raises(Refused, match="nothing of this round"):
        graph.receive(made, Collected([np.array([2]), np.array([5])], [fine, bad]), lambda ids: before[ids])
    np.testing.assert_array_equal(made.uploads, before)


def test_most_alike_sampled_and_partial_graphs() -> None:
    tables = _tables(40)
    likeness = _cosine(tables)
    near = graph.rebuild(_uploaded(tables), _rules(neighbours=5), 1, 0).linked
    assert (near.sum(1) == 5).all()
    for i in range(40):
        assert likeness[i, near[i]].min() >= likeness[i, ~near[i]].max()
    full = graph.rebuild(_uploaded(tables), _rules(), 1, 0)
    thin = graph.rebuild(_uploaded(tables), _rules(sample=3), 1, 0).linked
    assert (thin <= full.linked).all() and (thin.sum(1) == np.minimum(3, full.linked.sum(1))).all()
    other = graph.rebuild(_uploaded(tables), _rules(sample=3), 2, 1).linked
    assert (thin != other).any()
    moved = full._replace(uploads=_tables(40, seed=1))
    part = graph.rebuild(moved, _rules(subgraph=0.25), 2, 1)
    fresh = graph.rebuild(moved, _rules(), 2, 1)
    changed = (part.linked != full.linked).any(1)
    assert 1 <= changed.sum() <= 10
    thresholds = graph.alike(moved.uploads, np.flatnonzero(changed), np.arange(40), "cosine") > part.level[0]
    np.testing.assert_array_equal(part.linked[changed], thresholds)
    assert (fresh.linked != full.linked).any(1).sum() > 10


def test_a_newcomer_stands_where_her_table_is() -> None:
    tables, rules = _tables(), _rules()
    made = graph.rebuild(_uploaded(tables), rules, 1, 0)
    shared = np.zeros(tables.shape[1:], np.float32)
    twin = graph.place(made, tables[4:5].copy(), rules, shared)
    np.testing.assert_allclose(twin[0], graph.views(made, np.array([4]), rules, shared)[0], atol=1e-5)
    with_others = graph.place(made, tables[[9, 4]].copy(), rules, shared)
    np.testing.assert_array_equal(with_others[1], twin[0])
    nobody_like_her = graph.place(made, tables[4:5].copy(), _rules(gamma=1e6), shared + 2)
    np.testing.assert_array_equal(nobody_like_her[0], shared + 2)


@pytest.mark.parametrize("source", ["barabasi-albert", "watts-strogatz", "erdos-renyi", "regular"])
@pytest.mark.parametrize("density", [0.1, 0.5, 0.9])
def test_random_graphs_have_the_density_asked_for(source: Any, density: float) -> None:
    pytest.importorskip("networkx")
    made = fixed_graph(source, 101, density, 3, None)
    assert made is not None and (made == made.T).all() and not made.diagonal().any()
    assert made.sum() / (101 * 100) == pytest.approx(density, abs=0.03)
    np.testing.assert_array_equal(made, fixed_graph(source, 101, density, 3, None))


@pytest.mark.parametrize("kind", ["cosine", "euclidean", "jaccard", "pearson"])
def test_oracle_graphs_link_the_most_alike_histories(kind: str) -> None:
    history = random_history(30, 50, 25, seed=2)
    made = fixed_graph(f"oracle-{kind}", 30, 0.3, 0, history)  # type: ignore[arg-type]
    x = np.zeros((30, 50))
    x[np.repeat(np.arange(30), history.lengths), history.items] = 1
    common, size = x @ x.T, x.sum(1)
    alike = {
        "cosine": common / np.sqrt(np.outer(size, size)),
        "euclidean": -np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1)),
        "jaccard": common / np.maximum(x[:, None], x[None]).sum(-1),
        "pearson": np.corrcoef(x),
    }[kind]
    apart = ~np.eye(30, dtype=bool)
    assert made is not None
    assert alike[made & apart].min() >= alike[~made & apart].max() - 1e-12
    assert 0.28 < made[apart].mean() < 0.45  # ties at the edge are all in
    with pytest.raises(CoterieError, match="raw histories"):
        fixed_graph("oracle-cosine", 30, 0.3, 0, None)
    with pytest.raises(CoterieError, match="density"):
        fixed_graph("oracle-cosine", 30, 0.0, 0, history)
