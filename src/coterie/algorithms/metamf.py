"""MetaMF: the server keeps a vector for each person and generates her item table and score network from it.

With v_i the vector of person i: c = M^T v_i (collaborative memory), h_a = ReLU(H_a c + b_a) for three generators a, and
linear heads of h: a low-dimensional table L (items x low), a rise matrix R (low x dim), and a two-layer network
W1, b1, w2, b2. Item j's vector is e_j = L[j] R, and r = sigma(w2 . ReLU(e_j W1 + b1) + b2).

A device downloads what was generated for it, takes the gradient of its logistic loss by all of that and returns it:
rows of L that it touched, and the rest as a whole. It keeps nothing. The server sends each gradient back through its
generator, to v_i and to the generator's weights, and steps by Adam; so it needs single uploads. The privacy the paper
claims is that histories stay; the server has everybody's vector.

The generated network travels in the columns of the generated table behind the first `low` ones, row after row.

Lin, Ren, Chen, Ren, Yu, Ma, de Rijke, Cheng: Meta Matrix Factorization for Federated Rating Predictions. SIGIR 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms import negatives
from coterie.algorithms.interface import Collected, Download, Federated, History, Report, Upload
from coterie.algorithms.touched import gather, logistic, most_rows

_FAST = {"reassoc", "contract", "arcp", "nsz"}


class Meta(NamedTuple):
    """The generator. The last input of every layer but the memory is a constant 1: its bias."""

    memory: np.ndarray  # float32[size, mem]: M
    hidden: np.ndarray  # float32[3, mem + 1, h]: H_a and b_a, for the table, the first and the second layer
    heads: np.ndarray  # float32[h + 1, p]: to R (from h_0), to W1 and b1 (h_1), to w2 and b2 (h_2)
    low: np.ndarray  # float32[m, h + 1, low]: to L (from h_0)


class Moments(NamedTuple):
    first: Meta
    second: Meta


class Server(NamedTuple):
    vectors: np.ndarray  # float32[n, size]: v
    meta: Meta
    moments: Moments  # Adam's, of the generator
    v_first: np.ndarray  # float32[n, size]: Adam's, of the vectors
    v_second: np.ndarray  # float32[n, size]
    steps: np.ndarray  # int64[n]: how often a vector has moved
    seed: np.ndarray  # int64[1]: what the vectors' start follows from


class Seen(NamedTuple):
    """The server as devices know it: what was generated for them."""

    own: np.ndarray  # float32[c, m, low + columns of the network]


class Client(NamedTuple):
    vectors: np.ndarray  # float32[n, size] of people who were not in training; float32[n, 0] of the others


class Shape(NamedTuple):
    """Sizes and where the parts of the generated network stand in its p numbers."""

    low: int
    dim: int
    hidden: int  # of the generated network
    w1: int
    b1: int
    w2: int
    b2: int
    p: int


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def _layers(vector, meta, c, h):  # type: ignore[no-untyped-def]
    """Fill c[mem] and h[3, hidden] (after ReLU) for one person."""
    c[:] = np.float32(0.0)
    for a in range(len(vector)):
        for b in range(len(c)):
            c[b] += vector[a] * meta.memory[a, b]
    for g in range(3):
        h[g] = meta.hidden[g, len(c)]
        for b in range(len(c)):
            for q in range(h.shape[1]):
                h[g, q] += c[b] * meta.hidden[g, b, q]
        for q in range(h.shape[1]):
            h[g, q] = max(h[g, q], np.float32(0.0))


@njit(nogil=True, cache=True, fastmath=_FAST)
def generate(vectors, meta, s, out):  # type: ignore[no-untyped-def]
    """out float32[c, m, low + extra]: each person's table, and her network in the columns behind it."""
    f = np.float32
    c, h = np.empty(meta.memory.shape[1], np.float32), np.empty((3, meta.hidden.shape[2]), np.float32)
    theta = np.empty(s.p, np.float32)
    m, last, extra = meta.low.shape[0], h.shape[1], out.shape[2] - s.low
    line = np.empty(s.low, np.float32)
    for i in range(len(vectors)):
        _layers(vectors[i], meta, c, h)
        theta[:] = meta.heads[last]
        for q in range(last):
            for o in range(s.p):
                theta[o] += h[0 if o < s.w1 else 1 if o < s.w2 else 2, q] * meta.heads[q, o]
        for j in range(m):
            for d in range(s.low):
                line[d] = meta.low[j, last, d]
            for q in range(last):
                if h[0, q] != f(0.0):
                    for d in range(s.low):
                        line[d] += h[0, q] * meta.low[j, q, d]
            out[i, j, : s.low] = line
            for o in range(extra):
                at = j * extra + o
                out[i, j, s.low + o] = theta[at] if at < s.p else f(0.0)


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def _network(table, s, theta, fused):  # type: ignore[no-untyped-def]
    """Unpack theta[p] from a downloaded table and fill fused[low, hidden] = R W1."""
    extra = table.shape[1] - s.low
    for o in range(s.p):
        theta[o] = table[o // extra, s.low + o % extra]
    for a in range(s.low):
        for o in range(s.hidden):
            fused[a, o] = np.float32(0.0)
        for d in range(s.dim):
            for o in range(s.hidden):
                fused[a, o] += theta[a * s.dim + d] * theta[s.w1 + d * s.hidden + o]


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST)
def _forward(line, theta, fused, s, z):  # type: ignore[no-untyped-def]
    """The score of an item from its row of L; z[hidden] becomes its layer after ReLU."""
    x = theta[s.b2]
    for o in range(s.hidden):
        z[o] = theta[s.b1 + o]
    for a in range(s.low):
        for o in range(s.hidden):
            z[o] += line[a] * fused[a, o]
    for o in range(s.hidden):
        z[o] = max(z[o], np.float32(0.0))
        x += z[o] * theta[s.w2 + o]
    return x


@njit(nogil=True, cache=True, fastmath=_FAST)
def _gradients(ids, indptr, items, counts, neg_indptr, neg_items, own, s):  # type: ignore[no-untyped-def]
    f, m = np.float32, own.shape[1]
    most, total = most_rows(ids, indptr, neg_indptr, m)
    position, rows = np.full(m, -1, np.int64), np.empty(most, np.int32)
    positive, negative = np.empty(most, np.float32), np.empty(most, np.float32)
    theta, fused, g_fused = np.empty(s.p, np.float32), np.empty((s.low, s.hidden), f), np.empty((s.low, s.hidden), f)
    z = np.empty(s.hidden, np.float32)
    up_indptr, up_rows = np.zeros(len(ids) + 1, np.int64), np.empty(total, np.int32)
    up_values, dense = np.zeros((total, s.low), np.float32), np.zeros((len(ids), s.p), np.float32)
    losses, sizes = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    for c in range(len(ids)):
        drawn = neg_items[neg_indptr[c] : neg_indptr[c + 1]]
        n, sizes[c] = gather(ids[c], indptr, items, counts, drawn, position, rows, positive, negative)
        _network(own[c], s, theta, fused)
        g, first = dense[c], up_indptr[c]
        g_fused[:] = f(0.0)
        loss = 0.0
        for t in range(n):
            line = own[c, rows[t]]
            x = _forward(line, theta, fused, s, z)
            one, error = logistic(x, positive[t], negative[t])
            loss += one
            up_rows[first + t] = rows[t]
            g[s.b2] += error
            for o in range(s.hidden):
                if z[o] > f(0.0):
                    g[s.w2 + o] += error * z[o]
                    back = error * theta[s.w2 + o]
                    g[s.b1 + o] += back
                    for a in range(s.low):
                        g_fused[a, o] += line[a] * back
                        up_values[first + t, a] += back * fused[a, o]
        for a in range(s.low):  # from R W1 to R and to W1
            for d in range(s.dim):
                for o in range(s.hidden):
                    g[a * s.dim + d] += g_fused[a, o] * theta[s.w1 + d * s.hidden + o]
                    g[s.w1 + d * s.hidden + o] += g_fused[a, o] * theta[a * s.dim + d]
        up_indptr[c + 1] = first + n
        losses[c] = loss / max(sizes[c], 1)
    return up_indptr, up_rows[: up_indptr[-1]], up_values[: up_indptr[-1]], dense, losses, sizes


@njit(nogil=True, cache=True, fastmath=_FAST)
def back(vectors, meta, s, indptr, rows, values, dense, g_vectors, g):  # type: ignore[no-untyped-def]
    """Send each person's gradients through her generator: to g_vectors, and added to g, in the order of persons."""
    f = np.float32
    c, h = np.empty(meta.memory.shape[1], np.float32), np.empty((3, meta.hidden.shape[2]), np.float32)
    gc, gh = np.empty_like(c), np.empty_like(h)
    last = h.shape[1]
    for i in range(len(vectors)):
        _layers(vectors[i], meta, c, h)
        gh[:] = f(0.0)
        for o in range(s.p):
            head, d = 0 if o < s.w1 else 1 if o < s.w2 else 2, dense[i, o]
            g.heads[last, o] += d
            for q in range(last):
                g.heads[q, o] += h[head, q] * d
                gh[head, q] += meta.heads[q, o] * d
        for r in range(indptr[i], indptr[i + 1]):
            j = rows[r]
            for d in range(s.low):
                g.low[j, last, d] += values[r, d]
            for q in range(last):
                total = f(0.0)
                for d in range(s.low):
                    g.low[j, q, d] += h[0, q] * values[r, d]
                    total += meta.low[j, q, d] * values[r, d]
                gh[0, q] += total
        gc[:] = f(0.0)
        for a in range(3):
            for q in range(last):
                if h[a, q] > f(0.0):
                    g.hidden[a, len(c), q] += gh[a, q]
                    for b in range(len(c)):
                        g.hidden[a, b, q] += c[b] * gh[a, q]
                        gc[b] += meta.hidden[a, b, q] * gh[a, q]
        for a in range(vectors.shape[1]):
            g_vectors[i, a] = f(0.0)
            for b in range(len(c)):
                g_vectors[i, a] += meta.memory[a, b] * gc[b]
                g.memory[a, b] += vectors[i, a] * gc[b]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _score(own, s, out):  # type: ignore[no-untyped-def]
    theta, fused, z = np.empty(s.p, np.float32), np.empty((s.low, s.hidden), np.float32), np.empty(s.hidden, np.float32)
    for i in range(len(own)):
        _network(own[i], s, theta, fused)
        for j in range(own.shape[1]):
            out[i, j] = _forward(own[i, j], theta, fused, s, z)


@final
@dataclass(frozen=True)
class MetaMF(Federated):
    dim: int = 32  # length of the generated item vectors
    low: int = 8  # length of an item's row in the generated table, before R raises it to dim
    hidden: int = 8  # neurons of the generated score network
    size: int = 32  # length of a person's vector on the server
    memory: int = 64  # width of the collaborative memory
    generator: int = 64  # neurons of each generator
    negatives: int = 4  # sampled negatives for each positive, redrawn each round
    start: float = 0.1  # deviation of the first vectors
    lr: float = 0.01  # step size of the server's Adam for the generator
    lr_vector: float = 0.05  # and for the vectors
    reg: float = 0.1  # weight decay of the generator, within Adam's step
    beta1: float = 0.9
    beta2: float = 0.99

    name: ClassVar[str] = "metamf"
    citation: ClassVar[str] = "Lin et al., Meta Matrix Factorization for Federated Rating Predictions, SIGIR 2020"
    sends: ClassVar[str] = "gradients of the item rows she touched and of her score network; the server has her vector"
    collects: ClassVar[bool] = True
    draws_negatives: ClassVar[bool] = True
    newcomer_rounds: ClassVar[int] = 60  # steps on her vector alone, the generator held fixed
    home: ClassVar[str] = "gpfedrec"
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def shape(self) -> Shape:
        w1 = self.low * self.dim
        b1 = w1 + self.dim * self.hidden
        w2 = b1 + self.hidden
        return Shape(self.low, self.dim, self.hidden, w1, b1, w2, w2 + self.hidden, w2 + self.hidden + 1)

    def init_server(self, n_items: int, seed: int) -> Server:
        draws = rng.generator(seed, rng.ITEM_START)

        def uniform(inputs: int, *shape: int) -> np.ndarray:
            return draws.uniform(-(inputs**-0.5), inputs**-0.5, shape).astype(np.float32)

        memory = draws.standard_normal((self.size, self.memory)) * np.sqrt(2 / (self.size + self.memory))
        meta = Meta(
            memory.astype(np.float32),
            uniform(self.memory, 3, self.memory + 1, self.generator),
            uniform(self.generator, self.generator + 1, self.shape().p),
            uniform(self.generator, n_items, self.generator + 1, self.low),
        )
        nobody = np.zeros((0, self.size), np.float32)
        return Server(
            nobody, meta, Moments(_zeros(meta), _zeros(meta)), nobody, nobody, np.zeros(0, np.int64), np.array([seed])
        )

    def enrol(self, server: Server, n_clients: int, history: History | None) -> Server:
        vectors = np.empty((n_clients, self.size), np.float32)
        rng.fill_normal(vectors, self.start, int(server.seed[0]), np.arange(n_clients, dtype=np.uint64), rng.USER_START)
        zeros = np.zeros_like(vectors)
        return server._replace(
            vectors=vectors, v_first=zeros, v_second=zeros.copy(), steps=np.zeros(n_clients, np.int64)
        )

    def init_clients(self, history: History, seed: int) -> Client:
        return Client(np.zeros((history.n_clients, 0), np.float32))

    def _generated(self, vectors: np.ndarray, meta: Meta) -> np.ndarray:
        shape, m = self.shape(), len(meta.low)
        own = np.empty((len(vectors), m, self.low + -(-shape.p // m)), np.float32)
        generate(vectors, meta, shape, own)
        return own

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        nothing = np.empty((len(server.meta.low), 0), np.float32)
        return Download(nothing, np.empty(0, np.float32), self._generated(server.vectors[ids], server.meta))

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        drawn = negatives.draw(history, ids, self.negatives, seed, round_)
        indptr, rows, values, dense, loss, examples = _gradients(
            ids, history.indptr, history.items, history.counts, drawn.indptr, drawn.items, download.own, self.shape()
        )
        return Upload(indptr, rows, values, dense), Report(loss, examples, drawn)

    def server_step(self, server: Server, received: Collected, round_: int) -> Server:
        ids, g = np.concatenate(received.ids), _zeros(server.meta)
        g_vectors, at = np.empty((len(ids), self.size), np.float32), 0
        for part, upload in zip(received.ids, received.uploads, strict=True):
            mine = g_vectors[at : at + len(part)]
            back(server.vectors[part], server.meta, self.shape(), *upload[:4], mine, g)
            at += len(part)
        steps = server.steps.copy()
        steps[ids] += 1
        vectors, first, second = server.vectors.copy(), server.v_first.copy(), server.v_second.copy()
        vectors[ids], first[ids], second[ids] = self._adam(
            vectors[ids], first[ids], second[ids], g_vectors, steps[ids][:, None], self.lr_vector, 0.0
        )
        moved = [
            self._adam(*parts, round_, self.lr, self.reg)
            for parts in zip(server.meta, server.moments.first, server.moments.second, g, strict=True)
        ]
        meta, one, two = (Meta(*parts) for parts in zip(*moved, strict=True))
        return Server(vectors, meta, Moments(one, two), first, second, steps, server.seed)

    def _adam(
        self, x: np.ndarray, first: np.ndarray, second: np.ndarray, g: np.ndarray, step: Any, rate: float, reg: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first = self.beta1 * first + (1 - self.beta1) * g
        second = self.beta2 * second + (1 - self.beta2) * g * g
        move = (first / (1 - self.beta1**step)) / (np.sqrt(second / (1 - self.beta2**step)) + 1e-8)
        f = np.float32
        return (x - rate * (move + reg * x)).astype(f), first.astype(f), second.astype(f)

    def newcomer(self, server: Server, history: History, seed: int) -> Client:
        """A vector for each, found from her gradients as in training, the generator held fixed."""
        alone = self.enrol(server, history.n_clients, None)
        ids, rate = np.arange(history.n_clients), self.lr_vector
        vectors, first, second, nowhere = alone.vectors, alone.v_first, alone.v_second, _zeros(server.meta)
        clients = self.init_clients(history, seed)
        for step in range(1, self.newcomer_rounds + 1):
            g = np.empty_like(vectors)
            download = self.download(alone._replace(vectors=vectors), ids, step)
            upload, _ = self.client_step(clients, ids, history, download, step, seed)
            back(vectors, server.meta, self.shape(), *upload[:4], g, nowhere)
            vectors, first, second = self._adam(vectors, first, second, g, step, rate, 0.0)
        return Client(vectors)

    def seen(self, download: Download, n_items: int, seed: int) -> Any:
        return Seen(download.own)  # type: ignore[arg-type]

    def score(self, server: Any, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        if isinstance(server, Seen):
            own = server.own[users]
        else:
            vectors = clients.vectors if clients.vectors.shape[1] else server.vectors
            own = self._generated(vectors[users], server.meta)
        out = np.empty(own.shape[:2], np.float32)
        _score(own, self.shape(), out)
        return out

    def item_vectors(self, server: Server) -> np.ndarray:
        """The table generated for the mean person."""
        mean = server.vectors.mean(0, keepdims=True) if len(server.vectors) else np.zeros((1, self.size), np.float32)
        table = self._generated(mean, server.meta)[0]
        rise = table[:, self.low :].ravel()[: self.low * self.dim].reshape(self.low, self.dim)
        found: np.ndarray = table[:, : self.low] @ rise
        return found


def _zeros(meta: Meta) -> Meta:
    return Meta(*(np.zeros_like(one) for one in meta))
