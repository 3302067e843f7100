"""Networks and losses of several trainings, computed at once.

Shapes: M members, B images of a batch, D embedding dimensions, T steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from trainables.losses import Loss
from trainables.losses.base import Used
from trainables.models.embedding import autocast

Tensors = dict[str, Tensor]


def stacked(modules: Sequence[nn.Module], learning: Mapping[nn.Parameter, Tensor]) -> Tensors:
    """Return the members' parameters and buffers by name, each stacked to [M, …].

    ``learning`` maps parameters of the first member to existing stacks, which are used as they are; the others are
    copied.
    """
    members = [{**dict(module.named_parameters()), **dict(module.named_buffers())} for module in modules]
    return {
        name: learning[tensor]  # type: ignore[index]
        if tensor in learning
        else torch.stack([member[name].detach() for member in members])
        for name, tensor in members[0].items()
    }


@torch.no_grad()
def write_buffers_back(stack: Tensors, member: int, module: nn.Module) -> None:
    """Copy a member's buffers, such as running statistics, from the stack back to its module."""
    for name, buffer in module.named_buffers():
        buffer.copy_(stack[name][member])


class _NormsOfMembers(TorchFunctionMode):
    """Batch normalisation that ``vmap`` can compute on a GPU: contiguous images in float32.

    For channels-last images PyTorch asks for a memory format, which raises an error in ``vmap``; and its rule for
    ``vmap`` gives the kernel weights of the images' type, which must be the type of the running statistics.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not F.batch_norm:
            return func(*args, **(kwargs or {}))
        images, *others = args
        whole = images.float() if images.dtype is torch.bfloat16 else images
        return func(whole.contiguous(), *others, **(kwargs or {})).to(images.dtype)


class SideBySide(nn.Module):
    """M networks of one architecture as one module, from images [B, 3, H, W] to embeddings [B, M, D].

    Tensors in ``averages``, one dictionary for each member, replace those of the networks with their names.
    """

    def __init__(self, networks: Sequence[nn.Module], averages: Sequence[Tensors] = ()) -> None:
        super().__init__()
        self._form = networks[0]
        with torch.no_grad():
            self._tensors = stacked(networks, {})
            for name in averages[0] if averages else ():
                self._tensors[name] = torch.stack([tensors[name] for tensors in averages])

    def forward(self, images: Tensor) -> Tensor:
        def of_member(tensors: Tensors) -> Tensor:
            embeddings_BD: Tensor = functional_call(self._form, tensors, (images,))
            return embeddings_BD

        with _NormsOfMembers():
            embeddings_BMD: Tensor = vmap(of_member, out_dims=1)(self._tensors)
        return embeddings_BMD


def embeddings(network: nn.Module, stack: Tensors, images_MB3HW: Tensor, precision: str) -> Tensor:
    """Embed each member's images by its own tensors in the architecture of ``network``; return [M, B, D]."""

    def of_member(tensors: Tensors, images_B3HW: Tensor) -> Tensor:
        embeddings_BD: Tensor = functional_call(network, tensors, (images_B3HW,))
        return embeddings_BD

    with autocast(images_MB3HW.device, precision), _NormsOfMembers():
        embeddings_MBD: Tensor = vmap(of_member)(stack, images_MB3HW)
    return embeddings_MBD


class LossesTogether:
    """The losses of M members in one vectorised computation; they need static shapes.

    Members may differ in the loss's attributes of type float, such as margin and scale. During the computation these
    attributes of the first member's loss are replaced by 0-dim tensors.
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
        """Return the losses [M] of a batch of each member."""

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
        """Return, for each member, what its loss has used of each batch so far."""
        if self._unit is None:
            return [[] for _ in range(self._members)]
        counts_MT = torch.stack(self._counts, dim=1).tolist()
        return [[Used(self._unit, int(count)) for count in counts_T] for counts_T in counts_MT]


class LossesInTurn:
    """The losses of M members, one after the other, each with its own random state as in a separate training."""

    def __init__(self, losses: Sequence[Loss], seeds: Sequence[int], device: torch.device) -> None:
        self._losses = losses
        self._devices = [device] if device.type == "cuda" else []
        self._states = [self._seeded(seed) for seed in seeds]
        self._used: list[list[Used | None]] = [[] for _ in losses]

    def _seeded(self, seed: int) -> list[Tensor]:
        with torch.random.fork_rng(self._devices):
            torch.manual_seed(seed)
            return self._state()

    def _state(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._devices)]

    def __call__(self, stack: Tensors, embeddings_MBD: Tensor, labels_MB: Tensor) -> Tensor:
        """Return the losses [M] of a batch of each member."""
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
        """Return, for each member, what its loss has used of each batch so far."""
        return self._used


@contextmanager
def _attributes(loss: Loss, values: Tensors) -> Iterator[None]:
    """Replace attributes of ``loss`` temporarily."""
    own = {name: vars(loss)[name] for name in values}
    vars(loss).update(values)
    try:
        yield
    finally:
        vars(loss).update(own)
