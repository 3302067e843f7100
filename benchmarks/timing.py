"""Interleaved timing of several functions, so that a busy machine slows all alike."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence

import torch

Step = Callable[[], object]


def medians(steps: Sequence[Step], *, device: torch.device, seconds: float = 2.0, repeats: int = 3) -> list[float]:
    """Return the median seconds of each step, over at least ``repeats`` rounds and about ``seconds`` in total."""
    for step in steps:
        step()
    times: list[list[float]] = [[] for _ in steps]
    end = time.perf_counter() + seconds
    while len(times[0]) < repeats or (time.perf_counter() < end and len(times[0]) < 200):
        for step, of_step in zip(steps, times, strict=True):
            _wait(device)
            start = time.perf_counter()
            step()
            _wait(device)
            of_step.append(time.perf_counter() - start)
    return [statistics.median(of_step) for of_step in times]


def peak_bytes(step: Step, *, device: torch.device) -> int:
    """Return the peak memory that ``step`` allocates, beyond what was allocated before."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = profile.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(itertools.accumulate((change for _, change in changes), initial=0))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def machine(device: torch.device) -> str:
    """Return a description of the device for a table's title."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} CPU threads"
