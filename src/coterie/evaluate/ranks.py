"""Scores -> ranks: where each held-out item stands among its candidates. Everything else is computed from ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

import numpy as np

from coterie.errors import CoterieError
from coterie.evaluate import rank_kernels
from coterie.ragged import Ragged

Score: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""User numbers int[u] -> scores float[u, m]. Called from several threads at once if `threads` is above 1."""

TOP = 50  # length of the recommendation lists kept: the largest cutoff reported
CHUNK_BYTES = 64 << 20  # score rows alive at a time, for each thread
CHUNKS = 16  # at least so many chunks where there are users enough, so that threads share the work evenly
MIN_CHUNK = 64  # below so many users the calls themselves would show


class Ranks(NamedTuple):
    """Where the held-out items of each evaluated user stand."""

    users: np.ndarray  # int32[e] evaluated user numbers
    indptr: np.ndarray  # int64[e + 1] her held-out ranks are ranks[indptr[i]:indptr[i + 1]], ascending
    ranks: np.ndarray  # int32[h] 0-based place of a held-out item among her candidates
    candidates: np.ndarray  # int32[e] how many items were ranked for her, the held-out ones included
    top: np.ndarray | None  # int32[e, TOP] her recommended items, best first, -1 padded; full ranking only
    nonfinite: int  # scores of candidates that were NaN or infinite: a diverged model shows here

    @property
    def scores_finite(self) -> bool:
        return self.nonfinite == 0

    @property
    def held(self) -> np.ndarray:
        """int64[e] how many items were held out for each user."""
        return np.diff(self.indptr)


class Task(NamedTuple):
    """One ranking: the held-out lists, and EITHER what is excluded (full ranking) OR the only candidates (sampled)."""

    held: Ragged
    excluded: tuple[Ragged, ...] = ()
    candidates: Ragged | None = None
    top: int = TOP  # length of the recommendation lists; 0 keeps none


class _Work(NamedTuple):
    """A task cut to the evaluated users, with room for its results."""

    held: Ragged  # sorted, each item once
    others: Ragged  # excluded items, or the candidates
    ranks: np.ndarray  # int32[h]
    candidates: np.ndarray  # int32[users]
    top: np.ndarray  # int32[users, top]
    sampled: bool


def _checked(name: str, lists: Ragged, users: np.ndarray, n_items: int) -> Ragged:
    # The kernels do not check bounds: a wrong number would read or write foreign memory.
    if len(users) and (users.min() < 0 or users.max() >= lists.users):
        raise CoterieError(
            f"{name} lists are for users 0 to {lists.users - 1}, but users {users.min()} to {users.max()} are to be "
            f"ranked. Pass lists for every user (empty ones are allowed)."
        )
    if len(lists.items) and (lists.items.min() < 0 or lists.items.max() >= n_items):
        raise CoterieError(
            f"{name} lists hold items {lists.items.min()} to {lists.items.max()}, but there are {n_items} items "
            f"(0 to {n_items - 1}). Were the lists made with another item vocabulary?"
        )
    return lists


def _cut(name: str, lists: Sequence[Ragged], users: np.ndarray, n_items: int) -> Ragged:
    """The lists of these users only, several lists of a user joined into one."""
    lengths = np.zeros(len(users), np.int64)
    for one in lists:
        lengths += _checked(name, one, users, n_items).lengths[users]
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    items = np.empty(indptr[-1], np.int32)
    cursor = indptr[:-1].copy()
    for one in lists:
        rank_kernels.gather(one.indptr, one.items, users, cursor, items)
    return Ragged(indptr, items)


def _distinct(lists: Ragged, n_items: int) -> Ragged:
    """Each list sorted and without repeats: an item held out twice (repeated pairs) is one item to find."""
    owner = np.repeat(np.arange(lists.users, dtype=np.int64), lists.lengths)
    keys = np.unique(owner * n_items + lists.items)
    indptr = np.searchsorted(keys, np.arange(lists.users + 1, dtype=np.int64) * n_items)
    return Ragged(indptr.astype(np.int64), (keys % n_items).astype(np.int32))


def _prepare(task: Task, users: np.ndarray, n_items: int) -> _Work:
    held = _distinct(_cut("held-out", [task.held], users, n_items), n_items)
    if task.candidates is not None:
        if task.excluded:
            raise CoterieError(
                "a ranking task got excluded lists and candidate lists. Pass excluded lists for a full ranking or "
                "candidates for a sampled one; take the excluded items out of the candidates yourself."
            )
        others, top = _cut("candidate", [task.candidates], users, n_items), 0
    else:
        others, top = _cut("excluded", task.excluded, users, n_items), task.top
    return _Work(
        held,
        others,
        np.zeros(len(held.items), np.int32),
        np.zeros(len(users), np.int32),
        np.full((len(users), top), -1, np.int32),
        task.candidates is not None,
    )


def _scored(score: Score, users: np.ndarray, n_items: int) -> np.ndarray:
    scores = np.asarray(score(users))
    if scores.shape != (len(users), n_items):
        raise CoterieError(
            f"score returned an array of shape {scores.shape}, expected ({len(users)}, {n_items}): one row for each "
            f"user asked for, one column for each item."
        )
    # float64 stays as it is: rounding it to float32 would make equal scores of unequal ones.
    kind = scores.dtype if scores.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    return np.ascontiguousarray(scores, kind)


def _chunk_length(users: int, n_items: int, together: int = 0) -> int:
    # A function of the sizes alone: with the number of threads in it, a matrix product over other chunks could round
    # differently, and the ranks would depend on the machine.
    fits = max(1, CHUNK_BYTES // (4 * max(1, n_items)))
    return min(fits, max(MIN_CHUNK, -(-users // CHUNKS), together))


def rank(
    score: Score, users: np.ndarray, n_items: int, tasks: Sequence[Task], threads: int = 1, together: int = 0
) -> list[Ranks]:
    """Rank the held-out items of `users` for every task in one pass, so that each score row is computed once.

    A held-out item ranks last among equal scores; a score that is not finite ranks last; a held-out item is ranked
    even where an excluded list names it. Several held-out items of a user that are equal follow each other.
    Users without held-out items in a task are left out of its result.
    `together`: score at least so many users in one call, where a call has a cost of its own.
    The result does not depend on `threads`. Memory: about 64 MB of scores for each thread.

    Example:
        >>> full, sampled = rank(model.score, users, m, [Task(test, excluded=(train,)), Task(test, candidates=drawn)])
    """
    users = np.ascontiguousarray(users, np.int32)
    work = [_prepare(task, users, n_items) for task in tasks]
    length = _chunk_length(len(users), n_items, together)

    def one_chunk(start: int) -> list[int]:
        end = min(start + length, len(users))
        scores = _scored(score, users[start:end], n_items)
        met = []
        for w in work:
            chunk = slice(start, end)
            bounds = slice(start, end + 1)
            common = (scores, w.held.indptr[bounds], w.held.items, w.others.indptr[bounds], w.others.items, w.ranks)
            if w.sampled:
                met.append(rank_kernels.rank_sampled(*common, w.candidates[chunk]))
            else:
                met.append(rank_kernels.rank_full(*common, w.candidates[chunk], w.top[chunk]))
        return met

    starts = range(0, len(users), length)
    if threads > 1 and len(starts) > 1:
        with ThreadPoolExecutor(threads) as pool:
            met = list(pool.map(one_chunk, starts))
    else:
        met = [one_chunk(start) for start in starts]
    return [_finish(w, users, sum(int(counts[k]) for counts in met)) for k, w in enumerate(work)]


def _finish(work: _Work, users: np.ndarray, nonfinite: int) -> Ranks:
    kept = work.held.lengths > 0
    indptr = np.concatenate(([0], np.cumsum(work.held.lengths[kept])))
    top = work.top[kept] if work.top.shape[1] else None
    return Ranks(users[kept], indptr, work.ranks, work.candidates[kept], top, nonfinite)


def rank_all(
    score: Score, held: Ragged, excluded: tuple[Ragged, ...], users: np.ndarray, n_items: int, threads: int = 1
) -> Ranks:
    """Full ranking: among all items but those in the excluded lists."""
    return rank(score, users, n_items, [Task(held, excluded)], threads)[0]


def rank_among(
    score: Score, held: Ragged, candidates: Ragged, users: np.ndarray, n_items: int, threads: int = 1
) -> Ranks:
    """Sampled ranking: among the listed candidates and the held-out items themselves, each item once."""
    return rank(score, users, n_items, [Task(held, candidates=candidates)], threads)[0]
