"""Mult-VAE: a variational auto-encoder of whole histories with a multinomial likelihood.

Encoder: a history, scaled to length 1 and thinned by dropout, through tanh to mean and deviation of z; decoder: z
through tanh to a softmax over all items. Loss: -sum over her items of ln softmax / (her count) + beta KL(z | N(0, I)) /
(mean count), beta rising evenly to `beta` within `anneal` epochs. A round is an epoch over all people in shuffled
batches; Adam. No negatives are drawn. Everybody, in training or not, is scored by her history alone.

Liang, Krishnan, Hoffman, Jebara: Variational Autoencoders for Collaborative Filtering. WWW 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import scipy.sparse

from coterie import rng
from coterie.algorithms.central.ease import binary
from coterie.algorithms.central.fitting import Fit, closed, fresh, need, one_thread, opened
from coterie.algorithms.interface import Central, History


class Parameters(NamedTuple):
    into: np.ndarray  # float32[m, hidden]
    into_bias: np.ndarray  # float32[hidden]
    mean: np.ndarray  # float32[hidden, dim]
    mean_bias: np.ndarray  # float32[dim]
    spread: np.ndarray  # float32[hidden, dim]: ln of the variance
    spread_bias: np.ndarray  # float32[dim]
    back: np.ndarray  # float32[dim, hidden]
    back_bias: np.ndarray  # float32[hidden]
    out: np.ndarray  # float32[m, hidden]
    out_bias: np.ndarray  # float32[m]


@final
@dataclass(frozen=True)
class MultVAE(Central):
    dim: int = 64  # length of z
    hidden: int = 200  # width of the layers between
    lr: float = 0.003  # Adam's step size
    dropout: float = 0.5  # share of a history hidden from the encoder
    beta: float = 0.5  # most weight of the KL term
    anneal: int = 30  # epochs until beta is reached
    batch: int = 128  # people in a step

    name: ClassVar[str] = "multvae"
    citation: ClassVar[str] = "Liang et al., Variational Autoencoders for Collaborative Filtering, WWW 2018"
    sends: ClassVar[str] = "her whole history (central)"
    default_rounds: ClassVar[int] = 100
    behaviours: ClassVar[dict[str, dict[str, Any]]] = {"coterie": {}}

    def __post_init__(self) -> None:
        need("torch", "neural", self.name)

    def init(self, history: History, seed: int) -> Fit:
        draw, m = rng.generator(seed, rng.ITEM_START), history.n_items

        def glorot(inputs: int, outputs: int) -> np.ndarray:
            return draw.standard_normal((inputs, outputs), np.float32) * np.float32(np.sqrt(2 / (inputs + outputs)))

        return fresh(
            Parameters(
                glorot(m, self.hidden), np.zeros(self.hidden), glorot(self.hidden, self.dim), np.zeros(self.dim),
                glorot(self.hidden, self.dim), np.zeros(self.dim), glorot(self.dim, self.hidden),
                np.zeros(self.hidden), glorot(m, self.hidden), np.zeros(m),
            )
        )  # fmt: skip

    def train(self, server: Fit, history: History, round_: int, seed: int) -> tuple[Fit, float]:
        people = np.flatnonzero(history.lengths)
        people = people[rng.generator(seed, rng.SHUFFLE, round_).permutation(len(people))]
        owners = binary(history)
        hide = rng.generator(seed, rng.DROPOUT, round_)
        noise = rng.generator(seed, rng.NOISE, round_)
        beta = self.beta * min(1.0, round_ / max(self.anneal, 1))
        total = 0.0
        with one_thread() as torch:
            p, adam = opened(torch, server, self.lr)
            for first in range(0, len(people), self.batch):
                rows = owners[people[first : first + self.batch]]
                kept = (hide.random(rows.nnz) >= self.dropout).astype(np.float32) / (1 - self.dropout)
                dice = torch.from_numpy(noise.standard_normal((rows.shape[0], self.dim), np.float32))
                adam.zero_grad()
                loss, divergence = self._loss(torch, p, rows, kept, dice)
                (loss + beta * divergence).backward()
                adam.step()
                total += loss.item() * rows.shape[0]
            return closed(p, adam), total / max(len(people), 1)

    def _loss(self, torch: Any, p: Any, rows: scipy.sparse.csr_matrix, kept: np.ndarray, dice: Any) -> tuple[Any, Any]:
        """Cross-entropy for each of her items, and the KL term on the same scale; means over people."""
        length = np.diff(rows.indptr)
        items, offsets = (torch.from_numpy(one.astype(np.int64)) for one in (rows.indices, rows.indptr[:-1]))
        weights = torch.from_numpy((kept / np.sqrt(np.repeat(length, length))).astype(np.float32))
        bag = torch.nn.functional.embedding_bag(items, p.into, offsets, mode="sum", per_sample_weights=weights)
        hidden = torch.tanh(bag + p.into_bias)
        mean, spread = hidden @ p.mean + p.mean_bias, hidden @ p.spread + p.spread_bias
        z = mean + torch.exp(spread / 2) * dice
        logits = torch.addmm(p.out_bias, torch.tanh(z @ p.back + p.back_bias), p.out.T)
        owner = torch.from_numpy(np.repeat(np.arange(len(length)), length))
        chosen = logits[owner, items].sum() - (torch.logsumexp(logits, 1) * torch.from_numpy(length)).sum()
        divergence = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum()
        return -chosen / length.sum(), divergence / length.sum()

    def score(self, server: Fit, clients: Any, history: History, users: np.ndarray) -> np.ndarray:
        p, rows = server.now, binary(history, users)
        length = np.sqrt(np.maximum(np.diff(rows.indptr), 1)).astype(np.float32)[:, None]
        mean = np.tanh(rows @ p.into / length + p.into_bias) @ p.mean + p.mean_bias
        found: np.ndarray = np.tanh(mean @ p.back + p.back_bias) @ p.out.T + p.out_bias
        return found

    def item_vectors(self, server: Fit) -> np.ndarray:
        found: np.ndarray = server.now.out
        return found
