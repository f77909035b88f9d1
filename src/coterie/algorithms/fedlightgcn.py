"""FedLightGCN: LightGCN on the only graph a device has, the star of one user and her items.

LightGCN averages the layers e^0 .. e^K of e^(l+1)_v = sum over neighbours w of e^l_w / sqrt(deg v x deg w). In a star
with d items the user has degree d and her items degree 1, so the layers repeat: with s the sum of her items' vectors,
even layers give u back, odd ones s / sqrt(d); her items get u / sqrt(d) in odd layers and s / d in even ones from the
second on; all other items have no edge and keep layer 0 alone. With a even and b odd layers among 0..K:

    e_u = (a u + b s / sqrt(d)) / (K + 1)
    e_j = (C[j] + [j hers] (b u / sqrt(d) + (a - 1) s / d)) / (K + 1)        r = sigma(<e_u, e_j>)

u stays on the device, the movement of C's touched rows is sent. What reaches an item from its neighbours is the same
for all of hers, so propagation tells her items apart from others and not from each other (GPFedRec's remark): what
helps is that s describes her by her items.

*coterie*: `plain`: e_j = C[j] / (K + 1) for her items as well. Otherwise training has an easy way out, making what her
items share point along e_u: the training loss falls far while the ranking of items she has not met gains less. And
FedMF's server-side Adam. *as_published*: propagation as it stands, and the server adds the mean of the movements.

Extension by Zhang et al. (GPFedRec, KDD 2024) of He et al.: LightGCN. SIGIR 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms import negatives
from coterie.algorithms.interface import Download, Federated, History, Report, Sum, Upload
from coterie.algorithms.server import Adam, adam_step, real
from coterie.algorithms.touched import gather, logistic, most_rows

_FAST = {"reassoc", "contract", "arcp", "nsz"}


class Server(NamedTuple):
    table: np.ndarray  # float32[m, dim]: C, layer 0 of the items
    moments: Adam  # of the server's optimiser (unused by the plain mean)


class Client(NamedTuple):
    user: np.ndarray  # float32[n, dim]: layer 0 of the users


class Shares(NamedTuple):
    """How much of what is in the mean of the layers, for a star with d items."""

    user: np.float32  # of u in e_u
    items: np.float32  # of s in e_u
    lift: np.float32  # of u in e_j of her items
    back: np.float32  # of s in e_j of her items
    self: np.float32  # of C[j] in e_j


@njit(nogil=True, cache=True, forceinline=True)
def shares(layers, d, plain):  # type: ignore[no-untyped-def]
    odd, even = (layers + 1) // 2, layers // 2 + 1
    one, d = 1.0 / (layers + 1), max(d, 1)
    f, link = np.float32, odd * one / np.sqrt(d)
    if plain:
        return Shares(f(even * one), f(link), f(0.0), f(0.0), f(one))
    return Shares(f(even * one), f(link), f(link), f((even - 1) * one / d), f(one))


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def _step(  # type: ignore[no-untyped-def]
    n, d, C, u, positive, negative, w, e_user, shift, g_user, errors, rate_user, rate_item, decay_user, decay_item
):
    """One simultaneous step on u and the first n rows of C, of which the first d are hers. Returns the loss, summed."""
    f, k = np.float32, len(u)
    for q in range(k):
        s = f(0.0)
        for t in range(d):
            s += C[t, q]
        e_user[q] = w.user * u[q] + w.items * s
        shift[q] = w.lift * u[q] + w.back * s
        g_user[q] = f(0.0)
    loss, hers = 0.0, f(0.0)
    for t in range(n):
        x = f(0.0)
        own = f(1.0) if t < d else f(0.0)
        for q in range(k):
            x += e_user[q] * (w.self * C[t, q] + own * shift[q])
        one, error = logistic(x, positive[t], negative[t])
        loss += one
        errors[t] = error
        hers += own * error
        for q in range(k):
            g_user[q] += error * (w.self * C[t, q] + own * shift[q])
    for q in range(k):
        through = w.items * g_user[q] + w.back * hers * e_user[q]  # what s passes on to each of her items
        for t in range(n):
            step = errors[t] * w.self * e_user[q] + decay_item * C[t, q]
            C[t, q] -= rate_item * (step + through if t < d else step)
        u[q] -= rate_user * (w.user * g_user[q] + w.lift * hers * e_user[q] + decay_user * u[q])
    return loss


@njit(nogil=True, cache=True)
def _train(  # type: ignore[no-untyped-def]
    ids, indptr, items, counts, neg_indptr, neg_items, table, user, layers, plain, epochs, rates, rate_item, decay_user,
    decay_item,
):  # fmt: skip
    m, k = table.shape
    most, total = most_rows(ids, indptr, neg_indptr, m)
    position, rows = np.full(m, -1, np.int64), np.empty(most, np.int32)
    positive, negative = np.empty(most, np.float32), np.empty(most, np.float32)
    C, errors = np.empty((most, k), np.float32), np.empty(most, np.float32)
    e_user, shift, g_user = np.empty(k, np.float32), np.empty(k, np.float32), np.empty(k, np.float32)
    up_indptr, up_rows = np.zeros(len(ids) + 1, np.int64), np.empty(total, np.int32)
    up_values = np.empty((total, k), np.float32)
    losses, sizes = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    for c in range(len(ids)):
        i = ids[c]
        drawn = neg_items[neg_indptr[c] : neg_indptr[c + 1]]
        n, sizes[c] = gather(i, indptr, items, counts, drawn, position, rows, positive, negative)
        d = indptr[i + 1] - indptr[i]
        for t in range(n):
            C[t] = table[rows[t]]
        w = shares(layers, d, plain)
        for sweep in range(epochs):
            loss = _step(n, d, C, user[i], positive, negative, w, e_user, shift, g_user, errors, rates[c], rate_item,
                         decay_user, decay_item)  # fmt: skip
            if sweep == 0:
                losses[c] = loss / max(sizes[c], 1)
        first = up_indptr[c]
        for t in range(n):
            up_rows[first + t] = rows[t]
            up_values[first + t] = C[t] - table[rows[t]]
        up_indptr[c + 1] = first + n
    return up_indptr, up_rows[: up_indptr[-1]], up_values[: up_indptr[-1]], losses, sizes


@njit(nogil=True, cache=True, fastmath=_FAST)
def _score(users, indptr, items, table, user, layers, plain, out):  # type: ignore[no-untyped-def]
    m, k = table.shape
    e_user, shift = np.empty(k, np.float32), np.empty(k, np.float32)
    for row in range(len(users)):
        i = users[row]
        w = shares(layers, indptr[i + 1] - indptr[i], plain)
        for q in range(k):
            s = np.float32(0.0)
            for p in range(indptr[i], indptr[i + 1]):
                s += table[items[p], q]
            e_user[q] = w.user * user[i, q] + w.items * s
            shift[q] = w.lift * user[i, q] + w.back * s
        for j in range(m):
            x = np.float32(0.0)
            for q in range(k):
                x += e_user[q] * table[j, q]
            out[row, j] = w.self * x
        extra = np.float32(0.0)
        for q in range(k):
            extra += e_user[q] * shift[q]
        for p in range(indptr[i], indptr[i + 1]):
            out[row, items[p]] += extra


@final
@dataclass(frozen=True)
class FedLightGCN(Federated):
    dim: int = 64  # length of the vectors
    layers: int = 3  # K: how many steps of propagation are averaged with layer 0
    plain: bool = True  # her own items too are scored by layer 0 alone, as those she has not met
    negatives: int = 16  # sampled negatives for each positive, redrawn each round
    epochs: int = 1  # local passes in a round
    start: float = 0.1  # deviation of the first vectors
    lr_user: float = 1.0  # user step size, over the square root of the history's length
    lr_item: float = 0.03  # item step size on the client
    reg_user: float = 0.004  # weight decay of u
    reg_item: float = 0.025  # weight decay of touched item rows, on the client
    aggregate: Literal["adam", "mean"] = "adam"  # what the server does with the movements
    lr_server: float = 0.04  # step size of the server's Adam
    beta1: float = 0.9
    beta2: float = 0.99

    name: ClassVar[str] = "fedlightgcn"
    citation: ClassVar[str] = "He et al., LightGCN, SIGIR 2020; federated as in Zhang et al., GPFedRec, KDD 2024"
    sends: ClassVar[str] = "movement of the item rows she touched (positives and sampled negatives)"
    draws_negatives: ClassVar[bool] = True
    home: ClassVar[str] = "gpfedrec"
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_published": {
            "dim": 32, "plain": False, "negatives": 4, "reg_user": 0.0, "reg_item": 0.0, "aggregate": "mean",
        },
    }  # fmt: skip

    def init_server(self, n_items: int, seed: int) -> Server:
        table = self.start * rng.generator(seed, rng.ITEM_START).standard_normal((n_items, self.dim), np.float32)
        return Server(table.astype(np.float32), Adam.zeros(table.shape if self.aggregate == "adam" else (0, 0)))

    def init_clients(self, history: History, seed: int) -> Client:
        user = np.empty((history.n_clients, self.dim), np.float32)
        rng.fill_normal(user, self.start, seed, history.keys, rng.USER_START)
        return Client(user)

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        return Download(server.table, np.empty(0, np.float32))

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        drawn = negatives.draw(history, ids, self.negatives, seed, round_)
        rates = (self.lr_user / np.sqrt(np.maximum(history.lengths[ids], 1))).astype(np.float32)
        f = np.float32
        indptr, rows, values, loss, examples = _train(
            ids, history.indptr, history.items, history.counts, drawn.indptr, drawn.items, download.table, clients.user,
            self.layers, self.plain, self.epochs, rates, f(self.lr_item), f(self.reg_user), f(self.reg_item),
        )  # fmt: skip
        return Upload(indptr, rows, values, np.empty((len(ids), 0), f)), Report(loss, examples, drawn)

    def server_step(self, server: Server, received: Sum, round_: int) -> Server:
        moved = real(received.rows)
        if self.aggregate == "adam":
            step = moved / np.sqrt(np.maximum(received.touched, 1))[:, None]
            return Server(
                *adam_step(server.table, server.moments, step, round_, self.lr_server, (self.beta1, self.beta2))
            )
        clients = max(int(received.clients[0]), 1)
        return server._replace(table=(server.table + moved / clients).astype(np.float32))

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        out = np.empty((len(users), len(server.table)), np.float32)
        _score(users, history.indptr, history.items, server.table, clients.user, self.layers, self.plain, out)
        return out

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.table
