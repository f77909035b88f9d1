"""The store of private rows says what a plain table would, and takes memory only for rows in use."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from coterie.algorithms import rowstore
from coterie.algorithms.factor import L1
from coterie.algorithms.rowstore import RowStore
from tests.algorithms.clients import PLAIN, by_kernel, by_reference, world


def _filled(seed: int = 0) -> tuple[RowStore, np.ndarray]:
    """A store after some writing, and the same as a plain array [n, m, k]."""
    draw = np.random.default_rng(seed)
    n, m, k = 5, 7, 3
    store = RowStore.empty(n, draw.standard_normal((m, k)).astype(np.float32))
    dense = np.repeat(store.start[None], n, axis=0)
    for i in range(n - 1):  # the last client touches nothing
        mine = draw.choice(m, i + 1, replace=False)
        store.slot[i, mine], store.used[i] = np.arange(i + 1), i + 1
        store.pool[i * m : i * m + i + 1] = dense[i, mine] = draw.standard_normal((i + 1, k)).astype(np.float32)
        store.scale[i] = draw.uniform(0.5, 1)
    return store, dense * store.scale.astype(np.float32)[:, None, None]


def test_table_is_the_dense_one() -> None:
    store, dense = _filled()
    for i in range(5):
        np.testing.assert_array_equal(store.table(i), dense[i])


def test_copy_is_deep() -> None:
    store, dense = _filled()
    twin = store.copy()
    store.pool[:] = 9.0
    store.scale[:] = 9.0
    store.slot[:] = -1
    for i in range(5):
        np.testing.assert_array_equal(twin.table(i), dense[i])


@pytest.mark.parametrize("size", [1, 40, 1 << 20])
def test_shards_round_trip(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowstore, "_SHARD_BYTES", size)
    store, dense = _filled()
    shards = [{name: array.copy() for name, array in shard.items()} for shard in store.shards()]
    assert size > 1 or len(shards) > 4
    back = RowStore.from_shards(iter(shards))
    for i in range(5):
        np.testing.assert_array_equal(back.table(i), dense[i])
    assert back.used.tolist() == store.used.tolist() and back.nbytes == store.nbytes


def test_rounds_of_training_equal_a_plain_table() -> None:
    """Rows move into the store as they are touched; untouched ones are only scaled."""
    s = PLAIN._replace(mean=True, everywhere=True, decay_own=0.1, passes=3, penalty=L1, apart=0.1, rate_own=1.0)
    w = world(s)
    for _ in range(3):
        got = by_kernel(w, s)
        for i in range(w.history.n_clients):
            np.testing.assert_allclose(got.own.table(i), by_reference(w, s, i)[0].own, rtol=2e-4, atol=2e-5)
        w = w._replace(own=got.own, user=got.user)
        for i in range(w.history.n_clients):
            slots = got.own.slot[i][got.own.slot[i] >= 0]
            assert sorted(slots.tolist()) == list(range(got.own.used[i]))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_memory_is_reserved_not_taken() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    n, m, k = 500, 20_000, 64  # 2.4 GiB if it were taken
    before = resident()
    store = RowStore.empty(n, np.zeros((m, k), np.float32))
    taken = resident() - before
    assert taken < store.slot.nbytes + (64 << 20)
    store.pool[7 * m : 7 * m + 100] = 1.0
    assert resident() - before - taken < 32 << 20
    assert store.nbytes == store.slot.nbytes
