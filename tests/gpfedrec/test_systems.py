"""GPFedRec, PFedRec, FedNCF and GraphAgg: against plain PyTorch, and what each promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from coterie.algorithms import make, mlp
from coterie.algorithms.interface import Collected, Download, History, Upload
from coterie.algorithms.negatives import draw
from coterie.algorithms.noise import _log, laplace
from coterie.engine.simulate import Diverged, State, simulate, start
from coterie.errors import CoterieError
from tests.worlds import checkerboard, random_history


def _run(algorithm: Any, history: History, rounds: int, **options: Any) -> State:
    state = start(algorithm, history, 0)
    for one in simulate(algorithm, history, state, range(1, rounds + 1), 0, **options):
        state = one.state
    return state


def _torch_rounds(algorithm: Any, history: History, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """The released GPFedRec, a client at a time by autograd and a server by plain NumPy. Whole histories in a batch."""
    torch = pytest.importorskip("torch")
    state = start(algorithm, history, 0)
    n, m, k = state.clients.own.shape
    sizes = algorithm.sizes
    shared, views = state.server.table.copy(), np.tile(state.server.table, (n, 1, 1))
    users, networks = state.clients.user.copy(), state.clients.network.copy()
    tables = np.zeros_like(state.clients.own)
    for round_ in range(1, rounds + 1):
        drawn = draw(history, np.arange(n), algorithm.negatives, 0, round_)
        for i in range(n):
            own = history.items[history.indptr[i] : history.indptr[i + 1]]
            items = torch.from_numpy(np.concatenate([own, drawn.of(i)]).astype(np.int64))
            labels = torch.cat([torch.ones(len(own)), torch.zeros(len(drawn.of(i)))])
            p, q = (torch.from_numpy(a.copy()).requires_grad_() for a in (users[i], shared))
            layers = [
                tuple(torch.from_numpy(a.copy()).requires_grad_() for a in pair)
                for pair in mlp.layers(networks[i], sizes)
            ]
            hidden = torch.cat([p.expand(len(items), k), q[items]], 1)
            for number, (weights, bias) in enumerate(layers):
                hidden = hidden @ weights + bias
                if number < len(layers) - 1:
                    hidden = torch.relu(hidden)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(hidden[:, 0], labels)
            loss = loss + algorithm.reg * torch.nn.functional.mse_loss(q, torch.from_numpy(views[i]))
            loss.backward()
            users[i] -= algorithm.lr_user * p.grad.numpy()
            tables[i] = shared - algorithm.lr_item * m * q.grad.numpy()
            for pair, (weights, bias) in zip(layers, mlp.layers(networks[i], sizes), strict=True):
                weights -= algorithm.lr_network * pair[0].grad.numpy()
                bias -= algorithm.lr_network * pair[1].grad.numpy()
        flat = tables.reshape(n, -1).astype(float)
        unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
        distance = 1 - unit @ unit.T
        np.fill_diagonal(distance, 0)
        linked = (distance > algorithm.gamma * distance.mean()).astype(float)
        linked[linked.sum(1) == 0] = np.eye(n)[linked.sum(1) == 0]
        views = (linked / linked.sum(1, keepdims=True) @ flat).reshape(tables.shape).astype(np.float32)
        shared = views.mean(0)
    return tables, shared


def test_gpfedrec_as_released_equals_autograd() -> None:
    history = random_history(9, 15, 6, seed=5)
    algorithm = make("gpfedrec", "as_released", dim=6, hidden="5,3", lr_item=0.4, lr_user=0.5)
    tables, shared = _torch_rounds(algorithm, history, 3)
    state = _run(algorithm, history, 3)
    np.testing.assert_allclose(state.clients.own, tables, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(state.server.table, shared, rtol=1e-3, atol=1e-4)


def test_pfedrec_as_released_equals_autograd() -> None:
    torch = pytest.importorskip("torch")
    history = random_history(6, 15, 6, seed=6)
    algorithm = make("pfedrec", "as_released", dim=5, lr_item=0.3)
    state = start(algorithm, history, 0)
    scores, shared = state.clients.score.copy(), state.server.table.copy()
    for round_ in (1, 2):
        drawn, tables = draw(history, np.arange(6), 4, 0, round_), []
        for i in range(6):
            own = history.items[history.indptr[i] : history.indptr[i + 1]]
            items = torch.from_numpy(np.concatenate([own, drawn.of(i)]).astype(np.int64))
            labels = torch.cat([torch.ones(len(own)), torch.zeros(len(drawn.of(i)))])
            w, table = (torch.from_numpy(a.copy()).requires_grad_() for a in (scores[i], shared))
            criterion = torch.nn.functional.binary_cross_entropy_with_logits
            (grad,) = torch.autograd.grad(criterion(table[items] @ w[:-1] + w[-1], labels), w)
            w = (w - algorithm.lr_score * grad).detach()
            (grad,) = torch.autograd.grad(criterion(table[items] @ w[:-1] + w[-1], labels), table)
            tables.append((table - algorithm.lr_item * 15 * grad).detach().numpy())
            scores[i] = w.numpy()
        shared = np.mean(tables, 0)
    state = _run(algorithm, history, 2)
    np.testing.assert_allclose(state.clients.score, scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state.clients.own, tables, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state.server.table, shared, rtol=1e-4, atol=1e-5)
    found = algorithm.score(state.server, state.clients, history, np.array([4, 1]))
    np.testing.assert_allclose(found[0], tables[4] @ scores[4, :-1] + scores[4, -1], rtol=1e-4, atol=1e-5)


def test_fedncf_averages_whole_models() -> None:
    """FedNCF's mean is the mean of the tables and networks that PSF's clients would end with."""
    history = random_history(7, 15, 6, seed=7)
    algorithm = make("fedncf", "as_published", dim=4, hidden="5", lr_item=0.2, lr_user=0.3)
    state = start(algorithm, history, 0)
    download = algorithm.download(state.server, np.arange(7), 1)
    upload, _ = algorithm.client_step(state.clients, np.arange(7), history, download, 1, 0)
    tables = np.tile(download.table, (7, 1, 1)).astype(float)
    np.add.at(tables, (np.repeat(np.arange(7), np.diff(upload.indptr)), upload.rows), upload.values)
    after = _run(algorithm, history, 1).server
    np.testing.assert_allclose(after.table, tables.mean(0), atol=1e-6)
    np.testing.assert_allclose(after.network, download.dense + upload.dense.mean(0), atol=1e-6)


@pytest.mark.parametrize("base", ["pfedrec", "fedmf", "fedrecon"])
def test_graphagg_with_everybody_linked_is_the_plain_mean(base: str) -> None:
    """The plug-in adds nothing of its own: where all are neighbours of all, it is the base with a mean."""
    history = random_history(8, 20, 7, seed=8)
    settings: dict[str, Any] = {"aggregate": "mean"} if base == "fedmf" else {}
    if base == "fedrecon":  # its own mean is weighted; GraphAgg's is not
        settings = {"aggregate": "sum", "lr_server": 1 / 8}
    behaviour = "as_released" if base == "pfedrec" else "as_published"
    plain = make(base, behaviour, **settings, dim=4, lr_item=0.05)
    text = "dim=4,lr_item=0.05,aggregate=mean"  # no server step of the base's own is left, whichever is asked for
    plugged = make("graphagg", base=base, base_behaviour=behaviour, base_settings=text, gamma=-1e6)
    one, other = _run(plain, history, 3), _run(plugged, history, 3)
    assert other.server.graph.linked.all()
    np.testing.assert_allclose(other.server.base.table, one.server.table, atol=1e-5)
    everybody = np.arange(8)
    np.testing.assert_allclose(
        plugged.score(other.server, other.clients, history, everybody),
        plain.score(one.server, one.clients, history, everybody), rtol=1e-3, atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        {"base": "fedmf", "base_behaviour": "coterie", "boost": 10.0, "base_settings": "dim=8"},
        {"base": "fedrecon", "base_behaviour": "coterie", "boost": 10.0, "base_settings": "dim=8"},
        # nothing of hers but the neighbours' view tells people apart here: half of it, the default, takes more rounds
        {"base": "pfedrec", "base_behaviour": "as_released", "base_settings": "dim=8", "towards": 1.0},
    ],
)
def test_graphagg_learns_the_checkerboard_on_each_base(settings: dict[str, Any]) -> None:
    history, likes = checkerboard()
    algorithm = make("graphagg", **settings)
    state = _run(algorithm, history, 40)
    scores = algorithm.score(state.server, state.clients, history, np.arange(60))
    seen = np.zeros(likes.shape, bool)
    seen[np.repeat(np.arange(60), history.lengths), history.items] = True
    unseen = [
        (row[own & ~had], row[~own]) for row, own, had in zip(scores, likes, seen, strict=True) if (own & ~had).any()
    ]
    assert np.mean([np.mean(mine[:, None] > theirs) for mine, theirs in unseen]) > 0.9


def test_base_settings_are_checked() -> None:
    with pytest.raises(CoterieError, match="field=value"):
        make("graphagg", base_settings="dim").system  # noqa: B018
    with pytest.raises(CoterieError, match="lr_itm"):
        make("graphagg", base_settings="lr_itm=3").system  # noqa: B018


def test_ablations_and_light_are_settings() -> None:
    history = random_history(12, 20, 8, seed=9)
    psf = _run(make("gpfedrec-psf", dim=4, scored="own"), history, 3)
    assert not psf.server.graph.linked.any() and psf.server.graphs[0] == 0  # no graph is needed, none is made
    np.testing.assert_allclose(psf.server.table, psf.clients.own.mean(0), atol=1e-5)
    init = make("gpfedrec-psf-init", dim=4)
    assert init.reg == 0 and init.shared == "mean-view"
    assert make("gpfedrec-psf-reg", dim=4).reg > 0
    assert _run(make("gpfedrec", dim=4), history, 5).server.graphs[0] == 5
    light = _run(make("light-gpfedrec", dim=4, interval=3), history, 7)
    assert light.server.graphs[0] == 3  # rounds 1, 4 and 7
    assert make("light-gpfedrec").interval == 10


def test_partial_cohorts_use_everybodys_last_upload() -> None:
    history = random_history(20, 25, 8, seed=10)
    algorithm = make("gpfedrec", dim=4, scored="own")
    state = start(algorithm, history, 0)
    uploads = np.zeros_like(state.server.graph.uploads)
    for one in simulate(algorithm, history, state, range(1, 6), 0, size=0.3):
        state = one.state
        moved = (state.server.graph.uploads != uploads).any((1, 2))
        assert moved.sum() == one.participants == 6
        uploads = state.server.graph.uploads.copy()
    known = state.server.graph.known
    np.testing.assert_array_equal(state.server.graph.uploads[known], state.clients.own[known])
    assert state.server.graph.linked[np.ix_(known, known)].any(1).all()


@pytest.mark.parametrize("name", ["gpfedrec", "graphagg"])
def test_uploads_that_are_not_finite_are_training_that_diverged(name: str) -> None:
    """Not any error: a search counts the trial as diverged and goes on."""
    history = random_history(20, 25, 8, seed=10)
    base = {"base": "pfedrec", "base_settings": "lr_item=1e30"} if name == "graphagg" else {"lr_item": 1e30}
    with pytest.raises(Diverged, match=r"round \d+: "), np.errstate(all="ignore"):
        _run(make(name, **base), history, 5)


def test_uploads_are_not_copied() -> None:
    """n x m x dim numbers exist twice, on the clients and on the server, and not a third time on their way."""
    history = random_history(10, 20, 8, seed=11)
    algorithm = make("gpfedrec", dim=4, scored="own")
    state = start(algorithm, history, 0)
    ids = np.arange(3, 8)
    download = algorithm.download(state.server, ids, 1)
    upload, _ = algorithm.client_step(state.clients, ids, history, download, 1, 0)
    assert np.shares_memory(upload.values, state.clients.own) and not upload.values.flags.writeable
    server = algorithm.server_step(state.server, Collected([ids], [upload]), 1)
    assert not np.shares_memory(server.graph.uploads, state.clients.own)
    np.testing.assert_array_equal(server.graph.uploads[ids], state.clients.own[ids])


def test_noise_is_laplace_and_only_on_the_upload() -> None:
    history = random_history(10, 40, 8, seed=12)
    quiet, loud = make("gpfedrec", dim=8, scored="own"), make("gpfedrec", dim=8, scored="own", noise=0.3)
    ids, sent, kept = np.arange(10), [], []
    for algorithm in (quiet, loud):
        state = start(algorithm, history, 0)
        upload, _ = algorithm.client_step(state.clients, ids, history, algorithm.download(state.server, ids, 1), 1, 0)
        sent.append(upload)
        kept.append(state.clients.own)
    np.testing.assert_array_equal(kept[0], kept[1])
    noise = (sent[1].values - sent[0].values).astype(float)
    assert abs(noise.mean()) < 0.03 and np.abs(noise).mean() == pytest.approx(0.3, rel=0.06)
    assert noise.var() == pytest.approx(2 * 0.3**2, rel=0.15)
    again = laplace(sent[0], 0.3, history.keys, 0, 1)
    np.testing.assert_array_equal(again, sent[1].values)
    assert (laplace(sent[0], 0.3, history.keys, 0, 2) != again).mean() > 0.99


def test_noise_has_laplaces_distribution_into_its_tails() -> None:
    people, numbers = 40, 50_000
    rows = np.tile(np.arange(numbers // 10, dtype=np.int32), people)
    silent = Upload(
        np.arange(people + 1) * len(rows) // people,
        rows,
        np.zeros((len(rows), 10), np.float32),
        np.empty((people, 0), np.float32),
    )
    found = laplace(silent, 2.0, np.arange(people, dtype=np.uint64), 3, 1).reshape(people, -1) / 2
    assert stats.kstest(found[0].astype(float), "laplace").pvalue > 0.001
    for far in (0.001, 0.5, 3.0, 8.0, 10.0):  # beyond 10: about 90 of two million
        share, wanted = (np.abs(found) > far).mean(), np.exp(-far)
        assert abs(share - wanted) < 5 * np.sqrt(wanted * (1 - wanted) / found.size)
    assert abs(np.corrcoef(found[:2])[0, 1]) < 0.02  # two people's noise has nothing to do with each other


def test_the_logarithm_that_noise_is_made_of() -> None:
    x = np.concatenate([np.logspace(-9.6, 0, 5000), 1 - np.logspace(-7, -1, 500)]).astype(np.float32)
    found = np.array([_log(one) for one in x])
    np.testing.assert_allclose(found, np.log(x.astype(float)), rtol=4e-7, atol=1e-7)


def test_the_storage_saving_mode_holds_sends_and_ranks_a_part() -> None:
    history = random_history(10, 60, 6, seed=13)
    algorithm = make("gpfedrec", dim=4, storage=2, candidates=5)
    state = start(algorithm, history, 0)
    held = state.clients.held
    for i in range(10):
        assert held[i, history.items[history.indptr[i] : history.indptr[i + 1]]].all()
    assert (held.sum(1) <= 3 * history.lengths).all() and (held.sum(1) > history.lengths).all()
    drawn = []
    for one in simulate(
        algorithm, history, state, range(1, 4), 0, observe=lambda ids, report: drawn.append((ids, report))
    ):
        state = one.state
    for ids, report in drawn:
        for row, i in enumerate(ids):
            assert held[i, report.negatives.of(row)].all()  # negatives come from what she holds
    np.testing.assert_array_equal(state.server.held, held)
    width = 4 * 4
    assert one.bytes_up == pytest.approx(np.minimum(held.sum(1) * (4 + width), 60 * width).mean())
    assert one.bytes_down == pytest.approx(2 * held.sum(1).mean() * width, rel=0.01)
    scores = algorithm.score(state.server, state.clients, history, np.arange(10))
    finite = np.isfinite(scores)
    assert (finite >= held).all() and (finite.sum(1) == np.minimum(held.sum(1) + 5, 60)).all()


def test_a_newcomer_is_sent_her_neighbours_view() -> None:
    """On the checkerboard an even newcomer's view leans to the even people's uploads."""
    history, _ = checkerboard()
    algorithm = make("gpfedrec", "as_released", similarity="cosine", dim=8)
    state = _run(algorithm, history, 30)
    ids = np.array([0])
    ones = np.ones(6, np.float32)
    own = type(history.forbidden)(np.array([0, 6]), np.arange(0, 12, 2, dtype=np.int32))
    her = History(own.indptr, own.items, ones, ones, own, np.array([99], np.uint64), history.n_items)
    clients = algorithm.newcomer(state.server, her, 0)
    views = clients.views[0].ravel()
    uploads = state.server.graph.uploads.reshape(60, -1)
    gaps = np.linalg.norm(uploads - views, axis=1)
    assert gaps[::2].mean() < gaps[1::2].mean()
    alone = start(algorithm, her, 0).clients
    for round_ in range(1, algorithm.newcomer_rounds + 1):
        shared = Download(state.server.table, np.empty(0, np.float32), state.server.table[None].copy())
        algorithm.client_step(alone, ids, her, shared, round_, 0)
    assert (clients.own != alone.own).any()


@pytest.mark.parametrize("source", ["erdos-renyi", "oracle-jaccard"])
def test_other_graphs_replace_the_one_from_uploads(source: str) -> None:
    pytest.importorskip("networkx")
    history = random_history(14, 25, 10, seed=14)
    state = _run(make("gpfedrec", dim=4, graph=source, density=0.4), history, 2)
    fixed = state.server.graph.fixed
    assert fixed.shape == (14, 14)
    lonely = ~fixed.any(1)
    np.testing.assert_array_equal(state.server.graph.linked, fixed | np.diag(lonely))
