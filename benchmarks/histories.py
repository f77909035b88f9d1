"""Histories to train on: a named set where COTERIE_DATA has it, or made-up ones of MovieLens-100K's size."""

from __future__ import annotations

import os

import numpy as np

from coterie.algorithms.interface import History
from coterie.data.load import load
from coterie.protocol.prepare import prepare
from coterie.protocol.rules import resolve
from coterie.ragged import ragged
from coterie.rng import user_keys

_USERS, _ITEMS, _MEDIAN = 943, 1682, 65


def named(name: str) -> History | None:
    """Training histories of a named set, or None where it is not at hand."""
    folder = os.environ.get("COTERIE_DATA")
    if not folder or not os.path.isdir(os.path.join(folder, name)):
        return None
    return prepare(load(name), resolve("clean"), 0).history


def made_up() -> History:
    """943 people, 1,682 items: lengths log-normal around 65 as in MovieLens-100K (mean 104), popularity long-tailed."""
    draw = np.random.default_rng(0)
    lengths = np.clip(np.exp(np.log(_MEDIAN) + 0.97 * draw.standard_normal(_USERS)), 18, 735).astype(int)
    weights = 1.0 / (np.arange(_ITEMS) + 30.0)
    lists = [np.sort(draw.choice(_ITEMS, n, replace=False, p=weights / weights.sum())) for n in lengths]
    own = ragged(lists)
    ones = np.ones(len(own.items), np.float32)
    return History(own.indptr, own.items, ones, ones, own, user_keys([str(u) for u in range(_USERS)]), _ITEMS)


def small() -> tuple[str, History]:
    """MovieLens-100K, or what stands in for it."""
    real = named("ml-100k")
    return ("ml-100k", real) if real is not None else ("made up, of ml-100k's size", made_up())
