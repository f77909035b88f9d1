"""Ranks: the rules for equal and non-finite scores, and the kernels against the plain NumPy version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import CoterieError
from coterie.evaluate import ranks as ranks_module
from coterie.evaluate.rank_kernels import rank_reference
from coterie.evaluate.ranks import Ranks, Task, rank, rank_all, rank_among
from coterie.ragged import Ragged, ragged

NAN, INF = np.nan, np.inf


def one_user(scores: list[float], held: list[int], excluded: list[int] | None = None) -> Ranks:
    row = np.array([scores], np.float32)
    return rank_all(lambda _: row, ragged([held]), (ragged([excluded or []]),), np.array([0]), len(scores))


@pytest.mark.parametrize(
    ("scores", "held", "excluded", "expected"),
    [
        ([0.1, 0.9, 0.5, 0.3], [2], [], [1]),  # only item 1 is better
        ([0.1, 0.9, 0.5, 0.3], [2], [1], [0]),  # and now it is excluded
        ([0.5, 0.5, 0.5, 0.5], [0], [], [3]),  # last among equals
        ([0.5, 0.5, 0.5, 0.5], [1, 2], [], [2, 3]),  # two held out: both last, one after the other
        ([0.9, 0.5, 0.5, 0.1], [0, 2], [], [0, 2]),  # item 0 first; 2 after 0 and after its equal, 1
        ([NAN, 0.5, 0.1], [1], [], [0]),  # NaN candidates push nobody down
        ([INF, 0.5, 0.1], [1], [], [0]),  # nor does infinity: not finite ranks last
        ([NAN, 0.5, 0.1], [0], [], [2]),  # a NaN held-out item is worst of all
        ([NAN, NAN, -INF, NAN], [2], [], [3]),  # a diverged model
        ([INF, 0.5, NAN], [0], [], [2]),  # equal to NaN, and held out: after it
        ([0.9, 0.5, 0.1], [0], [0, 1], [0]),  # held out AND excluded (a repeated pair): ranked nevertheless
        ([0.1, 0.9, 0.5], [0, 0], [], [2]),  # held out twice is one item
    ],
)
def test_golden(scores: list[float], held: list[int], excluded: list[int], expected: list[int]) -> None:
    result = one_user(scores, held, excluded)
    assert result.ranks.tolist() == expected
    assert result.candidates.tolist() == [len(scores) - len(set(excluded) - set(held))]


def test_golden_sampled() -> None:
    row = np.array([[0.9, 0.8, 0.7, 0.6, NAN]], np.float32)
    # candidates 1, 3, 3, 4 and the held-out 2: only 1 is better; the repeated 3 counts once
    result = rank_among(lambda _: row, ragged([[2]]), ragged([[1, 3, 3, 4]]), np.array([0]), 5)
    assert (result.ranks.tolist(), result.candidates.tolist(), result.top) == ([1], [4], None)
    assert result.nonfinite == 1 and not result.scores_finite


def test_top_lists() -> None:
    result = one_user([0.5, NAN, 0.9, 0.5, 0.7, INF], [0], [4])
    # 4 is excluded, 1 and 5 are not finite; the equals 0 and 3 by lower number
    assert result.top is not None and result.top.shape == (1, 50)
    assert result.top[0, :4].tolist() == [2, 0, 3, -1]
    assert result.nonfinite == 2


@pytest.mark.parametrize("values", [3, 40, 10**6])
def test_top_lists_are_a_stable_sort(values: int) -> None:
    rows = np.random.default_rng(values).integers(0, values, (30, 900)).astype(np.float32)
    rows[0].sort()  # every item replaces another
    result = rank_all(lambda u: rows[u], ragged([[0]] * 30), (), np.arange(30), 900)
    np.testing.assert_array_equal(result.top, np.argsort(-rows, axis=1, kind="stable")[:, :50])


def test_nonfinite_counts_candidates_only() -> None:
    # A model may mark what it must not recommend with -inf: that is no divergence if the protocol excludes it too.
    assert one_user([-INF, 0.5, 0.1], [1], [0]).scores_finite


def random_case(rng: np.random.Generator, users: int, m: int) -> tuple[np.ndarray, list[list[int]], list[list[int]]]:
    scores = rng.integers(0, 6, (users, m)).astype(np.float32)  # few values: many ties
    scores[rng.random((users, m)) < 0.1] = NAN
    scores[rng.random((users, m)) < 0.05] = INF
    held = [rng.integers(0, m, rng.integers(0, 5)).tolist() for _ in range(users)]
    other = [rng.integers(0, m, rng.integers(0, m)).tolist() for _ in range(users)]
    return scores, held, other


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_reference(seed: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(5, 90))
    scores, held, other = random_case(rng, 40, m)
    scores = scores.astype(dtype)
    users = rng.permutation(40)[:30]
    tasks = [Task(ragged(held), (ragged(other), ragged(held))), Task(ragged(held), candidates=ragged(other))]
    full, sampled = rank(lambda u: scores[u], users, m, tasks)
    evaluated = [u for u in users if held[u]]
    assert full.users.tolist() == sampled.users.tolist() == evaluated
    for k, u in enumerate(evaluated):
        for result, candidates in ((full, np.setdiff1d(np.arange(m), other[u])), (sampled, np.array(other[u], int))):
            expected, recommended = rank_reference(scores[u], np.array(held[u]), candidates)
            assert result.ranks[result.indptr[k] : result.indptr[k + 1]].tolist() == expected.tolist()
            assert result.candidates[k] == len(np.union1d(candidates, held[u]))
            if result.top is not None:
                padded = np.full(50, -1)
                padded[: len(recommended[:50])] = recommended[:50]
                assert result.top[k].tolist() == padded.tolist()


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_change_nothing(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    scores, held, other = random_case(rng, 300, 40)
    asked: list[int] = []

    def score(users: np.ndarray) -> np.ndarray:
        asked.extend(users.tolist())
        return scores[users]

    tasks = [Task(ragged(held), (ragged(other),)), Task(ragged(held), candidates=ragged(other))]
    monkeypatch.setattr(ranks_module, "MIN_CHUNK", 8)  # many chunks
    one = rank(score, np.arange(300), 40, tasks, threads=1)
    many = rank(score, np.arange(300), 40, tasks, threads=threads)
    whole = rank(lambda u: scores[u], np.arange(300)[:300], 40, tasks)
    assert sorted(asked) == sorted([*range(300), *range(300)])  # two tasks, yet each row was scored once a pass
    for a, b, c in zip(one, many, whole, strict=True):
        for x, y, z in zip(a, b, c, strict=True):
            np.testing.assert_array_equal(x, y)
            np.testing.assert_array_equal(x, z)


def test_chunks_do_not_depend_on_threads_and_stay_small() -> None:
    assert ranks_module._chunk_length(6040, 3706) == 378
    assert ranks_module._chunk_length(10**6, 10**6) * 4 * 10**6 <= 64 << 20
    assert ranks_module._chunk_length(1, 10**9) == 1
    assert ranks_module._chunk_length(943, 1682, together=512) == 512  # where a call has a cost of its own
    assert ranks_module._chunk_length(10**6, 10**6, together=512) * 4 * 10**6 <= 64 << 20


scores_rows = st.lists(st.integers(-20, 20), min_size=2, max_size=40)


@settings(deadline=None, max_examples=60)
@given(scores_rows, st.data())
def test_monotone_transform_keeps_ranks(row: list[int], data: st.DataObject) -> None:
    held = data.draw(st.lists(st.integers(0, len(row) - 1), min_size=1, max_size=4))
    plain = one_user([float(s) for s in row], held)
    stretched = one_user([float(s) ** 3 * 4 + 1 for s in row], held)
    np.testing.assert_array_equal(plain.ranks, stretched.ranks)
    np.testing.assert_array_equal(plain.top, stretched.top)


@settings(deadline=None, max_examples=60)
@given(scores_rows, st.data())
def test_held_out_stands_behind_every_equal(row: list[int], data: st.DataObject) -> None:
    held = data.draw(st.integers(0, len(row) - 1))
    expected = sum(s >= row[held] for s in row) - 1
    assert one_user([float(s) for s in row], [held]).ranks.tolist() == [expected]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.sampled_from([0.0, 1.5, NAN, INF, -INF]), st.data())
def test_constant_scores_give_the_worst_ranks(m: int, value: float, data: st.DataObject) -> None:
    held = data.draw(st.lists(st.integers(0, m - 1), min_size=1, max_size=5, unique=True))
    assert one_user([value] * m, held).ranks.tolist() == list(range(m - len(held), m))


def test_nobody() -> None:
    for lists in (ragged([[], []]), Ragged(np.zeros(3, np.int64), np.empty(0, np.int32))):
        result = rank_all(lambda u: np.zeros((len(u), 3), np.float32), lists, (), np.array([0, 1]), 3)
        assert len(result.users) == 0 and result.indptr.tolist() == [0]
    assert len(rank_all(lambda u: np.zeros((0, 3)), ragged([[1]]), (), np.array([], int), 3).users) == 0


def test_errors_say_what_came() -> None:
    good = np.zeros((1, 3), np.float32)
    with pytest.raises(CoterieError, match=r"shape \(1, 3\), expected \(1, 4\)"):
        rank_all(lambda _: good, ragged([[1]]), (), np.array([0]), 4)
    with pytest.raises(CoterieError, match=r"held-out lists hold items 3 to 3, but there are 3 items"):
        rank_all(lambda _: good, ragged([[3]]), (), np.array([0]), 3)
    with pytest.raises(CoterieError, match=r"excluded lists are for users 0 to 0, but users 0 to 1"):
        rank_all(lambda _: good, ragged([[1], [1]]), (ragged([[1]]),), np.array([0, 1]), 3)
    with pytest.raises(CoterieError, match="excluded lists and candidate lists"):
        rank(lambda _: good, np.array([0]), 3, [Task(ragged([[1]]), (ragged([[0]]),), ragged([[2]]))])
