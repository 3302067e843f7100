"""The training loop: one epoch at a time, with validation and checkpoints."""

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import invalidate_caches
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import MultiStepLR

from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.data.loading import load, prefetched
from trainables.data.samplers import BatchSampler
from trainables.data.split import merged_labels
from trainables.data.store.spec import StoreSpec, opened_store
from trainables.data.store.view import Store, StoreView, on_device, superclasses_for, training_half
from trainables.files import as_path, write_json
from trainables.inference.model_files import LOSS, EmbedderSpec
from trainables.losses import LOSSES, Loss, loss_row
from trainables.losses.base import Used, summed
from trainables.metrics.evaluation import evaluate
from trainables.metrics.table import metric_name
from trainables.mistakes import Mistakes
from trainables.models.embedding import EmbeddingModel, autocast, embed
from trainables.spec import DeviceMemory, EpochRecord, TrialSpec, derived_seed
from trainables.storage import StorageFailure, cause_of
from trainables.training.checkpoints import Checkpoints
from trainables.training.config import OPTIMIZERS, parameter_group

# A number of a device, read when it has been computed anyway.


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


# What a checkpoint says of itself.


def origin_of(spec: TrialSpec) -> dict[str, Any]:
    """Whose training ``spec`` is, and what it is trained with, in JSON's types."""
    return {
        **spec.origin,
        "loss": spec.loss,
        "hyperparameters": dict(spec.hyperparameters),
        "training": asdict(spec.training),
        "initial_weights": spec.model.weights,
        "seed": spec.seed,
        "classes": {"train": len(spec.train_classes), "validation": len(spec.validation_classes)},
        "objective": spec.objective,
        "digest": spec.digest,
    }


def embedder_spec(spec: TrialSpec, origin: Mapping[str, Any], epoch: int) -> EmbedderSpec:
    """The network that the training ``spec``, of this ``origin``, has after ``epoch``."""
    return EmbedderSpec(
        model=replace(spec.model, weights=None),  # the training has changed them
        decoded_side=spec.images.short_side,
        frame=spec.training.frame,
        batch_size=spec.training.embedding_batch,
        origin={**origin, "epoch": epoch},
    )


# The training loop: one object that trains an epoch at a time, validates it and keeps its checkpoints.
#
# Shapes: B images a batch, N images of a view, D embedding dimensions.

logger = logging.getLogger(__name__)


class Diverged(ArithmeticError):
    """The loss or the embeddings stopped being finite."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What the batches of an epoch came to: the mean of their losses, how many there were, what the loss used.

    ``together``: how many trainings took their steps at once, this one counted.
    """

    loss: float
    batches: int
    used: dict[str, int]
    together: int = 1


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a training's steps work on, for whoever takes the steps of several trainings together."""

    model: EmbeddingModel
    loss: Loss
    optimizer: torch.optim.Optimizer
    sampler: BatchSampler
    images: StoreView
    labels_N: Tensor
    device: torch.device


class Training:
    """One training run, resumed from its newest checkpoint where there is one.

    Every random draw is a function of the spec's seed and the epoch, so that a resumed training is the same training.
    """

    def __init__(self, spec: TrialSpec, device: torch.device) -> None:
        assert not spec.folds, "a spec with folds is several trainings"
        self.spec = spec
        self._config = spec.training
        self._device = device
        store = on_device(_opened(spec.images), device)
        self._train_view = store.subset(spec.train_classes)
        self._validation_view = store.subset(spec.validation_classes) if spec.validation_classes else None
        self._superclasses_N = None
        if self._validation_view is not None:
            self._superclasses_N = superclasses_for(spec.metrics, spec.images.dataset, self._validation_view)
        self._gallery_view = None if spec.gallery_seed is None else training_half(self._train_view, spec.gallery_seed)
        self._labels_N = merged_labels(torch.as_tensor(self._train_view.labels_N), spec.merge)

        torch.manual_seed(spec.seed)
        self._model = EmbeddingModel(spec.model).to(device)
        # Frozen batch-norm stays frozen after the warm-up, so what learns is remembered now.
        self._backbone_parameters = [p for p in self._model.backbone.parameters() if p.requires_grad]
        self._loss = self._make_loss().to(device)
        self._sampler = BATCH_SAMPLERS[self._config.sampler](
            self._labels_N,
            batch_size=self._config.batch_size,
            images_per_class=self._config.images_per_class,
            seed=spec.seed,
        )
        self._optimizer = self._make_optimizer()
        schedule = self._config.schedule
        self._schedule = MultiStepLR(self._optimizer, schedule.changes(self._config.epochs), schedule.gamma)
        self._best = -math.inf
        self.records: list[EpochRecord] = []
        self._resume()

    def _make_loss(self) -> Loss:
        return LOSSES[self.spec.loss](
            num_classes=math.ceil(len(self.spec.train_classes) / self.spec.merge),
            embedding_dim=self.spec.model.embedding_dim,
            **self.spec.hyperparameters,
        )

    def _make_optimizer(self) -> torch.optim.Optimizer:
        config = self._config
        groups = [
            parameter_group(self._backbone_parameters, config.lr),
            parameter_group(self._model.head.parameters(), config.head_lr or config.lr),
            *self._loss.parameter_groups(config.proxy_lr or loss_row(self.spec.loss).proxy_lr),
        ]
        return OPTIMIZERS[config.optimizer](groups, weight_decay=config.weight_decay)  # type: ignore[call-arg]

    def _resume(self) -> None:
        """Begin an attempt, which goes on from the newest checkpoint of an earlier one."""
        self._checkpoints = Checkpoints(self.spec.directory, self.spec.digest)
        self._origin = origin_of(self.spec)
        write_json(as_path(self.spec.directory) / "trial.json", self._origin)
        state = self._checkpoints.load_last()
        if state is None:
            return
        self._model.load_state_dict(state["model"])
        self._loss.load_state_dict(state["loss"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])
        self._best = state["best"]
        self.records = state["records"]
        logger.info("Going on after epoch %d.", len(self.records))

    @property
    def finished(self) -> bool:
        """Whether all epochs are trained."""
        return len(self.records) >= self._config.epochs

    def run_epoch(self) -> EpochRecord:
        """Train the next epoch, validate it and begin to write its checkpoints; after the last epoch, wait for them.

        Raises:
            Diverged: the loss or the embeddings are not finite.
            StorageFailure: the checkpoints of the epoch before could not be written.
        """
        start = time.time()
        return self.end_epoch(start, self._train(self.begin_epoch()))

    @property
    def parts(self) -> Parts:
        """What the steps of an epoch work on."""
        return Parts(
            model=self._model, loss=self._loss, optimizer=self._optimizer, sampler=self._sampler,
            images=self._train_view, labels_N=self._labels_N, device=self._device,
        )  # fmt: skip

    @property
    def warming_up(self) -> bool:
        """Whether the next epoch leaves the backbone as it is."""
        return len(self.records) < self._config.warmup_epochs

    def begin_epoch(self) -> int:
        """Make the network and the loss ready for the next epoch's steps; its number."""
        assert not self.finished, "all epochs are trained already"
        epoch = len(self.records) + 1
        self._make_ready(epoch)
        return epoch

    def _make_ready(self, epoch: int) -> None:
        self._model.train()
        self._loss.train()
        for parameter in self._backbone_parameters:
            parameter.requires_grad_(epoch > self._config.warmup_epochs)

    def end_epoch(self, start: float, trained: Trained, embedded: Sequence[Tensor] | None = None) -> EpochRecord:
        """Validate what an epoch's steps made, which began at ``start``, and keep it: see :meth:`run_epoch`.

        ``embedded`` are the embeddings of ``validated_views``, where somebody has them already.
        """
        metrics = self._validate(embedded)
        record = EpochRecord(
            epoch=len(self.records) + 1, loss=trained.loss, batches=trained.batches,
            metrics=metrics, start=start, end=time.time(), checkpoint=None,
        )  # fmt: skip
        if trained.used:
            record["used"] = trained.used
        if trained.together > 1:
            record["together"] = trained.together
        if self._device.type == "cuda":
            total = torch.cuda.get_device_properties(self._device).total_memory
            record["memory"] = DeviceMemory(peak=torch.cuda.max_memory_reserved(self._device), total=total)
        self._keep(record)
        if self.finished:
            self.wait_for_checkpoints()
        return record

    def _train(self, epoch: int) -> Trained:
        torch.manual_seed(derived_seed(self.spec.seed, epoch, "torch"))
        generator = torch.Generator().manual_seed(derived_seed(self.spec.seed, epoch, "augment"))
        losses: list[Tensor] = []
        used: list[Used | None] = []
        batches = prefetched(self._batches(epoch), lambda indices_B: self._batch(indices_B, generator), self._device)
        before: LateValue | None = None
        for images, labels_B in batches:
            losses.append(self._step(images, labels_B))
            used.append(self._loss.used)
            late = LateValue(losses[-1])
            if before is not None:  # of the step before, so that the device always has a step to do
                raise_if_diverged(before.read(), epoch)
            before = late
        assert before is not None, "an epoch without a batch"
        raise_if_diverged(before.read(), epoch)
        return Trained(loss=torch.stack(losses).mean().item(), batches=len(losses), used=summed(used))

    def _batches(self, epoch: int) -> Iterable[Tensor]:
        return self._sampler.batches(epoch)

    def _batch(self, indices_B: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The images of this process's share, and the labels of the whole batch, on the device."""
        images = load(
            self._train_view, indices_B, self._config.augment, self._config.frame,
            device=self._device, generator=generator, share=self._share(len(indices_B)),
        )  # fmt: skip
        return images, self._labels_N[indices_B].to(self._device)

    def _share(self, batch: int) -> slice:
        """Which of a batch of so many images this process embeds."""
        return slice(None)

    def _embeddings(self, images: Tensor, batch: int) -> Tensor:
        """The embeddings of a batch of so many images, attached to the network's graph."""
        with autocast(self._device, self._config.precision):
            embeddings_BD: Tensor = self._model(images)
        return embeddings_BD

    def _step(self, images: Tensor, labels_B: Tensor) -> Tensor:
        loss: Tensor = self._loss(self._embeddings(images, len(labels_B)), labels_B)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self._config.clip_grad is not None:
            nn.utils.clip_grad_value_((*self._model.parameters(), *self._loss.parameters()), self._config.clip_grad)
        self._optimizer.step()
        return loss.detach()

    @property
    def validated_views(self) -> list[StoreView]:
        """The images that an epoch is scored on: the queries, and what stands in the gallery beside them."""
        views = (self._validation_view, self._gallery_view) if self._validation_view is not None else ()
        return [view for view in views if view is not None]

    def _validate(self, embedded: Sequence[Tensor] | None = None) -> dict[str, float]:
        if self._validation_view is None:
            return {}
        if embedded is None:
            embedded = [self._embedded(view) for view in self.validated_views]
        embeddings_ND, labels_N = torch.cat([*embedded]), self._validation_view.labels_N
        if not torch.isfinite(embeddings_ND).all():
            raise Diverged("The embeddings of the validation images are not finite.")
        queries = len(labels_N)
        if self._gallery_view is not None:
            labels_N = torch.cat((labels_N, self._gallery_view.labels_N + len(self._validation_view.class_names)))
        return evaluate(
            embeddings_ND, labels_N, self.spec.metrics, queries=queries, superclasses_N=self._superclasses_N
        )

    def _embedded(self, view: StoreView) -> Tensor:
        config = self._config
        return embed(
            self._model, view, config.frame,
            batch_size=config.embedding_batch, device=self._device, precision=config.precision,
        )  # fmt: skip

    def _keep(self, record: EpochRecord) -> None:
        # Without validation classes there is no best epoch to choose: the number of epochs was chosen before.
        value = record["metrics"].get(metric_name(self.spec.objective), float(record["epoch"]))
        weights = {"model": self._model.state_dict(), "loss": self._loss.state_dict()}
        best, description = None, None
        if value > self._best:
            self._best = value
            best = {**weights["model"], **{f"{LOSS}{name}": tensor for name, tensor in weights["loss"].items()}}
            description = embedder_spec(self.spec, self._origin, record["epoch"]).to_json()
            record["checkpoint"] = self._checkpoints.best
        self._schedule.step()
        self.records.append(record)
        last = {
            **weights,
            "optimizer": self._optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
            "best": self._best,
            "records": [dict(entry) for entry in self.records],
        }
        self._checkpoints.save(last, best, description)

    def wait_for_checkpoints(self) -> None:
        """Wait until the checkpoints of the last epoch are written.

        Raises:
            Exception: they could not be written.
        """
        self._checkpoints.wait()

    def close(self) -> None:
        """Keep the records and the best model of a training that is done, and nothing to go on from."""
        self._checkpoints.close(self.records)


def raise_if_diverged(loss: float, epoch: int) -> None:
    """
    Raises:
        Diverged: the loss of a batch is not finite.
    """
    if not math.isfinite(loss):
        raise Diverged(f"The training loss became {loss} in epoch {epoch}.")


def _opened(images: StoreSpec) -> Store:
    """The store of the images; where a disk or a network is why it cannot be had, the failure is theirs."""
    try:
        return opened_store(images)
    except Mistakes as error:
        if isinstance(error.__cause__, OSError):
            raise StorageFailure("The store of the images", error.__cause__) from error
        raise


def train(spec: TrialSpec, device: str | torch.device = "cpu") -> Iterator[EpochRecord]:
    """Train ``spec`` to its end, yielding each epoch's record (those of an earlier attempt first)."""
    training = Training(spec, torch.device(device))
    try:
        yield from list(training.records)
        while not training.finished:
            yield training.run_epoch()
    finally:
        training.wait_for_checkpoints()


def failure_of(error: BaseException) -> dict[str, Any]:
    """The name of a failure and its reason: DIVERGED, OUT_OF_MEMORY, CODE_ERROR, or LOST.

    That is neither the configuration's nor its code's: files could not be kept, or modules of ours are not there.
    """
    if isinstance(error, Diverged):
        cause = "DIVERGED"
    elif isinstance(error, StorageFailure):
        return {"cause": "LOST", "reason": str(error).rstrip(".")}
    elif module := _own_module_gone(error):
        invalidate_caches()  # of what folders hold: one that was listed while it was written anew
        return {"cause": "LOST", "reason": f"the module {module} is gone from its folder, or the folder away"}
    elif isinstance(error, MemoryError | torch.OutOfMemoryError) or "not enough memory" in str(error):
        cause = "OUT_OF_MEMORY"
    else:
        cause = "CODE_ERROR"
    return {"cause": cause, "reason": f"{type(error).__name__}: {error}"}


def _own_module_gone(error: BaseException) -> str | None:
    """The module of this package that was not found, where that is what ``error`` comes of.

    Ray writes the code that travels with a search anew, under those that run it, where a second node of a cluster
    starts on one machine; and a disk that machines share may be away for a moment.
    """
    missing = cause_of(error, ModuleNotFoundError)
    name = missing.name if missing else None
    return name if name and name.startswith("trainables.") else None
