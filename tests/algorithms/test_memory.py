"""Memory that is used again must never be memory that somebody still looks at."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from coterie.algorithms import memory


@pytest.fixture(autouse=True)
def _nothing_spare() -> None:
    memory.release()


def _place(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_what_was_dropped_is_used_again_for_what_is_not_much_smaller() -> None:
    first = memory.empty(4, 25, 3)
    assert first.shape == (4, 25, 3) and first.dtype == np.float32 and first.flags.c_contiguous
    place = _place(first)
    del first
    smaller = memory.empty(200)
    assert _place(smaller) == place and smaller.shape == (200,)
    del smaller
    assert _place(memory.empty(300)) == place
    assert len(memory._spare) == 1
    tiny = memory.empty(149)  # less than half: this memory would be wasted on it
    assert not memory._spare and tiny.size == 149


def test_what_any_view_still_shows_is_not_lent_again() -> None:
    lent = memory.empty(10, 30)
    lent[:] = 7.0
    view = lent.reshape(-1)[50:60]
    del lent
    other = memory.empty(10, 30)
    other[:] = 1.0
    np.testing.assert_array_equal(view, np.full(10, 7.0, np.float32))
    del view
    assert len(memory._spare) == 1


def test_released_memory_is_gone_and_what_is_in_use_stays() -> None:
    kept, dropped = memory.empty(100), memory.empty(100)
    kept[:] = 3.0
    del dropped
    assert len(memory._spare) == 1
    memory.release()
    assert not memory._spare and (kept == 3.0).all()


def test_threads_never_share_a_piece() -> None:
    def work(number: int) -> bool:
        for turn in range(50):
            mine = memory.empty(1000 + number)
            mine[:] = number + 100 * turn
            if not (mine == number + 100 * turn).all():
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(32)))
