"""The networks and losses of several trainings, computed at once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from trainables.losses import Loss
from trainables.losses.base import Used
from trainables.models.embedding import autocast

# The networks of several trainings as one: their tensors side by side, and one call for all.
#
# Shapes: M members, B images a batch, D embedding dimensions.

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


# The losses of several trainings: in one computation where their shapes allow it, else one after the other.
#
# Shapes: M members, B images a batch, D embedding dimensions.


class LossesTogether:
    """The losses of M members as one computation, each with its own real numbers.

    These are attributes of the loss, as it keeps its margin and scale. While it computes, the first member's loss has
    a 0-dim tensor in place of each of them.
    """

    def __init__(self, losses: Sequence[Loss], device: torch.device) -> None:
        self._loss = losses[0]
        self._numbers = {
            name: torch.tensor([vars(loss)[name] for loss in losses], device=device)
            for name, value in vars(self._loss).items()
            if type(value) is float
        }
        self._counts: list[Any] = []
        self._unit: Any = None
        self._members = len(losses)

    def __call__(self, stack: Tensors, embeddings_MBD: Tensor, labels_MB: Tensor) -> Tensor:
        """The losses [M] of a batch of each member."""

        def of_member(tensors: Tensors, numbers: Tensors, embeddings_BD: Tensor, labels_B: Tensor) -> Any:
            with _attributes(self._loss, numbers):
                loss: Tensor = functional_call(self._loss, tensors, (embeddings_BD, labels_B))
                used = self._loss.used
                self._loss.used = None
            if used is None:
                return loss, loss.new_zeros(())
            self._unit = used.unit
            return loss, used.count if isinstance(used.count, Tensor) else loss.new_full((), used.count)

        losses_M, counts_M = vmap(of_member)(stack, self._numbers, embeddings_MBD, labels_MB)
        self._counts.append(counts_M)
        return losses_M

    def used(self) -> list[list[Used | None]]:
        """What each member's loss has used of each batch so far."""
        if self._unit is None:
            return [[] for _ in range(self._members)]
        counts_MT = torch.stack(self._counts, dim=1).tolist()
        return [[Used(self._unit, int(count)) for count in counts_T] for counts_T in counts_MT]


class LossesInTurn:
    """The losses of M members one after the other, each with the random numbers that it draws alone."""

    def __init__(self, losses: Sequence[Loss], seeds: Sequence[int], device: torch.device) -> None:
        self._losses = losses
        self._devices = [device] if device.type == "cuda" else []
        self._states = [self._after(seed) for seed in seeds]
        self._used: list[list[Used | None]] = [[] for _ in losses]

    def _after(self, seed: int) -> list[Tensor]:
        with torch.random.fork_rng(self._devices):
            torch.manual_seed(seed)
            return self._state()

    def _state(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._devices)]

    def __call__(self, stack: Tensors, embeddings_MBD: Tensor, labels_MB: Tensor) -> Tensor:
        """The losses [M] of a batch of each member."""
        values = []
        with torch.random.fork_rng(self._devices):
            for member, loss in enumerate(self._losses):
                on_cpu, *on_device = self._states[member]
                torch.set_rng_state(on_cpu)
                for state, device in zip(on_device, self._devices):
                    torch.cuda.set_rng_state(state, device)
                own = {name: tensors[member] for name, tensors in stack.items()}
                values.append(functional_call(loss, own, (embeddings_MBD[member], labels_MB[member])))
                self._used[member].append(loss.used)
                self._states[member] = self._state()
        return torch.stack(values)

    def used(self) -> list[list[Used | None]]:
        """What each member's loss has used of each batch so far."""
        return self._used


@contextmanager
def _attributes(loss: Loss, values: Tensors) -> Iterator[None]:
    own = {name: vars(loss)[name] for name in values}
    vars(loss).update(values)
    try:
        yield
    finally:
        vars(loss).update(own)
