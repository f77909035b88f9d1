"""FCF: implicit ALS whose user half is solved on the device and whose item half is a gradient step on the server.

Weights c_ui = 1 + alpha r_ui on consumed items, 1 on all others; loss sum_i c_ui (p_ui - <x_u, y_i>)^2 + ridges, with
p_ui = 1 if consumed. The client solves x_u = (Y'Y + alpha sum y y' + reg I)^-1 sum (1 + alpha r) y from the table she
got, and sends the gradient of *every* item, c_ui (p_ui - <x_u, y_i>) x_u: so no row's presence tells what she consumed
(its size does: each row is a multiple of x_u, and consumed ones stand out). The server takes an Adam step.

Scores use x_u solved against the newest table, as a device would.

Ammad-ud-din et al.: Federated Collaborative Filtering for Privacy-Preserving Personalized Recommendation System.
arXiv:1901.09888, 2019. Hu, Koren, Volinsky: Collaborative Filtering for Implicit Feedback Datasets. ICDM 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numba import njit

from coterie import rng
from coterie.algorithms.interface import Download, Federated, History, Report, Sum, Upload
from coterie.algorithms.server import Adam, adam_step, real
from coterie.errors import CoterieError

_FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(nogil=True, cache=True, forceinline=True)
def _cholesky_solve(A, b):  # type: ignore[no-untyped-def]
    """x with A x = b for a positive definite A; both are overwritten. Small and alone on its core: no LAPACK needed."""
    k = len(b)
    for i in range(k):
        for j in range(i + 1):
            rest = A[i, j]
            for d in range(j):
                rest -= A[i, d] * A[j, d]
            A[i, j] = np.sqrt(rest) if i == j else rest / A[j, j]
    for i in range(k):
        for d in range(i):
            b[i] -= A[i, d] * b[d]
        b[i] /= A[i, i]
    for i in range(k - 1, -1, -1):
        for d in range(i + 1, k):
            b[i] -= A[d, i] * b[d]
        b[i] /= A[i, i]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _solve(ids, indptr, items, worth, alpha, table, gram, user):  # type: ignore[no-untyped-def]
    """Each client's vector in closed form; `gram` is Y'Y + reg I, `worth` is r of each consumed item."""
    k = table.shape[1]
    A, b = np.empty((k, k)), np.empty(k)
    for c in range(len(ids)):
        i = ids[c]
        A[:] = gram
        b[:] = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            y, w = table[items[p]], alpha * worth[p]
            for d in range(k):
                b[d] += (1.0 + w) * y[d]
                for e in range(d + 1):
                    A[d, e] += w * y[d] * y[e]
        _cholesky_solve(A, b)
        for d in range(k):
            user[c, d] = b[d]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _gradients(ids, indptr, items, worth, alpha, table, user, values, losses):  # type: ignore[no-untyped-def]
    """values[c * m + j] = c_uj (p_uj - <x_u, y_j>) x_u for every item j; the mean weighted squared error beside it."""
    m, k = table.shape
    for c in range(len(ids)):
        i, x, loss = ids[c], user[c], 0.0
        for j in range(m):
            s = np.float32(0.0)
            for d in range(k):
                s += x[d] * table[j, d]
            loss += s * s  # type: ignore[assignment]
            for d in range(k):
                values[c * m + j, d] = -s * x[d]
        for p in range(indptr[i], indptr[i + 1]):
            j = items[p]
            s = np.float32(0.0)
            for d in range(k):
                s += x[d] * table[j, d]
            weight = np.float32(1.0) + np.float32(alpha) * worth[p]
            loss += weight * (np.float32(1.0) - s) ** 2 - s * s
            for d in range(k):
                values[c * m + j, d] = weight * (np.float32(1.0) - s) * x[d]
        losses[c] = loss / m


class Server(NamedTuple):
    table: np.ndarray  # float32[m, dim]: Y
    moments: Adam  # of the server's optimiser


class Client(NamedTuple):
    user: np.ndarray  # float32[n, dim]: x_u as last solved


@final
@dataclass(frozen=True)
class FCF(Federated):
    dim: int = 32  # length of user and item vectors
    alpha: float = 1.0  # weight of a consumed item is 1 + alpha r
    by_rating: bool = False  # r is the rating, not how often she had it (1 unless repeats are kept)
    reg: float = 0.5  # ridge of the closed-form user solve
    reg_item: float = 0.0  # ridge on the items, in the server's step, per client
    lr: float = 0.06  # step size of the server's Adam
    beta1: float = 0.9
    beta2: float = 0.99
    start: float = 0.1  # deviation of the first item vectors

    name: ClassVar[str] = "fcf"
    citation: ClassVar[str] = "Ammad-ud-din et al., Federated Collaborative Filtering, arXiv:1901.09888, 2019"
    sends: ClassVar[str] = "the gradient of every item's row; consumed ones stand out by their size"
    default_rounds: ClassVar[int] = 40
    home: ClassVar[str] = "federank"
    most_in_chunk: ClassVar[int] = 16  # an upload is as long as the table
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_published": {"dim": 20, "lr": 0.1, "alpha": 1.0, "reg": 1.0, "reg_item": 1e-4},
    }

    def __post_init__(self) -> None:
        if self.reg <= 0.0 or self.alpha < 0.0:
            raise CoterieError(f"reg is {self.reg} and alpha {self.alpha}; the solve needs reg > 0 and alpha >= 0")

    def init_server(self, n_items: int, seed: int) -> Server:
        table = self.start * rng.generator(seed, rng.ITEM_START).standard_normal((n_items, self.dim), np.float32)
        return Server(table.astype(np.float32), Adam.zeros(table.shape))

    def init_clients(self, history: History, seed: int) -> Client:
        return Client(np.zeros((history.n_clients, self.dim), np.float32))

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        return Download(server.table, np.empty(0, np.float32))

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        table, n, m = download.table, len(ids), len(download.table)
        user = self._solved(table, history, ids)
        clients.user[ids] = user
        values, losses = np.empty((n * m, self.dim), np.float32), np.empty(n)
        _gradients(ids, history.indptr, history.items, self._worth(history), self.alpha, table, user, values, losses)
        rows = np.tile(np.arange(m, dtype=np.int32), n)
        upload = Upload(np.arange(n + 1) * m, rows, values, np.empty((n, 0), np.float32))
        return upload, Report(losses, np.full(n, m), None)

    def server_step(self, server: Server, received: Sum, round_: int) -> Server:
        step = real(received.rows) / max(int(received.clients[0]), 1) - self.reg_item * server.table
        return Server(*adam_step(server.table, server.moments, step, round_, self.lr, (self.beta1, self.beta2)))

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        scores: np.ndarray = self._solved(server.table, history, users) @ server.table.T
        return scores

    def newcomer(self, server: Server, history: History, seed: int) -> Client:
        return Client(self._solved(server.table, history, np.arange(history.n_clients)))

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.table

    def _worth(self, history: History) -> np.ndarray:
        return history.ratings if self.by_rating else history.counts

    def _solved(self, table: np.ndarray, history: History, ids: np.ndarray) -> np.ndarray:
        """float32[c, dim]: each one's vector for this table."""
        wide = table.astype(np.float64)
        gram = wide.T @ wide + self.reg * np.eye(self.dim)
        user = np.empty((len(ids), self.dim), np.float32)
        _solve(ids, history.indptr, history.items, self._worth(history), self.alpha, table, gram, user)
        return user
