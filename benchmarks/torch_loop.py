"""The yardstick: FedRAP as released, the way one would write it in PyTorch, a client at a time."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Client(NamedTuple):
    """What one client holds before a round, as leaves of the graph."""

    shared: torch.Tensor  # [m, k]: C, as downloaded
    own: torch.Tensor  # [m, k]: D
    weight: torch.Tensor  # [k]: u
    bias: torch.Tensor  # []: b


def train_client(
    client: Client, items: torch.Tensor, labels: torch.Tensor, passes: int, batch: int, lr: float, lr_args: float,
    l2: float, apart: float, sparse: float,
) -> None:  # fmt: skip
    """Train in place: SGD with two rates, weight decay, rates falling by 0.95 with every step."""
    optimizer = torch.optim.SGD(
        [{"params": [client.weight, client.bias], "lr": lr}, {"params": [client.shared, client.own], "lr": lr_args}],
        weight_decay=l2,
    )
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    criterion = torch.nn.BCELoss()
    for _ in range(passes):
        order = torch.randperm(len(items))
        for first in range(0, len(items), batch):
            part = order[first : first + batch]
            own, shared = client.own[items[part]], client.shared[items[part]]
            prediction = torch.sigmoid((own + shared) @ client.weight + client.bias)
            loss = criterion(prediction, labels[part])
            loss = loss - apart * ((own - shared) ** 2).mean() + sparse * shared.abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
