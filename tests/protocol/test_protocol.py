"""The protocol: splits one can check by hand, and proof that held-out items stay out of training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.algorithms import negatives
from coterie.errors import CoterieError
from coterie.protocol import CanaryWatch, Prepared, prepare, resolve
from coterie.protocol.rules import PAPER_WARNING
from tests.worlds import interactions


def _lists(prepared: Prepared) -> dict[str, tuple[list[str], ...]]:
    """Train, validation and test items of each user, by their ids."""
    data, parts = prepared.data, (prepared.train, prepared.validation, prepared.test)
    return {
        name: tuple([data.item_ids[i] for i in part.of(u)] for part in parts) for u, name in enumerate(data.user_ids)
    }


def test_leave_one_out_by_hand() -> None:
    data = interactions([[0, 1, 2, 3], [4, 5], [6, 0, 1]], times=[[5, 9, 7, 8], [1, 2], [3, 3, 3]])
    found = _lists(prepare(data, resolve("clean"), 0))
    assert found["u0"] == (["i0", "i2"], ["i3"], ["i1"])  # the times 5, 7 | 8 | 9
    assert found["u1"] == (["i4", "i5"], [], [])  # two interactions: trains, is not tested
    assert found["u2"] == (["i6"], ["i0"], ["i1"])  # equal times: the later row in the file is later


def test_ages_count_back_from_the_latest_training_item() -> None:
    data = interactions([[0, 1, 2, 3, 4], [4, 5], [6, 0, 1]], times=[[5, 9, 7, 8, 6], [2, 1], [3, 3, 3]])
    history = prepare(data, resolve("clean"), 0).history
    assert history.ages is not None
    assert history.items.tolist() == [0, 2, 4, 4, 5, 6]  # 5, 7, 6 | 2, 1 | 3; what is held out has no age
    assert history.ages.tolist() == [2, 0, 1, 0, 1, 0]
    repeated = interactions([[*range(8), 0, 8, 9, 10]], times=[list(range(12))])  # item 0 again, late
    kept = prepare(repeated, resolve("paper:fedrap"), 0).history
    assert kept.ages is not None and kept.items.tolist() == list(range(9))
    assert kept.ages.tolist() == [1, 8, 7, 6, 5, 4, 3, 2, 0]
    assert prepare(replace(data, times=None), resolve("clean"), 0).history.ages is None


def test_paper_ties_take_the_first_row_as_the_latest() -> None:
    data = interactions([[*range(3, 12), 0, 1, 2]], times=[[*range(9), 50, 50, 50]])
    paper = prepare(data, resolve("paper:fedrap"), 0)
    assert paper.test.of(0).tolist() == [0] and paper.validation.of(0).tolist() == [1]
    clean = prepare(data, resolve("clean"), 0)
    assert clean.test.of(0).tolist() == [2] and clean.validation.of(0).tolist() == [1]


def test_temporal_ratio_by_hand() -> None:
    data = interactions([list(range(20))])
    found = prepare(data, resolve("clean", split="temporal-ratio"), 0)
    assert found.test.of(0).tolist() == [16, 17, 18, 19]  # the last 20 % of 20
    assert found.validation.of(0).tolist() == [13, 14, 15]  # the last 20 % of the other 16
    assert found.train.of(0).tolist() == list(range(13))


def test_repeats_are_merged_at_their_last_occurrence() -> None:
    data = interactions([[0, 1, 2, 0, 3]], times=[[1, 2, 3, 4, 0]])
    found = prepare(data, resolve("clean"), 0)
    assert (found.train.of(0).tolist(), found.validation.of(0).tolist(), found.test.of(0).tolist()) == (
        [1, 3],
        [2],
        [0],
    )
    assert found.counts["merged"] == 1 and found.counts["interactions"] == 4


def test_repeats_are_kept_by_the_papers() -> None:
    rows = [*range(10), 9, 9]
    found = prepare(interactions([rows]), resolve("paper:fedrap"), 0)
    assert found.test.of(0).tolist() == [9] and found.counts["merged"] == 0
    assert found.history.counts[found.history.items == 9].tolist() == [1.0]  # the first of three rows still trains
    assert found.counts["train"] == 10


def test_short_histories_are_dropped_by_the_papers_and_items_with_them() -> None:
    data = interactions([list(range(10)), [11, 12, 13]])
    found = prepare(data, resolve("paper:fedrap"), 0)
    assert found.data.user_ids == ["u0"] and found.data.n_items == 10
    assert found.counts["in_dropped_users"] == 3


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["leave-one-out", "temporal-ratio"]))
def test_clean_training_is_a_function_of_training_items_alone(seed: int, split: str) -> None:
    """Exchange everybody's held-out items for others: nothing that an algorithm sees may change."""
    draw = np.random.default_rng(seed)
    n_items = 60
    lists = [draw.choice(n_items - 20, draw.integers(3, 15), replace=False).tolist() for _ in range(6)]
    protocol = resolve("clean", split=split)
    found = prepare(interactions(lists, n_items=n_items), protocol, seed)
    other = []
    for user, one in enumerate(lists):
        held = len(found.validation.of(user)) + len(found.test.of(user))
        fresh = n_items - 20 + draw.permutation(20)[:held]
        other.append(one[: len(one) - held] + fresh.tolist())
    again = prepare(interactions(other, n_items=n_items), protocol, seed)
    for before, after in zip(found.history[:4], again.history[:4], strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(found.history.forbidden.items, found.history.items)
    np.testing.assert_array_equal(again.history.forbidden.items, again.history.items)
    for user in found.users:
        held_out = {*found.test.of(user).tolist(), *found.validation.of(user).tolist()}
        assert not held_out & {
            *found.history.items[found.history.indptr[user] : found.history.indptr[user + 1]].tolist()
        }


def test_sampled_candidates_are_untouched_distinct_and_disjoint() -> None:
    draw = np.random.default_rng(0)
    lists = [draw.choice(500, 30, replace=False).tolist() for _ in range(20)]
    found = prepare(interactions(lists, n_items=500), resolve("clean"), 7)
    for user in range(20):
        test, validation = (
            set(part.of(user).tolist()) for part in (found.test_candidates, found.validation_candidates)
        )
        assert (
            len(test) == len(validation) == 99 and not test & validation and not (test | validation) & set(lists[user])
        )
    shared = prepare(interactions(lists, n_items=500), resolve("paper:fedrap"), 7)
    np.testing.assert_array_equal(shared.test_candidates.items, shared.validation_candidates.items)


def test_fewer_items_than_candidates_are_shared_out_and_counted() -> None:
    found = prepare(interactions([[0, 1, 2], [3, 4, 5]], n_items=43), resolve("clean"), 0)
    assert found.test_candidates.lengths.tolist() == [20, 20]
    assert found.counts["users_with_few_candidates"] == 2


def test_nothing_to_hold_out_is_an_error() -> None:
    with pytest.raises(CoterieError, match="no user of world has 3 interactions"):
        prepare(interactions([[0, 1], [2]]), resolve("clean"), 0)


def test_unknown_names_are_answered_with_the_list() -> None:
    with pytest.raises(CoterieError, match=r"unknown protocol 'claen'. Did you mean 'clean'\?.*paper:federank"):
        resolve("claen")
    with pytest.raises(CoterieError, match="unknown split 'loo'"):
        resolve("clean", split="loo")
    assert resolve("paper", home="gpfedrec").name == "paper:gpfedrec"
    assert resolve("paper:fedrap").warning == PAPER_WARNING and resolve("paper:federank").warning is None


@pytest.mark.parametrize(("name", "leaks"), [("clean", False), ("paper:fedrap", True)])
def test_the_canary_sings_where_held_out_items_shape_the_negatives(name: str, leaks: bool) -> None:
    from coterie.algorithms.interface import Report
    from coterie.evaluate.canary import canary
    from coterie.ragged import Ragged

    draw = np.random.default_rng(1)
    lists = [draw.choice(150, 12, replace=False).tolist() for _ in range(300)]
    found = prepare(interactions(lists, n_items=150), resolve(name), 0)
    watch = CanaryWatch(found)
    ids = np.arange(found.data.n_users)
    for round_ in range(1, 40):
        drawn = negatives.draw(found.history, ids, 4, 0, round_)
        watch.observe(ids, Report(np.zeros(len(ids)), np.zeros(len(ids), np.int64), drawn))
    held, lists_of, counts = watch.draws()
    sung = canary(held, Ragged(lists_of.indptr, counts))
    assert sung.leaks == leaks
    assert sung.chance == pytest.approx(0.1 if leaks else 10 / (1 + found.test_candidates.lengths.mean()), rel=0.02)
    if leaks:
        assert sung.hr > 0.95


def test_the_canary_counts_what_was_drawn() -> None:
    from coterie.algorithms.interface import Report

    found = prepare(interactions([[0, 1, 2], [3, 4, 5]], n_items=40), resolve("clean"), 0)
    watch = CanaryWatch(found)
    drawn = negatives.draw(found.history, np.array([1]), 3, 0, 1)
    watch.observe(np.array([1]), Report(np.zeros(1), np.zeros(1, np.int64), drawn))
    held, lists, counts = watch.draws()
    assert held[0] == 0 and held[1] == (drawn.items == 5).sum()
    expected = [(drawn.items == item).sum() for item in lists.of(1)]
    assert counts[lists.indptr[1] :].tolist() == expected and counts[: lists.indptr[1]].sum() == 0


def test_global_time_cuts_everybody_at_once() -> None:
    data = interactions([[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]], times=[[1, 2, 7, 11], [3, 4, 8], [10, 10, 10]])
    found = prepare(data, resolve("clean", split="global-time"), 0)  # test begins at 10, validation at 7
    assert [found.train.of(u).tolist() for u in range(3)] == [[0, 1], [4, 5], []]
    assert [found.validation.of(u).tolist() for u in range(3)] == [[2], [6], []]
    assert [found.test.of(u).tolist() for u in range(3)] == [[3], [], []]
    assert found.counts["set_aside"] == 3  # the third user has nothing before the cut


def test_random_splits_take_their_shares_and_folds_cover_everything() -> None:
    draw = np.random.default_rng(0)
    lists = [draw.choice(80, 20, replace=False).tolist() for _ in range(9)]
    data = interactions(lists, n_items=80)
    one, other = (prepare(data, resolve("clean", split="ratio"), seed) for seed in (0, 1))
    assert set(one.test.lengths) == {4} and set(one.validation.lengths) == {3}
    assert one.test.items.tolist() != other.test.items.tolist()
    tests = [prepare(data, resolve("clean", split="k-fold", fold=fold), 3).test for fold in range(5)]
    for user, items in enumerate(lists):
        together = np.concatenate([part.of(user) for part in tests])
        assert sorted(together.tolist()) == sorted(items)
    with pytest.raises(CoterieError, match="--fold is 5; there are 5 folds"):
        resolve("clean", split="k-fold", fold=5)


def test_random_splits_do_not_depend_on_the_order_of_users() -> None:
    lists = [[0, 1, 2, 3, 4, 5], [9, 8, 7, 6, 5, 4]]
    data, turned = interactions(lists, n_items=10), interactions(lists[::-1], n_items=10)
    turned.user_ids[:] = ["u1", "u0"]
    first = prepare(data, resolve("clean", split="ratio"), 0)
    second = prepare(turned, resolve("clean", split="ratio"), 0)
    assert first.test.of(0).tolist() == second.test.of(1).tolist()


def test_training_from_the_future_is_counted() -> None:
    data = interactions([[0, 1, 2], [5, 6, 7, 2, 8, 9]], times=[[1, 2, 3], [4, 5, 6, 7, 8, 9]])
    found = prepare(data, resolve("clean"), 0)
    assert found.counts["test_with_later_training"] == 1  # item 2 is tested at 3 and trained on at 7


def test_rows_read_are_all_accounted_for() -> None:
    data = interactions([[0, 1, 2, 0, 3], [1, 2]])
    data.ratings[2] = 0.5
    c = prepare(data, resolve("clean", rating_threshold=1.0), 0).counts
    assert c["rows"] == c["interactions"] + c["merged"] + c["below_threshold"] + c["in_dropped_users"] == 7
    assert c["interactions"] == c["train"] + c["validation"] + c["test"] + c["set_aside"]
