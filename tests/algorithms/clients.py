"""Small random clients, trained by the kernel and by the reference."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coterie.algorithms import factor, factor_reference, negatives
from coterie.algorithms.factor import Local
from coterie.algorithms.factor_reference import Model
from coterie.algorithms.interface import Download, History, Report, Upload
from coterie.algorithms.rowstore import RowStore
from coterie.ragged import Ragged, ragged
from coterie.rng import user_keys

PLAIN = Local(
    passes=1, batch=1 << 20, mean=False, squared=False, shared=True, private=True, item_bias=False, user_bias=False,
    whole=False, everywhere=False, rate_item=0.05, rate_own=0.03, decay_user=0.0, decay_item=0.0, decay_own=0.0,
    step_decay=1.0, apart=0.0, sparse=0.0, penalty=factor.NO_PENALTY, tolerance=0.0,
)  # fmt: skip


class World(NamedTuple):
    """A cohort before training."""

    history: History
    negatives: Ragged
    table: np.ndarray  # float32[m, k (+ 1)]
    user: np.ndarray  # float32[n, k]
    bias: np.ndarray  # float32[n]
    own: RowStore
    rates: np.ndarray  # float64[n]


class Trained(NamedTuple):
    upload: Upload
    report: Report
    user: np.ndarray
    bias: np.ndarray
    own: RowStore


def world(
    settings: Local, clients: int = 4, items: int = 12, dim: int = 5, per_positive: int = 3, seed: int = 0,
    most_counts: int = 1,
) -> World:  # fmt: skip
    """Clients with histories of 1 to 5 items; the private tables have some rows of their own already."""
    draw = np.random.default_rng(seed)
    lists = [np.sort(draw.choice(items, draw.integers(1, min(5, items) + 1), replace=False)) for _ in range(clients)]
    own = ragged(lists)
    counts = draw.integers(1, most_counts + 1, len(own.items)).astype(np.float32)
    keys = user_keys([f"u{seed}-{i}" for i in range(clients)])
    ages = np.concatenate([draw.permutation(len(one)) for one in lists]).astype(np.int32)
    history = History(own.indptr, own.items, counts, counts, own, keys, items, ages=ages)
    drawn = negatives.draw(history, np.arange(clients), per_positive, seed, 1)
    width = dim + int(settings.item_bias)
    store = RowStore.empty(clients, draw.standard_normal((items, dim)).astype(np.float32))
    for i in range(clients):
        mine = draw.choice(items, items // 3, replace=False)
        store.scale[i], store.used[i], store.slot[i, mine] = draw.uniform(0.5, 1.0), len(mine), np.arange(len(mine))
        store.pool[i * items : i * items + len(mine)] = draw.standard_normal((len(mine), dim))
    return World(
        history, drawn, draw.standard_normal((items, width)).astype(np.float32),
        draw.standard_normal((clients, dim)).astype(np.float32), draw.standard_normal(clients).astype(np.float32),
        store, draw.uniform(0.02, 0.2, clients),
    )  # fmt: skip


def by_kernel(w: World, settings: Local, ids: np.ndarray | None = None) -> Trained:
    ids = np.arange(w.history.n_clients) if ids is None else ids
    user, bias, own = w.user.copy(), w.bias.copy(), w.own.copy()
    drawn = ragged([w.negatives.of(i) for i in ids])
    upload, report = factor.train(
        ids, w.history, drawn, Download(w.table, np.empty(0, np.float32)), user, bias if settings.user_bias else None,
        own if settings.private else None, w.rates[ids], settings, 1, 3,
    )  # fmt: skip
    return Trained(upload, report, user, bias, own)


def start_of(w: World, i: int) -> Model:
    return Model(w.table.astype(float), w.own.table(i).astype(float), w.user[i].astype(float), float(w.bias[i]))


def examples_of(w: World, i: int, settings: Local = PLAIN) -> factor_reference.Batch:
    part = slice(w.history.indptr[i], w.history.indptr[i + 1])
    assert w.history.ages is not None
    weights = factor_reference.recency(w.history.ages[part], settings.half_life, settings.oldest)
    return factor_reference.examples(w.history.items[part], w.history.counts[part], w.negatives.of(i), weights)


def by_reference(w: World, settings: Local, i: int) -> tuple[Model, float]:
    return factor_reference.train(
        start_of(w, i), examples_of(w, i, settings), float(w.rates[i]), settings, 3, 1, w.history.keys[i]
    )


def client_table(w: World, upload: Upload, c: int) -> np.ndarray:
    """Client c's whole C after training, from what she sent."""
    part = slice(upload.indptr[c], upload.indptr[c + 1])
    table = w.table.astype(float) * upload.dense[c, 0]
    table[upload.rows[part]] += upload.values[part]
    return table
