"""States as arrays: copies that reuse memory share nothing with what is running, and bad numbers are found."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from coterie.runs import tensors


class _State(NamedTuple):
    table: np.ndarray
    seen: np.ndarray


def test_a_copy_into_a_former_one_has_its_memory_and_nothing_of_the_original() -> None:
    running = _State(np.ones((3, 2), np.float32), np.array([True, False]))
    first = tensors.copy(running)
    running.table[:] = 2.0
    assert (first.table == 1.0).all()
    second = tensors.copy(running, first)
    assert second.table is first.table and second.seen is first.seen and (second.table == 2.0).all()
    running.table[:] = 3.0
    assert (second.table == 2.0).all()
    grown = tensors.copy(_State(np.ones((4, 2), np.float32), running.seen), second)  # what does not fit is made anew
    assert grown.table.shape == (4, 2) and second.table.shape == (3, 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_found_wherever_they_are(bad: float) -> None:
    state = _State(np.ones((3, 2), np.float32), np.zeros(2))
    assert tensors.finite(state) is None
    state.seen[1] = bad
    assert tensors.finite(state) == "seen"
    state.table[1:, 1] = [bad, -bad]
    assert tensors.finite(state) == "table"
    assert tensors.finite(state, state.table.nbytes) == "table"
    assert tensors.finite(state, state.table.nbytes - 1) == "seen"  # the larger one was not looked at


def test_large_numbers_whose_sum_overflows_are_finite() -> None:
    assert tensors.finite(_State(np.full((3, 2), 3e38, np.float32), np.zeros(2))) is None
