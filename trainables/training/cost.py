"""What a training takes of a machine, by taking a few of its steps."""

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice

import torch
from torch import Tensor

from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.data.split import merged_labels
from trainables.metrics.evaluation import evaluate
from trainables.models.embedding import embed
from trainables.spec import TrialSpec
from trainables.training.stack.networks import SideBySide
from trainables.training.stack.together import Together
from trainables.training.train import LateValue, Training

LEAST_STEPS, MOST_STEPS, SECONDS = 3, 1000, 3.0


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

    Of a stack they are those of all its members together. ``memory`` is the process's where it trains on a CPU, and
    what PyTorch holds of the GPU where it trains there, of ``device_memory`` bytes.
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


def measured_costs(
    specs: Sequence[TrialSpec], images: Images, *, threads: int, gpu: bool, stack: int = 1
) -> list[Cost]:
    """The cost of each training, or of a stack of so many of it; for a process of its own, whose memory is its cost.

    Args:
        specs: of a few of the images; they train all classes that they name, and validate none.
        images: those that the trainings will have.
        threads: of a trial.
        gpu: whether it has one.
    """
    torch.set_num_threads(threads)
    device = torch.device("cuda" if gpu else "cpu")
    return [_measured([replace(spec, seed=seed) for seed in range(stack)], images, device) for spec in specs]


def _measured(specs: Sequence[TrialSpec], images: Images, device: torch.device) -> Cost:
    trainings = [Training(spec, device) for spec in specs]
    spec, sampler = specs[0], trainings[0].parts.sampler
    times: list[float] = []
    step_of = _step_of(trainings)
    for indices_B in islice(chain.from_iterable(sampler.batches(epoch) for epoch in count(1)), MOST_STEPS):
        begin = time.perf_counter()
        LateValue(step_of(indices_B)).read()
        times.append(time.perf_counter() - begin)
        if len(times) > LEAST_STEPS and sum(times[1:]) >= SECONDS:
            break
    step = sum(times[1:]) / (len(times) - 1)  # the first one makes what the others use
    validation = _validation(trainings, images, device)
    total: int | None = None
    if device.type == "cuda":
        memory = torch.cuda.max_memory_reserved(device)
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    else:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts kilobytes
    return Cost(step=step, steps=_steps(spec, images), validation=validation, memory=memory, device_memory=total)


def _step_of(trainings: Sequence[Training]) -> Callable[[Tensor], Tensor]:
    """A step on a batch, of which nobody reads the loss; of a stack each member learns from the same images."""
    epoch = trainings[0].spec.training.warmup_epochs + 1  # all learn
    for training in trainings:
        training._make_ready(epoch)
    if len(trainings) > 1:
        together = Together(trainings, [epoch] * len(trainings), steps=MOST_STEPS)

        def step(indices_B: Tensor) -> Tensor:
            indices_MB = indices_B.expand(len(trainings), -1)
            return together.step(indices_MB, together.labels(indices_MB[None])[0]).sum()

        return step
    (training,) = trainings
    generator = torch.Generator().manual_seed(0)
    return lambda indices_B: training._step(*training._batch(indices_B, generator))


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


def _validation(trainings: Sequence[Training], images: Images, device: torch.device) -> float:
    """Seconds for as many images as validate: they take as long as those that are there, and metrics as of noise."""
    queries = sum(images.validation)
    if not queries:
        return 0.0
    spec, view = trainings[0].spec, trainings[0].parts.images
    together = len(trainings) > 1 and device.type == "cuda"  # see _embedded of the stack's epochs
    networks = [training.parts.model for training in trainings]
    begin = time.perf_counter()
    embed(
        SideBySide(networks) if together else networks[0], view, spec.training.frame,
        batch_size=spec.training.embedding_batch, device=device, precision=spec.training.precision,
    ).sum().item()  # fmt: skip
    embedding = (time.perf_counter() - begin) * (queries + images.gallery) / len(view)
    labels_N = torch.repeat_interleave(torch.arange(len(images.validation)), torch.tensor(images.validation))
    labels_N = torch.cat((labels_N, torch.full((images.gallery,), len(images.validation))))
    embeddings_ND = torch.randn(len(labels_N), spec.model.embedding_dim, device=device)
    begin = time.perf_counter()
    evaluate(embeddings_ND, labels_N, spec.metrics, queries=queries, superclasses_N=labels_N)
    scoring = time.perf_counter() - begin
    return embedding * (1 if together else len(trainings)) + scoring * len(trainings)
