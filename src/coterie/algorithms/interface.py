"""What an algorithm is: a client step, a server step, a score.

Every private array has a leading client axis, and a device is a cohort of one: the same step trains all simulated
clients and one real person. `Upload` and `Download` are the only two types that ever cross the network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from coterie.ragged import Ragged


class Sharing(NamedTuple):
    """What each person chose to share. It stays on her device, like the history it speaks of."""

    pi: np.ndarray  # float64[n]: the share of her items' updates that she lets go; NaN where she left it to the run
    never: Ragged  # items of hers that never leave as consumed ones, ascending


class History(NamedTuple):
    """What devices know: each client's own training items. Held-out items are not in here."""

    indptr: np.ndarray  # int64[n + 1]
    items: np.ndarray  # int32[nnz]: her items, distinct and ascending
    counts: np.ndarray  # float32[nnz]: how many rows stand behind each (1 unless repeats are kept)
    ratings: np.ndarray  # float32[nnz]
    forbidden: Ragged  # items that may not be drawn as negatives; her own items under the clean protocol
    keys: np.ndarray  # uint64[n]: the root of each client's random numbers
    n_items: int
    sharing: Sharing | None = None  # people's own choices, where they made any
    ages: np.ndarray | None = None  # int32[nnz]: 0 is her latest item, 1 the one before; None: times are not known

    @property
    def n_clients(self) -> int:
        return len(self.indptr) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.indptr)


class Download(NamedTuple):
    """What the server sends to each client of a cohort."""

    table: np.ndarray  # float32[m, w]: the shared item table
    dense: np.ndarray  # float32[p]: shared numbers that belong to no item
    own: np.ndarray | None = None  # float32[c, m, w]: a table for each client, where the method has one
    rows: np.ndarray | None = None  # int64[c]: how many rows of each table a client is sent, where not all
    sent: int | None = None  # bytes for each client, where the table goes in another form than plain float32

    @property
    def bytes_per_client(self) -> float:
        """The mean over the cohort."""
        if self.sent is not None:
            return self.sent
        own = 0 if self.own is None else self.own[0].nbytes
        share = 1.0 if self.rows is None else float(self.rows.mean()) / len(self.table)
        return (self.table.nbytes + own) * share + self.dense.nbytes


class Upload(NamedTuple):
    """What leaves the devices of a cohort in one round."""

    indptr: np.ndarray  # int64[c + 1]: client i's rows are rows[indptr[i]:indptr[i + 1]]
    rows: np.ndarray  # int32[r]: item numbers
    values: np.ndarray  # float32[r, w]: one vector for each row
    dense: np.ndarray  # float32[c, p]: what belongs to no item
    sent: np.ndarray | None = None  # int64[c]: bytes, where rows go in another form than plain float32

    def bytes_per_client(self, n_items: int) -> np.ndarray:
        """int64[c]: touched rows with their numbers, or the whole table where that is shorter."""
        if self.sent is not None:
            return self.sent
        width = self.values.shape[1] * 4
        return np.minimum(np.diff(self.indptr) * (4 + width), n_items * width) + self.dense.shape[1] * 4


class Report(NamedTuple):
    """What a client step says about itself. In the simulator only: on a device it stays there."""

    loss: np.ndarray  # float64[c]: mean loss of the first local pass, before it changed anything
    examples: np.ndarray  # int64[c]
    negatives: Ragged | None  # the negatives each client drew, for the leak canary


class Collected(NamedTuple):
    """Single uploads of a round, for servers that need more than their sum; in parts, as together they may be large."""

    ids: list[np.ndarray]  # int64[c]: whose uploads each part holds; ascending over all parts
    uploads: list[Upload]


class Sum(NamedTuple):
    """Uploads added up in fixed point: no order of clients, threads or nodes can change a bit of it."""

    rows: np.ndarray  # int64[m, w]
    touched: np.ndarray  # int64[m]: how many clients sent this row
    dense: np.ndarray  # int64[p]
    clients: np.ndarray  # int64[1]


class Walk(NamedTuple):
    """What came of many exchanges with one client each, done in one call."""

    server: Any
    ids: np.ndarray  # int64[c]: who took part, each once, ascending
    report: Report  # one row for each of `ids`, over all her exchanges
    touched: np.ndarray  # int64[m]: how often each item's row was sent to the server
    bytes_up: int  # in all
    bytes_down: int


class Algorithm(ABC):
    """Common to all. A subclass is a final frozen dataclass; its fields are its hyper-parameters."""

    name: ClassVar[str]
    citation: ClassVar[str]
    sends: ClassVar[str]  # one line: what a person's device sends to the server
    behaviours: ClassVar[dict[str, dict[str, Any]]]  # named sets of hyper-parameters; "coterie" are the defaults
    default_rounds: ClassVar[int] = 100
    default_cohort: float | int = 1.0  # share or number of clients in an exchange, unless the run says other
    collaborative: ClassVar[bool] = True  # learns from others' taste, so the checkerboard world must be learnt
    draws_negatives: ClassVar[bool] = False
    home: ClassVar[str] = "fedrap"  # whose paper protocol `--protocol paper` means

    @abstractmethod
    def score(self, server: Any, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        """float32[len(users), m]: each user's score of every item."""

    @abstractmethod
    def newcomer(self, server: Any, history: History, seed: int) -> Any:
        """Client state of people who were not in training, solved from their histories on their side."""

    def record(self, server: Any) -> dict[str, Any]:
        """Numbers of the server's state worth a place in each round's record."""
        return {}

    def item_vectors(self, server: Any) -> np.ndarray:
        """float32[m, k]: vectors whose cosine says how alike two items are."""
        from coterie.errors import CoterieError

        raise CoterieError(f"{self.name} has no item vectors, so it cannot say which items are alike.")


class Federated(Algorithm):
    """A system whose server holds item-side parameters only."""

    never_twice_running: bool = False  # who took part in a round rests in the next
    collects: ClassVar[bool] = False  # the server step needs single uploads, not their sum
    pieces: ClassVar[int] = 8  # into how many parts a cohort is cut for each thread; few where a part has a fixed cost
    guides_newcomers: ClassVar[bool] = True  # others' taste reaches people outside training, beyond popularity
    newcomer_rounds: ClassVar[int] = 30  # how long a person who was not in training trains on her own
    most_in_chunk: ClassVar[int] = 256  # most clients in one call of the client step, where the engine may choose
    dense_unchanged: ClassVar[float] = 0.0  # what `Upload.dense` holds of a client who changed nothing
    server_only: ClassVar[dict[str, Any]] = {}  # settings under which no private item table is used, where it has one

    @abstractmethod
    def init_server(self, n_items: int, seed: int) -> Any:
        """What the server holds before the first round."""

    @abstractmethod
    def init_clients(self, history: History, seed: int) -> Any:
        """What never leaves the devices, before the first round."""

    @abstractmethod
    def download(self, server: Any, ids: np.ndarray, round_: int) -> Download:
        """What the server sends to these clients."""

    @abstractmethod
    def client_step(
        self, clients: Any, ids: np.ndarray, history: History, download: Download, round_: int, seed: int
    ) -> tuple[Upload, Report]:
        """Train clients `ids` in place and return what they send."""

    @abstractmethod
    def server_step(self, server: Any, received: Any, round_: int) -> Any:
        """Fold what was received (a `Sum`, or `Collected` uploads if `collects`) into the next server."""

    def enrol(self, server: Any, n_clients: int, history: History | None) -> Any:
        """Make room for what the server keeps for each client, before the first round; called by every engine.

        `history` is there in the simulator only, for the papers' graphs that no real server could draw.
        """
        return server

    def plan(self, history: History, size: float | int, seed: int, round_: int) -> Ragged | None:
        """Who takes part in each exchange, where a round is an epoch of many; None: one, drawn by the engine."""
        return None

    def walk(
        self, server: Any, clients: Any, visits: np.ndarray, history: History, first: int, seed: int
    ) -> Walk | None:
        """The exchanges `first`, `first` + 1, ... with one client each, in one call; None: not offered.

        The same as client step, sum and server step for each of `visits` in turn, but for the rounding of the sum.
        """
        return None

    def seen(self, download: Download, n_items: int, seed: int) -> Any:
        """The server as a device knows it, for scoring there: its last download in the place of the shared table."""
        return self.init_server(n_items, seed)._replace(table=download.table)

    def newcomer(self, server: Any, history: History, seed: int) -> Any:
        """Her own client steps against the finished server; what they would upload is thrown away."""
        clients = self.init_clients(history, seed)
        ids = np.arange(history.n_clients)
        for round_ in range(1, self.newcomer_rounds + 1):
            self.client_step(clients, ids, history, self.download(server, ids, round_), round_, seed)
        return clients


class Central(Algorithm):
    """A yardstick that sees everybody's history. `clients` is unused: all it learns is in `server`."""

    default_rounds: ClassVar[int] = 1

    @abstractmethod
    def init(self, history: History, seed: int) -> Any:
        """The model before training."""

    @abstractmethod
    def train(
        self, server: Any, history: History, round_: int, seed: int
    ) -> tuple[Any, float | None] | tuple[Any, float | None, Ragged]:
        """One round (an epoch, or all of a closed form), its loss and, if it `draws_negatives`, the negatives."""

    def newcomer(self, server: Any, history: History, seed: int) -> Any:
        return ()
