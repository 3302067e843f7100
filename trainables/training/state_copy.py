"""A copy of a training's state in main memory, which is written to disk while the training continues."""

import copy
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, TypeVar

import torch
from torch import Tensor

State = TypeVar("State")


class StateCopy:
    """A buffer on the CPU for successive states of one training.

    The buffer is reused because allocation would cost more than copying: the system hands out new memory page by page,
    and pinned memory even more slowly.
    """

    def __init__(self) -> None:
        self._copies: list[Tensor] = []

    def take(self, state: State) -> State:
        """Return a copy of ``state`` with all tensors on the CPU, valid until the next call.

        A tensor that occurs several times in ``state`` is copied once.
        """
        tensors = {id(tensor): tensor for tensor in _tensors(state)}
        pairs = zip_longest(tensors.values(), self._copies[: len(tensors)])
        self._copies = [_copied(tensor, memory) for tensor, memory in pairs]
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()
        # deepcopy treats everything in its memo as copied already; the rest, such as counters, it copies itself.
        return copy.deepcopy(state, dict(zip(tensors, self._copies, strict=True)))


def _tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, Mapping):
        for part in state.values():
            yield from _tensors(part)
    elif isinstance(state, list | tuple):
        for part in state:
            yield from _tensors(part)


def _copied(tensor: Tensor, memory: Tensor | None) -> Tensor:
    """Copy ``tensor`` into ``memory`` if it fits, else into new memory; a GPU's copy completes with its stream."""
    if memory is None or (memory.dtype, memory.shape, memory.stride()) != (tensor.dtype, tensor.shape, tensor.stride()):
        memory = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
    return memory.copy_(tensor.detach(), non_blocking=True)
