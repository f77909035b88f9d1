"""One epoch of LightGCN (dim 32, 2 layers, batches of 4,096) against its sparse products and optimiser steps alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks import histories
from benchmarks.measure import best
from coterie.algorithms.central import lightgcn
from coterie.algorithms.central.fitting import one_thread, opened, pairs
from coterie.algorithms.central.lightgcn import LightGCN

_EPOCHS = 2


def run() -> dict[str, Any]:
    real = histories.named("ml-1m")
    data, history = ("ml-1m", real) if real is not None else histories.small()
    algorithm = LightGCN(dim=32, layers=2, batch=4096)
    server = algorithm.init(history, 0)
    n = history.n_clients
    steps = -(-len(pairs(history, 0, 1)[0]) // algorithm.batch)

    def epoch() -> None:
        algorithm.train(server, history, 1, 0)

    def bare() -> None:
        """What no LightGCN can do without: forward and backward propagation and Adam, once a step."""
        with one_thread():
            graph = lightgcn.adjacency(torch, *lightgcn.edges(history, "train"), n, history.n_items)
            p, adam = opened(torch, server.fit, algorithm.lr)
            gradient = torch.from_numpy(np.full_like(server.fit.now.nodes, 1e-6))
            for _ in range(steps):
                lightgcn.propagate(graph, p.nodes.detach(), algorithm.layers)
                p.nodes.grad = lightgcn.propagate(graph, gradient, algorithm.layers)
                adam.step()

    whole, least = best(epoch, _EPOCHS), best(bare, _EPOCHS)
    return {
        "ratio": whole / least,
        "what": "the CPU-seconds of its sparse products and optimiser steps alone (at most 3 is the aim)",
        "data": data,
        "steps": steps,
        "epoch_cpu_seconds": whole,
        "products_and_steps_cpu_seconds": least,
    }
