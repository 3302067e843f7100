"""What a training takes of a machine, by taking a few of its steps."""

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count

import torch

from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.data.merge import merged_labels
from trainables.inference.embed import embed
from trainables.metrics.evaluation import evaluate
from trainables.spec import TrialSpec
from trainables.training.late_value import LateValue
from trainables.training.train import Training

LEAST_STEPS, SECONDS = 3, 3.0


@dataclass(frozen=True, kw_only=True)
class Images:
    """How many images a training has: of each class that trains, and in how many classes so many that validate.

    ``gallery`` more stand in the validation's gallery.
    """

    train: tuple[int, ...]
    validation: tuple[int, ...]
    gallery: int = 0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of one training step, how many an epoch has, seconds of its validation, and bytes at the peak.

    ``memory`` is the process's where it trains on a CPU, and what PyTorch holds of the GPU where it trains there, of
    ``device_memory`` bytes.
    """

    step: float
    steps: int
    validation: float
    memory: int
    device_memory: int | None

    @property
    def epoch(self) -> float:
        """Seconds of an epoch."""
        return self.step * self.steps + self.validation


def measured_costs(specs: Sequence[TrialSpec], images: Images, *, threads: int, gpu: bool) -> list[Cost]:
    """The cost of each training; for a process of its own, whose memory is its cost.

    Args:
        specs: of a few of the images; they train all classes that they name, and validate none.
        images: those that the trainings will have.
        threads: of a trial.
        gpu: whether it has one.
    """
    torch.set_num_threads(threads)
    return [_measured(spec, images, torch.device("cuda" if gpu else "cpu")) for spec in specs]


def _measured(spec: TrialSpec, images: Images, device: torch.device) -> Cost:
    training = Training(spec, device)
    generator = torch.Generator().manual_seed(0)
    times: list[float] = []
    training._make_ready(spec.training.warmup_epochs + 1)  # all learn
    for indices_B in chain.from_iterable(training._sampler.batches(epoch) for epoch in count(1)):
        begin = time.perf_counter()
        LateValue(training._step(*training._batch(indices_B, generator))).read()
        times.append(time.perf_counter() - begin)
        if len(times) > LEAST_STEPS and sum(times[1:]) >= SECONDS:
            break
    step = sum(times[1:]) / (len(times) - 1)  # the first one makes what the others use
    validation = _validation(training, images, device)
    total: int | None = None
    if device.type == "cuda":
        memory = torch.cuda.max_memory_reserved(device)
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    else:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts kilobytes
    return Cost(step=step, steps=_steps(spec, images), validation=validation, memory=memory, device_memory=total)


def _steps(spec: TrialSpec, images: Images) -> int:
    """The batches of an epoch."""
    config = spec.training
    labels_N = torch.repeat_interleave(torch.arange(len(images.train)), torch.tensor(images.train))
    sampler = BATCH_SAMPLERS[config.sampler](
        merged_labels(labels_N, spec.merge),
        batch_size=config.batch_size,
        images_per_class=config.images_per_class,
        seed=spec.seed,
    )
    return len(list(sampler.batches(1)))


def _validation(training: Training, images: Images, device: torch.device) -> float:
    """Seconds for as many images as validate: they take as long as those that are there, and metrics as of noise."""
    queries = sum(images.validation)
    if not queries:
        return 0.0
    spec, view = training.spec, training._train_view
    begin = time.perf_counter()
    embed(
        training._model, view, spec.training.frame,
        batch_size=spec.training.embedding_batch, device=device, precision=spec.training.precision,
    ).sum().item()  # fmt: skip
    embedding = (time.perf_counter() - begin) * (queries + images.gallery) / len(view)
    labels_N = torch.repeat_interleave(torch.arange(len(images.validation)), torch.tensor(images.validation))
    labels_N = torch.cat((labels_N, torch.full((images.gallery,), len(images.validation))))
    embeddings_ND = torch.randn(len(labels_N), spec.model.embedding_dim, device=device)
    begin = time.perf_counter()
    evaluate(embeddings_ND, labels_N, spec.metrics, queries=queries, superclasses_N=labels_N)
    return embedding + time.perf_counter() - begin
