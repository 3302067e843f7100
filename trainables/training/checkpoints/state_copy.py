"""A copy of a training's state in main memory, which can be written while the training goes on."""

import copy
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, TypeVar

import torch
from torch import Tensor

State = TypeVar("State")


class StateCopy:
    """Copies states of the same training, one after the other, into the same memory.

    New memory would cost more than the copying: the system hands it out page by page, and pinned memory slower still.
    """

    def __init__(self) -> None:
        self._copies: list[Tensor] = []

    def take(self, state: State) -> State:
        """``state`` with all tensors on the CPU; it may be read until the next call.

        A tensor that ``state`` holds in several parts is copied once.
        """
        tensors = {id(tensor): tensor for tensor in _tensors(state)}
        pairs = zip_longest(tensors.values(), self._copies[: len(tensors)])
        self._copies = [_copied(tensor, memory) for tensor, memory in pairs]
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()
        # deepcopy takes what it finds in its memo for copied already; all else, such as counters, it copies itself.
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
    """The values of ``tensor``, in ``memory`` where they fit; those of a GPU are there when its stream is done."""
    if memory is None or (memory.dtype, memory.shape, memory.stride()) != (tensor.dtype, tensor.shape, tensor.stride()):
        memory = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
    return memory.copy_(tensor.detach(), non_blocking=True)
