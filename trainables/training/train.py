"""The training of one trial, epochs with validation, checkpoints and resume; and its cost, measured on a few steps.

Shapes: B images of a batch, N images of a view, D embedding dimensions.
"""

import gc
import logging
import math
import resource
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import invalidate_caches
from itertools import chain, count, islice
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor, nn

from trainables.common.errors import InvalidInput, listed, without_password
from trainables.common.part_tables import OURS
from trainables.common.storage import AnyPath, StorageFailure, cause_of
from trainables.data.batch_samplers import BATCH_SAMPLERS, BatchSampler
from trainables.data.loading import load, prefetched
from trainables.data.store.store_spec import StoreSpec
from trainables.data.store.view import FeatureView, StoreView
from trainables.inference.model_files import FROZEN, LOSS, PROBE, frozen_backbone, of_network, read_tensors
from trainables.losses import LOSSES, loss_row
from trainables.losses.loss import Loss, ProxyLoss, Used, distinct_proxies, summed
from trainables.losses.mining import most_pairs
from trainables.metrics.evaluation import evaluate
from trainables.models.config import Lora
from trainables.models.embedding import EmbeddingModel, depths_of, deterministic, embed, merged
from trainables.training.epoch_training import (
    Diverged,
    EpochTraining,
    KeptModel,
    Untestable,
    embedder_spec,
    origin_of,
    raise_if_diverged,
)
from trainables.training.inputs import Inputs, learned_labels, raise_if_other
from trainables.training.spec import EpochRecord, Failed, Trained, TrialSpec, derived_seed
from trainables.training.steps import Steps
from trainables.training.training_config import OPTIMIZERS, TrainingConfig

logger = logging.getLogger(__name__)


def train(spec: TrialSpec, device: str | torch.device = "cpu") -> Iterator[EpochRecord]:
    """Train ``spec`` to its last epoch, yielding each epoch's record; those of earlier attempts come first."""
    training = Training(spec, torch.device(device))
    try:
        yield from list(training.records)
        while not training.finished:
            yield training.run_epoch()
    finally:
        training.wait_for_checkpoints()


def batch_sampler(spec: TrialSpec, labels_N: Tensor) -> BatchSampler:
    """Return the sampler of the batches of ``spec`` among images with these labels."""
    config = spec.training
    return BATCH_SAMPLERS[config.sampler](
        labels_N, batch_size=config.batch_size, images_per_class=config.images_per_class, seed=spec.seed
    )


def parameter_group(parameters: Iterable[nn.Parameter], lr: float) -> dict[str, Any]:
    """Return an optimizer group of the parameters that require gradients, at the learning rate ``lr``."""
    return {"params": [parameter for parameter in parameters if parameter.requires_grad], "lr": lr}


def decayed(backbone: nn.Module, lr: float, decay: float) -> list[dict[str, Any]]:
    """Return optimizer groups of the learning parameters of ``backbone``, with ``lr`` behind its last block.

    Each block before has ``decay`` times the rate of the next one (as in BEiT, Bao et al. 2022, and timm).
    """
    if decay == 1:
        return [parameter_group(backbone.parameters(), lr)]
    (depths, blocks), groups = depths_of(backbone), dict[int, list[nn.Parameter]]()
    for parameter, depth in zip(backbone.parameters(), depths, strict=True):
        groups.setdefault(depth, []).append(parameter)
    return [parameter_group(own, lr * decay ** (blocks + 1 - depth)) for depth, own in sorted(groups.items())]


class Training(EpochTraining):
    """The training of a network with a loss. Every random draw is a function of the spec's seed and the epoch."""

    def __init__(self, spec: TrialSpec, device: torch.device) -> None:
        self._config = spec.training
        self._inputs = Inputs(spec.images, spec.model, spec.training, device)
        super().__init__(spec, device, self._inputs.view)
        self.labels_N = learned_labels(self.train_view, spec)

        torch.manual_seed(spec.seed)
        self.model = self._inputs.network()
        # Before a warm-up freezes them: parameters that are frozen by the model's settings never learn.
        self._backbone = [parameter for parameter in self.model.backbone.parameters() if parameter.requires_grad]
        self.loss: Loss = LOSSES[spec.loss](
            num_classes=math.ceil(len(spec.train_classes) / spec.merge),
            embedding_dim=spec.model.dimensions,
            **spec.hyperparameters,
        ).to(device)
        self.sampler = batch_sampler(spec, self.labels_N)
        self.optimizer = self._make_optimizer()
        self._base_rates: list[float] = [group["lr"] for group in self.optimizer.param_groups]

        state = self._new_attempt({**origin_of(spec), **frozen_backbone(self._inputs.backbone_digest)})
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.loss.load_state_dict(state["loss"])
            self.optimizer.load_state_dict(state["optimizer"])
            logger.info("Resuming after epoch %d.", len(self.records))
        self.steps = Steps(spec, self.model, self.loss, self.optimizer, device)

    def _make_optimizer(self) -> torch.optim.Optimizer:
        config = self._config
        groups = [
            *decayed(self.model.backbone, config.lr, config.layer_decay),
            parameter_group(self.model.head_parameters(), config.head_lr or config.lr),
            *self.loss.parameter_groups(config.proxy_lr or loss_row(self.spec.loss).proxy_lr),
        ]
        groups = [{**group, "params": params} for group in groups if (params := [*group["params"]])]
        learned = {id(parameter) for group in groups for parameter in group["params"]}
        if left := [name for name, own in self.loss.named_parameters() if own.requires_grad and id(own) not in learned]:
            raise InvalidInput(
                f"The loss {self.spec.loss} has parameters that would not be learned ({listed(left)}); return them "
                "from parameter_groups, each with its learning rate."
            )
        return OPTIMIZERS[config.optimizer](groups, weight_decay=config.weight_decay)  # type: ignore[call-arg]

    def _train(self, epoch: int) -> Trained:
        self.set_train_mode(epoch)
        torch.manual_seed(derived_seed(self.spec.seed, epoch, "torch"))
        generator = torch.Generator().manual_seed(derived_seed(self.spec.seed, epoch, "augment"))
        drawn = list(self.sampler.batches(epoch))
        pairs = most_pairs(self.labels_N[indices_B] for indices_B in drawn)
        left = len(drawn) * (self._config.epochs - epoch + 1)
        self.loss.most_pairs = self.steps.begin_epoch(left, pairs, frozen=epoch <= self._config.warmup_epochs)
        losses: list[Tensor] = []
        counts: list[Used | None] = []
        previous: LateValue | None = None
        batches: Iterator[tuple[Tensor, ...]]
        if resident := isinstance(self.train_view, FeatureView) and self.train_view.is_on(self.device):
            batches = self.train_view.batches(drawn, self.labels_N)  # their indices are copied once an epoch
        else:
            batches = prefetched(drawn, lambda indices_B: self.load_batch(indices_B, generator), self.device)
        with deterministic(self.device, self._config.deterministic):
            for number, (images, labels_B) in enumerate(batches):
                self.set_learning_rates(epoch, number, len(drawn))
                losses.append(self.steps.take(images, labels_B))
                counts.append(self.loss.used)
                if resident:
                    continue  # steps that need nothing of the host do not wait for it either
                late = LateValue(losses[-1])
                if previous is not None:  # checked one step late, so that the device always has work queued
                    raise_if_diverged(previous.read(), epoch)
                previous = late
        assert losses, "an epoch without a batch"
        losses_S = torch.stack(losses)
        trained = Trained(loss=losses_S.mean().item(), batches=len(losses))
        if not math.isfinite(trained["loss"]):
            for loss in losses_S.tolist():
                raise_if_diverged(loss, epoch)
        self.steps.end_epoch()
        if used := summed(counts):
            trained["used"] = used
        if isinstance(self.loss, ProxyLoss) and self.loss.proxies.shape[1] > 1:
            trained["distinct_proxies"] = distinct_proxies(self.loss.proxies)
        return trained

    def set_train_mode(self, epoch: int) -> None:
        """Set the network and the loss to training mode; the backbone learns after its warm-up epochs only.

        Meanwhile it normalises by the batch and updates the running statistics, unless ``model.freeze_bn`` is set.
        """
        self.model.train()
        self.loss.train()
        for parameter in self._backbone:
            parameter.requires_grad_(epoch > self._config.warmup_epochs)

    def set_learning_rates(self, epoch: int, step: int, steps: int) -> None:
        """Set the optimizer's rates for a step, counted from 0, of the ``steps`` of ``epoch``."""
        rate, epochs = self._config.schedule.rate, self.spec.schedule_epochs or self._config.epochs
        for group, lr in zip(self.optimizer.param_groups, self._base_rates, strict=True):
            group["lr"] = rate(lr, epoch=epoch, step=step, steps=steps, epochs=epochs)

    def load_batch(self, indices_B: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Load the images and the labels of a batch onto the device."""
        images = load(
            self.train_view, indices_B, self._config.augment, self._config.frame,
            device=self.device, generator=generator,
        )  # fmt: skip
        return images, self.labels_N[indices_B].to(self.device)

    def embed(self, view: StoreView) -> Tensor:
        with deterministic(self.device, self._config.deterministic):
            return _embedded(self.model, self._config, self.device, view, self._config.precision)

    def _tensors(self) -> Mapping[str, Tensor]:
        return merged(self.model).state_dict()

    def _save(self, record: EpochRecord) -> None:
        """Append ``record`` and save the state to resume from, and the model if it is the best so far."""
        weights = {"model": self.model.state_dict(), "loss": self.loss.state_dict()}
        best, description = None, None
        if self._is_best(record):
            of_loss = {f"{LOSS}{name}": tensor for name, tensor in weights["loss"].items()}
            as_tested = partial(_embedded, self.model, self._config, self.device)
            best = {**self._tensors(), **of_loss, PROBE: as_tested(self._probed)}
            # Training overwrites initial weights; a frozen backbone's are in the origin, and adapters are merged.
            model = replace(self.spec.model, weights=None, freeze=None, lora=Lora())
            description = embedder_spec(self.spec, model, {**self._origin, "epoch": record["epoch"]}).to_json()
        self.set_learning_rates(record["epoch"] + 1, 0, record["batches"])  # recorded as those of the next step
        last = {**weights, "optimizer": self.optimizer.state_dict(), **self._progress}
        self._checkpoints.save(last, best, description)

    # The test.

    @classmethod
    @contextmanager
    def kept(
        cls, spec: TrialSpec, checkpoint: AnyPath, images: StoreSpec, classes: Sequence[str], device: torch.device
    ) -> Iterator[KeptModel]:
        """Load a kept model, see :meth:`EpochTraining.kept`; it embeds in float32, however it was trained."""
        inputs = Inputs(images, spec.model, spec.training, device)
        tensors, description = read_tensors(checkpoint)
        if inputs.backbone_digest is not None:
            raise_if_other(spec.model, description["origin"][FROZEN])
        model = inputs.network(pretrained=False)
        model.load_state_dict(of_network(tensors))
        yield KeptModel(inputs.view(classes), partial(_embedded, model, spec.training, device), tensors[PROBE])


def _embedded(
    model: EmbeddingModel, config: TrainingConfig, device: torch.device, view: StoreView, precision: str = "float32"
) -> Tensor:
    """Embed ``view``, [N, D]; by default in float32, as the test does."""
    return embed(model, view, config.frame, batch_size=config.embedding_batch, device=device, precision=precision)


class LateValue:
    """A scalar on its way from the device, read without waiting for work that is queued later, as ``item`` does."""

    def __init__(self, value: Tensor) -> None:
        self._value = value
        self._copied: torch.cuda.Event | None = None
        if value.is_cuda:
            pinned = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            self._value = pinned.copy_(value, non_blocking=True)
            self._copied = torch.cuda.current_stream(value.device).record_event()

    def read(self) -> float:
        """Return the number, waiting only until it is computed."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._value.item()


OUT_OF_MEMORY = ("not enough memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""Words in errors of libraries that allocate without PyTorch's allocator: the CPU's, CUDA's, cuBLAS's and cuDNN's."""


def failure_of(error: BaseException) -> Failed:
    """Return the cause of a failure; LOST if storage failed, or modules of this package were temporarily missing."""
    try:
        text = str(error)
    except Exception as other:  # a user's exception
        text = f"its text cannot be shown ({type(other).__name__})"
    if isinstance(error, Diverged):
        cause = "DIVERGED"
    elif isinstance(error, StorageFailure):
        return Failed(cause="LOST", reason=str(error).rstrip("."))
    elif module := _own_module_gone(error):
        invalidate_caches()  # of directory listings, which may date from while the folder was rewritten
        reason = f"the module {module} is missing from its folder, or the folder is unavailable"
        return Failed(cause="LOST", reason=reason)
    elif isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in text for word in OUT_OF_MEMORY):
        cause = "OUT_OF_MEMORY"
    else:
        cause = "CODE_ERROR"
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))  # the lines of a user's code
    frames = extract_tb(error.__traceback__)
    return Failed(
        cause=cause,
        reason=without_password(f"{type(error).__name__}: {text}{notes}"),
        place=without_password(f"{frames[-1].filename}, line {frames[-1].lineno}") if frames else None,
        untestable=isinstance(error, Untestable),
    )


def _own_module_gone(error: BaseException) -> str | None:
    """Return the module of this package that is missing, as while Ray rewrites the shipped code, or None."""
    missing = cause_of(error, ModuleNotFoundError)
    return missing.name if missing and missing.name and missing.name.startswith(OURS) else None


# The cost of a training, measured on a few of its steps.

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


def _labels(sizes: Sequence[int]) -> Tensor:
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
