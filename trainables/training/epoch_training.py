"""The interface of a training: its validation, checkpoints, records and kept model.

Workers, scoring and verification know no other. The model in memory and the one that was saved may differ: a part that
is not saved, averaged weights, an adapter that cannot be merged. So a checkpoint holds the embeddings of some items by
the model in memory, and the loaded model has to embed them alike: after the first epoch of a study, and again before
the test classes are opened.

Shapes: N items of one or all views, P of them probed, D embedding dimensions.
"""

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainables.common.errors import InvalidInput, counted
from trainables.common.files import as_path, in_digest_order, write_json
from trainables.common.storage import AnyPath, StorageFailure
from trainables.common.vectors import without_direction, without_order
from trainables.data.dataset import Dataset
from trainables.data.store.store_spec import StoreSpec
from trainables.data.store.view import StoreView, blindly, protocol_for, superclasses_for, training_half
from trainables.inference.model_files import EmbedderSpec
from trainables.metrics import is_retrieval, metric_name, score_text
from trainables.metrics.evaluation import evaluate, per_query_metrics
from trainables.models.backbones import is_own_network
from trainables.models.config import ModelConfig
from trainables.training.checkpoints import Checkpoints
from trainables.training.spec import (
    EMBED_MS,
    SIZE_MB,
    DeviceMemory,
    EpochRecord,
    Trained,
    TrialSpec,
    UntrainedSpec,
    Validated,
    defined,
)

logger = logging.getLogger(__name__)

PROBED, ALONE = 16, 3
"""Items by whose embeddings a kept model is checked, and those of them that are embedded alone."""

RESTORED, BATCHED = 1e-4, 1e-2
"""Differences that rounding may cause, relative to the largest number in the embeddings: of one batch by two copies of
a model, and of an item among other items, which a network in 16 bits rounds otherwise."""

Embed = Callable[[StoreView], Tensor]
"""A function from a view to the embeddings [N, D] of its items."""


class Untestable(InvalidInput):
    """A saved model that cannot be loaded as the test loads it, or is not the one in memory; as of every trial."""


class KeptModel(NamedTuple):
    """A kept model, loaded as the test loads it, with the items that were asked for.

    ``probe_PD`` are the embeddings of the :func:`probed` items by the model in memory, ``tolerance`` is the largest
    relative difference of embeddings, where it is above that of rounding.
    """

    view: StoreView
    embed: Embed
    probe_PD: Tensor
    tolerance: float = 0.0

    def problem(self) -> str | None:
        """Return how its embeddings differ from those in memory, or within other batches; None if they do not."""
        items, expected_PD = probed(self.view), self.probe_PD
        found_PD = self.embed(items).cpu()
        if found_PD.shape[1:] != expected_PD.shape[1:]:
            sizes = f"{found_PD.shape[1]} numbers an item, and the one in memory {expected_PD.shape[1]}"
            return f"Loaded as the test loads it, the saved model returns {sizes}."
        size = expected_PD.abs().max().item()
        orders = [torch.arange(len(items)).flip(0), *torch.arange(min(ALONE, len(items))).split(1)]
        changes = [(self.embed(items.rows(rows)).cpu() - found_PD[rows]).abs().max().item() for rows in orders]
        if not max(changes) <= max(self.tolerance, BATCHED) * size:
            return (
                "An item's embedding depends on the items beside it, or differs each time: numbers of up to "
                f"{size:.4g} differ by {max(changes):.4g} between {counted(len(items), 'item')} together, in another "
                "order and alone. Compute each from its item alone, without dropout or statistics of the batch."
            )
        change = (found_PD - expected_PD).abs().max().item()
        if not change <= max(self.tolerance, RESTORED) * size:
            return (
                "Loaded as the test loads it, the saved model is not the one that was trained: numbers of up to "
                f"{size:.4g} in its embeddings differ by {change:.4g}. Save and load all that an embedding depends on."
            )
        return None


def probed(view: StoreView) -> StoreView:
    """Return the first :data:`PROBED` items of ``view`` in the order of their keys' digests."""
    return view.rows(torch.tensor(in_digest_order(view.image_keys)[:PROBED]))


def embedded(spec: TrialSpec, view: StoreView, embed: Embed) -> Tensor:
    """Embed the items of ``view``, [N, D]; if a user's code does it, in an order without their classes."""
    is_own = spec.trainable is not None or is_own_network(spec.model.backbone)
    return blindly(view, embed) if is_own else embed(view)


# The training.


class Diverged(ArithmeticError):
    """A loss, an embedding or an objective that is not finite."""


def raise_if_diverged(loss: float, epoch: int) -> None:
    """Raise :class:`Diverged` if ``loss`` is not finite."""
    if not math.isfinite(loss):
        raise Diverged(f"The training loss became {loss} in epoch {epoch}.")


class Validation:
    """Items on which an epoch, or a network without training, is scored: ``queries`` of ``dataset``.

    A ``gallery`` has training items, as further wrong neighbours. ``views`` are the queries, and the gallery if any.
    """

    def __init__(
        self, metrics: Sequence[str], dataset: Dataset, queries: StoreView, gallery: StoreView | None = None
    ) -> None:
        self.views = [queries] if gallery is None else [queries, gallery]
        self._metrics = metrics
        self._labels_N = torch.as_tensor(queries.labels_N)
        if gallery is not None:
            self._labels_N = torch.cat((self._labels_N, gallery.labels_N + len(queries.class_names)))
        self._superclasses_N = superclasses_for(metrics, dataset, queries)
        self._protocol = protocol_for(dataset, queries.image_keys)

    @classmethod
    def of(cls, spec: TrialSpec | UntrainedSpec, queries: StoreView, train: StoreView) -> "Validation":
        """Return the validation of ``spec``, whose gallery has half of the items ``train`` if it has a gallery seed."""
        gallery = None if spec.gallery_seed is None else training_half(train, spec.gallery_seed)
        return cls(spec.metrics, spec.images.dataset, queries, gallery)

    def by_class(self, embeddings_ND: Tensor, metric: str) -> dict[str, float]:
        """Return ``metric`` for the queries of each class; empty if it is not computed by query."""
        if not is_retrieval(metric):
            return {}
        view = self.views[0]
        (scores_Q,) = per_query_metrics(
            embeddings_ND, self._labels_N, [metric], queries=len(view), protocol=self._protocol
        ).values()
        is_query_Q, classes = ~scores_Q.isnan(), len(view.class_names)
        labels_Q = torch.as_tensor(view.labels_N)[is_query_Q]
        counts_C = torch.bincount(labels_Q, minlength=classes)
        means_C = torch.bincount(labels_Q, weights=scores_Q[is_query_Q], minlength=classes) / counts_C
        return {name: means_C[c].item() for c, name in enumerate(view.class_names) if counts_C[c]}

    def scores(self, embeddings_ND: Tensor) -> dict[str, float]:
        """Return the metrics of the embeddings of all ``views``, one after the other."""
        return evaluate(
            embeddings_ND, self._labels_N, self._metrics,
            queries=len(self.views[0]), superclasses_N=self._superclasses_N, protocol=self._protocol,
        )  # fmt: skip


class EpochTraining(ABC):
    """The training of a spec on one device, an epoch at a time, resumed from its newest checkpoint if there is one."""

    def __init__(self, spec: TrialSpec, device: torch.device, view: Callable[[Sequence[str]], StoreView]) -> None:
        """Begin with the items that ``view`` returns of some classes."""
        assert not spec.folds, "a spec with folds is several trainings"
        self.spec = spec
        self.device = device
        self.records: list[EpochRecord] = []
        self.train_view = view(spec.train_classes)
        self._best = -math.inf
        self._validation: Validation | None = None
        if spec.validation_classes:
            self._validation = Validation.of(spec, view(spec.validation_classes), self.train_view)
        self._is_checked = not spec.checked

    @property
    def finished(self) -> bool:
        return len(self.records) >= self.spec.training.epochs

    def run_epoch(self) -> EpochRecord:
        """Train and validate the next epoch and start writing its checkpoints; after the last epoch, wait for them.

        Raises:
            Diverged: the loss or the embeddings are not finite.
            StorageFailure: the checkpoints of the previous epoch could not be written.
        """
        assert not self.finished, "all epochs are trained already"
        start, began, epoch = time.time(), time.monotonic(), len(self.records) + 1
        record = EpochRecord(
            epoch=epoch, **self._train(epoch), **self._validate(),
            start=start, end=start + time.monotonic() - began, checkpoint=None,
        )  # fmt: skip
        if self.device.type == "cuda":
            total = torch.cuda.get_device_properties(self.device).total_memory
            record["memory"] = DeviceMemory(peak=torch.cuda.max_memory_reserved(self.device), total=total)
        self._save(record)
        if not self._is_checked:
            self._check_kept()
            self._is_checked = True
        if self.finished:
            self.wait_for_checkpoints()
        return record

    @abstractmethod
    def _train(self, epoch: int) -> Trained:
        """Train ``epoch``, counted from 1."""

    @classmethod
    @abstractmethod
    def kept(
        cls, spec: TrialSpec, checkpoint: AnyPath, images: StoreSpec, classes: Sequence[str], device: torch.device
    ) -> AbstractContextManager[KeptModel]:
        """Return a context with the model that was kept at ``checkpoint``, and the ``classes`` of ``images``."""

    @classmethod
    def tested(
        cls, spec: TrialSpec, checkpoint: AnyPath, images: StoreSpec, device: torch.device
    ) -> tuple[StoreView, Tensor]:
        """Return ``images``, and their embeddings [N, D] by the model that was kept at ``checkpoint``."""
        with cls.kept(spec, checkpoint, images, images.class_names, device) as model:
            return model.view, embedded(spec, model.view, model.embed)

    @classmethod
    def kept_problem(
        cls, spec: TrialSpec, checkpoint: AnyPath, device: torch.device, validated: "Validation | None" = None
    ) -> str | None:
        """Return how the model kept at ``checkpoint``, loaded as the test loads it, differs from that in memory, if so.

        Given what ``validated`` the one in memory, the sentence has the objective of the loaded one, too.
        """
        with cls.kept(spec, checkpoint, spec.images, spec.validation_classes or spec.train_classes, device) as model:
            problem = model.problem()
            if problem and validated:
                embeddings_ND = torch.cat([embedded(spec, view, model.embed) for view in validated.views])
                name = metric_name(spec.objective)
                problem += f" Its {name} is {score_text(name, validated.scores(embeddings_ND)[name])}"
        return problem

    def _new_attempt(self, origin: Mapping[str, Any]) -> dict[str, Any] | None:
        """Begin a new attempt, write the ``origin`` and return the newest state of an earlier attempt."""
        self._checkpoints = Checkpoints(self.spec.directory, self.spec.digest)
        self._origin = dict(origin)
        write_json(as_path(self.spec.directory) / "trial.json", self._origin)
        state = self._checkpoints.load_last()
        if state is not None:
            self._best = state["best"]
            self.records = state["records"]
        return state

    def _check_kept(self) -> None:
        """Raise if the best model so far, loaded as the test will load it, is not the one that was in memory."""
        self.wait_for_checkpoints()
        kept = next(record for record in reversed(self.records) if record["checkpoint"])
        path = as_path(f"{self.spec.directory}/{kept['checkpoint']}")
        try:
            problem = self.kept_problem(self.spec, path, self.device, self._validation)
        except torch.OutOfMemoryError:
            logger.warning("No memory for the saved model beside the one in training; it is checked before the test.")
            return
        except StorageFailure:
            raise
        except Exception as error:  # of a user's code
            text = str(error) if isinstance(error, InvalidInput) else f"{type(error).__name__}: {error}"
            untestable = Untestable(f"The saved model cannot be loaded as the test loads it: {text}")
            untestable.__notes__ = getattr(error, "__notes__", [])
            raise untestable from error
        if problem:
            name = metric_name(self.spec.objective)
            value = kept["metrics"].get(name)
            raise Untestable(problem if value is None else f"{problem}, and was {score_text(name, value)} in memory.")

    @cached_property  # sorts the digests of all keys
    def _probed(self) -> StoreView:
        """The items by whose embeddings a kept model is recognised."""
        return probed(self._validation.views[0] if self._validation else self.train_view)

    @abstractmethod
    def _save(self, record: EpochRecord) -> None:
        """Append ``record`` and save the state to resume from, and the model if it is the best so far."""

    def _is_best(self, record: EpochRecord) -> bool:
        """Append ``record``; return True if it is the best so far, whose model is kept."""
        # Without validation classes the last epoch is the best: the number of epochs was chosen before.
        value = record["metrics"].get(metric_name(self.spec.objective), float(record["epoch"]))
        assert value is not None, "a validation has an objective"
        is_best = value > self._best
        if is_best:
            self._best = value
            record["checkpoint"] = self._checkpoints.best
        self.records.append(record)
        return is_best

    def _validate(self) -> Validated:
        """Score the validation items; their classes only in a confirmation, if the epoch is the best so far."""
        if self._validation is None:
            return {"metrics": {}}
        begin = time.perf_counter()
        embeddings_ND = torch.cat([embedded(self.spec, view, self.embed) for view in self._validation.views])
        bad, of = without_direction(embeddings_ND), f"Of the validation {self.spec.images.dataset.noun}"
        seconds = time.perf_counter() - begin  # the line above waits for the device
        if bad:
            raise Diverged(f"{of}, {bad}.")
        metrics = self._validation.scores(embeddings_ND)
        is_best = metrics[metric_name(self.spec.objective)] > self._best
        if is_best and (bad := without_order(embeddings_ND)):  # a later collapse leaves the best epoch
            raise Diverged(f"{of}, {bad}.")
        if EMBED_MS in self.spec.costs:
            metrics[EMBED_MS] = 1000 * seconds / len(embeddings_ND)
        if SIZE_MB in self.spec.costs:
            metrics[SIZE_MB] = sum(tensor.nbytes for tensor in self._tensors().values()) / 1e6
        validated = Validated(metrics=defined(metrics))
        for name in map(metric_name, (self.spec.objective, *self.spec.needed)):
            if validated["metrics"][name] is None:
                raise Diverged(f"{name} is undefined ({metrics[name]}) in epoch {len(self.records) + 1}.")
        if self.spec.by_class and is_best:
            validated["classes"] = self._validation.by_class(embeddings_ND, self.spec.objective)
        return validated

    @abstractmethod
    def embed(self, view: StoreView) -> Tensor:
        """Return the embeddings [N, D] of the items of ``view``."""

    @abstractmethod
    def _tensors(self) -> Mapping[str, Tensor]:
        """Return the tensors of the model, whose size is a cost."""

    @property
    def _progress(self) -> dict[str, Any]:
        return {"best": self._best, "records": [dict(entry) for entry in self.records]}

    def wait_for_checkpoints(self) -> None:
        """Wait until the checkpoints of the last epoch are written; raise the error if they could not be."""
        self._checkpoints.wait()

    def close(self) -> None:
        """Reduce the files of a finished training to its records and its best model."""
        self._checkpoints.close(self.records)

    def end(self) -> None:  # noqa: B027
        """Release what the training holds beside memory."""


def origin_of(spec: TrialSpec) -> dict[str, Any]:
    """Return the provenance of a training as JSON types: its search and trial, and its settings."""
    settings = (
        {"training": asdict(spec.training), "initial_weights": spec.model.weights}
        if spec.trainable is None
        else {"trainable": spec.trainable, "epochs": spec.training.epochs}
    )
    return {
        **spec.origin,
        "loss": spec.loss,
        "hyperparameters": dict(spec.hyperparameters),
        **settings,
        "seed": spec.seed,
        "classes": {"train": len(spec.train_classes), "validation": len(spec.validation_classes)},
        "objective": spec.objective,
        "digest": spec.digest,
    }


def embedder_spec(spec: TrialSpec | UntrainedSpec, model: ModelConfig, origin: Mapping[str, Any]) -> EmbedderSpec:
    """Return the description of the network ``model``, stored beside its tensors; ``spec`` prepares its images."""
    return EmbedderSpec(
        model=model,
        decoded_side=spec.images.short_side,
        frame=spec.training.frame,
        batch_size=spec.training.embedding_batch,
        origin=origin,
    )
