"""FedRAP: each person's view of the items is a shared sparse table plus a private one.

r = sigma(<u_i, D_i[j] + C[j]> + b_i). C goes to the server, which averages; D_i, u_i and b_i stay. A client's loss:
BCE - lambda(a) ||D_i - C||^2 + mu(a) ||C||_1: the two views shall differ, and the shared one be sparse; both weights
follow a curriculum in the round a. The sign of lambda is Equation 3's; the paper's appendix has the other one.

*as_published*: sums, regularisers over whole tables, soft-thresholding of C (Eq. 13), half of the clients in a round,
nobody twice running, prediction with the C_i a client trained last. The objective has no lower bound: a run that
diverges stops and says so. *as_released*: what the tables came from (the authors' public code): means over the batch,
rates decaying by round and step, weight decay on every row, all clients, prediction with the new mean of C. The
curriculum is computed there but never applied, so it is "fixed" here. *coterie*: FedMF's server-side Adam for C, and D
as a small private correction on her own items; docs/findings/private-table.md says why it is that small.

A row of C that nobody has ever touched says nothing about its item (its start is noise), so such items are scored
-inf: they are recommended to nobody until somebody's device has met them, as a positive or as a negative.

Li, Long, Zhou: Federated Recommendation with Additive Personalization. ICLR 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np

from coterie import rng
from coterie.algorithms import curriculum, encoding, factor, negatives, pool
from coterie.algorithms.interface import Download, Federated, History, Report, Sum, Upload
from coterie.algorithms.rowstore import RowStore
from coterie.algorithms.server import Adam, adam_step, real
from coterie.errors import CoterieError

_PENALTIES = {"l1": factor.L1, "l2": factor.L2, "soft-threshold": factor.SOFT_THRESHOLD, "none": factor.NO_PENALTY}


class Server(NamedTuple):
    table: np.ndarray  # float32[m, dim (+ 1)]: C, and the item's bias in the last column if there is one
    moments: Adam  # of the server's optimiser (empty for the plain mean)
    met: np.ndarray  # bool[m]: has anybody ever sent this row


class Client(NamedTuple):
    user: np.ndarray  # float32[n, dim]: u
    bias: np.ndarray  # float32[n]: b
    own: RowStore  # D: float32[n, m, dim] in effect
    trained: np.ndarray  # float32[n, m, dim]: the C_i trained last, where prediction uses it; else empty
    has_trained: np.ndarray  # bool[n]: whether there is such a C_i


@final
@dataclass(frozen=True)
class FedRAP(Federated):
    dim: int = 32  # length of user and item vectors
    negatives: int = 16  # distinct sampled negatives for each positive, redrawn each round
    epochs: int = 1  # local passes in a round
    batch: int = 1 << 20  # most rows in one local gradient step
    mean_loss: bool = False  # gradients are means over the batch, not sums
    item_bias: bool = True  # each item has a shared bias
    user_bias: bool = False  # each client has a bias of her own
    start: float = 0.02  # deviation of the first C and u
    start_own: float = 0.0  # deviation of the first D
    uniform_user: bool = False  # u and b start at the same U(+-1/sqrt(dim)) for all clients
    lr_user: float = 0.25  # user step size, over the square root of the history's length if user_rate_by_history
    user_rate_by_history: bool = True
    lr_item: float = 0.008  # step size of C on the client
    lr_own: float = 0.00001  # step size of D; validation would have none (docs/findings/private-table.md)
    reg_user: float = 0.01  # weight decay of u
    reg_item: float = 0.1  # weight decay of C on the client
    reg_own: float = 0.1  # weight decay of D
    own_items: bool = True  # D has rows for her own items only (all items where there is no C)
    decay_everywhere: bool = False  # weight decay also on rows outside the batch
    round_decay: float = 1.0  # all client rates are multiplied by this after each round
    step_decay: float = 1.0  # and by this after each step within a round
    apart: float = 0.0  # lambda: weight of -||D - C||^2
    sparse: float = 0.0  # mu: weight of ||C||_1
    tolerance: float = 0.0  # local stop: relative change of the running mean loss; 0 is off
    aggregate: Literal["adam", "mean"] = "adam"  # what the server does with the movements of C
    lr_server: float = 0.05  # step size of the server's Adam
    beta1: float = 0.9
    beta2: float = 0.99
    half_life: float = 8.0  # a positive's weight halves with every so many later ones, where times are known; 0: never
    oldest: float = 0.05  # but no less than this much of her latest's
    shared: bool = True  # the shared table C is there (fedrap-d: it is not)
    private: bool = True  # the private table D is there (fedrap-c: it is not)
    penalty: Literal["l1", "l2", "soft-threshold", "none"] = "l1"  # on C; soft-threshold is L1 by its proximal step
    whole: bool = False  # regularisers act on whole tables instead of the batch's rows
    curriculum: Literal["fixed", "tanh", "sin", "square", "frac"] = "fixed"  # how lambda and mu change with the round
    curriculum_form: Literal["published", "released"] = "released"  # the paper's formulas or the code's
    predict_with: Literal["mean", "trained"] = "mean"  # the server's C, or the C_i this client trained last
    never_twice_running: bool = False  # who took part in a round rests in the next
    default_cohort: float = 1.0  # share of the clients in a round unless the run says other
    pool: int = 0  # draw negatives from a fixed pool of so many items per user (0: from all): bounds her table
    send_above: float = 0.0  # entries of C smaller than this are not sent, in either direction
    send_as: Literal["best", "dense", "rows", "entries"] = "best"  # the form of C on the wire; best: rows or dense
    send_half: bool = False  # two bytes a number instead of four

    name: ClassVar[str] = "fedrap"
    citation: ClassVar[str] = "Li, Long, Zhou, Federated Recommendation with Additive Personalization, ICLR 2024"
    draws_negatives: ClassVar[bool] = True
    most_in_chunk: ClassVar[int] = 64  # a chunk's upload of some MB: memory the allocator has at hand, near the cache
    dense_unchanged: ClassVar[float] = 1.0  # `dense` is a factor on the rows she did not touch
    server_only: ClassVar[dict[str, Any]] = {"private": False, "predict_with": "mean"}
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_published": {
            "dim": 32, "negatives": 4, "epochs": 10, "mean_loss": False, "item_bias": False, "start": 0.1,
            "start_own": 0.1, "lr_user": 0.01, "user_rate_by_history": False, "lr_item": 0.01, "lr_own": 0.01,
            "reg_user": 0.0, "reg_item": 0.0, "reg_own": 0.0, "apart": 1e-3, "sparse": 1e-3,
            "penalty": "soft-threshold", "whole": True, "curriculum": "tanh", "curriculum_form": "published",
            "predict_with": "trained", "never_twice_running": True, "default_cohort": 0.5, "aggregate": "mean",
            "own_items": False, "half_life": 0.0,
        },
        "as_released": {
            "dim": 32, "negatives": 4, "epochs": 10, "batch": 2048, "mean_loss": True, "item_bias": False,
            "user_bias": True, "start": 1.0, "start_own": 1.0, "uniform_user": True, "lr_user": 0.5,
            "user_rate_by_history": False, "lr_item": 200.0, "lr_own": 200.0, "reg_user": 1e-4, "reg_item": 1e-4,
            "reg_own": 1e-4, "decay_everywhere": True, "round_decay": 0.97, "step_decay": 0.95, "apart": 0.1,
            "sparse": 0.1, "tolerance": 1e-4, "aggregate": "mean", "own_items": False, "half_life": 0.0,
        },
    }  # fmt: skip

    @property
    def sends(self) -> str:  # type: ignore[override]
        if not self.shared:
            return "nothing: she trains alone"
        return "movement of the shared table's rows she touched; her own table and vector stay"

    @property
    def collaborative(self) -> bool:  # type: ignore[override]
        return self.shared

    def __post_init__(self) -> None:
        factor.check_recency(self.half_life, self.oldest, self.batch)
        if not (self.shared or self.private):
            raise ValueError("shared=False and private=False leave no item table at all; keep one of them")
        if self.own_items and self.shared and self.start_own != 0:
            raise ValueError(
                f"start_own={self.start_own} with own_items: D is 0 outside her items; use 0, or own_items=false"
            )
        if self.pool < 0 or self.send_above < 0:
            raise ValueError(f"pool={self.pool}, send_above={self.send_above}: neither can be below 0")

    def init_server(self, n_items: int, seed: int) -> Server:
        table = self.start * rng.generator(seed, rng.ITEM_START).standard_normal((n_items, self.dim), np.float32)
        if self.item_bias:
            table = np.hstack([table, np.zeros((n_items, 1), np.float32)])
        if not self.shared:
            table = table[:, :0]
        moments = table.shape if self.aggregate == "adam" else (0, 0)
        return Server(table.astype(np.float32), Adam.zeros(moments), np.zeros(n_items, bool))

    def init_clients(self, history: History, seed: int) -> Client:
        n, m = history.n_clients, history.n_items
        draws = rng.generator(seed, rng.USER_START)  # one start for all, so it may come from the shared seed
        own = self.start_own * draws.standard_normal((m, self.dim), np.float32)
        user, bias = np.empty((n, self.dim), np.float32), np.zeros(n, np.float32)
        if self.uniform_user:
            edge = self.dim**-0.5
            user[:] = draws.uniform(-edge, edge, self.dim)
            bias[:] = draws.uniform(-edge, edge)
        else:
            rng.fill_normal(user, self.start, seed, history.keys, rng.USER_START)
        store = RowStore.empty(n if self.private else 0, own.astype(np.float32))
        keeps = self.shared and self.predict_with == "trained"
        trained = np.zeros((n, m, self.dim + self.item_bias) if keeps else (0, 0, 0), np.float32)
        return Client(user, bias, store, trained, np.zeros(n, bool))

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        if self._plain:
            return Download(server.table, np.empty(0, np.float32))
        table = encoding.arrives(server.table, self.send_above, self.send_half)
        sent = self._cost(table, len(table))
        return Download(table, np.empty(0, np.float32), sent=sent)

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        if self.pool:
            drawn = pool.draw(history, ids, self.negatives, self.pool, seed, round_)
        else:
            drawn = negatives.draw(history, ids, self.negatives, seed, round_)
        fade = self.round_decay ** (round_ - 1)
        rate = np.full(len(ids), self.lr_user * fade)
        if self.user_rate_by_history:
            rate /= np.sqrt(np.maximum(history.lengths[ids], 1))
        upload, report = factor.train(
            ids, history, drawn, download, clients.user, clients.bias, clients.own if self.private else None, rate,
            self.local(round_), round_, seed,
        )  # fmt: skip
        if len(clients.trained):
            for place, client in enumerate(ids):
                rows = upload.rows[upload.indptr[place] : upload.indptr[place + 1]]
                moved = upload.values[upload.indptr[place] : upload.indptr[place + 1]]
                clients.trained[client] = upload.dense[place, 0] * download.table
                clients.trained[client, rows] += moved
            clients.has_trained[ids] = True
        if not self.shared:
            return upload._replace(dense=np.empty((len(ids), 0), np.float32)), report
        return (upload if self._plain else self._as_sent(upload, download.table)), report

    def local(self, round_: int) -> factor.Local:
        """This round's settings of the kernel: rates faded, regularisers weighed by the curriculum."""
        fade = self.round_decay ** (round_ - 1)
        weight = curriculum.weight(self.curriculum, self.curriculum_form, round_)
        sparse = self.sparse * weight
        if self.penalty == "soft-threshold":
            sparse = max(sparse, 0.0)  # a threshold below 0 would push entries away from 0
        return factor.Local(
            passes=self.epochs, batch=self.batch, mean=self.mean_loss, squared=False, shared=self.shared,
            private=self.private, item_bias=self.item_bias and self.shared, user_bias=self.user_bias, whole=self.whole,
            everywhere=self.decay_everywhere, rate_item=self.lr_item * fade, rate_own=self.lr_own * fade,
            decay_user=self.reg_user, decay_item=self.reg_item, decay_own=self.reg_own, step_decay=self.step_decay,
            apart=self.apart * weight, sparse=sparse, penalty=_PENALTIES[self.penalty], tolerance=self.tolerance,
            own_items=self.own_items and self.shared, half_life=self.half_life, oldest=self.oldest,
        )  # fmt: skip

    def server_step(self, server: Server, received: Sum, round_: int) -> Server:
        met = server.met | (received.touched > 0)
        if not self.shared:
            return server._replace(met=met)
        moved = real(received.rows)
        if self.aggregate == "adam":
            step = moved / np.sqrt(np.maximum(received.touched, 1))[:, None]
            table, moments = adam_step(
                server.table, server.moments, step, round_, self.lr_server, (self.beta1, self.beta2)
            )
            return Server(table, moments, met)
        clients = max(int(received.clients[0]), 1)  # the mean of whole tables, from shrinks and touched rows alone
        before = encoding.arrives(server.table, self.send_above, self.send_half)  # what the clients began with
        table = real(received.dense)[0] / clients * before + moved / clients
        return Server(table.astype(np.float32), server.moments, met)

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        own = clients.own if self.private else None
        bias = self.item_bias and self.shared
        scores = factor.score(users, server.table, clients.user, clients.bias, own, self.shared, bias)
        if len(clients.trained):
            for place, user in enumerate(users):
                if clients.has_trained[user]:
                    one, table = users[place : place + 1], clients.trained[user]
                    scores[place] = factor.score(one, table, clients.user, clients.bias, own, True, bias)[0]
        if self.shared and server.met.any():
            scores[:, ~server.met] = -np.inf
        return scores

    def newcomer(self, server: Server, history: History, seed: int) -> Client:
        if not self.shared:
            raise CoterieError(
                "fedrap-d shares nothing, so it has nothing to offer a person outside training; use fedrap or fedrap-c"
            )
        found: Client = super().newcomer(server, history, seed)
        return found

    def item_vectors(self, server: Server) -> np.ndarray:
        if not self.shared:
            raise CoterieError("fedrap-d has no shared item table, so the server cannot say which items are alike")
        return server.table[:, : self.dim]

    def views(self, server: Server, clients: Client, user: int) -> dict[str, np.ndarray]:
        """The two tables behind one person's scores: C and her D, float32[m, dim] each."""
        nothing = np.zeros((len(server.met), self.dim), np.float32)
        return {
            "C": server.table[:, : self.dim] if self.shared else nothing,
            "D": clients.own.table(user) if self.private else nothing,
        }

    def record(self, server: Server) -> dict[str, Any]:
        """Share of |C| above each size: what a sparse exchange could leave out."""
        if not self.shared:
            return {}
        sizes = np.abs(server.table[:, : self.dim])
        return {"shares": {f"1e-{n:02d}": float((sizes > 10.0**-n).mean()) for n in range(1, 7)}}

    @property
    def _plain(self) -> bool:
        """C is sent as it is."""
        return self.send_above == 0 and self.send_as == "best" and not self.send_half

    def _cost(self, sent: np.ndarray, n_items: int) -> int:
        forms: tuple[encoding.Form, ...] = ("dense", "rows") if self.send_as == "best" else (self.send_as,)
        return min(encoding.cost(sent, form, self.send_half, n_items) for form in forms)

    def _as_sent(self, upload: Upload, before: np.ndarray) -> Upload:
        """The same upload as it arrives: of each trained C_i what is large enough, in the numbers it is sent in."""
        values, sent = np.empty_like(upload.values), np.empty(len(upload.indptr) - 1, np.int64)
        for c in range(len(sent)):
            part = slice(upload.indptr[c], upload.indptr[c + 1])
            kept = upload.dense[c, 0] * before[upload.rows[part]]
            arrived = encoding.arrives(upload.values[part] + kept, self.send_above, self.send_half)
            values[part] = arrived - kept
            sent[c] = self._cost(arrived, len(before)) + upload.dense.shape[1] * 4
        return upload._replace(values=values, sent=sent)
