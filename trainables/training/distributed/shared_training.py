"""What all ranks of a training have in common: each embeds its share of every batch, and learns as the others do.

Shapes: B images of the batch, b those of this rank, D embedding dimensions.
"""

import gc

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainables.inference.embed import autocast
from trainables.mistakes import Mistakes
from trainables.spec import TrialSpec
from trainables.training.distributed.batch_norm import take_common_statistics
from trainables.training.distributed.gathering import gathered, shares, sum_gradients
from trainables.training.train import Training


class SharedTraining(Training):
    """A training as one of its ranks sees it, once they have joined torch's default process group."""

    def __init__(self, spec: TrialSpec, device: torch.device) -> None:
        super().__init__(spec, device)
        if not spec.model.freeze_bn:  # which takes no statistics
            take_common_statistics(self._model, device)
        self._wrapped: DistributedDataParallel | None = None
        self._wrapped_for: set[int] = set()

    def _network(self) -> nn.Module:
        """The network whose gradients are summed over the ranks, for the parameters that learn in this epoch.

        It begins with rank 0's parameters and buffers on all ranks.
        """
        learning = {id(parameter) for parameter in self._model.parameters() if parameter.requires_grad}
        if self._wrapped is None or learning != self._wrapped_for:
            self._wrapped = None
            gc.collect()  # what it has hooked to the parameters goes with it
            self._wrapped = DistributedDataParallel(self._model, static_graph=True)
            self._wrapped.register_comm_hook(None, sum_gradients)
            self._wrapped_for = learning
        return self._wrapped

    def _share(self, batch: int) -> slice:
        if batch < (ranks := dist.get_world_size()):
            raise Mistakes(
                f"resources.gpus_per_trial is {ranks} and a batch has {batch} images, so that a GPU has none: "
                "give a larger training.batch_size or fewer GPUs."
            )
        return _shares(batch)[dist.get_rank()]

    def _embeddings(self, images: Tensor, batch: int) -> Tensor:
        """On rank 0 those of the whole batch, see :func:`gathered`."""
        with autocast(self._device, self._config.precision):
            embeddings_bD: Tensor = self._network()(images)
        return gathered(embeddings_bD, [rows.stop - rows.start for rows in _shares(batch)])


def _shares(batch: int) -> list[slice]:
    return shares(batch, dist.get_world_size())
