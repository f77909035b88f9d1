"""Federated EASE: the closed form of EASE from one exact sum of everybody's item-item counts.

EASE needs nothing of the people but G = X^T X, and G is a sum over people: client i adds 1 to every pair of items that
she has. She sends her counts once; the server adds them up in fixed point, so G is exact, and solves
B = I - P diag(1 / diag(P)), P = (G + reg I)^-1, with the code of central EASE: the same counts give the same weights,
bit for bit. The ridge grows with the people in the sum: beside her counts each sends a 1, so their number is known too.
B goes to the devices, where <her items, B> is her score.

G is symmetric, so each pair travels once: the count of (i, j) stands in row i at column (j - i) mod m, or in row j at
column (i - j) mod m, whichever column is at most m / 2. The upload has a row for each of her items, m / 2 + 1 wide.

In the clear these counts are her history: only the sum is harmless, so this is the system to run behind a secure sum.
With cohorts smaller than everybody she sends in the first round that draws her and never again: after enough rounds G
is everybody's. One round with all clients is the whole training.

Steck: Embarrassingly Shallow Autoencoders for Sparse Data. WWW 2019 (the closed form).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from numba import njit

from coterie.algorithms.central.ease import MOST_ITEMS, binary, ridge, solve
from coterie.algorithms.interface import Download, Federated, History, Report, Sum, Upload
from coterie.algorithms.server import FIXED_POINT
from coterie.errors import CoterieError


class Server(NamedTuple):
    counts: np.ndarray  # int32[m, m]: G, in how many histories two items stand together
    weights: np.ndarray  # float32[m, m]: B
    people: np.ndarray  # int64[1]: whose counts these are


class Client(NamedTuple):
    sent: np.ndarray  # bool[n]: she has sent her counts


@njit(nogil=True, cache=True)
def _fold(ids, indptr, items, sent, n_items, up_indptr, rows, values):  # type: ignore[no-untyped-def]
    """Write each client's pair counts into her rows; `values` comes as zeros."""
    half = n_items // 2
    cursor = 0
    for c in range(len(ids)):
        first, last = indptr[ids[c]], indptr[ids[c] + 1]
        if not sent[ids[c]]:
            for p in range(first, last):
                i = np.int64(items[p])
                rows[cursor + p - first] = items[p]
                for q in range(p, last):  # her items are ascending, so j >= i
                    apart = np.int64(items[q]) - i
                    if apart <= half:
                        values[cursor + p - first, apart] = np.float32(1.0)
                    else:
                        values[cursor + q - first, n_items - apart] = np.float32(1.0)
            cursor += last - first
        up_indptr[c + 1] = cursor


def unfold(folded: np.ndarray) -> np.ndarray:
    """int32[m, m]: the symmetric counts from the form in which each pair stands once."""
    m, width = folded.shape
    whole = np.zeros((m, m), np.int32)
    rows = np.arange(m)[:, None]
    whole[rows, (rows + np.arange(width)) % m] = folded
    diagonal = np.diag(whole).copy()
    whole += whole.T.copy()
    np.fill_diagonal(whole, diagonal)
    return whole


@final
@dataclass(frozen=True)
class FedEASE(Federated):
    reg: float | Literal["people"] = "people"  # ridge: `each` x the people in the sum; or a number
    each: float = 0.1  # what each person adds to the ridge with reg=people

    name: ClassVar[str] = "fedease"
    citation: ClassVar[str] = "Steck, Embarrassingly Shallow Autoencoders for Sparse Data, WWW 2019; federated here"
    sends: ClassVar[str] = "which of her items stand together, once: her history unless behind a secure sum"
    default_rounds: ClassVar[int] = 1
    most_in_chunk: ClassVar[int] = 16  # an upload is wide: few clients at a time
    newcomer_rounds: ClassVar[int] = 0  # scoring needs her history and nothing else
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def init_server(self, n_items: int, seed: int) -> Server:
        if n_items > MOST_ITEMS:
            raise CoterieError(
                f"fedease inverts an items x items matrix and each client sends up to {2 * n_items**2 / 1e9:.1f} GB: "
                f"{n_items} items are above the limit of {MOST_ITEMS}. Use fedmf, or keep only items with several "
                "interactions."
            )
        counts, weights = np.zeros((n_items, n_items), np.int32), np.zeros((n_items, n_items), np.float32)
        return Server(counts, weights, np.zeros(1, np.int64))

    def init_clients(self, history: History, seed: int) -> Client:
        return Client(np.zeros(history.n_clients, np.bool_))

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        # What she scores with. In the one round of a closed form it follows the upload; its bytes are counted here.
        return Download(server.weights, np.empty(0, np.float32))

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        fresh = ~clients.sent[ids] & (history.lengths[ids] > 0)
        size = int(history.lengths[ids][fresh].sum())
        indptr, rows = np.zeros(len(ids) + 1, np.int64), np.empty(size, np.int32)
        values = np.zeros((size, history.n_items // 2 + 1), np.float32)
        _fold(ids, history.indptr, history.items, clients.sent, history.n_items, indptr, rows, values)
        clients.sent[ids] = True
        nothing = np.zeros(len(ids))
        upload = Upload(indptr, rows, values, fresh[:, None].astype(np.float32))
        return upload, Report(nothing, nothing.astype(np.int64), None)

    def server_step(self, server: Server, received: Sum, round_: int) -> Server:
        if not received.touched.any():  # everybody drawn has sent before
            return server
        counts = server.counts + unfold(np.rint(received.rows / FIXED_POINT).astype(np.int32))
        people = server.people + np.rint(received.dense / FIXED_POINT).astype(np.int64)
        reg, there = ridge(self.reg, self.each, int(people[0])), np.flatnonzero(np.diag(counts))
        if 2 * len(there) > len(counts):
            return Server(counts, solve(counts, reg), people)
        weights = np.zeros_like(server.weights)  # items nobody has weigh nothing: leave them out of the inverse
        weights[np.ix_(there, there)] = solve(counts[np.ix_(there, there)], reg)
        return Server(counts, weights, people)

    def seen(self, download: Download, n_items: int, seed: int) -> Server:
        return self.init_server(n_items, seed)._replace(weights=download.table)

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        scores: np.ndarray = binary(history, users) @ server.weights
        return scores

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.weights.T
