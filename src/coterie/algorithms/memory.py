"""Large arrays that are made anew every round, in memory that is used again.

The system takes a large array's memory back when it is dropped and has to find, clear and map as much for the next one:
for everybody's views on MovieLens-100K that took .1 to .8 s, the sums that go there .12. Memory lent here comes back by
itself when the last view of it is dropped, and `release` gives all that is not in use back to the system.
"""

from __future__ import annotations

import threading
from typing import Any, final

import numpy as np

_MOST = 2  # memory up to so many times as large as what is asked for is used for it

_spare: list[np.ndarray] = []
_choosing = threading.Lock()


@final
class _Lent:
    """What every view of the memory refers to: it goes when the last of them does."""

    def __init__(self, memory: np.ndarray, size: int) -> None:
        self._memory = memory
        self.__array_interface__: dict[str, Any] = {**memory.__array_interface__, "shape": (size,)}

    def __del__(self) -> None:
        _spare.append(self._memory)  # in whatever thread that is: this neither waits nor moves the others


def empty(*shape: int) -> np.ndarray:
    """float32[shape], not cleared, like `np.empty`."""
    size = int(np.prod(shape))
    return np.asarray(_Lent(_found(size), size)).reshape(shape)


def _found(size: int) -> np.ndarray:
    """The smallest spare piece that serves, or a new one: then those there are serve nobody, and go."""
    with _choosing:
        fitting = [at for at, one in enumerate(_spare) if size <= one.size <= _MOST * size]
        if fitting:
            return _spare.pop(min(fitting, key=lambda at: _spare[at].size))
        _spare.clear()
    return np.empty(size, np.float32)


def release() -> None:
    """Give memory that is not in use back to the system."""
    _spare.clear()
