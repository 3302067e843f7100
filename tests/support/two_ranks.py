"""Gradients of every loss for a network whose batches two processes share, and for one process.

``python -m support.two_ranks FILE`` is rank 1; the test is rank 0, and they meet in FILE.
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainables.losses import LOSSES
from trainables.losses.base import Loss
from trainables.training.distributed.batch import gathered, shares, sum_gradients, take_common_statistics

CPU = torch.device("cpu")
STEPS = 2
CLASSES = 5
INPUTS_BX = torch.randn(11, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS_B = torch.tensor([0, 1, 2, 0, 1, 2, 3, 3, 3, 4, 0])  # 4 has no partner


class Network(nn.Module):
    """A network with an unused layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.used = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 8))
        self.unused = nn.Linear(2, 2)

    def forward(self, inputs_BX: Tensor) -> Tensor:
        embeddings: Tensor = self.used(inputs_BX)
        return embeddings


def make_loss(name: str) -> Loss:
    torch.manual_seed(2)
    return LOSSES[name](num_classes=CLASSES, embedding_dim=8).double()


def in_one_process(name: str) -> tuple[list[float], Network, Loss]:
    """Return the losses of the steps, and the modules with the gradients of the last step."""
    network, loss, values = Network().double(), make_loss(name), []
    for step in range(STEPS):
        torch.manual_seed(step)  # for random draws of the loss
        value = loss(network(INPUTS_BX), LABELS_B)
        network.zero_grad()
        loss.zero_grad()
        value.backward()
        values.append(value.item())
    return values, network, loss


def in_two(rank: int, name: str) -> tuple[list[float], Network, Loss]:
    """Return the same for two ranks; only rank 0 has the losses."""
    network, loss, values = Network().double(), make_loss(name), []
    if rank:
        for parameter in network.parameters():
            nn.init.zeros_(parameter)  # DistributedDataParallel copies rank 0's
    take_common_statistics(network, CPU)
    wrapped = DistributedDataParallel(network, static_graph=True)
    wrapped.register_comm_hook(None, sum_gradients)
    rows = shares(len(INPUTS_BX), 2)
    for step in range(STEPS):
        torch.manual_seed(step)
        value = gathered(wrapped(INPUTS_BX[rows[rank]]), [row.stop - row.start for row in rows])
        if not rank:
            value = loss(value, LABELS_B)
        network.zero_grad()
        loss.zero_grad()
        value.backward()
        values.append(value.item())
    return values, network, loss


def join(rank: int, file: str) -> None:
    store = dist.FileStore(file, 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(minutes=5))


def names() -> list[str]:
    """Return all losses, in the same order on both ranks."""
    return list(LOSSES)


if __name__ == "__main__":
    join(1, sys.argv[1])
    for _name in names():
        in_two(1, _name)
    dist.destroy_process_group()
