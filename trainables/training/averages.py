"""Exponential moving averages of a training's weights, which are validated and kept instead of the last ones."""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainables.inference.model_files import LOSS

Tensors = dict[str, Tensor]


def kept_tensors(of_network: Tensors, of_loss: Tensors) -> Tensors:
    """Return the tensors that a model's file holds, those of the loss under names that begin with ``LOSS``."""
    return {**of_network, **{f"{LOSS}{name}": tensor for name, tensor in of_loss.items()}}


def decay_of(decay: float, updates: int) -> float:
    """Return the share of the average that an update keeps, after ``updates`` earlier ones.

    The first update copies the weights. Then it is ``decay``, but at most n / (n + 9), as in TensorFlow's
    ``ExponentialMovingAverage``, so that the first weights are forgotten in a short training too.
    """
    return min(decay, updates / (updates + 9))


class Averages:
    """Averages of all :func:`kept_tensors` after each step: parameters, proxies and running statistics.

    Proxies are averaged because they belong to the embeddings of the averaged network. Whole numbers, such as batch
    counters, are copied. ``updates`` is the number of steps.
    """

    def __init__(self, network: nn.Module, loss: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._current = kept_tensors(network.state_dict(), loss.state_dict())
        self.tensors = {name: tensor.clone() for name, tensor in self._current.items()}
        self.network = AveragedNetwork(network, {name: self.tensors[name] for name in network.state_dict()})

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights after a step into the averages."""
        real = [name for name, mean in self.tensors.items() if mean.is_floating_point()]
        average = get_ema_multi_avg_fn(decay_of(self.decay, self.updates))
        average([self.tensors[name] for name in real], [self._current[name] for name in real], None)
        for name in self.tensors.keys() - real:
            self.tensors[name].copy_(self._current[name])
        self.updates += 1

    @torch.no_grad()
    def load(self, tensors: Tensors, updates: int) -> None:
        """Replace the averages by ``tensors``, those after this number of updates."""
        for name, mean in self.tensors.items():
            mean.copy_(tensors[name])
        self.updates = updates


class AveragedNetwork(nn.Module):
    """A network that computes with other tensors than its own."""

    def __init__(self, network: nn.Module, tensors: Tensors) -> None:
        super().__init__()
        self._network, self._tensors = network, tensors

    def forward(self, images: Tensor) -> Tensor:
        embeddings_BD: Tensor = functional_call(self._network, self._tensors, (images,))
        return embeddings_BD
