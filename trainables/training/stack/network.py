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


class SideBySide(nn.Module):
    """Networks of one form as one: images [B, 3, H, W] to the embeddings [B, M, D] of all."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self._form = networks[0]
        with torch.no_grad():
            self._tensors = stacked(networks, {})

    def forward(self, images: Tensor) -> Tensor:
        def of_member(tensors: Tensors) -> Tensor:
            embeddings_BD: Tensor = functional_call(self._form, tensors, (images,))
            return embeddings_BD

        embeddings_BMD: Tensor = vmap(of_member, out_dims=1)(self._tensors)
        return embeddings_BMD


def embeddings(network: nn.Module, stack: Tensors, images_MB3HW: Tensor, precision: str) -> Tensor:
    """The embeddings [M, B, D] of each member's images by its own tensors in the form of ``network``."""

    def of_member(tensors: Tensors, images_B3HW: Tensor) -> Tensor:
        embeddings_BD: Tensor = functional_call(network, tensors, (images_B3HW,))
        return embeddings_BD

    with autocast(images_MB3HW.device, precision):
        embeddings_MBD: Tensor = vmap(of_member)(stack, images_MB3HW)
    return embeddings_MBD
