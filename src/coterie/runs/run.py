"""A finished run: what it measured, and recommendations from it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from coterie.algorithms.interface import History
from coterie.data.interactions import Interactions
from coterie.engine.simulate import State, start
from coterie.errors import CoterieError
from coterie.privacy.forget import left_out
from coterie.protocol import Prepared, Protocol, prepare
from coterie.ragged import Ragged
from coterie.rng import user_keys
from coterie.runs import tensors
from coterie.runs.directory import RunDirectory
from coterie.runs.drive import check_data
from coterie.runs.measure import measure
from coterie.runs.spec import DataSpec
from coterie.sharing import choose


class Recommendation(NamedTuple):
    item_id: str
    title: str
    score: float


@final
class Run:
    """`coterie.open(DIR)`. Data and model are read when first needed."""

    def __init__(self, path: str | Path, data: Interactions | None = None) -> None:
        self.directory = RunDirectory(Path(path))
        self.spec = self.directory.spec()
        self._data = data

    def __repr__(self) -> str:
        return f"Run({str(self.directory.path)!r}, {self.spec.algorithm} on {self.spec.data.source})"

    @property
    def path(self) -> Path:
        return self.directory.path

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self.directory.summary()

    @property
    def metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = self.summary["metrics"]
        return found

    @property
    def rounds(self) -> list[dict[str, Any]]:
        return self.directory.rounds()

    @cached_property
    def algorithm(self) -> Any:
        return self.spec.build()

    @cached_property
    def prepared(self) -> Prepared:
        return prepare(load_data(self.spec.data, self._data), self.spec.protocol, self.spec.seed)

    @cached_property
    def state(self) -> State:
        if not self.directory.model.exists():
            why = (
                "the run kept no model (--keep nothing)"
                if self.directory.summary_file.exists()
                else f"the run is not finished; `coterie resume {self.path}` goes on with it"
            )
            raise CoterieError(f"{self.path}: there is no model here: {why}")
        template = start(self.algorithm, self.prepared.history, self.spec.seed)
        found: State = tensors.load(self.directory.model, template)
        return found

    def recommend(
        self,
        user: str | None = None,
        N: int = 10,
        *,
        n: int | None = None,
        history: Sequence[str] | None = None,
        filter_already_liked_items: bool = True,
    ) -> list[Recommendation]:
        """The best `n` items for a person of the training, or for somebody else from her history (item ids) alone."""
        if (user is None) == (history is None):
            raise CoterieError("recommend needs either a user of the training or a history of item ids, not both")
        if history is not None:
            scores, liked = self._newcomer(history)
        else:
            number = self._user(str(user))
            scores = self._scores(np.array([number]))[0]
            liked = self.prepared.train.of(number)
        if filter_already_liked_items:
            scores = scores.copy()
            scores[liked] = -np.inf
        wanted = min(N if n is None else n, int(np.isfinite(scores).sum()))
        return [self._named(item, scores[item]) for item in np.argsort(-scores, kind="stable")[:wanted]]

    def recommend_all(self, N: int = 10) -> dict[str, Any]:
        """Columns user_id, rank, item_id, title, score for everybody: ready for a table."""
        prepared, every = self.prepared, np.arange(self.prepared.data.n_users)
        columns: dict[str, list[Any]] = {"user_id": [], "rank": [], "item_id": [], "title": [], "score": []}
        for first in range(0, len(every), 512):
            some = every[first : first + 512]
            scores = self._scores(some)
            for user, row in zip(some, scores, strict=True):
                row[prepared.train.of(user)] = -np.inf
                best = np.argsort(-row, kind="stable")[: min(N, int(np.isfinite(row).sum()))]
                columns["user_id"] += [prepared.data.user_ids[user]] * len(best)
                columns["rank"] += range(1, len(best) + 1)
                columns["item_id"] += [prepared.data.item_ids[item] for item in best]
                columns["title"] += [prepared.data.title(item) for item in best]
                columns["score"] += row[best].tolist()
        return columns

    def similar_items(self, item: str, N: int = 10) -> list[Recommendation]:
        """Items whose vectors point the same way (cosine)."""
        data = self.prepared.data
        if item not in data.item_number:
            raise CoterieError(f"item {item!r} is not among the {data.n_items} items of {data.name}; ids are text")
        vectors = self.algorithm.item_vectors(self.state.server)
        length = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
        me = data.item_number[item]
        likeness = vectors @ vectors[me] / length / length[me]
        likeness[me] = -np.inf
        return [self._named(other, likeness[other]) for other in np.argsort(-likeness, kind="stable")[:N]]

    def evaluate(self, protocol: Protocol, threads: int = 1) -> dict[str, Any]:
        """The model measured under another protocol. Users whose held-out items it trained on are left out, counted."""
        same = self.spec.protocol
        asked = protocol.model_copy(
            update={
                "drop_short": same.drop_short,
                "min_interactions": max(protocol.min_interactions, same.min_interactions),
                "rating_threshold": same.rating_threshold,
                "merge_repeats": same.merge_repeats,
            }
        )
        other = prepare(load_data(self.spec.data, self._data), asked, self.spec.seed)
        mine = self.prepared
        trained = {(u, i) for u in other.users for i in mine.train.of(u)}
        clean = np.array(
            [
                u
                for u in other.users
                if not any((u, i) in trained for part in (other.validation, other.test) for i in part.of(u))
            ],
            np.int64,
        )
        if not len(clean):
            raise CoterieError(f"every held-out item of {asked.name}/{asked.split} was in this model's training")
        view = other._replace(history=mine.history, train=mine.train)
        found = measure(self.algorithm, self.state, view, threads, clean)
        return {
            "protocol": asked.model_dump(mode="json"),
            "warning": asked.warning,
            "users": len(clean),
            "users_left_out_as_trained_on": len(other.users) - len(clean),
            "metrics": found.metrics,
        }

    def _scores(self, users: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.algorithm.score(
            self.state.server, self.state.clients, self.prepared.history, users
        ).astype(np.float32)
        return found

    def _newcomer(self, ids: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        data = self.prepared.data
        known = sorted({data.item_number[one] for one in ids if one in data.item_number})
        if not known:
            missing = ", ".join(repr(one) for one in list(ids)[:5])
            raise CoterieError(f"none of the history's items ({missing}) is among the {data.n_items} of {data.name}")
        items = np.array(known, np.int32)
        own, ones = Ragged(np.array([0, len(items)]), items), np.ones(len(items), np.float32)
        history = History(own.indptr, items, ones, ones, own, user_keys(["newcomer"]), data.n_items)
        clients = self.algorithm.newcomer(self.state.server, history, self.spec.seed)
        scores = self.algorithm.score(self.state.server, clients, history, np.array([0]))[0]
        return scores, items

    def _user(self, user: str) -> int:
        from difflib import get_close_matches

        data = self.prepared.data
        if user not in data.user_number:
            near = get_close_matches(user, data.user_ids[:10_000], n=3) or data.user_ids[:3]
            raise CoterieError(
                f"user {user!r} is not among the {data.n_users} users of {data.name}; ids are text, for example "
                f"{', '.join(map(repr, near))}. Somebody else: give her history instead."
            )
        return data.user_number[user]

    def _named(self, item: int, score: float) -> Recommendation:
        data = self.prepared.data
        return Recommendation(data.item_ids[item], data.title(item), float(score))


def load_data(spec: DataSpec, given: Interactions | None = None) -> Interactions:
    """The data of a run: handed over, or read again from where it came; in both cases the same bytes."""
    from coterie.data import load
    from coterie.data.joined import joined

    if given is None:
        if spec.source is None:
            raise CoterieError("this run's data was handed over in memory; hand it over again: coterie.open(DIR, data)")
        folder = Path(spec.data_dir) if spec.data_dir else None
        given = load(spec.source, columns=spec.columns, data_dir=folder, on_bad_row=spec.on_bad_row)
        for later in spec.also:
            given = joined(given, load(later, data_dir=folder, on_bad_row=spec.on_bad_row))
        if spec.sharing is not None:
            given = choose(given, table=spec.sharing)
    if spec.without:
        given = left_out(given, spec.without)
    check_data(spec, given)
    return given
