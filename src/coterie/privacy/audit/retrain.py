"""Interaction-level membership inference: guess, retrain from the broadcast model, compare, keep what fits, repeat.

The server guesses that a fifth of the rows a user sent are positives, lets a client of its own train on that guess from
the model it had sent her, and compares the rows that come out with hers. Rows that come closest keep their guessed
label, the others are guessed again. It runs the system's own client step, so it works against every system.

Zhang et al.: Interaction-level Membership Inference Attack Against Federated Recommender Systems. WWW 2023.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.algorithms.interface import Download, Federated, History
from coterie.privacy.audit.evidence import moved, part_of
from coterie.privacy.view import Seen
from coterie.ragged import ragged
from coterie.rng import user_keys

_GUESSED, _KEPT = 0.2, 0.2  # shares of a user's rows: guessed as positive, fixed after each repeat


def retrain(
    seen: Seen, algorithm: Federated, ids: np.ndarray, n_items: int, seed: int, repeats: int = 4, steps: int = 8
) -> np.ndarray:
    """float64[u, m]: evidence for each pair; 0 where nothing is known."""
    found = np.zeros((len(ids), n_items))
    where = {int(user): place for place, user in enumerate(ids)}
    chosen = [c for c in {int(seen.ids[c]): c for c in range(len(seen.ids))}.values()
              if int(seen.ids[c]) in where and len(np.unique(part_of(seen.upload, c)[0])) >= 4]  # fmt: skip
    if not chosen or seen.table.shape[1] != seen.upload.values.shape[1]:
        return found
    draw = np.random.default_rng(seed)
    rows = [np.unique(part_of(seen.upload, c)[0]) for c in chosen]
    theirs = [_moves(*part_of(seen.upload, c), seen.table, one) for c, one in zip(chosen, rows, strict=True)]
    label = [np.full(len(one), -1) for one in rows]  # fixed: 0 or 1
    votes, times = [np.zeros(len(one)) for one in rows], [np.zeros(len(one)) for one in rows]
    for repeat in range(repeats):
        guess = [np.where(fixed >= 0, fixed, draw.random(len(fixed)) < _GUESSED) for fixed in label]
        for one in guess:
            if not one.any():
                one[draw.integers(len(one))] = 1
            if one.all():
                one[draw.integers(len(one))] = 0
        ours = _train(algorithm, seen, rows, guess, n_items, seed + repeat, steps)
        for c, (mine, hers) in enumerate(zip(ours, theirs, strict=True)):
            likeness = _likeness(mine, hers)
            votes[c] += np.where(guess[c] == 1, likeness, -likeness)
            times[c] += 1
            open_ = np.flatnonzero(label[c] < 0)
            best = open_[np.argsort(-likeness[open_], kind="stable")[: max(int(_KEPT * len(rows[c])), 1)]]
            label[c][best] = guess[c][best]
    for c, place in enumerate(chosen):
        found[where[int(seen.ids[place])], rows[c]] = votes[c] / np.maximum(times[c], 1) + 0.5 * (label[c] == 1) + 1e-6
    return found


def _moves(rows: np.ndarray, values: np.ndarray, sent: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where a guess makes training diverge, the row says nothing."""
    known = np.where(np.abs(values) < 1e18, values, np.float32(0.0))
    return _table(rows, moved(rows, known, sent), wanted)


def _table(rows: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    table = np.zeros((len(wanted), values.shape[1]))
    place = np.searchsorted(wanted, rows)
    if len(np.unique(place)) == len(place):  # the common case, and a hundred times as fast
        table[place] = values
    else:
        np.add.at(table, place, values)
    return table


def _likeness(mine: np.ndarray, hers: np.ndarray) -> np.ndarray:
    """float64[r]: cosine of the two movements of each row, as far as they can be told apart from a sign: in -1..1."""
    down = np.maximum(np.linalg.norm(mine, axis=1) * np.linalg.norm(hers, axis=1), 1e-30)
    found: np.ndarray = (mine * hers).sum(axis=1) / down
    return found


def _train(
    algorithm: Federated,
    seen: Seen,
    rows: list[np.ndarray],
    guess: list[np.ndarray],
    n_items: int,
    seed: int,
    steps: int,
) -> list[np.ndarray]:
    """The movements of each user's rows if the guess were true."""
    own = ragged([one[yes == 1] for one, yes in zip(rows, guess, strict=True)])
    avoid = ragged([np.setdiff1d(np.arange(n_items), one[yes == 0]) for one, yes in zip(rows, guess, strict=True)])
    ones = np.ones(len(own.items), np.float32)
    keys = user_keys([f"shadow {c}" for c in range(len(rows))])
    history = History(own.indptr, own.items, ones, ones, avoid, keys, n_items)
    clients: Any = algorithm.init_clients(history, seed)
    download = Download(seen.table, np.empty(0, np.float32))
    everybody = np.arange(len(rows))
    total = [np.zeros((len(one), seen.upload.values.shape[1])) for one in rows]
    for step in range(1, steps + 1):
        upload, _ = algorithm.client_step(clients, everybody, history, download, step, seed)
        if step > steps // 2:  # her own vector has settled by then
            for c, one in enumerate(rows):
                total[c] += _moves(*part_of(upload, c), seen.table, one)
    return total
