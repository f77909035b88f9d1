"""Negatives: never what must be avoided, distinct for each positive, all others equally likely."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from coterie.algorithms.interface import History
from coterie.algorithms.negatives import draw, repeats
from coterie.ragged import Ragged, ragged
from coterie.rng import user_keys


def _history(lists: list[list[int]], n_items: int, forbidden: Ragged | None = None, counts: int = 1) -> History:
    own = ragged(lists)
    ones = np.full(len(own.items), counts, np.float32)
    keys = user_keys([f"u{i}" for i in range(own.users)])
    return History(own.indptr, own.items, ones, ones, own if forbidden is None else forbidden, keys, n_items)


@settings(max_examples=40, deadline=None)
@given(
    lists=st.lists(st.sets(st.integers(0, 14), max_size=14), min_size=1, max_size=5),
    per_positive=st.integers(0, 6),
    counts=st.integers(1, 3),
    seed=st.integers(0, 2**40),
)
def test_distinct_allowed_and_as_many_as_asked(
    lists: list[set[int]], per_positive: int, counts: int, seed: int
) -> None:
    history = _history([sorted(one) for one in lists], 15, counts=counts)
    drawn = draw(history, np.arange(len(lists)), per_positive, seed, 2)
    for i, own in enumerate(lists):
        each = min(per_positive, 15 - len(own))
        assert len(drawn.of(i)) == counts * len(own) * each
        assert not own & set(drawn.of(i).tolist())
        if each:
            assert all(len(set(group)) == each for group in drawn.of(i).reshape(-1, each).tolist())


def test_uniform_over_what_is_left() -> None:
    history = _history([list(range(0, 40, 4))] * 50, 40)
    drawn = draw(history, np.arange(50), 4, seed=7, round_=1).items
    for round_ in range(2, 12):
        drawn = np.concatenate([drawn, draw(history, np.arange(50), 4, seed=7, round_=round_).items])
    seen = np.bincount(drawn, minlength=40)
    assert not seen[::4].any()
    allowed = np.delete(seen, np.arange(0, 40, 4))
    assert len(allowed) == 30 and chisquare(allowed).pvalue > 0.001


def test_fewer_items_than_asked_and_none_at_all() -> None:
    history = _history([[0, 1, 2], [0, 1, 2, 3, 4], []], 5)
    drawn = draw(history, np.arange(3), 4, 0, 1)
    assert drawn.lengths.tolist() == [6, 0, 0]
    assert all(set(pair) == {3, 4} for pair in drawn.of(0).reshape(3, 2).tolist())


def test_the_forbidden_list_need_not_be_her_own() -> None:
    history = _history([[0]], 4, forbidden=ragged([[0, 2]]))
    assert sorted(draw(history, np.arange(1), 9, 0, 1).items.tolist()) == [1, 3]


def test_a_client_draws_the_same_in_any_company() -> None:
    history = _history([[0, 3], [1], [2, 4, 5]], 30)
    together = draw(history, np.arange(3), 5, 1, 9)
    other = draw(history, np.array([2, 0]), 5, 1, 9)
    assert other.of(0).tolist() == together.of(2).tolist() and other.of(1).tolist() == together.of(0).tolist()
    assert draw(history, np.arange(3), 5, 1, 10).items.tolist() != together.items.tolist()
    assert draw(history, np.arange(3), 5, 2, 9).items.tolist() != together.items.tolist()
    assert draw(history, np.empty(0, np.int64), 5, 1, 9).indptr.tolist() == [0]


def test_repeats_are_counted() -> None:
    history = _history([[0, 1], [], [2, 3, 4]], 9, counts=3)
    assert repeats(history, np.array([2, 0, 1])).tolist() == [9, 6, 0]
    assert repeats(history, np.empty(0, np.int64)).tolist() == []
