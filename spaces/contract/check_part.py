"""Contract of any part: find its kind and run its checks; and the contracts of backbones and metrics.

Shapes: B batch, H and W pixels, N images, D embedding, C classes.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from spaces.contract import Check, CheckResult
from spaces.contract.check_data import DatasetContract, SamplerContract
from spaces.contract.check_loss import LossContract
from spaces.contract.check_trainable import TrainableContract
from trainables.common.errors import InvalidInput, suggestion, without_password
from trainables.common.part_tables import is_own, load_part
from trainables.common.vectors import without_order
from trainables.data import DATASETS, Dataset
from trainables.data.batch_samplers import BATCH_SAMPLERS, BatchSampler
from trainables.losses import LOSSES
from trainables.losses.loss import Loss
from trainables.metrics import METRICS, metric_name, own_metric, unknown_metrics
from trainables.metrics.evaluation import evaluate
from trainables.models.backbones import BACKBONES, LIBRARIES, Backbone, backbone
from trainables.models.config import ModelConfig
from trainables.models.embedding import EmbeddingModel, depends_on_batch
from trainables.training.trainable import Trainable

TABLES: Mapping[str, Mapping[str, Any]] = {
    "loss": LOSSES,
    "dataset": DATASETS,
    "backbone": BACKBONES,
    "sampler": BATCH_SAMPLERS,
}
OWN = {"trainable": Trainable, "loss": Loss, "dataset": Dataset, "sampler": BatchSampler}


def kind_of(name: str) -> str:
    """Return the kind of a part by its name or import path: loss, dataset, backbone, sampler, metric or trainable."""
    if name.partition(":")[0] in LIBRARIES:
        return "backbone"
    if is_own(name):
        return _kind_of_own(name)
    for kind, table in TABLES.items():
        if name in table:
            return kind
    if not unknown_metrics([name]):
        return "metric"
    known = [*(row for table in TABLES.values() for row in table), *METRICS]
    raise InvalidInput(
        f"There is no part {name!r}{suggestion(name, known)}: name a built-in part, or give the import path of your "
        "own, such as mylab.losses:CircleLoss."
    )


def _kind_of_own(path: str) -> str:
    part: Any = load_part(path)
    for kind, base in OWN.items():
        if isinstance(part, type) and issubclass(part, base):
            return kind
    if isinstance(part, type) and issubclass(part, nn.Module) and len(signature(part.forward).parameters) == 3:
        return "loss"  # self, embeddings and labels: its check says what is missing
    if isinstance(part, Backbone) or hasattr(part, "features"):
        return "backbone"
    if callable(part) and not isinstance(part, type):
        return "metric"
    raise InvalidInput(
        f"The part {path!r} is neither a loss, a data set, a batch sampler nor a training (a class that derives from "
        "Loss, Dataset, BatchSampler or holdout.Trainable), nor a backbone (with an attribute features), nor a metric "
        f"(a function); it is {part!r:.100}."
    )


def outcome_of(what: str, check: Check) -> CheckResult:
    """Run the check of ``what``. An exception is a failed check, and the state of random generators is restored."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            sentence = check()
    except InvalidInput as error:
        sentence = " ".join(error.sentences)
    except Exception as error:  # a user's part may raise anything
        sentence = without_password(f"It raises {type(error).__name__}: {error}.")
    return CheckResult(what, "failed" if sentence else "ok", sentence)


class Contract(Protocol):
    """The checks of a part, which was loaded to make this object."""

    def checks(self) -> Mapping[str, Check]:
        """Return the checks by what they require, in the order in which they are run."""


def outcomes(load: Callable[..., Contract], *part: Any) -> Iterator[CheckResult]:
    """Load a ``part``, then run the checks of its contract. Nothing is raised."""
    checks: dict[str, Check] = {}

    def can_be_loaded() -> str:
        checks.update(load(*part).checks())
        return ""

    yield outcome_of("It can be loaded.", can_be_loaded)
    for what, check in checks.items():
        yield outcome_of(what, check)


def check_part(
    name: str, options: Mapping[str, Any] | None = None, *, kind: str | None = None, image_size: int | None = None
) -> Iterator[CheckResult]:
    """Check that a part keeps the contract of its kind.

    Args:
        name: name of a built-in part, or an import path.
        options: a data set's options, as in a search file; for a training, those of its data set with its ``name``.
        kind: one of those of :func:`kind_of`, which finds it by default.
        image_size: side of a backbone's images in pixels; by default that of its weights' evaluation, or 224.
    """
    with TemporaryDirectory(prefix="holdout-check-") as folder:
        contracts: dict[str, Callable[[], Contract]] = {
            "loss": lambda: LossContract(name),
            "dataset": lambda: DatasetContract(name, options),
            "backbone": lambda: BackboneContract(name, image_size),
            "sampler": lambda: SamplerContract(name),
            "metric": lambda: MetricContract(name),
            "trainable": lambda: TrainableContract(name, options or {}, Path(folder)),
        }
        yield from outcomes(lambda: contracts[kind or kind_of(name)]())


# Backbones and metrics.


class BackboneContract:
    """The checks of a backbone (name or import path), for images of ``image_size`` pixels, by default its own size."""

    def __init__(self, name: str, image_size: int | None) -> None:
        self._name, self._row = name, backbone(name)
        self._size = image_size or (self._row.crop.side if self._row.crop else 224)

    def checks(self) -> Mapping[str, Check]:
        size = self._size
        return {
            "Its mean and scale are three numbers each.": self._input_problem,
            "It builds a module, the same from the same seed.": self._build_problem,
            f"Images of {size} pixels become maps of its features.": self._shape_problem,
            "Different images become different maps.": self._same_problem,
            "Every trainable parameter has a gradient.": self._gradient_problem,
            "An image has the same embedding alone and in a batch.": self._batch_problem,
            "Its state_dict is complete.": self._state_problem,
        }

    def _images_B3HW(self) -> Tensor:
        return torch.rand(2, 3, self._size, self._size, generator=torch.Generator().manual_seed(1))

    def _input_problem(self) -> str:
        for name, colours in (("mean", self._row.mean), ("scale", self._row.scale)):
            if len(colours) != 3 or not all(isinstance(value, float | int) for value in colours):
                return f"{name} must be three numbers, for red, green and blue; it is {colours!r}."
        return "" if min(self._row.scale) > 0 else f"scale divides and must be positive; it is {self._row.scale!r}."

    def _build_problem(self) -> str:
        networks = []
        for _ in range(2):
            torch.manual_seed(0)
            networks.append(self._row.build())
        if not isinstance(networks[0], nn.Module):
            return f"It must build a torch.nn.Module; it builds {networks[0]!r}."
        first, second = (network.state_dict() for network in networks)
        same = first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
        return "" if same else "Built twice from the same seed, its weights differ: draw them with torch."

    def _shape_problem(self) -> str:
        network = self._model.backbone
        for mode in (True, False):
            maps = network.train(mode)(self._images_B3HW())
            if not isinstance(maps, Tensor) or maps.ndim != 4 or maps.shape[:2] != (2, self._row.features):
                shape = list(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
                return f"Two images must become maps [2, {self._row.features}, h, w]; they become {shape}."
            if not maps.isfinite().all():
                return "Its maps are not finite."
        return ""

    @torch.no_grad()
    def _same_problem(self) -> str:
        network = self._model.backbone.eval()
        bad = without_order(torch.cat([network(image_B3HW).flatten(1) for image_B3HW in self._images_B3HW().split(1)]))
        return bad and f"Of the maps of two images, {bad}."

    def _new_model(self) -> EmbeddingModel:
        return EmbeddingModel(ModelConfig(backbone=self._name, embedding_dim=8))

    @cached_property
    def _model(self) -> EmbeddingModel:
        return self._new_model()

    def _gradient_problem(self) -> str:
        model = self._model.train()
        model(self._images_B3HW()).square().sum().backward()
        without = [name for name, p in model.backbone.named_parameters() if p.requires_grad and p.grad is None]
        return f"Without a gradient: {len(without)} of its parameters, first {without[0]}." if without else ""

    @torch.no_grad()
    def _batch_problem(self) -> str:
        depends = depends_on_batch(self._model, self._images_B3HW())
        return "In evaluation mode an image's embedding depends on the rest of its batch." if depends else ""

    def _state_problem(self) -> str:
        first, second = self._model, self._new_model()
        second.load_state_dict(first.state_dict())
        images = self._images_B3HW()
        with torch.no_grad():
            same = torch.equal(first.eval()(images), second.eval()(images))
        return "" if same else "Some of its state is not in its state_dict."


class MetricContract:
    """The checks of a metric (a name such as ``recall_at_1``, or an import path)."""

    def __init__(self, name: str) -> None:
        if unknown_metrics([name]):
            raise InvalidInput(f"The metric {name!r} is not known{suggestion(name, METRICS)}.")
        if is_own(name):
            own_metric(name)
        self._name = name
        generator = torch.Generator().manual_seed(0)
        self._labels_N = torch.arange(60) % 12
        centres_CD = torch.randn(12, 16, generator=generator)
        self._embeddings_ND = centres_CD[self._labels_N] + 0.7 * torch.randn(60, 16, generator=generator)

    def checks(self) -> Mapping[str, Check]:
        return {
            "It is a finite number.": self._number_problem,
            "It is deterministic.": self._again_problem,
            "It does not depend on the order of images.": self._order_problem,
        }

    def _value(self, order_N: Tensor) -> float:
        labels_N = self._labels_N[order_N]
        values = evaluate(self._embeddings_ND[order_N], labels_N, [self._name], superclasses_N=labels_N // 3)
        return values[metric_name(self._name)]

    def _number_problem(self) -> str:
        value = self._value(torch.arange(60))
        return "" if math.isfinite(value) else f"For 60 images of 12 classes it is {value}."

    def _again_problem(self) -> str:
        first, second = (self._value(torch.arange(60)) for _ in range(2))
        return "" if first == second else f"It is {first}, then {second} for the same embeddings."

    def _order_problem(self) -> str:
        first, second = self._value(torch.arange(60)), self._value(torch.randperm(60))
        close = math.isclose(first, second, rel_tol=1e-5, abs_tol=1e-6)
        return "" if close else f"It is {first}, and {second} with the images in another order."
