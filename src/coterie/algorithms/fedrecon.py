"""FedRecon: nobody's user vector is kept; each round rebuilds it from a part of the history and learns from the rest.

r = sigma(<u_i, C[j]> + c_j). A client splits her positives (each with its negatives) in support and query. On the
support she rebuilds u_i from its start, with C held fixed: `steps` gradient steps. On the query she steps on C, with
u_i held fixed, and sends by how much the query's rows moved. u_i is then forgotten: a device keeps nothing between
rounds, and somebody new is served as anybody else is. To score, she rebuilds u_i from her whole history.

*coterie*: the movements are a direction for a server-side Adam, as in FedMF. *as_published*: no bias, the server steps
along the mean of the movements, weighted by how much each client had to learn from (FedAvg's weights).

Singhal, Sidahmed, Garrett, Wu, Rush, Prakash: Federated Reconstruction: Partially Local Federated Learning.
NeurIPS 2021.
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
from coterie.ragged import Ragged

_FAST = {"reassoc", "contract", "arcp", "nsz"}


class Server(NamedTuple):
    table: np.ndarray  # float32[m, dim (+ 1)]: item vectors, and the item's bias in the last column if there is one
    moments: Adam  # of the server's optimiser (unused by the plain mean)


class Client(NamedTuple):
    seed: np.ndarray  # int64[n]: what her random numbers follow from; no vector is kept


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def _rebuild(n, C, positive, negative, u, gu, steps, rate, decay, bias):  # type: ignore[no-untyped-def]
    """`steps` gradient steps on u over the first n rows of C."""
    f, k = np.float32, len(u)
    for _ in range(steps):
        for d in range(k):
            gu[d] = decay * u[d]
        for t in range(n):
            weight = positive[t] + negative[t]
            if weight == f(0.0):
                continue
            x = C[t, k] if bias else f(0.0)
            for d in range(k):
                x += u[d] * C[t, d]
            error = weight / (f(1.0) + np.exp(-x)) - positive[t]
            for d in range(k):
                gu[d] += error * C[t, d]
        for d in range(k):
            u[d] -= rate * gu[d]


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def _learn(n, C, positive, negative, u, rate, decay, bias):  # type: ignore[no-untyped-def]
    """One gradient step on the rows of C, which are independent given u. Returns the loss before it, summed."""
    f, k = np.float32, len(u)
    loss = 0.0
    for t in range(n):
        weight = positive[t] + negative[t]
        if weight == f(0.0):
            continue
        x = C[t, k] if bias else f(0.0)
        for d in range(k):
            x += u[d] * C[t, d]
        loss += weight * np.log1p(np.exp(-abs(x))) + weight * max(x, f(0.0)) - positive[t] * x
        error = weight / (f(1.0) + np.exp(-x)) - positive[t]
        for d in range(k):
            C[t, d] -= rate * (error * u[d] + decay * C[t, d])
        if bias:
            C[t, k] -= rate * (error + decay * C[t, k])
    return loss


@njit(nogil=True, cache=True, forceinline=True)
def _gather(i, indptr, items, counts, drawn, tables, which, position, rows, C, weights, support, state):  # type: ignore[no-untyped-def]
    """Her distinct rows with their weights: positive and negative, in support (columns 0, 1) and query (2, 3)."""
    n, cursor, positives = 0, np.int64(0), np.int64(0)
    for p in range(indptr[i], indptr[i + 1]):
        positives += np.int64(counts[p])
    each = np.int64(len(drawn)) // max(positives, np.int64(1))
    for p in range(indptr[i], indptr[i + 1]):
        if position[items[p]] < 0:
            position[items[p]] = n
            rows[n] = items[p]
            weights[n] = np.float32(0.0)
            n += 1
        mine = position[items[p]]
        for _ in range(np.int64(counts[p])):
            state = rng.after(state)
            part = 0 if rng.uniform(state) < support else 2
            weights[mine, part] += np.float32(1.0)
            for q in range(cursor, cursor + each):
                if position[drawn[q]] < 0:
                    position[drawn[q]] = n
                    rows[n] = drawn[q]
                    weights[n] = np.float32(0.0)
                    n += 1
                weights[position[drawn[q]], part + 1] += np.float32(1.0)
            cursor += each
    for t in range(n):
        position[rows[t]] = -1
        C[t] = tables[which, rows[t]]
    return n


@njit(nogil=True, cache=True)
def _train(  # type: ignore[no-untyped-def]
    ids, indptr, items, counts, neg_indptr, neg_items, keys, seed, round_, tables, start, split, support, epochs,
    steps, rates, decay_user, rate_item, decay_item,
):  # fmt: skip
    f = np.float32
    m, width, k = tables.shape[1], tables.shape[2], start.shape[1]
    bias = width > k
    total, most = 0, 0
    for c in range(len(ids)):
        here = min(m, indptr[ids[c] + 1] - indptr[ids[c]] + neg_indptr[c + 1] - neg_indptr[c])
        total, most = total + here, max(most, here)
    position, rows = np.full(m, -1, np.int32), np.empty(most, np.int32)
    C, weights = np.empty((most, width), np.float32), np.empty((most, 4), np.float32)
    u, gu = np.empty(k, np.float32), np.empty(k, np.float32)
    up_indptr, up_rows = np.zeros(len(ids) + 1, np.int64), np.empty(total, np.int32)
    up_values = np.empty((total, width), np.float32)
    losses, sizes = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    for c in range(len(ids)):
        i, which = ids[c], c if len(tables) > 1 else 0
        drawn = neg_items[neg_indptr[c] : neg_indptr[c + 1]]
        state = rng.stream(seed, round_, keys[i], rng.SHUFFLE)
        n = _gather(
            i, indptr, items, counts, drawn, tables, which, position, rows, C, weights, support if split else 2.0, state
        )
        u[:] = start[c]
        _rebuild(n, C, weights[:, 0], weights[:, 1], u, gu, steps, rates[c], decay_user, bias)
        query = 2 if split else 0
        positive, negative = weights[:, query], weights[:, query + 1]
        for sweep in range(epochs):
            loss = _learn(n, C, positive, negative, u, rate_item, decay_item, bias)
            if sweep == 0:
                losses[c] = loss
        cursor = up_indptr[c]
        size = f(0.0)
        for t in range(n):
            if positive[t] + negative[t] > f(0.0):
                size += positive[t] + negative[t]
                up_rows[cursor] = rows[t]
                up_values[cursor] = C[t] - tables[which, rows[t]]
                cursor += 1
        sizes[c] = np.int64(size)
        losses[c] /= max(sizes[c], 1)
        up_indptr[c + 1] = cursor
    return up_indptr, up_rows[: up_indptr[-1]], up_values[: up_indptr[-1]], losses, sizes


@njit(nogil=True, cache=True)
def _vectors(ids, indptr, items, counts, neg_indptr, neg_items, table, user, steps, rates, decay):  # type: ignore[no-untyped-def]
    """Rebuild `user`, which comes with the start, from whole histories."""
    m, width, k = table.shape[1], table.shape[2], user.shape[1]
    most = 0
    for c in range(len(ids)):
        most = max(most, min(m, indptr[ids[c] + 1] - indptr[ids[c]] + neg_indptr[c + 1] - neg_indptr[c]))
    position, rows = np.full(m, -1, np.int32), np.empty(most, np.int32)
    C, weights = np.empty((most, width), np.float32), np.empty((most, 4), np.float32)
    gu = np.empty(k, np.float32)
    for c in range(len(ids)):
        drawn = neg_items[neg_indptr[c] : neg_indptr[c + 1]]
        which = c if len(table) > 1 else 0
        n = _gather(ids[c], indptr, items, counts, drawn, table, which, position, rows, C, weights, 2.0, np.uint64(0))
        _rebuild(n, C, weights[:, 0], weights[:, 1], user[c], gu, steps, rates[c], decay, width > k)


@final
@dataclass(frozen=True)
class FedRecon(Federated):
    dim: int = 64  # length of user and item vectors
    negatives: int = 16  # sampled negatives for each positive, redrawn each round
    support: float = 0.5  # share of the positives from which u is rebuilt; the others teach the table
    split: bool = True  # False: the whole history serves as both
    steps: int = 20  # gradient steps that rebuild u
    epochs: int = 1  # local passes over the query
    item_bias: bool = True  # each item has a bias
    start: float = 0.02  # deviation of the first vectors
    lr_user: float = 0.5  # step size of u, over the square root of the history's length
    lr_item: float = 0.008  # item step size on the client
    reg_user: float = 0.004  # weight decay of u
    reg_item: float = 0.08  # weight decay of the query's item rows, on the client
    aggregate: Literal["adam", "mean", "sum"] = "adam"  # what the server does with the movements
    lr_server: float = 0.02  # the server's step size (Adam's, or a factor on the mean)
    beta1: float = 0.9
    beta2: float = 0.99

    name: ClassVar[str] = "fedrecon"
    citation: ClassVar[str] = "Singhal et al., Federated Reconstruction, NeurIPS 2021"
    sends: ClassVar[str] = "movement of the item rows of her query set (positives and sampled negatives)"
    draws_negatives: ClassVar[bool] = True
    newcomer_rounds: ClassVar[int] = 0  # she rebuilds her vector as everybody does
    home: ClassVar[str] = "gpfedrec"
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_published": {
            "dim": 32, "negatives": 4, "item_bias": False, "start": 0.1, "aggregate": "mean", "lr_server": 1.0,
        },
    }  # fmt: skip

    def init_server(self, n_items: int, seed: int) -> Server:
        table = self.start * rng.generator(seed, rng.ITEM_START).standard_normal((n_items, self.dim), np.float32)
        if self.item_bias:
            table = np.hstack([table, np.zeros((n_items, 1), np.float32)])
        moments = table.shape if self.aggregate == "adam" else (0, 0)
        return Server(table.astype(np.float32), Adam.zeros(moments))

    def init_clients(self, history: History, seed: int) -> Client:
        return Client(np.full(history.n_clients, seed, np.int64))

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        return Download(server.table, np.empty(0, np.float32))

    def _start(self, history: History, ids: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Where u begins, the same in every round, and her step size."""
        user = np.empty((len(ids), self.dim), np.float32)
        rng.fill_normal(user, self.start, seed, history.keys[ids], rng.USER_START)
        return user, (self.lr_user / np.sqrt(np.maximum(history.lengths[ids], 1))).astype(np.float32)

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        drawn = negatives.draw(history, ids, self.negatives, seed, round_)
        user, rates = self._start(history, ids, seed)
        f = np.float32
        indptr, rows, values, loss, examples = _train(
            ids, history.indptr, history.items, history.counts, drawn.indptr, drawn.items, history.keys, seed, round_,
            download.table[None] if download.own is None else download.own, user, self.split, self.support, self.epochs,
            self.steps, rates, f(self.reg_user), f(self.lr_item), f(self.reg_item),
        )  # fmt: skip
        dense = examples[:, None].astype(np.float32) if self.aggregate == "mean" else np.empty((len(ids), 0), f)
        if self.aggregate == "mean":  # weighted by what she had to learn from
            values *= np.repeat(dense, np.diff(indptr), axis=0)
        return Upload(indptr, rows, values, dense), Report(loss, examples, drawn)

    def server_step(self, server: Server, received: Sum, round_: int) -> Server:
        moved = real(received.rows)
        if self.aggregate == "adam":
            step = moved / np.sqrt(np.maximum(received.touched, 1))[:, None]
            return Server(
                *adam_step(server.table, server.moments, step, round_, self.lr_server, (self.beta1, self.beta2))
            )
        share = 1.0 if self.aggregate == "sum" else 1.0 / max(float(real(received.dense)[0]), 1.0)
        return server._replace(table=(server.table + self.lr_server * share * moved).astype(np.float32))

    def vectors(self, table: np.ndarray, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        """float32[len(users), dim]: u, rebuilt from whole histories against a table for all or one for each."""
        seed = int(clients.seed[0])
        drawn: Ragged = negatives.draw(history, users, self.negatives, seed, 0)
        user, rates = self._start(history, users, seed)
        _vectors(
            users, history.indptr, history.items, history.counts, drawn.indptr, drawn.items,
            table[None] if table.ndim == 2 else table, user, self.steps, rates, np.float32(self.reg_user),
        )  # fmt: skip
        return user

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        scores: np.ndarray = self.vectors(server.table, clients, history, users) @ server.table[:, : self.dim].T
        return scores + server.table[:, self.dim] if self.item_bias else scores

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.table[:, : self.dim]
