"""FedPerGNN: a graph network on each device, whose graph reaches other people through a third party.

Her local graph is herself, her items, and for each item the other people who have it, whom she knows by the mean z_j
of their vectors alone:

    h_j = tanh(C[j] + W z_j)        her items
    h_u = u + V mean over her items of h_j
    r = sigma(<h_u, C[j]>)          any item

*Expansion.* A third party matches people who have the same item without learning which item it is: clients send it
their vector under item numbers hidden by a key the server does not have, and it returns, for an item, the sum of its
holders' vectors and their number; she takes her own out and divides. Here a client sends by how much her vector has
changed since she last sent it, so the sums are those of everybody's last vector, whoever takes part in a round.
*Pseudo-interacted items.* Beside her own and the drawn items she sends `pseudo` others, with movements drawn from a
normal distribution of the same mean and deviation as the real ones.
*Local privacy.* What goes to the server is clipped to L1 norm `clip`, and every number of it gets Laplace noise.
One upload then costs 2 clip / noise; several rounds add up. The vectors sent to the third party are not noised.

In the simulator one process plays server and third party: the columns [0, dim) of an upload are the server's, the
others the third party's. Whoever had both would read her history from the rows in which the second part is not zero.
The noise of a simulation follows from the seed, so that it can be repeated; that is no protection.

*as_published*: clip 0.1, noise 0.2 (epsilon 1 a round), 1000 pseudo items, as in the paper; its own runs take 3 rounds.
Noise on each of tens of thousands of numbers against a signal of at most 0.1 in all leaves nothing to learn from.
*coterie*: no clipping, noise or pseudo items: what the graph can do.

Wu, Wu, Lyu, Qi, Huang, Xie: A federated graph neural network framework for privacy-preserving personalization. Nature
Communications 13, 2022. The attention of its released code is replaced by means, which the third party can sum.
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
    table: np.ndarray  # float32[m, dim]: C
    weights: np.ndarray  # float32[2, dim, dim]: W and V
    holders: np.ndarray  # float64[m, dim + 1]: the third party's: sum of the holders' vectors, and their number
    moments: Adam  # of the server's optimiser, for the table
    dense_moments: Adam  # and for the weights


class Client(NamedTuple):
    user: np.ndarray  # float32[n, dim]: u
    sent: np.ndarray  # float32[n, dim]: her vector as the third party has it
    known: np.ndarray  # bool[n]: the third party has one


class Local(NamedTuple):
    """One round's settings of the local training."""

    epochs: int
    rate_item: np.float32
    rate_dense: np.float32
    decay_user: np.float32
    decay_item: np.float32
    pseudo: int
    clip: np.float32
    noise: float


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def _others(line, k, sent, known, z):  # type: ignore[no-untyped-def]
    """z: the mean vector of an item's other holders, or 0 if there are none."""
    count = line[2 * k] - (np.float32(1.0) if known else np.float32(0.0))
    inverse = np.float32(1.0) / count if count > np.float32(0.5) else np.float32(0.0)
    for q in range(k):
        z[q] = (line[k + q] - (sent[q] if known else np.float32(0.0))) * inverse


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def _embed(d, C, Z, u, W, V, H, mean, h_user):  # type: ignore[no-untyped-def]
    """Her items' nodes H, their mean and her own node, from the first d rows of C and Z."""
    f, k = np.float32, len(u)
    mean[:] = f(0.0)
    for t in range(d):
        for q in range(k):
            x = C[t, q]
            for r in range(k):
                x += W[q, r] * Z[t, r]
            H[t, q] = np.tanh(x)
            mean[q] += H[t, q] / f(d)
    for q in range(k):
        h_user[q] = u[q]
        for r in range(k):
            h_user[q] += V[q, r] * mean[r]


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def gradients(n, d, C, Z, u, W, V, positive, negative, gC, gu, gW, gV, H, mean, h_user):  # type: ignore[no-untyped-def]
    """Loss, summed over the first n rows of C, of which the first d are hers; its gradients by C, u, W and V."""
    f, k = np.float32, len(u)
    _embed(d, C, Z, u, W, V, H, mean, h_user)
    gu[:] = f(0.0)
    gW[:] = f(0.0)
    loss = 0.0
    for t in range(n):
        x = f(0.0)
        for q in range(k):
            x += h_user[q] * C[t, q]
        one, error = logistic(x, positive[t], negative[t])
        loss += one
        for q in range(k):
            gu[q] += error * C[t, q]
            gC[t, q] = error * h_user[q]
    for r in range(k):
        through = f(0.0)  # what the mean passes on to each of her items
        for q in range(k):
            gV[q, r] = gu[q] * mean[r]
            through += V[q, r] * gu[q]
        through /= f(max(d, 1))
        for t in range(d):
            step = through * (f(1.0) - H[t, r] * H[t, r])
            gC[t, r] += step
            for q in range(k):
                gW[r, q] += step * Z[t, q]
    return loss


@njit(nogil=True, cache=True, forceinline=True)
def _laplace(state, scale):  # type: ignore[no-untyped-def]
    x = rng.uniform(state) - 0.5
    return np.float32(-scale * np.sign(x) * np.log(max(1.0 - 2.0 * abs(x), 1e-300)))


@njit(nogil=True, cache=True, forceinline=True)
def _disguise(state, n, m, k, taken, rows, values, dense, s):  # type: ignore[no-untyped-def]
    """Add pseudo items to the first n rows; clip and add noise to the first k columns. Returns how many rows."""
    f = np.float32
    mean, spread = np.zeros(k), np.zeros(k)
    for q in range(k):
        for t in range(n):
            mean[q] += values[t, q] / max(n, 1)
        for t in range(n):
            spread[q] += (values[t, q] - mean[q]) ** 2 / max(n, 1)
        spread[q] = np.sqrt(spread[q])
    for t in range(n):
        taken[rows[t]] = True
    end = min(n + s.pseudo, m)
    while n < end:
        state = rng.after(state)
        j = rng.below(state, m)
        if taken[j]:
            continue
        taken[j], rows[n] = True, j
        for q in range(k):
            state = rng.after(state)
            radius = np.sqrt(-2.0 * np.log(1.0 - rng.uniform(state)))
            state = rng.after(state)
            values[n, q] = f(mean[q] + spread[q] * radius * np.cos(2.0 * np.pi * rng.uniform(state)))
        n += 1
    for t in range(n):
        taken[rows[t]] = False
    if s.clip > f(0.0):
        norm = np.abs(dense).sum()
        for t in range(n):
            norm += np.abs(values[t, :k]).sum()
        share = min(f(1.0), s.clip / max(norm, f(1e-30)))
        dense *= share
        for t in range(n):
            for q in range(k):
                values[t, q] *= share
    if s.noise > 0.0:
        for p in range(len(dense)):
            state = rng.after(state)
            dense[p] += _laplace(state, s.noise)
        for t in range(n):
            for q in range(k):
                state = rng.after(state)
                values[t, q] += _laplace(state, s.noise)
    return n


@njit(nogil=True, cache=True)
def _train(  # type: ignore[no-untyped-def]
    ids, indptr, items, counts, neg_indptr, neg_items, keys, seed, round_, table, weights, user, sent, known, rates, s
):
    f, m, k = np.float32, table.shape[0], user.shape[1]
    most, total = most_rows(ids, indptr, neg_indptr, m)
    position, rows = np.full(m, -1, np.int64), np.empty(most, np.int32)
    positive, negative = np.empty(most, np.float32), np.empty(most, np.float32)
    C, Z, H, gC = np.empty((most, k), f), np.empty((most, k), f), np.empty((most, k), f), np.empty((most, k), f)
    W, V, gW, gV = np.empty((k, k), f), np.empty((k, k), f), np.empty((k, k), f), np.empty((k, k), f)
    u, gu, mean, h_user = np.empty(k, f), np.empty(k, f), np.empty(k, f), np.empty(k, f)
    taken = np.zeros(m, np.bool_)
    up_indptr, size = np.zeros(len(ids) + 1, np.int64), total + len(ids) * min(s.pseudo, m)
    up_rows, up_values = np.empty(size, np.int32), np.zeros((size, 2 * k + 1), np.float32)
    dense = np.empty((len(ids), 2 * k * k), np.float32)
    losses, sizes = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    for c in range(len(ids)):
        i = ids[c]
        drawn = neg_items[neg_indptr[c] : neg_indptr[c + 1]]
        n, sizes[c] = gather(i, indptr, items, counts, drawn, position, rows, positive, negative)
        d = indptr[i + 1] - indptr[i]
        W[:], V[:], u[:] = weights[0], weights[1], user[i]
        for t in range(n):
            C[t] = table[rows[t], :k]
            if t < d:
                _others(table[rows[t]], k, sent[i], known[i], Z[t])
        for sweep in range(s.epochs):
            loss = gradients(n, d, C, Z, u, W, V, positive, negative, gC, gu, gW, gV, H, mean, h_user)
            if sweep == 0:
                losses[c] = loss / max(sizes[c], 1)
            for t in range(n):
                for q in range(k):
                    C[t, q] -= s.rate_item * (gC[t, q] + s.decay_item * C[t, q])
            for q in range(k):
                u[q] -= rates[c] * (gu[q] + s.decay_user * u[q])
                for r in range(k):
                    W[q, r] -= s.rate_dense * gW[q, r]
                    V[q, r] -= s.rate_dense * gV[q, r]
        user[i] = u
        first = up_indptr[c]
        for t in range(n):
            up_rows[first + t] = rows[t]
            up_values[first + t, :k] = C[t] - table[rows[t], :k]
        for q in range(k):
            for r in range(k):
                dense[c, q * k + r] = W[q, r] - weights[0, q, r]
                dense[c, (k + q) * k + r] = V[q, r] - weights[1, q, r]
        state = rng.stream(seed, round_, keys[i], rng.NOISE)
        n = _disguise(state, n, m, k, taken, up_rows[first:], up_values[first:], dense[c], s)
        for q in range(k):  # to the third party: the change of her vector, under each of her items
            change = u[q] - sent[i, q]
            for t in range(d):
                up_values[first + t, k + q] = change
            sent[i, q] += change
        if not known[i]:
            for t in range(d):
                up_values[first + t, 2 * k] = f(1.0)
            known[i] = True
        up_indptr[c + 1] = first + n
    return up_indptr, up_rows[: up_indptr[-1]], up_values[: up_indptr[-1]], dense, losses, sizes


@njit(nogil=True, cache=True)
def _nodes(users, indptr, items, table, weights, user, sent, known, out):  # type: ignore[no-untyped-def]
    """out float32[len(users), k]: h_u."""
    k, most = user.shape[1], np.int64(0)
    for i in users:
        most = max(most, indptr[i + 1] - indptr[i])
    C, Z, H = np.empty((most, k), np.float32), np.empty((most, k), np.float32), np.empty((most, k), np.float32)
    mean = np.empty(k, np.float32)
    for row in range(len(users)):
        i = users[row]
        d = indptr[i + 1] - indptr[i]
        for t in range(d):
            line = table[items[indptr[i] + t]]
            C[t] = line[:k]
            _others(line, k, sent[i], known[i], Z[t])
        _embed(d, C, Z, user[i], weights[0], weights[1], H, mean, out[row])


@final
@dataclass(frozen=True)
class FedPerGNN(Federated):
    dim: int = 32  # length of the vectors
    negatives: int = 16  # sampled negatives for each positive, redrawn each round
    epochs: int = 1  # local passes in a round
    start: float = 0.1  # deviation of the first vectors
    lr_user: float = 0.1  # user step size, over the square root of the history's length
    lr_item: float = 0.008  # item step size on the client
    lr_dense: float = 0.0005  # step size of W and V on the client
    reg_user: float = 0.004  # weight decay of u
    reg_item: float = 0.08  # weight decay of touched item rows, on the client
    pseudo: int = 0  # pseudo-interacted items in each upload
    clip: float = 0.0  # L1 norm to which an upload is clipped; 0: not
    noise: float = 0.0  # scale of the Laplace noise on each number sent to the server
    aggregate: Literal["adam", "mean"] = "adam"  # what the server does with the movements
    lr_server: float = 0.06  # step size of the server's Adam
    lr_server_dense: float = 0.003  # and for W and V
    beta1: float = 0.9
    beta2: float = 0.99

    name: ClassVar[str] = "fedpergnn"
    citation: ClassVar[str] = "Wu et al., A federated graph neural network framework, Nature Communications 2022"
    sends: ClassVar[str] = "movement of touched and pseudo items' rows and of the network; her vector to a third party"
    draws_negatives: ClassVar[bool] = True
    home: ClassVar[str] = "gpfedrec"
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_published": {
            "dim": 64, "negatives": 4, "lr_user": 0.01, "lr_item": 0.01, "lr_dense": 0.01, "reg_user": 0.0,
            "reg_item": 0.0, "pseudo": 1000, "clip": 0.1, "noise": 0.2, "aggregate": "mean",
        },
    }  # fmt: skip

    def init_server(self, n_items: int, seed: int) -> Server:
        table = self.start * rng.generator(seed, rng.ITEM_START).standard_normal((n_items, self.dim), np.float32)
        weights = np.stack([np.eye(self.dim, dtype=np.float32)] * 2)  # at first a node is a plain sum
        adam = self.aggregate == "adam"
        return Server(
            table.astype(np.float32), weights, np.zeros((n_items, self.dim + 1)),
            Adam.zeros(table.shape if adam else (0, 0)), Adam.zeros(weights.shape if adam else (0, 0)),
        )  # fmt: skip

    def init_clients(self, history: History, seed: int) -> Client:
        user = np.empty((history.n_clients, self.dim), np.float32)
        rng.fill_normal(user, self.start, seed, history.keys, rng.USER_START)
        return Client(user, np.zeros_like(user), np.zeros(history.n_clients, np.bool_))

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        return Download(self._table(server), server.weights.reshape(-1))

    def _table(self, server: Server) -> np.ndarray:
        return np.hstack([server.table, server.holders.astype(np.float32)])

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        drawn = negatives.draw(history, ids, self.negatives, seed, round_)
        rates = (self.lr_user / np.sqrt(np.maximum(history.lengths[ids], 1))).astype(np.float32)
        f = np.float32
        settings = Local(self.epochs, f(self.lr_item), f(self.lr_dense), f(self.reg_user), f(self.reg_item),
                         self.pseudo, f(self.clip), self.noise)  # fmt: skip
        indptr, rows, values, dense, loss, examples = _train(
            ids, history.indptr, history.items, history.counts, drawn.indptr, drawn.items, history.keys, seed, round_,
            download.table, download.dense.reshape(2, self.dim, self.dim), clients.user, clients.sent, clients.known,
            rates, settings,
        )  # fmt: skip
        return Upload(indptr, rows, values, dense), Report(loss, examples, drawn)

    def server_step(self, server: Server, received: Sum, round_: int) -> Server:
        moved, clients = real(received.rows), max(int(received.clients[0]), 1)
        table, dense = moved[:, : self.dim], real(received.dense).reshape(server.weights.shape)
        holders = server.holders + moved[:, self.dim :]
        if self.aggregate == "mean":
            return server._replace(
                table=(server.table + table / clients).astype(np.float32),
                weights=(server.weights + dense / clients).astype(np.float32),
                holders=holders,
            )
        betas, step = (self.beta1, self.beta2), table / np.sqrt(np.maximum(received.touched, 1))[:, None]
        table, moments = adam_step(server.table, server.moments, step, round_, self.lr_server, betas)
        weights, dense_moments = adam_step(
            server.weights, server.dense_moments, dense / clients, round_, self.lr_server_dense, betas
        )
        return Server(table, weights, holders, moments, dense_moments)

    def newcomer(self, server: Server, history: History, seed: int) -> Client:
        """Her own client steps; the third party gets nothing from her, so no holder's sum contains her."""
        clients, ids = self.init_clients(history, seed), np.arange(history.n_clients)
        for round_ in range(1, self.newcomer_rounds + 1):
            self.client_step(clients, ids, history, self.download(server, ids, round_), round_, seed)
            clients.sent[:], clients.known[:] = 0.0, False
        return clients

    def seen(self, download: Download, n_items: int, seed: int) -> Server:
        return self.init_server(n_items, seed)._replace(
            table=download.table[:, : self.dim], holders=download.table[:, self.dim :].astype(np.float64),
            weights=download.dense.reshape(2, self.dim, self.dim),
        )  # fmt: skip

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        nodes = np.empty((len(users), self.dim), np.float32)
        _nodes(users, history.indptr, history.items, self._table(server), server.weights, clients.user, clients.sent,
               clients.known, nodes)  # fmt: skip
        scores: np.ndarray = nodes @ server.table.T
        return scores

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.table
