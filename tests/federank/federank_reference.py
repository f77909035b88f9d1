"""FedeRank's exchange and FCF's client in plain NumPy: one client, one triple, one item at a time."""

from __future__ import annotations

import numpy as np

from coterie import rng
from coterie.algorithms.federank import FedeRank
from coterie.algorithms.federank_kernel import chosen
from coterie.algorithms.interface import History

Sent = dict[int, np.ndarray]  # item -> float64[dim + 1], what leaves the device


def exchange(
    a: FedeRank, history: History, i: int, table: np.ndarray, p: np.ndarray, triples: int, number: int, seed: int
) -> tuple[Sent, np.ndarray, list[tuple[int, int]], float]:
    """What client i sends, her new vector, her triples, her mean loss."""
    own = history.items[history.indptr[i] : history.indptr[i + 1]]
    avoid = set(history.forbidden.of(i).tolist())
    never = set() if history.sharing is None else set(history.sharing.never.of(i).tolist())
    pi = a.pi if history.sharing is None or np.isnan(history.sharing.pi[i]) else history.sharing.pi[i]
    fixed = a.sharing == "fixed-subset"
    coins = np.uint64(rng.stream(seed, 0 if fixed else number, history.keys[i], rng.SHARING))
    state = np.uint64(rng.stream(seed, number, history.keys[i], rng.NEGATIVES))
    rate = a.lr / np.sqrt(len(own)) if a.rate_by_history else a.lr
    reg, reg_negative = a.reg * a.lr, a.reg_negative * a.lr
    now, old, m = p.astype(np.float64), p.astype(np.float64), len(table)
    hidden = {int(j) for j in own if fixed and not chosen(coins, int(j), pi)} | never
    step, sent, made, loss = np.zeros(len(p)), {}, [], 0.0
    for t in range(triples):
        state = np.uint64(rng.after(state))
        liked = int(own[rng.below(state, len(own))])
        candidates = []
        while len(candidates) < a.hardest:
            state = np.uint64(rng.after(state))
            item = int(rng.below(state, m))
            if item not in avoid or item in hidden:
                candidates.append(item)
        other = max(candidates, key=lambda j: table[j, -1] + now @ table[j, :-1]) if a.hardest > 1 else candidates[0]
        made.append((liked, other))
        x = table[liked, -1] - table[other, -1] + now @ (table[liked, :-1] - table[other, :-1])
        g = 1.0 / (1.0 + np.exp(x))
        loss += np.log1p(np.exp(-x))
        coin = m + t if a.mask == "triple" and not fixed else liked
        for item, sign, decay in ((other, -1.0, reg_negative), (liked, 1.0, reg)):
            if item == liked and (liked in never or not chosen(coins, coin, pi)):
                continue
            row = sent.setdefault(item, np.zeros(len(p) + 1))
            row[:-1] += sign * g * now - decay * table[item, :-1]
            row[-1] += sign * g
        gradient = g * (table[liked, :-1] - table[other, :-1]) - reg * now
        if a.user_moves == "each":
            now = now + rate * gradient
        else:
            step += gradient
    return sent, now if a.user_moves == "each" else old + rate * step, made, loss / triples


def solve(table: np.ndarray, own: np.ndarray, worth: np.ndarray, alpha: float, reg: float) -> np.ndarray:
    """FCF's user vector as the textbook has it: dense weights over all items."""
    weight, target = np.ones(len(table)), np.zeros(len(table))
    weight[own] += alpha * worth
    target[own] = 1.0
    A = (table * weight[:, None]).T @ table + reg * np.eye(table.shape[1])
    return np.linalg.solve(A, table.T @ (weight * target))
