"""FedeRank: learning to rank (BPR) on the devices, each person deciding how much of what she consumed leaves hers.

x_ui = b_i + <p_u, q_i>. The server holds Q and b, the client p_u. In an exchange the client draws T triples
(consumed i, other j) and takes the gradient of ln sigma(x_ui - x_uj) - regularisation (the paper's Eq. 1 and 2 have
i and j swapped). p_u moves at once; the summed gradients of the items' rows are sent, those of a consumed item with
probability pi only, those of the others always. The server adds lr x what it gets. An exchange has one client
(`cohort`), so an epoch is sequential; `rounds` counts epochs. T = 1 draws (user, item) uniformly over all positives as
BPR does, any other T visits people in random order.

*as_published*: T = X+/|U|, p_u moves once by the summed gradient, pi is drawn for each item in each exchange.
*as_released*: T is her own count, p_u moves after each triple, pi is drawn for each triple. The released sampler tests
indices instead of values and so may draw consumed items as negatives: a bug, not reproduced.
*coterie*: p_u moves after each triple; the negative is the item she would rank highest of a few drawn (Zhang et al.
2013), found on the device, of more where there are more items; the server steps by Adagrad, longer for rare items.

pi is a control over sharing, not privacy: a mask redrawn each time shows every consumed item in the end, if only by its
never being a negative. `sharing=fixed-subset` draws the shared items once, and hidden ones may be drawn as negatives
like any unseen item. Never-share items are treated so in both modes: they are never sent as consumed.

Anelli, Deldjoo, Di Noia, Ferrara, Narducci: FedeRank: User Controlled Feedback with Federated Recommender Systems.
ECIR 2021. Rendle et al.: BPR: Bayesian Personalized Ranking from Implicit Feedback. UAI 2009. Zhang, Chen, Wang, Yu:
Optimizing Top-N Collaborative Filtering via Dynamic Negative Item Sampling. SIGIR 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np

from coterie import rng
from coterie.algorithms import factor
from coterie.algorithms import federank_kernel as kernel
from coterie.algorithms.interface import Download, Federated, History, Report, Sum, Upload, Walk
from coterie.algorithms.server import real
from coterie.errors import CoterieError
from coterie.ragged import Ragged


class Server(NamedTuple):
    table: np.ndarray  # float32[m, dim + 1]: Q, and b in the last column
    squares: np.ndarray  # float32[m, dim + 1]: sums of squared updates (Adagrad); [0, 0] where there is no Adagrad


class Client(NamedTuple):
    user: np.ndarray  # float32[n, dim]: p_u


@final
@dataclass(frozen=True)
class FedeRank(Federated):
    dim: int = 64  # F: length of user and item vectors
    triples: int | Literal["average", "own"] = "average"  # T: a number, X+/|U| of the clients at hand, or her own count
    pi: float = 1.0  # share of the consumed items' updates that is sent; a person's own choice goes before it
    sharing: Literal["per-round", "fixed-subset"] = "per-round"  # the mask is drawn each time, or once for all
    mask: Literal["item", "triple"] = "item"  # per-round: pi is drawn for each item, or for each triple
    user_moves: Literal["once", "each"] = "each"  # p_u moves by the summed gradient, or after each triple
    hardest: int | Literal["by-items"] = "by-items"  # the negative is the best ranked of so many; by-items: sqrt(m) / 8
    lr: float = 1.2  # alpha: step size of the client, over the square root of her history's length if rate_by_history
    rate_by_history: bool = True
    lr_server: float | None = 0.04  # step size of the server; None: as the client's
    optimiser: Literal["sgd", "adagrad"] = (
        "adagrad"  # the server's step is the same for all rows, or longer for rare ones
    )
    first_square: float = 0.1  # adagrad: what the sums of squares begin with
    reg: float = 0.02  # regularisation of user and consumed item, as a share of lr
    reg_negative: float = 0.00075  # regularisation of the item not consumed, as a share of lr
    start: float = 0.01  # deviation of the first vectors and biases

    name: ClassVar[str] = "federank"
    citation: ClassVar[str] = "Anelli et al., FedeRank: User Controlled Feedback with Federated Recommenders, ECIR 2021"
    sends: ClassVar[str] = "gradients of sampled items' rows; of items she consumed, the share pi she chose"
    default_rounds: ClassVar[int] = 20  # epochs
    default_cohort = 1
    draws_negatives: ClassVar[bool] = True
    home: ClassVar[str] = "federank"
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {
        "coterie": {},
        "as_published": {
            "dim": 20, "triples": "average", "user_moves": "once", "mask": "item", "hardest": 1, "lr": 0.05,
            "rate_by_history": False, "lr_server": None, "optimiser": "sgd", "reg": 0.05, "reg_negative": 0.005,
            "start": 0.1,
        },
        "as_released": {
            "dim": 20, "triples": "own", "user_moves": "each", "mask": "triple", "hardest": 1, "lr": 0.05,
            "rate_by_history": False, "lr_server": None, "optimiser": "sgd", "reg": 0.05, "reg_negative": 0.005,
            "start": 0.1,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        if not 0.0 <= self.pi <= 1.0:
            raise CoterieError(f"pi is {self.pi}; it is a share of her items, so give a number from 0 to 1")
        if self.dim < 1 or min(self.lr, self.reg, self.reg_negative, self.start, self.lr_server or 0.0) < 0.0:
            raise CoterieError(
                f"dim is {self.dim}, lr {self.lr}, lr_server {self.lr_server}, reg {self.reg}, reg_negative "
                f"{self.reg_negative}, start {self.start}; dim must be 1 or more, and none of the others below 0"
            )
        if not isinstance(self.hardest, str) and self.hardest < 1:
            raise CoterieError(f"hardest is {self.hardest}; at least 1 item must be drawn for a triple")
        if not isinstance(self.triples, str) and self.triples < 1:
            raise CoterieError(
                f"triples is {self.triples}; T counts the triples of an exchange: 1 or more, average, own"
            )

    def init_server(self, n_items: int, seed: int) -> Server:
        draws = rng.generator(seed, rng.ITEM_START).standard_normal((n_items, self.dim + 1), np.float32)
        table = (self.start * draws).astype(np.float32)
        squares = np.full(table.shape if self.optimiser == "adagrad" else (0, 0), self.first_square, np.float32)
        return Server(table, squares)

    def init_clients(self, history: History, seed: int) -> Client:
        user = np.empty((history.n_clients, self.dim), np.float32)
        rng.fill_normal(user, self.start, seed, history.keys, rng.USER_START)
        return Client(user)

    def download(self, server: Server, ids: np.ndarray, round_: int) -> Download:
        return Download(server.table, np.empty(0, np.float32))

    def client_step(
        self, clients: Client, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        people, table = self._people(history), download.table
        settings = self._settings(len(table))
        room = kernel.buffers(len(table), int(people.triples[ids].max(initial=1)), table.shape[1], settings.hardest)
        indptr, rows, values, loss, examples, neg_indptr, drawn = kernel.steps(
            ids, round_, seed, people, table, clients.user, settings, room
        )
        sent = Upload(indptr, rows, values, np.empty((len(ids), 0), np.float32))
        return sent, Report(loss, examples, Ragged(neg_indptr, drawn))

    def server_step(self, server: Server, received: Sum, round_: int) -> Server:
        step, squares = real(received.rows), server.squares
        if self.optimiser == "adagrad":
            squares = (squares + step**2).astype(np.float32)
            step /= np.sqrt(squares)
        return Server((server.table + self._settings(len(step)).lr_server * step).astype(np.float32), squares)

    def plan(self, history: History, size: float | int, seed: int, round_: int) -> Ragged:
        """Each person once in random order; for a number T as many visits as make an epoch; cut into cohorts."""
        wanted = size if isinstance(size, int) else int(np.ceil(size * history.n_clients))
        if not 1 <= wanted <= history.n_clients:
            raise CoterieError(
                f"a cohort of {size} out of {history.n_clients} clients cannot be formed; give a share in (0, 1] or "
                f"1..{history.n_clients}"
            )
        able = np.flatnonzero(history.lengths)
        if isinstance(self.triples, str):
            visits = kernel.in_turn(able, len(able), seed, round_)
        elif self.triples == 1:
            visits = kernel.by_positives(history.indptr, len(history.items), seed, round_)
        else:
            visits = kernel.in_turn(able, -(-len(history.items) // self.triples), seed, round_)
        if wanted == 1:
            return Ragged(np.arange(len(visits) + 1), visits)
        return kernel.cohorts(visits, wanted)

    def walk(
        self, server: Server, clients: Client, visits: np.ndarray, history: History, first: int, seed: int
    ) -> Walk:
        people, table, squares = self._people(history), server.table.copy(), server.squares.copy()
        times = np.bincount(visits, minlength=history.n_clients)
        examples = times * people.triples
        indptr = np.concatenate(([0], np.cumsum(examples)))
        most = int(people.triples.max(initial=1))
        settings, ahead = self._settings(len(table)), min(kernel.AHEAD, int(indptr[-1]))
        room = kernel.buffers(len(table), most, table.shape[1], settings.hardest, ahead)
        drawn, loss, touched, up = kernel.walk(
            visits, first, seed, people, table, squares, clients.user, settings, room, indptr
        )
        ids = np.flatnonzero(times)
        report = Report(
            loss[ids] / np.maximum(examples[ids], 1), examples[ids], Ragged(np.append(indptr[ids], indptr[-1]), drawn)
        )
        return Walk(Server(table, squares), ids, report, touched, up, len(visits) * table.nbytes)

    def score(self, server: Server, clients: Client, history: History, users: np.ndarray) -> np.ndarray:
        return factor.score(users, server.table, clients.user, None, None, True, True)

    def item_vectors(self, server: Server) -> np.ndarray:
        return server.table[:, : self.dim]

    def subset(self, history: History, i: int, seed: int) -> np.ndarray:
        """fixed-subset: which items of client i are shared, in every round the same; ascending."""
        never = np.empty(0, np.int32) if history.sharing is None else history.sharing.never.of(i)
        own = np.setdiff1d(history.items[history.indptr[i] : history.indptr[i + 1]], never)
        coins, pi = np.uint64(rng.stream(seed, 0, history.keys[i], rng.SHARING)), self._people(history).pi[i]
        return own[[kernel.chosen(coins, int(j), pi) for j in own]] if len(own) else own

    def _settings(self, n_items: int) -> kernel.Settings:
        server = self.lr if self.lr_server is None else self.lr_server
        # The more items, the rarer a good one among few draws; 32 were no better than 16.
        by_items = min(max(1, round(float(np.sqrt(n_items)) / 8)), 32)
        hardest = by_items if isinstance(self.hardest, str) else self.hardest
        return kernel.Settings(
            server, self.reg * self.lr, self.reg_negative * self.lr, self.user_moves == "each",
            self.mask == "triple", hardest, self.sharing == "fixed-subset",
        )  # fmt: skip

    def _people(self, history: History) -> kernel.People:
        lengths = history.lengths
        full = np.flatnonzero((history.forbidden.lengths >= history.n_items) & (lengths > 0))
        if len(full):
            raise CoterieError(
                f"client {full[0]} has every one of the {history.n_items} items in her history: there is no negative "
                "to draw, so nothing to rank; leave such users out, or add items"
            )
        if self.triples == "own":
            triples = lengths
        else:
            able = max(int((lengths > 0).sum()), 1)
            each = -(-len(history.items) // able) if isinstance(self.triples, str) else self.triples
            triples = np.where(lengths > 0, each, 0)
        pi, never = np.full(history.n_clients, self.pi), Ragged(np.zeros(history.n_clients + 1, np.int64), _NOTHING)
        if history.sharing is not None:
            pi = np.where(np.isnan(history.sharing.pi), pi, history.sharing.pi)
            never = history.sharing.never
        rate = self.lr / np.sqrt(np.maximum(lengths, 1)) if self.rate_by_history else np.full(len(lengths), self.lr)
        return kernel.People(
            history.indptr, history.items, *history.forbidden, *never, pi, triples.astype(np.int64),
            rate.astype(np.float32), history.keys,
        )  # fmt: skip


_NOTHING = np.empty(0, np.int32)
