"""Time and memory of a training, measured on a few of its steps."""

import gc
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count, islice

import torch

from trainables.metrics.evaluation import evaluate
from trainables.training.spec import TrialSpec
from trainables.training.train import LateValue, Training, batch_sampler

LEAST_STEPS, MOST_STEPS, SECONDS = 3, 1000, 4.0
"""Steps of each training after its first one, and the time for those of all trainings."""


@dataclass(frozen=True, kw_only=True)
class ImageCounts:
    """Numbers of images per class, for training and for validation, and of further ones in the validation's gallery."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    gallery: int = 0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a training: seconds of a step and of a validation, and the number of steps of an epoch.

    ``memory`` is the peak in bytes: of the process on a CPU; reserved by PyTorch on a GPU, which has ``device_memory``.
    """

    step: float
    steps: int
    validation: float
    memory: int
    device_memory: int | None

    @property
    def epoch(self) -> float:
        return self.step * self.steps + self.validation


def measured_costs(
    specs: Sequence[TrialSpec], images: ImageCounts, *, threads: int, gpu: bool, seconds: float = SECONDS
) -> list[Cost]:
    """Measure the cost of each training, in a separate process, whose memory is measured on a CPU.

    Args:
        specs: trainings on a few of the images, without validation classes.
        images: the images that the real trainings will have.
        threads, gpu: the resources of a trial.
        seconds: time to measure steps for, shared by the trainings; each has at least a few.
    """
    torch.set_num_threads(threads)
    device = torch.device("cuda" if gpu else "cpu")
    return [_measured(spec, images, device, seconds / len(specs)) for spec in specs]


def _measured(spec: TrialSpec, images: ImageCounts, device: torch.device, seconds: float) -> Cost:
    if device.type == "cuda":  # without the memory of the trainings before
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    training = Training(spec, device)
    training.set_train_mode(epoch=sys.maxsize)  # all stages learn and the memory is used
    generator = torch.Generator().manual_seed(0)
    times: list[float] = []
    for indices_B in islice(chain.from_iterable(training.sampler.batches(epoch) for epoch in count(1)), MOST_STEPS):
        begin = time.perf_counter()
        LateValue(training.steps.take(*training.load_batch(indices_B, generator))).read()
        times.append(time.perf_counter() - begin)
        if len(times) > LEAST_STEPS and sum(times[1:]) >= seconds:
            break
    step = sum(times[1:]) / (len(times) - 1)  # the first step is a warm-up
    validation = _validation(training, images, device)
    total: int | None = None
    if device.type == "cuda":
        memory = torch.cuda.max_memory_reserved(device)
        total = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts kilobytes
    steps = len(batch_sampler(spec, _labels(images.train) // spec.merge))
    return Cost(step=step, steps=steps, validation=validation, memory=memory, device_memory=total)


def _labels(sizes: Sequence[int]) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))


def _validation(training: Training, images: ImageCounts, device: torch.device) -> float:
    """Return the seconds of one validation, extrapolated from the images at hand; metrics are timed on noise."""
    queries = sum(images.validation)
    if not queries:
        return 0.0
    spec, view = training.spec, training.train_view
    begin = time.perf_counter()
    training.embed(view).sum().item()
    embedding = (time.perf_counter() - begin) * (queries + images.gallery) / len(view)
    labels_N = _labels((*images.validation, images.gallery))
    embeddings_ND = torch.randn(len(labels_N), spec.model.dimensions, device=device)
    begin = time.perf_counter()
    evaluate(embeddings_ND, labels_N, spec.metrics, queries=queries, superclasses_N=labels_N)
    return embedding + time.perf_counter() - begin
