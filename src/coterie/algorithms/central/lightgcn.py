"""LightGCN: vectors smoothed over the graph of who has what, and nothing else.

With A the user-item graph, each edge weighing 1 / sqrt(deg_u deg_i): e = mean over l = 0..layers of A^l e_0, x_ui =
<e_u, e_i>; BPR on shuffled (user, her item, drawn item) triples plus reg/2 |e_0|^2 of the three; Adam on e_0. A round
is an epoch. A is symmetric, so the gradient of e_0 is that of e sent through the same propagation: four sparse products
a step with two layers, and no autograd through them.

Somebody outside training has no e_0 of her own; her vector is what the propagation gives her from her items.

*graph=everything* and *positives=everything* are candidates for the leak behind a published figure
(docs/findings/lightgcn-leak.md): the graph, or the triples too, also hold the validation and test items. Only a paper
protocol that hands them out (as items never to be drawn) makes that possible. *own_lr* adds a free number for each user
and item to x_ui, moved by the same triples: room to remember which items were drawn as negatives, and so which never.
*loss=points* replaces BPR by the logistic loss of each of a triple's two items, as FedRAP's own systems are trained:
a drawn item is then pushed down however far the other is ahead.

He, Deng, Wang, Li, Zhang, Wang: LightGCN. SIGIR 2020.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
import scipy.sparse

from coterie import rng
from coterie.algorithms.central.ease import binary
from coterie.algorithms.central.fitting import Fit, closed, fresh, need, normal, one_thread, opened, pairs, user_start
from coterie.algorithms.interface import Central, History
from coterie.errors import CoterieError
from coterie.ragged import Ragged

_NONE = np.zeros((0, 0), np.float32)


class Parameters(NamedTuple):
    nodes: np.ndarray  # float32[n + m, dim]: e_0, users first


class Server(NamedTuple):
    fit: Fit
    user: np.ndarray  # float32[n, dim]: e of the users
    item: np.ndarray  # float32[m, dim]: e of the items
    below: np.ndarray  # float32[m, dim]: what an item hands to somebody new, before division by the root of her degree
    own: np.ndarray  # float32[n, m]: a number for each user and item; [0, 0] where there are none


class Client(NamedTuple):
    user: np.ndarray  # float32[c, dim]: propagated from the histories of people outside training


def everything(history: History) -> History:
    """The history with the held-out items in it, where a protocol hands them out: a leak, to be shown as one."""
    if len(history.forbidden.items) == len(history.items):
        raise CoterieError(
            "graph=everything and positives=everything train on held-out items; the clean protocol gives them to "
            "nobody. They can be shown under --protocol paper:fedrap or paper:gpfedrec; otherwise leave them at train"
        )
    indptr, items = history.forbidden
    ones = np.ones(len(items), np.float32)
    return history._replace(indptr=indptr, items=items, counts=ones, ratings=ones, ages=None)


def edges(history: History, graph: str) -> tuple[np.ndarray, np.ndarray]:
    """int64[e], int64[e]: user and item of each edge."""
    whole = everything(history) if graph == "everything" else history
    return np.repeat(np.arange(whole.n_clients), whole.lengths), whole.items.astype(np.int64)


def adjacency(torch: Any, user: np.ndarray, item: np.ndarray, n: int, m: int) -> Any:
    """Sparse float32[n + m, n + m]: the graph, each edge in both directions and weighed by its ends' degrees."""
    degrees = np.bincount(user, minlength=n), np.bincount(item, minlength=m)
    weight = (1.0 / np.sqrt(degrees[0][user] * degrees[1][item])).astype(np.float32)
    half = scipy.sparse.csr_matrix((weight, (user, item)), shape=(n, m))
    whole = scipy.sparse.block_array([[None, half], [half.T, None]], format="csr")
    whole.sort_indices()
    parts = (torch.from_numpy(one.astype(np.int32)) for one in (whole.indptr, whole.indices))
    with warnings.catch_warnings():  # torch calls its sparse tensors a beta
        warnings.simplefilter("ignore")
        return torch.sparse_csr_tensor(*parts, torch.from_numpy(whole.data.astype(np.float32)), whole.shape)


def propagate(graph: Any, nodes: Any, layers: int) -> Any:
    """Mean over l = 0..layers of A^l nodes. Its own transpose."""
    total = nodes
    for _ in range(layers):
        nodes = graph @ nodes
        total = total + nodes
    return total / (layers + 1)


def bpr_step(
    torch: Any, nodes: Any, smooth: Any, n: int, triple: tuple[Any, ...], reg: float, extra: Any = None,
    points: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The BPR loss on smoothed vectors (a tensor of its own), and weight decay on those beneath it.

    `extra`, float32[2, triples], is added to the scores of the better and the worse item; with `points` each of the two
    is judged by itself.
    """
    user, better, worse = triple
    places = (user, better + n, worse + n)
    gather = torch.nn.functional.embedding
    u, i, j = (gather(one, smooth) for one in places)
    more, less = (0.0, 0.0) if extra is None else extra
    if points:
        sure = torch.nn.functional.logsigmoid
        loss = -(sure((u * i).sum(1) + more) + sure(-(u * j).sum(1) - less)).mean()
    else:
        loss = -torch.nn.functional.logsigmoid((u * (i - j)).sum(1) + (more - less)).mean()
    decay = sum(gather(one, nodes).square().sum() for one in places) * (reg / 2 / len(user))
    return loss, decay


def finished(torch: Any, fit: Fit, graph: Any, n: int, layers: int, degrees: np.ndarray) -> Server:
    """The smoothed vectors, and what each item would hand to a new neighbour."""
    nodes = torch.from_numpy(fit.now.nodes)
    smooth = propagate(graph, nodes, layers).numpy()
    lower = propagate(graph, nodes, layers - 1).numpy() * (layers / (layers + 1)) if layers else np.zeros_like(smooth)
    below = lower[n:] / np.sqrt(np.maximum(degrees, 1))[:, None]
    return Server(fit, smooth[:n].copy(), smooth[n:].copy(), below.astype(np.float32), _NONE)


def propagated(server: Server, history: History) -> Client:
    """The vectors of people outside training."""
    found = binary(history) @ server.below / np.sqrt(np.maximum(history.lengths, 1))[:, None]
    return Client(found.astype(np.float32))


def started(history: History, dim: int, start: float, seed: int) -> Server:
    item = normal(seed, rng.ITEM_START, (history.n_items, dim), start)
    user = user_start(history, dim, start, seed)
    return Server(fresh(Parameters(np.vstack([user, item]))), user, item, np.zeros_like(item), _NONE)


@final
@dataclass(frozen=True)
class LightGCN(Central):
    dim: int = 32  # length of user and item vectors
    layers: int = 2  # how far along the graph vectors are smoothed
    lr: float = 0.02  # Adam's step size
    reg: float = 1e-5  # weight decay of the vectors a triple touches
    batch: int = 2048  # triples in a step
    start: float = 0.1  # deviation of the first vectors
    negatives: int = 1  # drawn negatives for each positive, redrawn each epoch
    loss: Literal["pairs", "points"] = "pairs"  # BPR, or each item of a triple judged by itself (logistic)
    graph: Literal["train", "everything"] = "train"  # everything: held-out items too, a leak; paper protocol only
    positives: Literal["train", "everything"] = "train"  # everything: held-out items are learnt, a leak; the same
    own_lr: float = 0.0  # step of a free number for each user and item; 0: there are none. For showing a leak

    name: ClassVar[str] = "lightgcn"
    citation: ClassVar[str] = "He et al., LightGCN, SIGIR 2020"
    sends: ClassVar[str] = "her whole history (central)"
    default_rounds: ClassVar[int] = 40
    draws_negatives: ClassVar[bool] = True
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def __post_init__(self) -> None:
        need("torch", "neural", self.name)

    def init(self, history: History, seed: int) -> Server:
        first = started(history, self.dim, self.start, seed)
        if not self.own_lr:
            return first
        return first._replace(own=np.zeros((history.n_clients, history.n_items), np.float32))

    def train(self, server: Server, history: History, round_: int, seed: int) -> tuple[Server, float, Ragged]:
        user, item = edges(history, self.graph)
        learnt = everything(history) if self.positives == "everything" else history
        *triples, drawn = pairs(learnt, seed, round_, self.negatives)
        n, total = history.n_clients, 0.0
        with one_thread() as torch:
            graph = adjacency(torch, user, item, n, history.n_items)
            p, adam = opened(torch, server.fit, self.lr)
            own = torch.tensor(server.own)
            for first in range(0, len(triples[0]), self.batch):
                triple = tuple(torch.from_numpy(one[first : first + self.batch]) for one in triples)
                smooth = propagate(graph, p.nodes.detach(), self.layers).requires_grad_()
                adam.zero_grad()
                better, worse = (triple[0], triple[1]), (triple[0], triple[2])
                extra = torch.stack([own[better], own[worse]]).requires_grad_() if self.own_lr else None
                loss, decay = bpr_step(torch, p.nodes, smooth, n, triple, self.reg, extra, self.loss == "points")
                (loss + decay).backward()
                if extra is not None:  # the loss is a mean: a number moves by its own triples, however large the batch
                    for places, slope in zip((better, worse), extra.grad, strict=True):
                        own.index_put_(places, -self.own_lr * len(triple[0]) * slope, accumulate=True)
                p.nodes.grad += propagate(graph, smooth.grad, self.layers)
                adam.step()
                total += loss.item() * len(triple[0])
            fit = closed(p, adam)
            degrees = np.bincount(item, minlength=history.n_items)
            trained = finished(torch, fit, graph, n, self.layers, degrees)._replace(own=own.numpy())
        return trained, total / max(len(triples[0]), 1), drawn

    def newcomer(self, server: Server, history: History, seed: int) -> Client:
        return propagated(server, history)

    def score(self, server: Server, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        if isinstance(clients, Client):
            return np.asarray(clients.user[users] @ server.item.T)
        found: np.ndarray = server.user[users] @ server.item.T
        return found + server.own[users] if len(server.own) else found

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.item
