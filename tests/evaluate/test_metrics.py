"""Metrics: small numbers by hand, every metric against ranx, and what must hold whatever the ranks."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import CoterieError
from coterie.evaluate.metrics import CUTOFFS, GAINS, averages, beyond_accuracy, canonical, per_user
from coterie.evaluate.ranks import Ranks, rank_all
from coterie.ragged import ragged


def ranks_of(lists: list[list[int]], candidates: int = 100) -> Ranks:
    held = ragged([sorted(one) for one in lists])
    e = len(lists)
    return Ranks(np.arange(e, dtype=np.int32), held.indptr, held.items, np.full(e, candidates, np.int32), None, 0)


def test_one_held_out_by_hand() -> None:
    # first, third, seventh place, outside
    values = per_user(ranks_of([[0], [2], [6], [50]]), (5, 10))
    assert values["HR@5"].tolist() == [1, 1, 0, 0]
    assert values["HR@10"].tolist() == values["Recall@10"].tolist() == [1, 1, 1, 0]
    assert values["NDCG@10"].tolist() == pytest.approx([1, 1 / 2, 1 / 3, 0])  # 1/log2(2), 1/log2(4), 1/log2(8)
    assert values["MRR@10"].tolist() == pytest.approx([1, 1 / 3, 1 / 7, 0])
    assert values["Precision@5"].tolist() == pytest.approx([1 / 5, 1 / 5, 0, 0])
    assert values["F1@5"].tolist() == pytest.approx([1 / 3, 1 / 3, 0, 0])  # 2 * 0.2 * 1 / 1.2
    assert values["MAP@10"].tolist() == pytest.approx([1, 1 / 3, 1 / 7, 0])
    assert averages(values)["HR@10"] == 0.75


def test_several_held_out_by_hand() -> None:
    # Held out at places 1 and 3 (of the first five) and 9: h = 3
    values = averages(per_user(ranks_of([[0, 2, 8]]), (2, 5)))
    assert values["HR@5"] == values["MRR@5"] == 1
    assert values["Precision@5"] == pytest.approx(2 / 5)
    assert values["Recall@5"] == pytest.approx(2 / 3)
    assert values["F1@5"] == pytest.approx(1 / 2)  # 2 * (2/5 * 2/3) / (2/5 + 2/3) = (8/15) / (16/15)
    assert values["MAP@5"] == pytest.approx((1 / 1 + 2 / 3) / 3)
    assert values["NDCG@5"] == pytest.approx((1 + 1 / 2) / (1 + 1 / math.log2(3) + 1 / 2))
    assert values["NDCG@2"] == pytest.approx(1 / (1 + 1 / math.log2(3)))  # the ideal is cut at 2 as well


RANX = {"HR": "hit_rate", "NDCG": "ndcg", "MRR": "mrr", "MAP": "map"} | {
    name: name.lower() for name in ("Precision", "Recall", "F1")
}


def test_against_ranx() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ranx and what it imports warn about themselves
        from ranx import Qrels, Run, evaluate

        rng = np.random.default_rng(3)
        users, m = 40, 70
        scores = rng.permuted(np.tile(np.arange(m), (users, 1)), axis=1).astype(np.float32)  # no ties
        held = [rng.choice(m, rng.integers(1, 9), replace=False) for _ in range(users)]
        held[0] = rng.choice(m, 60, replace=False)  # more held-out items than the largest cutoff
        qrels = Qrels({str(u): {str(i): 1 for i in held[u]} for u in range(users)})
        run = Run({str(u): {str(i): float(scores[u, i]) for i in range(m)} for u in range(users)})
        names = {f"{ours}@{K}": f"{theirs}@{K}" for ours, theirs in RANX.items() for K in CUTOFFS}
        expected = evaluate(qrels, run, list(names.values()), return_mean=False)
    ours = per_user(rank_all(lambda u: scores[u], ragged(held), (), np.arange(users), m))
    assert set(ours) == set(names)
    order = [int(q) for q in qrels.keys()]  # noqa: SIM118  (ranx sorts its queries as text; Qrels is no dict)
    for name, theirs in names.items():
        np.testing.assert_allclose(ours[name][order], expected[theirs], rtol=0, atol=1e-9, err_msg=name)


rank_lists = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=12, unique=True), min_size=1, max_size=8)


@settings(deadline=None, max_examples=80)
@given(rank_lists)
def test_properties(lists: list[list[int]]) -> None:
    values = per_user(ranks_of(lists), range(1, 31))
    for K in range(1, 31):
        for name in GAINS:
            one = values[f"{name}@{K}"]
            assert np.all((one >= 0) & (one <= 1 + 1e-12))
            if K > 1 and name in ("HR", "Recall", "MRR", "MAP"):
                assert np.all(one >= values[f"{name}@{K - 1}"])
        precision, recall, f1 = (values[f"{name}@{K}"] for name in ("Precision", "Recall", "F1"))
        assert np.all(f1 >= np.minimum(precision, recall) - 1e-12)
        assert np.all(f1 <= np.maximum(precision, recall) + 1e-12)
    assert values["HR@10"].tolist() == [float(min(one) < 10) for one in lists]


def test_perfect_lists_score_one() -> None:
    values = per_user(ranks_of([list(range(n)) for n in (1, 3, 30)]), (5, 20))
    np.testing.assert_allclose(values["NDCG@5"], 1)
    np.testing.assert_allclose(values["NDCG@20"], 1)


def test_names() -> None:
    assert canonical("Hit@10") == canonical("HR@10") == canonical("hit_rate@10") == "HR@10"
    assert canonical("ndcg@5") == "NDCG@5" and canonical("1-gini@20") == "1-Gini@20" and canonical("map") == "MAP"
    for wrong in ("NDGC@10", "HR@", "HR@ten", "HR@0"):
        with pytest.raises(CoterieError, match="unknown metric"):
            canonical(wrong)


def test_nobody_is_not_zero() -> None:
    assert math.isnan(averages(per_user(ranks_of([])))["HR@10"])


def test_beyond_accuracy_by_hand() -> None:
    # Items 0..3 with 8, 4, 1, 0 of 8 users: self-information 0, 1, 3 and (counted as one person) 3 bits.
    top = np.array([[0, 1], [0, 3], [0, -1]], np.int32)
    values = beyond_accuracy(top, np.array([8, 4, 1, 0]), 8, (1, 2))
    assert values["Coverage@1"] == 1 / 4 and values["Coverage@2"] == 3 / 4
    assert values["1-Gini@1"] == pytest.approx(0)  # always the same item
    # shares ascending 0, 1/5, 1/5, 3/5 with weights -3, -1, 1, 3: Gini = (9/5) / 3
    assert values["1-Gini@2"] == pytest.approx(1 - 3 / 5)
    assert values["AvgPopularity@2"] == pytest.approx((6 + 4 + 8) / 3)
    assert values["Novelty@2"] == pytest.approx((0.5 + 1.5 + 0) / 3)
    even = beyond_accuracy(np.arange(4, dtype=np.int32).reshape(2, 2), np.ones(4, int), 2, (2,))
    assert even["1-Gini@2"] == pytest.approx(1) and even["Coverage@2"] == 1


def test_beyond_accuracy_of_a_diverged_model() -> None:
    values = beyond_accuracy(np.full((2, 50), -1, np.int32), np.ones(4, int), 2, (10,))
    assert values["Coverage@10"] == 0 and all(math.isnan(v) for k, v in values.items() if k != "Coverage@10")
