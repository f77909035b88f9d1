"""One round of FedRAP as released (10 local passes, local stop off): the simulator against a PyTorch loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks import histories, torch_loop
from benchmarks.measure import best
from coterie.algorithms.fedrap import FedRAP
from coterie.algorithms.negatives import draw
from coterie.engine.simulate import simulate, start

_SAMPLE = 105  # clients of the PyTorch loop, every ninth by length of history


def run() -> dict[str, Any]:
    torch.set_num_threads(1)
    data, history = histories.small()
    algorithm = FedRAP(**FedRAP.behaviours["as_released"] | {"tolerance": 0.0})
    state = start(algorithm, history, 0)
    rounds = simulate(algorithm, history, state, range(1, 100), 0, threads=1)
    next(rounds)  # compiles
    ours = best(lambda: next(rounds), 8)

    drawn = draw(history, np.arange(history.n_clients), algorithm.negatives, 0, 1)
    sizes = history.lengths + drawn.lengths
    sample = np.argsort(history.lengths, kind="stable")[:: history.n_clients // _SAMPLE]
    first = start(algorithm, history, 0)
    clients, examples = [], []
    for i in sample:
        items = np.concatenate([history.items[history.indptr[i] : history.indptr[i + 1]], drawn.of(i)])
        labels = torch.zeros(len(items))
        labels[: history.lengths[i]] = 1.0
        examples.append((torch.from_numpy(items.astype(np.int64)), labels))
        arrays = (first.server.table, first.clients.own.start, first.clients.user[i], first.clients.bias[i])
        clients.append(torch_loop.Client(*(torch.tensor(one, requires_grad=True) for one in arrays)))

    def loop() -> None:
        for client, (items, labels) in zip(clients, examples, strict=True):
            torch_loop.train_client(
                client, items, labels, algorithm.epochs, algorithm.batch, algorithm.lr_user, algorithm.lr_item,
                algorithm.reg_item, algorithm.apart, algorithm.sparse,
            )  # fmt: skip

    loop()
    apart = _disagreement(algorithm, history, sample, sizes, clients)
    theirs = best(loop, 2) * sizes.sum() / sizes[sample].sum()
    return {
        "ratio": theirs / ours,
        "what": "fewer CPU-seconds than a per-client PyTorch loop, one thread",
        "data": data,
        "coterie_cpu_seconds": ours,
        "torch_cpu_seconds": theirs,
        "torch_measured_on": f"{len(sample)} of {history.n_clients} clients, scaled by examples; negatives given",
        "largest_difference_of_results": apart,
    }


def _disagreement(
    algorithm: FedRAP, history: Any, sample: np.ndarray, sizes: np.ndarray, clients: list[torch_loop.Client]
) -> float:
    """How far both are apart after the same round (clients of one batch: the order of several is random)."""
    state = start(algorithm, history, 0)
    algorithm.client_step(state.clients, sample, history, algorithm.download(state.server, sample, 1), 1, 0)
    most = 0.0
    for i, client in zip(sample, clients, strict=True):
        if sizes[i] <= algorithm.batch:
            most = max(most, float(np.abs(state.clients.user[i] - client.weight.detach().numpy()).max()))
            most = max(most, float(np.abs(state.clients.own.table(i) - client.own.detach().numpy()).max()))
    return most
