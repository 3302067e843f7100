"""The networks of several trainings as one: their tensors side by side, and one call for all.

Shapes: M members, B images a batch, D embedding dimensions.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from trainables.inference.embed import autocast

Tensors = dict[str, Tensor]


def tensors_of(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """The parameters and buffers by name, those that no checkpoint keeps too."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def stacked(modules: Sequence[nn.Module], learning: Mapping[nn.Parameter, Tensor]) -> Tensors:
    """The members' tensors by name, each [M, …]: those of ``learning``, and copies of all others.

    ``learning`` maps parameters of the first member to the stacks of them.
    """
    members = [dict(tensors_of(module)) for module in modules]
    return {
        name: learning[tensor]  # type: ignore[index]
        if tensor in learning
        else torch.stack([member[name].detach() for member in members])
        for name, tensor in members[0].items()
    }


@torch.no_grad()
def write_buffers_back(stack: Tensors, member: int, module: nn.Module) -> None:
    """Give a member's module what the steps have made of its buffers, such as the running statistics."""
    for name, buffer in module.named_buffers():
        buffer.copy_(stack[name][member])


def embeddings(network: nn.Module, stack: Tensors, images_MB3HW: Tensor, precision: str) -> Tensor:
    """The embeddings [M, B, D] of each member's images by its own tensors in the form of ``network``."""

    def of_member(tensors: Tensors, images_B3HW: Tensor) -> Tensor:
        embeddings_BD: Tensor = functional_call(network, tensors, (images_B3HW,))
        return embeddings_BD

    with autocast(images_MB3HW.device, precision):
        embeddings_MBD: Tensor = vmap(of_member)(stack, images_MB3HW)
    return embeddings_MBD
