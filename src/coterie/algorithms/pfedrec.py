"""PFedRec: no user vectors; each person has her own score function, and fine-tunes the shared item table for herself.

r = sigma(<w_i, E[j]> + b_i). w_i and b_i stay on the device; E is averaged by the server. Per batch the score function
steps first, then, scored anew, the rows of E (dual personalisation).

*as_released* (github.com/Zhangcx19/IJCAI-23-PFedRec): means over batches of 256, item rate 8 x items, one start for
all, and a client scores with her fine-tuned table as it was before averaging (`scored=own`).
*as_published*: the same steps; the shared table is what everybody scores with until she fine-tunes: `scored=own` too.
*coterie*: small client rates and FedMF's server-side Adam; items are scored with the shared table (`scored=shared`), so
that a device need not keep a table between rounds.

Zhang, Long, Zhou, Yan, Zhang, Zhang, Yang: Dual Personalization on Federated Recommendation. IJCAI 2023.
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

_FAST = {"reassoc", "contract", "arcp", "nsz"}


class Server(NamedTuple):
    table: np.ndarray  # float32[m, dim]: E
    moments: Adam  # of the server's optimiser (empty for the plain mean)


class Client(NamedTuple):
    score: np.ndarray  # float32[n, dim + 1]: w, and b in the last column
    own: np.ndarray  # float32[n, m, dim] if scored with it: E as she last fine-tuned it; else [n, 0, dim]


class Local(NamedTuple):
    """One round's settings of the local training."""

    passes: int
    batch: int
    mean: bool
    rate_item: float
    decay_score: float
    decay_item: float


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def _step(rows, n, E, w, g, positive, negative, size, rate_score, s):  # type: ignore[no-untyped-def]
    """The score function first, then, with the new one, the batch's n distinct rows. Returns the loss before."""
    f = np.float32
    k = E.shape[1]
    inverse = f(1.0) / f(size) if s.mean else f(1.0)
    loss = 0.0
    g[:] = f(0.0)
    for a in range(n):
        t = rows[a]
        x, weight = w[k], positive[t] + negative[t]
        for d in range(k):
            x += w[d] * E[t, d]
        loss += weight * np.log1p(np.exp(-abs(x))) + weight * max(x, f(0.0)) - positive[t] * x
        error = (weight / (f(1.0) + np.exp(-x)) - positive[t]) * inverse
        for d in range(k):
            g[d] += error * E[t, d]
        g[k] += error
    for d in range(k + 1):
        w[d] -= rate_score * (g[d] + f(s.decay_score) * w[d])
    for a in range(n):
        t = rows[a]
        x, weight = w[k], positive[t] + negative[t]
        for d in range(k):
            x += w[d] * E[t, d]
        error = (weight / (f(1.0) + np.exp(-x)) - positive[t]) * inverse
        for d in range(k):
            E[t, d] -= f(s.rate_item) * (error * w[d] + f(s.decay_item) * E[t, d])
    return loss


@njit(nogil=True, cache=True, fastmath=_FAST)
def _train(ids, indptr, items, counts, neg_indptr, neg_items, keys, seed, round_, table, score, own, rate_score, s):  # type: ignore[no-untyped-def]
    """Train each client; `score` and `own` change in place, the touched rows' movement is returned."""
    f = np.float32
    m, k = table.shape
    most_rows, most_all, total = 0, 0, 0
    for c in range(len(ids)):
        drawn, mine = neg_indptr[c + 1] - neg_indptr[c], indptr[ids[c] + 1] - indptr[ids[c]]
        repeats = np.int64(0)
        for p in range(indptr[ids[c]], indptr[ids[c] + 1]):
            repeats += np.int64(counts[p])
        most_rows, most_all = max(most_rows, min(m, mine + drawn)), max(most_all, repeats + drawn)
        total += min(m, mine + drawn)
    E, g = np.empty((most_rows, k), np.float32), np.empty(k + 1, np.float32)
    rows, active = np.empty(most_rows, np.int32), np.empty(most_rows, np.int32)
    positive, negative = np.zeros(most_rows, np.float32), np.zeros(most_rows, np.float32)
    example, label = np.empty(most_all, np.int32), np.empty(most_all, np.bool_)
    position = np.full(m, -1, np.int32)
    up_indptr, up_rows = np.zeros(len(ids) + 1, np.int64), np.empty(total, np.int32)
    up_values = np.empty((total, k), np.float32)
    losses, sizes = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    for c in range(len(ids)):
        i = ids[c]
        n, size = 0, np.int64(0)
        for p in range(indptr[i], indptr[i + 1]):
            position[items[p]], rows[n] = n, items[p]
            for _ in range(np.int64(counts[p])):
                example[size], label[size] = n, True
                size += 1
            n += 1
        for p in range(neg_indptr[c], neg_indptr[c + 1]):
            if position[neg_items[p]] < 0:
                position[neg_items[p]], rows[n] = n, neg_items[p]
                n += 1
            example[size], label[size] = position[neg_items[p]], False
            size += 1
        for t in range(n):
            position[rows[t]] = -1
            for d in range(k):
                E[t, d] = table[rows[t], d]
        state = rng.stream(seed, round_, keys[i], rng.SHUFFLE)
        for sweep in range(s.passes if size > 0 else 0):
            if size > s.batch:
                for e in range(size - 1, 0, -1):
                    state = rng.after(state)
                    other = rng.below(state, e + 1)
                    example[e], example[other] = example[other], example[e]
                    label[e], label[other] = label[other], label[e]
            for first in range(0, size, s.batch):
                last, distinct = min(first + s.batch, size), 0
                for e in range(first, last):
                    t = example[e]
                    if positive[t] + negative[t] == f(0.0):
                        active[distinct] = t
                        distinct += 1
                    if label[e]:
                        positive[t] += f(1.0)
                    else:
                        negative[t] += f(1.0)
                loss = _step(active, distinct, E, score[i], g, positive, negative, last - first, rate_score[c], s)
                for a in range(distinct):
                    positive[active[a]], negative[active[a]] = f(0.0), f(0.0)
                if sweep == 0:
                    losses[c] += loss
        losses[c] /= max(size, 1)
        sizes[c] = size
        cursor = up_indptr[c]
        for t in range(n):
            up_rows[cursor] = rows[t]
            for d in range(k):
                up_values[cursor, d] = E[t, d] - table[rows[t], d]
            cursor += 1
        up_indptr[c + 1] = cursor
        if own.shape[1]:
            own[i] = table
            for t in range(n):
                own[i, rows[t]] = E[t]
    return up_indptr, up_rows[: up_indptr[-1]], up_values[: up_indptr[-1]], losses, sizes


@final
@dataclass(frozen=True)
class PFedRec(Federated):
    dim: int = 64  # length of item vectors and score functions
    negatives: int = 16  # sampled negatives for each positive, redrawn each round
    epochs: int = 1  # local passes in a round
    batch: int = 1 << 20  # most examples in one local step
    mean_loss: bool = False  # gradients are means over the batch, not sums
    start: float = 0.02  # deviation of the first item vectors
    start_score: float = 0.02  # deviation of the first score functions; 0: one U(+-1/sqrt(dim)) for all clients
    lr_score: float = 0.2  # step size of w and b, over the square root of the history's length if rate_by_history
    rate_by_history: bool = True
    lr_item: float = 0.008  # step size of E on the client, times the number of items if rate_by_items
    rate_by_items: bool = False
    reg_score: float = 0.004  # weight decay of w and b
    reg_item: float = 0.08  # weight decay of touched rows of E, on the client
    scored: Literal["shared", "own"] = "shared"  # items are scored with the shared table or with her fine-tuned one
    aggregate: Literal["adam", "mean"] = "adam"  # what the server does with the movements of E
    lr_server: float = 0.02  # step size of the server's Adam
    beta1: float = 0.9
    beta2: float = 0.99

    name: ClassVar[str] = "pfedrec"
    citation: ClassVar[str] = "Zhang et al., Dual Personalization on Federated Recommendation, IJCAI 2023"
    sends: ClassVar[str] = "movement of the item rows she touched (positives and sampled negatives)"
    draws_negatives: ClassVar[bool] = True
    home: ClassVar[str] = "gpfedrec"
    server_only: ClassVar[dict[str, Any]] = {"scored": "shared"}
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_published": {
            "dim": 32, "negatives": 4, "batch": 256, "mean_loss": True, "start": 1.0, "start_score": 0.0,
            "lr_score": 0.1, "rate_by_history": False, "lr_item": 8.0, "rate_by_items": True, "reg_score": 0.0,
            "reg_item": 0.0, "scored": "own", "aggregate": "mean",
        },
        "as_released": {
            "dim": 32, "negatives": 4, "batch": 256, "mean_loss": True, "start": 1.0, "start_score": 0.0,
            "lr_score": 0.1, "rate_by_history": False, "lr_item": 8.0, "rate_by_items": True, "reg_score": 0.0,
            "reg_item": 0.0, "scored": "own", "aggregate": "mean",
        },
    }  # fmt: skip

    def _first_table(self, n_items: int, seed: int) -> np.ndarray:
        draws = rng.generator(seed, rng.ITEM_START)
        return (self.start * draws.standard_normal((n_items, self.dim), np.float32)).astype(np.float32)

    def init_server(self, n_items: int, seed: int) -> Server:
        table = self._first_table(n_items, seed)
        return Server(table, Adam.zeros(table.shape if self.aggregate == "adam" else (0, 0)))

    def init_clients(self, history: History, seed: int) -> Client:
        score = np.zeros((history.n_clients, self.dim + 1), np.float32)
        if self.start_score > 0:
            rng.fill_normal(score[:, : self.dim], self.start_score, seed, history.keys, rng.USER_START)
        else:
            score[:] = rng.generator(seed, rng.USER_START).uniform(-1, 1, self.dim + 1) * self.dim**-0.5
        own = np.empty((history.n_clients, history.n_items if self.scored == "own" else 0, self.dim), np.float32)
        if self.scored == "own":
            own[:] = self._first_table(history.n_items, seed)
        return Client(score, own)

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        return Download(server.table, np.empty(0, np.float32))

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        drawn = negatives.draw(history, ids, self.negatives, seed, round_)
        rate = np.full(len(ids), self.lr_score)
        if self.rate_by_history:
            rate /= np.sqrt(np.maximum(history.lengths[ids], 1))
        settings = Local(
            passes=self.epochs, batch=self.batch, mean=self.mean_loss,
            rate_item=self.lr_item * (history.n_items if self.rate_by_items else 1), decay_score=self.reg_score,
            decay_item=self.reg_item,
        )  # fmt: skip
        indptr, rows, values, loss, examples = _train(
            ids, history.indptr, history.items, history.counts, drawn.indptr, drawn.items, history.keys, seed, round_,
            download.table, clients.score, clients.own, rate.astype(np.float32), settings,
        )  # fmt: skip
        return Upload(indptr, rows, values, np.empty((len(ids), 0), np.float32)), Report(loss, examples, drawn)

    def server_step(self, server: Server, received: Sum, round_: int) -> Server:
        moved = real(received.rows)
        if self.aggregate == "adam":
            step = moved / np.sqrt(np.maximum(received.touched, 1))[:, None]
            betas = (self.beta1, self.beta2)
            return Server(*adam_step(server.table, server.moments, step, round_, self.lr_server, betas))
        table = server.table + moved / max(int(received.clients[0]), 1)  # the mean of whole tables
        return server._replace(table=table.astype(np.float32))

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        w, b = clients.score[users, : self.dim], clients.score[users, self.dim :]
        if self.scored == "shared":
            return (w @ server.table.T + b).astype(np.float32)
        return np.stack([clients.own[u] @ w[row] for row, u in enumerate(users)]) + b

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.table
