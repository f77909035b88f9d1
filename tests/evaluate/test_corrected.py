"""The estimate of full-ranking metrics from sampled ranks, on worlds whose full ranks are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from coterie.errors import CoterieError
from coterie.evaluate import corrected as module
from coterie.evaluate.corrected import corrected, corrected_per_user, rank_probabilities
from coterie.evaluate.metrics import GAINS, averages, per_user
from coterie.evaluate.ranks import Ranks, Task, rank
from coterie.ragged import ragged


def single(ranks: np.ndarray, candidates: int) -> Ranks:
    e = len(ranks)
    return Ranks(np.arange(e), np.arange(e + 1), ranks.astype(np.int32), np.full(e, candidates, np.int32), None, 0)


@pytest.mark.parametrize(("n", "c"), [(1, 1), (5, 3), (99, 99), (300, 99), (1200, 99)])
def test_probabilities_are_hypergeometric(n: int, c: int) -> None:
    expected = stats.hypergeom.pmf(np.arange(c + 1)[None, :], n, np.arange(n + 1)[:, None], c)
    np.testing.assert_allclose(rank_probabilities(0, n + 1, n, c), expected, rtol=0, atol=1e-12)


def test_solution_by_hand() -> None:
    # 2 items, 1 drawn: P(drawn one is better | q better) = q/2, so P = [[1, 0], [1/2, 1/2], [0, 1]].
    # P'P = [[5/4, 1/4], [1/4, 5/4]], P'1 = (3/2, 3/2). For f = "q is 0", P'f = (1, 0), and gamma = 1/2 gives
    # [[11/8, 1/8], [1/8, 11/8]] g = (1, 0), so g = (11, -1) * 8 / (121 - 1) = (11, -1) / 15.
    result = corrected_per_user(single(np.array([0, 1]), 2), 3, gamma=0.5, cutoffs=(1,), metrics=("HR",))
    np.testing.assert_allclose(result["HR@1"], [11 / 15, -1 / 15])


# Shares of better items are drawn from a beta distribution: skewed to the head, as those of a good recommender are.
@pytest.mark.parametrize(("n", "shape"), [(1600, (0.4, 4)), (1600, (0.3, 1)), (3500, (0.5, 4)), (1600, (1, 1))])
def test_nearer_than_the_sampled_figure(n: int, shape: tuple[float, float]) -> None:
    rng = np.random.default_rng(5)
    better = np.floor((n + 1) * rng.beta(*shape, 40_000)).astype(int)
    drawn = rng.hypergeometric(better, n - better, 99)
    full, naive = (averages(per_user(single(q, size))) for q, size in ((better, n + 1), (drawn, 100)))
    estimate = corrected(single(drawn, 100), n + 1)
    for name in ("HR@10", "NDCG@10", "HR@20", "NDCG@20", "HR@50", "NDCG@50"):
        assert abs(estimate[name] - full[name]) < 0.2 * abs(naive[name] - full[name]), name


def test_restores_the_order_of_two_systems() -> None:
    # A finds a tenth exactly and is lost otherwise; B puts everything at about place 60 of 2,000, in nobody's first 10.
    # On 99 candidates B looks far better; the full metric says the opposite, and so does the estimate.
    rng = np.random.default_rng(2)
    n, e = 1999, 20_000
    a = np.where(rng.random(e) < 0.1, 0, rng.integers(0, n + 1, e))
    b = rng.integers(20, 101, e)
    sampled = [single(rng.hypergeometric(q, n - q, 99), 100) for q in (a, b)]
    naive = [averages(per_user(one))["NDCG@10"] for one in sampled]
    full = [averages(per_user(single(q, n + 1)))["NDCG@10"] for q in (a, b)]
    estimate = [corrected(one, n + 1)["NDCG@10"] for one in sampled]
    assert naive[0] < naive[1] and full[0] > full[1] and estimate[0] > estimate[1]


def world(users: int, m: int, draw: int) -> tuple[Ranks, Ranks]:
    """Full and sampled ranks of random scores with one to four held-out items, somewhat preferred."""
    rng = np.random.default_rng(11)
    scores = rng.normal(size=(users, m)).astype(np.float32)
    held = [rng.choice(m, rng.integers(1, 5), replace=False) for _ in range(users)]
    drawn = []
    for u, mine in enumerate(held):
        scores[u, mine] += 2
        drawn.append(rng.permutation(np.setdiff1d(np.arange(m), mine))[:draw])
    tasks = [Task(ragged(held)), Task(ragged(held), candidates=ragged(drawn))]
    full, sampled = rank(lambda u: scores[u], np.arange(users), m, tasks)
    return full, sampled


def test_exact_where_everything_was_drawn() -> None:
    full, sampled = world(60, 80, 80)
    expected = per_user(full, (5, 10, 50))
    result = corrected_per_user(sampled, full.candidates, cutoffs=(5, 10, 50), metrics=list(GAINS))
    assert set(result) == set(expected)
    for name, values in result.items():
        np.testing.assert_allclose(values, expected[name], atol=1e-9, err_msg=name)


def test_several_held_out_items() -> None:
    full, sampled = world(3000, 400, 99)
    exact, naive = (averages(per_user(one, (10, 20))) for one in (full, sampled))
    estimate = corrected(sampled, full.candidates, cutoffs=(10, 20), metrics=list(GAINS))
    for name in ("HR@10", "NDCG@10", "Recall@10", "Recall@20", "MAP@20"):
        assert abs(estimate[name] - exact[name]) < 0.2 * abs(naive[name] - exact[name]), name


def test_joining_near_sizes_changes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    n = rng.integers(1400, 1440, 2000)
    better = np.floor((n + 1) * rng.beta(0.4, 4, 2000)).astype(int)
    ranks = single(rng.hypergeometric(better, n - better, 99), 100)
    joined = corrected(ranks, n + 1)
    monkeypatch.setattr(module, "_sizes", lambda n, c: n)
    apart = corrected(ranks, n + 1)
    for name, value in joined.items():
        assert value == pytest.approx(apart[name], rel=0.005), name


def test_large_catalogue_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = single(np.arange(11), 21)
    whole = corrected(ranks, 1001)
    module._indicators.cache_clear()
    monkeypatch.setattr(module, "_ROWS", 64)
    assert corrected(ranks, 1001) == pytest.approx(whole)
    module._indicators.cache_clear()


def test_errors_and_nobody() -> None:
    with pytest.raises(CoterieError, match="gamma is 0"):
        corrected(single(np.array([1]), 100), 1000, gamma=0)
    with pytest.raises(CoterieError, match="among 100 sampled items, but full_candidates says that there are only 50"):
        corrected(single(np.array([1]), 100), 50)
    assert np.isnan(corrected(single(np.array([], int), 100), 1000)["HR@10"])
