"""Batches that are embedded in chunks, so that they may be larger than memory for the network's activations.

Shapes: B images of a batch, D embedding dimensions.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from trainables.mistakes import Mistakes


class ChunkedNetwork(nn.Module):
    """A network that embeds ``size`` images at a time, with the gradients of the whole batch.

    These are the cached gradients of Gao et al. (GradCache, RepL4NLP 2021): the loss sees all embeddings, computed
    without a graph, and in the backward pass each chunk is embedded again, with the same random state, and receives its
    part of the gradient. Only the activations of one chunk exist at a time.

    Raises:
        Mistakes: the network normalises by batch statistics, which would be those of a chunk, and be updated twice.
    """

    def __init__(self, network: nn.Module, size: int) -> None:
        super().__init__()
        if any(isinstance(module, _BatchNorm) and module.training for module in network.modules()):
            raise Mistakes(batch_statistics_refused(size))
        self._network, self._size = network, size

    def forward(self, images: Tensor) -> Tensor:
        chunks = images.split(self._size)
        embeddings_BD: Tensor = torch.cat([checkpoint(self._network, chunk, use_reentrant=False) for chunk in chunks])
        return embeddings_BD


def batch_statistics_refused(size: int) -> str:
    """Return the error for chunks of ``size`` images and a network that normalises by batch statistics."""
    return (
        f"training.gradient_chunk is {size}, and the network normalises by the statistics of a batch, which would be "
        "those of a chunk: set model.freeze_bn: true (or statistics), or gradient_chunk: null."
    )
