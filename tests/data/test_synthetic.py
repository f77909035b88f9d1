"""The built-in world: the same bytes everywhere, and something in it to learn."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import Interactions, load, synthetic
from coterie.data.synthetic import KINDS
from coterie.errors import CoterieError


def ndcg(scores: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    scores = np.where(train > 0, -np.inf, scores)
    ranks = (scores > scores[np.arange(len(test)), test][:, None]).sum(axis=1)
    return float(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0).mean())


def leave_one_out(data: Interactions) -> tuple[np.ndarray, np.ndarray]:
    train = np.zeros((data.n_users, data.n_items))
    test = np.empty(data.n_users, int)
    for user in range(data.n_users):
        history = data.items[data.indptr[user] : data.indptr[user + 1]]
        train[user, history[:-1]] = 1
        test[user] = history[-1]
    return train, test


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_collaborative_filtering_beats_popularity(seed: int) -> None:
    train, test = leave_one_out(synthetic(seed=seed))
    gram = train.T @ train + 50 * np.eye(train.shape[1])
    inverse = np.linalg.inv(gram)
    ease = -inverse / np.diag(inverse)
    np.fill_diagonal(ease, 0)
    popular = np.tile(train.sum(axis=0), (len(train), 1))
    assert ndcg(train @ ease, train, test) >= 1.5 * ndcg(popular, train, test)


def test_the_same_arguments_give_the_same_bytes() -> None:
    # Written down so that another machine, or another version of NumPy, shows a difference.
    assert synthetic().sha256 == "91e428b515bf66575f6d39c11e6618e6cbafbffef59c1750b3588c1c03c832cb"
    assert (
        synthetic(users=50, items=60, seed=7).sha256
        == "eac2aa34c8101d51f46a47aadc16a468c08344900c1ad98b41435b4544a86bab"
    )
    assert synthetic(seed=1).sha256 != synthetic(seed=0).sha256


def test_shape_of_the_world() -> None:
    data = synthetic(users=500, items=800, seed=3)
    lengths = np.diff(data.indptr)
    assert (data.n_users, data.n_items) == (500, 800)
    assert lengths.min() >= 15 and lengths.max() <= 125  # 120, and a few items nobody else met
    assert data.notes["repeated_pairs"] == 0
    pairs = np.repeat(np.arange(500), lengths) * 800 + data.items
    assert len(np.unique(pairs)) == len(data)
    popularity = np.sort(np.bincount(data.items))[::-1]
    assert popularity[:160].sum() > 0.45 * len(data)  # a fifth of the items, about half of the interactions
    assert data.titles is not None and len(set(data.titles)) == 800
    assert all(title.startswith("The ") for title in data.titles)
    assert set(np.unique(data.ratings)) <= {1, 2, 3, 4, 5}


def test_numbers_follow_first_appearance_and_time_runs_forward() -> None:
    data = synthetic(users=40, items=50)
    _, first = np.unique(data.items, return_index=True)
    assert (np.diff(first) > 0).all()
    assert data.times is not None
    for user in range(data.n_users):
        assert (np.diff(data.times[data.indptr[user] : data.indptr[user + 1]]) > 0).all()


def test_tastes_drift() -> None:
    """The second half of a history has other kinds of items than the first, more than by chance."""
    data = synthetic()
    assert data.titles is not None
    kinds = np.array([title.split()[2] for title in data.titles])
    nouns = {noun: number for number, row in enumerate(KINDS) for noun in row}
    kind = np.array([nouns[noun] for noun in kinds])
    moved = 0
    for user in range(data.n_users):
        history = kind[data.items[data.indptr[user] : data.indptr[user + 1]]]
        first, last = history[: len(history) // 4], history[-(len(history) // 4) :]
        moved += np.bincount(first, minlength=6).argmax() != np.bincount(last, minlength=6).argmax()
    assert 0.2 * data.n_users < moved < 0.8 * data.n_users


def test_load_takes_options() -> None:
    assert load("synthetic").sha256 == synthetic().sha256
    assert load("synthetic:users=30,items=40,seed=3").sha256 == synthetic(users=30, items=40, seed=3).sha256


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("synthetic:user=3", "unknown option of synthetic 'user'. Did you mean 'users'?"),
        ("synthetic:users=many", "synthetic: users='many', expected a whole number."),
        ("synthetic:users=0", "synthetic: users=0, expected at least 1."),
        ("synthetic:items=5", "synthetic: items=5, expected at least 20."),
        ("synthetic:shortest=9,longest=3", "synthetic: longest=3 is less than shortest=9."),
    ],
)
def test_wrong_options_are_named(source: str, says: str) -> None:
    with pytest.raises(CoterieError) as error:
        load(source)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "options", [{"users": 1, "items": 20}, {"users": 3, "items": 20, "longest": 500}, {"users": 2, "items": 3000}]
)
def test_odd_sizes(options: dict[str, int]) -> None:
    data = synthetic(**options)
    assert (data.n_users, data.n_items) == (options["users"], options["items"])
    assert data.indptr[-1] == len(data)
