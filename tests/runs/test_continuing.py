"""Going on with new interactions, people and items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.algorithms import make
from coterie.data.interactions import Interactions
from coterie.data.joined import joined
from tests.worlds import interactions


def _world(n_users: int, n_items: int, seed: int, first_time: int = 0) -> Interactions:
    draw = np.random.default_rng(seed)
    lists = [draw.choice(n_items, 8, replace=False).tolist() for _ in range(n_users)]
    times = [[first_time + t for t in range(8)] for _ in range(n_users)]
    return interactions(lists, times, n_items)


def test_joined_by_hand() -> None:
    old = interactions([[0, 1], [2]], times=[[1, 2], [3]])
    new = interactions([[1, 3], [0], [4]], times=[[2, 9], [8], [7]])
    both = joined(old, new)
    assert both.user_ids == ["u0", "u1", "u2"] and both.item_ids == ["i0", "i1", "i2", "i3", "i4"]
    assert [both.items[both.indptr[u] : both.indptr[u + 1]].tolist() for u in range(3)] == [[0, 1, 3], [2, 0], [4]]
    assert joined(old, old).sha256 == old.sha256


@pytest.mark.parametrize("name", ["fedmf", "fedrap"])
def test_what_was_learnt_is_carried_over(tmp_path: Path, name: str) -> None:
    old, new = _world(20, 40, seed=0), _world(26, 50, seed=1, first_time=100)
    first = coterie.run(make(name, negatives=2), old, rounds=6, out=tmp_path / "a", evaluate_every=3)
    from coterie.engine.simulate import start
    from coterie.protocol import prepare, resolve
    from coterie.runs.continuing import carry

    after = prepare(joined(old, new), resolve("clean"), 0)
    fresh = start(first.algorithm, after.history, 0)
    carried = carry(first.state, start(first.algorithm, after.history, 0), first.prepared, after)
    np.testing.assert_array_equal(carried.server.table[:40], first.state.server.table)
    np.testing.assert_array_equal(carried.server.table[40:], fresh.server.table[40:])
    np.testing.assert_array_equal(carried.clients.user[:20], first.state.clients.user)
    np.testing.assert_array_equal(carried.clients.user[20:], fresh.clients.user[20:])
    if name == "fedrap":
        for client in (0, 7):
            np.testing.assert_array_equal(carried.clients.own.table(client)[:40], first.state.clients.own.table(client))
        np.testing.assert_array_equal(carried.clients.own.table(22), fresh.clients.own.table(22))


def test_a_continued_run_says_what_changed_and_can_be_opened_again(tmp_path: Path) -> None:
    rows = "user_id,item_id,timestamp\n" + "".join(
        f"p{u},x{(u * 3 + t * t) % 30},{t}\n" for u in range(15) for t in range(6)
    )
    later = "user_id,item_id,timestamp\n" + "".join(f"p{u},y{t},{50 + t}\n" for u in range(10, 18) for t in range(5))
    (tmp_path / "old.csv").write_text(rows)
    (tmp_path / "new.csv").write_text(later)
    coterie.run("fedmf", tmp_path / "old.csv", rounds=5, out=tmp_path / "a")
    run = coterie.continue_run(tmp_path / "a", tmp_path / "new.csv", rounds=4, out=tmp_path / "b")
    said = run.summary["continued"]
    assert (said["after"], said["new_users"], said["new_items"], said["new_interactions"]) == (5, 3, 5, 40)
    assert said["users_with_news"] == 5 and said["held_out_but_trained_before"] == 0 and run.summary["valid"]
    assert [one["round"] for one in run.rounds] == [6, 7, 8, 9]
    again = coterie.open(tmp_path / "b")  # reads both files
    assert again.recommend("p17", 3) == run.recommend("p17", 3)


def test_held_out_items_that_were_trained_on_make_the_measurement_invalid(tmp_path: Path) -> None:
    old = interactions([[u % 4, 4 + u % 5, 9 + u % 3, 12 + u % 7] for u in range(12)], n_items=20)
    coterie.run("fedmf", old, rounds=3, out=tmp_path / "a")
    earlier = interactions([[19, 18, 17] for _ in range(12)], times=[[-9, -8, 500] for _ in range(12)], n_items=20)
    run = coterie.continue_run(tmp_path / "a", earlier, rounds=2, out=tmp_path / "b", data=old)
    assert run.summary["continued"]["held_out_but_trained_before"] == 0
    back = interactions([[u % 4] for u in range(12)], times=[[900] for _ in range(12)], n_items=20)
    run = coterie.continue_run(tmp_path / "a", back, rounds=2, out=tmp_path / "c", data=old)
    assert run.summary["continued"]["held_out_but_trained_before"] == 12 and not run.summary["valid"]
    assert "INVALID" in run.summary["warning"]
