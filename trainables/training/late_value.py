"""A number of a device, read when it has been computed anyway."""

import torch
from torch import Tensor


class LateValue:
    """The scalar ``value`` without waiting for what is queued behind it.

    ``value.item()`` would wait for all that the GPU has been given until then, the step that was just started too: its
    copy stands behind it in the queue.
    """

    def __init__(self, value: Tensor) -> None:
        self._value = value
        self._copied: torch.cuda.Event | None = None
        if value.is_cuda:
            pinned = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            self._value = pinned.copy_(value, non_blocking=True)
            self._copied = torch.cuda.current_stream(value.device).record_event()

    def read(self) -> float:
        """The number; waits until it is there, and no longer."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._value.item()
