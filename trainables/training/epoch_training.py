"""The interface of a training, which workers, scoring and verification know, and its checkpoints and records."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from trainables.data.store.spec import StoreSpec
from trainables.files import as_path, write_json
from trainables.metrics.table import metric_name
from trainables.spec import EMBED_MS, SIZE_MB, DeviceMemory, EpochRecord, TrialSpec, defined
from trainables.storage import AnyPath
from trainables.training.checkpoints import Checkpoints

if TYPE_CHECKING:
    import torch

    from trainables.data.store.view import StoreView
    from trainables.training.validation import Validation


class Validated(TypedDict):
    """The part of a record that a validation gives: ``classes`` in the best epochs of a confirmation only."""

    metrics: dict[str, float | None]
    classes: NotRequired[dict[str, float]]


class Diverged(ArithmeticError):
    """A loss, an embedding or an objective that is not finite."""


class EpochTraining(ABC):
    """The training of a spec on one device, an epoch at a time, resumed from its newest checkpoint if there is one.

    Attributes:
        spec: what is trained.
        device: where.
        records: those of the epochs that are trained.
    """

    def __init__(self, spec: TrialSpec, device: "torch.device") -> None:
        assert not spec.folds, "a spec with folds is several trainings"
        self.spec = spec
        self.device = device
        self.records: list[EpochRecord] = []
        self._best = -math.inf

    @property
    def finished(self) -> bool:
        """Return True if all epochs are trained."""
        return len(self.records) >= self.spec.training.epochs

    @abstractmethod
    def run_epoch(self) -> EpochRecord:
        """Train and validate the next epoch and start writing its checkpoints; after the last epoch, wait for them.

        Raises:
            Diverged: the loss or the embeddings are not finite.
            StorageFailure: the checkpoints of the previous epoch could not be written.
        """

    @classmethod
    @abstractmethod
    def tested(
        cls, spec: TrialSpec, checkpoint: AnyPath, images: StoreSpec, device: "torch.device"
    ) -> "tuple[StoreView, torch.Tensor]":
        """Return ``images``, and their embeddings [N, D] by the model that was kept at ``checkpoint``."""

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

    def _recorded(self, record: EpochRecord) -> EpochRecord:
        """Add a GPU's memory to the ``record`` of an epoch, save the state after it, and return the record."""
        if memory := _memory_on(self.device):
            record["memory"] = memory
        self._save(record)
        if self.finished:
            self.wait_for_checkpoints()
        return record

    def _costs(
        self, seconds: float, items: int, tensors: "Callable[[], Mapping[str, torch.Tensor]]"
    ) -> dict[str, float]:
        """Return the costs that the spec asks for.

        Args:
            seconds: the time in which the validation's ``items`` were embedded.
            items: their number.
            tensors: returns those of the model; called if its size is asked for.
        """
        costs = {}
        if EMBED_MS in self.spec.costs:
            costs[EMBED_MS] = 1000 * seconds / max(1, items)
        if SIZE_MB in self.spec.costs:
            costs[SIZE_MB] = sum(tensor.nbytes for tensor in tensors().values()) / 1e6
        return costs

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

    def _validated(
        self, metrics: dict[str, float], validation: "Validation", embeddings_ND: "torch.Tensor"
    ) -> Validated:
        """Return the metrics, with the objective of each class if the spec asks for it and the epoch is the best.

        Raises:
            Diverged: the objective, or a metric of the goal, is undefined.
        """
        found = defined(metrics)
        for name in map(metric_name, (self.spec.objective, *self.spec.needed)):
            if found[name] is None:
                raise Diverged(f"{name} is undefined ({metrics[name]}) in epoch {len(self.records) + 1}.")
        if not self.spec.by_class or metrics[metric_name(self.spec.objective)] <= self._best:
            return {"metrics": found}
        return {"metrics": found, "classes": validation.by_class(embeddings_ND, self.spec.objective)}

    @property
    def _progress(self) -> dict[str, Any]:
        """The part of the state to resume from that every training has."""
        return {"best": self._best, "records": [dict(entry) for entry in self.records]}

    def wait_for_checkpoints(self) -> None:
        """Wait until the checkpoints of the last epoch are written.

        Raises:
            Exception: they could not be written.
        """
        self._checkpoints.wait()

    def close(self) -> None:
        """Reduce the files of a finished training to its records and its best model."""
        self._checkpoints.close(self.records)

    def end(self) -> None:  # noqa: B027
        """Release what the training holds beside memory."""


def _memory_on(device: "torch.device") -> DeviceMemory | None:
    """Return the memory of a GPU, for a record; None on a CPU."""
    if device.type != "cuda":
        return None
    import torch

    total = torch.cuda.get_device_properties(device).total_memory
    return DeviceMemory(peak=torch.cuda.max_memory_reserved(device), total=total)


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
