"""One round of GPFedRec as released: the simulator against a PyTorch loop over clients and its matrix products.

`python -m benchmarks gpfedrec_round` compares on ml-100k. `python -m benchmarks.gpfedrec_round [NAME ...]` measures the
first five rounds on ml-1m (gpfedrec and light-gpfedrec), time and memory: some ten minutes each on one core.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data
from threadpoolctl import threadpool_limits

from benchmarks import histories
from benchmarks.measure import best, save
from coterie.algorithms import make, neighbour_sums
from coterie.algorithms.gpfedrec import GPFedRec
from coterie.algorithms.interface import History
from coterie.algorithms.negatives import draw
from coterie.engine.simulate import simulate, start
from coterie.ragged import Ragged


class Model(torch.nn.Module):
    """One client's model, as one would write it."""

    def __init__(self, n_items: int, sizes: tuple[int, ...]) -> None:
        super().__init__()
        dim = sizes[0] // 2
        self.user, self.items = torch.nn.Embedding(1, dim), torch.nn.Embedding(n_items, dim)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes)])

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        hidden = torch.cat([self.user.weight.expand(len(items), -1), self.items(items)], dim=-1)
        for layer in self.layers[:-1]:
            hidden = torch.relu(layer(hidden))
        return torch.sigmoid(self.layers[-1](hidden)).view(-1)


def run() -> dict[str, Any]:
    torch.set_num_threads(1)
    data, history = histories.small()
    algorithm = make("gpfedrec", "as_released")
    rounds = simulate(algorithm, history, start(algorithm, history, 0), range(1, 100), 0, threads=1)
    with threadpool_limits(1, "blas"):  # or the products would be done by two threads, in each other's way
        linked = next(rounds).state.server.graph.linked
        ours = best(lambda: next(rounds), 4)
    strays = np.diff(neighbour_sums._steps(linked, neighbour_sums.by_popularity(linked))[1])
    drawn = draw(history, np.arange(history.n_clients), algorithm.negatives, 0, 1)
    loop = Loop(algorithm, history, drawn)
    loop.round()
    lean = best(loop.round, 2)
    usual = best(lambda: loop.round(usual=True), 2)
    return {
        "ratio": usual / ours,
        "what": "fewer CPU-seconds than a PyTorch loop over clients and its two matrix products, one thread",
        "data": data,
        "coterie_cpu_seconds": ours,
        "torch_cpu_seconds": usual,
        "torch_lean_cpu_seconds": lean,
        "ratio_to_lean": lean / ours,
        "strays_a_person": float(strays.mean()),
        "lean": "negatives given beforehand as tensors, batches cut by index; the other draws them, with a DataLoader",
    }


class Loop:
    """The yardstick: a client at a time, SGD with three rates; the graph by two matrix products."""

    def __init__(self, algorithm: GPFedRec, history: History, drawn: Ragged) -> None:
        self.algorithm, self.history, self.draws = algorithm, history, np.random.default_rng(0)
        first = Model(history.n_items, algorithm.sizes)
        self.models = [copy.deepcopy(first) for _ in range(history.n_clients)]
        self.shared = first.items.weight.detach().clone()
        self.views = [self.shared] * history.n_clients
        self.examples = []
        for i in range(history.n_clients):
            own = history.items[history.indptr[i] : history.indptr[i + 1]]
            items = torch.from_numpy(np.concatenate([own, drawn.of(i)]).astype(np.int64))
            labels = torch.cat([torch.ones(len(own)), torch.zeros(len(items) - len(own))])
            self.examples.append((items, labels))

    def _batches(self, i: int, usual: bool) -> Iterable[Sequence[torch.Tensor]]:
        """Client i's batches: with what most would write, or with as little as possible around the training."""
        items, labels = self.examples[i]
        if usual:
            own = self.history.items[self.history.indptr[i] : self.history.indptr[i + 1]]
            others = np.setdiff1d(np.arange(self.history.n_items), own)
            drawn = self.draws.choice(others, self.algorithm.negatives * len(own))
            items = torch.from_numpy(np.concatenate([own, drawn]).astype(np.int64))
            labels = torch.cat([torch.ones(len(own)), torch.zeros(len(items) - len(own))])
            data = torch.utils.data.TensorDataset(items, labels)
            return torch.utils.data.DataLoader(data, batch_size=self.algorithm.batch, shuffle=True)
        order = torch.randperm(len(items)).split(self.algorithm.batch)
        return [(items[part], labels[part]) for part in order]

    def round(self, usual: bool = False) -> None:
        a, m = self.algorithm, self.history.n_items
        criterion, pull = torch.nn.BCELoss(), torch.nn.MSELoss()
        for i, (model, view) in enumerate(zip(self.models, self.views, strict=True)):
            with torch.no_grad():
                model.items.weight.copy_(self.shared)
            optimizer = torch.optim.SGD(
                [
                    {"params": model.layers.parameters(), "lr": a.lr_network},
                    {"params": model.user.parameters(), "lr": a.lr_user},
                    {"params": model.items.parameters(), "lr": a.lr_item * m},
                ]
            )
            for items, labels in self._batches(i, usual):
                loss = criterion(model(items), labels) + a.reg * pull(model.items.weight, view)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        self._server()

    def _server(self) -> None:
        with torch.no_grad():
            tables = torch.stack([model.items.weight for model in self.models]).reshape(len(self.models), -1)
            unit = tables / tables.norm(dim=1, keepdim=True)
            distance = 1 - unit @ unit.T
            linked = (distance > self.algorithm.gamma * distance.mean()).float()
            views = linked / linked.sum(1, keepdim=True).clamp(min=1) @ tables
            self.shared = views.mean(0).reshape(self.shared.shape)
            self.views = list(views.reshape(len(self.models), *self.shared.shape))


_LARGE = """
import json, resource, sys, time
from benchmarks import histories
from coterie.algorithms import make, neighbour_sums
from coterie.engine.simulate import simulate, start
history = histories.named("ml-1m")
name, rounds = sys.argv[1], int(sys.argv[2])
algorithm = make(name, "as_released")
spent, began = [], time.process_time()
for one in simulate(algorithm, history, start(algorithm, history, 0), range(1, rounds + 1), 0, threads=1):
    spent.append(time.process_time() - began)
    began = time.process_time()
print(json.dumps({"rounds": rounds, "users": history.n_clients, "items": history.n_items, "cpu_seconds": spent,
                  "loss": one.loss, "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))
"""


def large(name: str, rounds: int = 5) -> dict[str, Any]:
    """The first rounds on ml-1m, in a process of their own so that the memory is theirs."""
    if histories.named("ml-1m") is None:
        raise SystemExit("ml-1m is not at hand: `coterie data fetch ml-1m` and COTERIE_DATA")
    command = [sys.executable, "-c", _LARGE, name, str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parents[1])
    found: dict[str, Any] = json.loads(done.stdout)
    # the first round may hold compiling: the later ones are what a round costs
    with_graph, without = found["cpu_seconds"][1:], []
    if name.startswith("light"):  # one graph in ten rounds
        with_graph, without = found["cpu_seconds"][:1], found["cpu_seconds"][1:]
        found["hours_of_100_rounds_extrapolated"] = (10 * with_graph[0] + 90 * sum(without) / len(without)) / 3600
    else:
        found["hours_of_100_rounds_extrapolated"] = 100 * sum(with_graph) / len(with_graph) / 3600
    return found


if __name__ == "__main__":
    for system in sys.argv[1:] or ["gpfedrec", "light-gpfedrec"]:
        result = large(system)
        print(result)
        print(save(f"{system.replace('-', '_')}_ml1m", result))
