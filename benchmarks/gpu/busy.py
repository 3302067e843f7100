"""The fraction of time in which a GPU computes."""

from collections.abc import Callable, Iterable

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def covered(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of intervals (start, end)."""
    total = reached = 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def busy_share(run: Callable[[], object], device: torch.device) -> float | None:
    """Return the fraction of time, from the first to the last kernel of ``run``, in which a kernel runs; None on a CPU.

    Copies do not count. The profiler slows the launching thread, so the result is a lower bound.
    """
    if device.type != "cuda":
        return None
    run()
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize(device)
    kernels = [
        (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in seen.profiler.kineto_results.events()
        if event.device_type() == DeviceType.CUDA and not event.name().startswith(("Memcpy", "Memset"))
    ]
    return covered(kernels) / (max(end for _, end in kernels) - min(start for start, _ in kernels))
