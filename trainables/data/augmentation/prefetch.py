"""Batches made while the one before is used.

On a GPU a thread makes the next batch, on a CUDA stream of its own: the copies that it waits for (crops and labels come
from the CPU, and pixels where they did not fit on the GPU) let neither the step nor the thread that starts it wait. On
a CPU the cores are the step's, and every batch is made when it is asked for.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

Batch = TypeVar("Batch")
Made = TypeVar("Made")


def prefetched(
    batches: Iterable[Tensor], make: Callable[[Tensor], tuple[Tensor, ...]], device: torch.device
) -> Iterator[tuple[Tensor, ...]]:
    """``make(batch)`` of each batch, in their order.

    Args:
        batches: indices of images.
        make: gives tensors on ``device``; it is never called twice at once, and in the order of ``batches``, so that a
            generator which it draws from gives what it gives without a thread.
        device: where they are used, on the stream that is current there.
    """
    if device.type != "cuda":
        yield from map(make, batches)
        return
    stream = torch.cuda.Stream(device)

    def on_stream(batch: Tensor) -> tuple[tuple[Tensor, ...], torch.cuda.Event]:
        with torch.cuda.stream(stream):
            return make(batch), stream.record_event()

    stream.wait_stream(torch.cuda.current_stream(device))
    for tensors, ready in one_ahead(batches, on_stream):
        user = torch.cuda.current_stream(device)
        user.wait_event(ready)
        for tensor in tensors:
            tensor.record_stream(user)  # else its memory would be given away when it is dropped, and still be read
        yield tensors


def one_ahead(batches: Iterable[Batch], make: Callable[[Batch], Made]) -> Iterator[Made]:
    """``make(batch)`` of each batch in their order, the next one made by a thread while one is used.

    Raises:
        Exception: what ``make`` raised, when its batch is asked for.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        ahead: Future[Made] | None = None
        for batch in batches:
            following = thread.submit(make, batch)
            if ahead is not None:
                yield ahead.result()
            ahead = following
        if ahead is not None:
            yield ahead.result()
