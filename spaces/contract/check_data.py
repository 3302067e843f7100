"""Contracts of data sets, batch samplers, backbones and metrics, built-in or user-defined.

Shapes: B batch, H and W pixels, N images, D embedding, C classes.
"""

import math
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from spaces.contract import Check
from trainables.common.part_tables import is_own
from trainables.common.vectors import without_order
from trainables.data import DATASETS, Dataset
from trainables.data.batch_samplers import BATCH_SAMPLERS, BatchSampler
from trainables.data.dataset import ItemDataset, check_listing
from trainables.data.store.build import read_item
from trainables.data.store.contents import item_bytes
from trainables.metrics import metric_name, own_metric
from trainables.metrics.evaluation import evaluate
from trainables.models.backbones import backbone
from trainables.models.config import ModelConfig
from trainables.models.embedding import EmbeddingModel, depends_on_batch


def _copy(dataset: Dataset) -> Dataset:
    """Return an equal data set with empty caches."""
    return replace(dataset)  # type: ignore[type-var]


class DatasetContract:
    """The checks of a data set: an instance, or a name or import path with ``options``."""

    def __init__(self, dataset: str | Dataset, options: Mapping[str, Any] | None = None) -> None:
        if not isinstance(dataset, Dataset):
            dataset = DATASETS[dataset](**options or {})
        self._dataset: Dataset = dataset

    def checks(self) -> Mapping[str, Check]:
        return {
            "It is a frozen, keyword-only dataclass.": self._dataclass_problem,
            "Its classes are listed without opening an image.": self._unopened_problem,
            "Its classes and images are the same each time.": self._names_problem,
            "Its identity is the same in every process.": self._identity_problem,
            "Its items are uint8 RGB, float32 features or of a known kind, the same each time.": self._items_problem,
            "Its published halves are disjoint and of its classes.": self._halves_problem,
            "It lists each image once; groups, parts, cameras and superclasses are of these.": self._listing_problem,
            "Its groups, parts, cameras and superclasses are the same each time.": self._marks_problem,
            "Its test subsets are of its published test classes.": self._subsets_problem,
        }

    @property
    def _keys(self) -> list[str]:
        return [key for keys in self._dataset.classes().values() for key in keys]

    def _dataclass_problem(self) -> str:
        kind = type(self._dataset)
        if not is_dataclass(kind) or not kind.__dataclass_params__.frozen:
            return "Its class is not a frozen dataclass: decorate it with @dataclass(frozen=True, kw_only=True)."
        positional = [entry.name for entry in fields(kind) if not entry.kw_only]
        return f"Fields that are not keyword-only: {', '.join(positional)}; add kw_only=True." if positional else ""

    def _unopened_problem(self) -> str:
        opened = AssertionError("classes() opens images")
        with patch.object(type(self._dataset), "read", side_effect=opened), patch("PIL.Image.open", side_effect=opened):
            try:
                _copy(self._dataset).classes()
            except AssertionError as error:
                if error is not opened:
                    raise
                return "classes() opens images: list them by file names or lists only."
        return ""

    def _names_problem(self) -> str:
        classes = self._dataset.classes()
        if not classes:
            return "classes() is empty."
        if list(classes.items()) != list(_copy(self._dataset).classes().items()):
            return "classes() of an equal data set has other classes or another order: sort them."
        return ""

    def _identity_problem(self) -> str:
        identity = self._dataset.identity()
        if not isinstance(identity, str) or not identity:
            return f"identity() must be a non-empty string that identifies the data; it is {identity!r}."
        sent: Dataset = pickle.loads(pickle.dumps(self._dataset))
        for other in (_copy(self._dataset), sent):
            if other.identity() != identity:
                return f"identity() is {identity!r}, and {other.identity()!r} for an equal data set."
        return "" if sent.classes() == self._dataset.classes() else "Sent to another process, it has other classes."

    def _items_problem(self) -> str:
        for key in {self._keys[0]: None, self._keys[-1]: None}:
            if item_bytes(read_item(self._dataset, key)) != item_bytes(self._dataset.read(key)):
                return f"read({key!r}) returns another item the second time."
            if isinstance(self._dataset, ItemDataset):
                continue
            if damage := self._dataset.damage(key):
                return f"damage({key!r}) is {damage!r}, but read() returns the image: it must be None."
            stamp = self._dataset.stamp(key)
            if not isinstance(stamp, str) or stamp != self._dataset.stamp(key):
                return f"stamp({key!r}) must be a string that changes only if the image does; it is {stamp!r}."
        return ""

    def _halves_problem(self) -> str:
        halves = self._dataset.published_split()
        if halves is None:
            return ""
        train, test = map(set, halves)
        if both := train & test:
            return f"Classes in both published halves: {len(both)}."
        unknown = (train | test) - set(self._dataset.classes())
        return f"Classes of the published halves that are not in classes(): {len(unknown)}." if unknown else ""

    def _listing_problem(self) -> str:
        check_listing(self._dataset, self._dataset.classes())
        return ""

    def _marks_problem(self) -> str:
        for name in ("groups", "parts", "cameras", "superclasses"):
            if getattr(self._dataset, name)() != getattr(_copy(self._dataset), name)():
                return f"{name}() of an equal data set differ."
        return ""

    def _subsets_problem(self) -> str:
        _, test = self._dataset.published_split() or ((), ())
        for name, classes in self._dataset.test_subsets().items():
            if unknown := set(classes) - set(test):
                return f"Classes of the test subset {name!r} that are not published test classes: {len(unknown)}."
            if not name.isidentifier():
                return f"The name of the test subset {name!r} must have only letters, digits and '_'."
        return ""


SETTINGS = (
    ([6] * 10, 20, 4),
    ([6] * 10, 20, 5),
    ([3, 9, 1, 5, 7, 2, 8, 4], 12, 3),
    ([8] * 4, 32, 8),
    ([40, 40], 10, 5),
)
"""Class sizes, batch size and images a class; settings that the sampler rejects are skipped."""


class SamplerContract:
    """The checks of a batch sampler (name or import path)."""

    def __init__(self, name: str) -> None:
        self._class = BATCH_SAMPLERS[name]

    def checks(self) -> Mapping[str, Check]:
        return {
            "It accepts common batches and rejects impossible ones.": self._settings_problem,
            "Its batches are int64 tensors of at most the batch size.": self._batches_problem,
            "An epoch has len() batches.": self._length_problem,
            "Its batches are a function of seed and epoch.": self._function_problem,
            "Seeds and epochs differ.": self._difference_problem,
        }

    def _samplers(self, seed: int = 0) -> Iterator[tuple[BatchSampler, int, int]]:
        """Yield a sampler for each setting that it accepts, its number of images, and the batch size.

        Labels are shuffled and have gaps.
        """
        for sizes, batch_size, images_per_class in SETTINGS:
            if not self._class.problems(sizes, batch_size, images_per_class):
                labels_N = torch.tensor([3 * label + 5 for label, size in enumerate(sizes) for _ in range(size)])
                labels_N = labels_N[torch.randperm(len(labels_N), generator=torch.Generator().manual_seed(7))]
                sampler = self._class(labels_N, batch_size=batch_size, images_per_class=images_per_class, seed=seed)
                yield sampler, len(labels_N), batch_size

    def _settings_problem(self) -> str:
        if not any(self._samplers()):
            return "problems() rejects common batches, such as 20 images from 10 classes of 6."
        refused = self._class.problems([2, 2], 0, 1)
        return "" if refused else "problems() accepts a batch size of 0."

    def _batches_problem(self) -> str:
        for sampler, images, most in self._samplers():
            for batch_B in sampler.batches(3):
                if not isinstance(batch_B, Tensor) or batch_B.dtype != torch.int64 or batch_B.ndim != 1:
                    return f"A batch must be an int64 tensor of image indices; it is {batch_B!r:.100}."
                if not 0 < len(batch_B) <= most:
                    return f"A batch has {len(batch_B)} images; it must have 1 to {most}."
                if batch_B.min() < 0 or batch_B.max() >= images:
                    return f"A batch has indices {batch_B.min()} to {batch_B.max()}, with {images} images."
        return ""

    def _length_problem(self) -> str:
        for sampler, _, _ in self._samplers():
            if (count := len(list(sampler.batches(1)))) != len(sampler):
                return f"An epoch has {count} batches, and len() is {len(sampler)}."
        return ""

    def _function_problem(self) -> str:
        for (first, *_), (again, *_) in zip(self._samplers(), self._samplers(), strict=True):
            expected = list(first.batches(2))
            list(again.batches(1))  # a resumed training skips this
            found = list(again.batches(2))
            if len(expected) != len(found) or not all(map(torch.equal, expected, found)):
                return "The same seed and epoch have other batches the second time: draw with self.generator(epoch)."
        return ""

    def _difference_problem(self) -> str:
        drawn = {
            tuple(tuple(batch_B.tolist()) for batch_B in sampler.batches(epoch))
            for seed in (0, 1)
            for sampler, _, _ in islice(self._samplers(seed), 1)
            for epoch in (0, 1)
        }
        if 0 < len(drawn) < 4:
            return "Two seeds or two epochs have the same batches: draw with self.generator(epoch)."
        return ""


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
        if is_own(name):
            own_metric(name)
        self._name = name
        generator = torch.Generator().manual_seed(0)
        self._labels_N = torch.arange(60) % 12
        centres_CD = torch.randn(12, 16, generator=generator)
        self._embeddings_ND = centres_CD[self._labels_N] + 0.7 * torch.randn(60, 16, generator=generator)

    def checks(self) -> Mapping[str, Check]:
        return {
            "It is a finite number, the same each time.": self._number_problem,
            "It does not depend on the order of images.": self._order_problem,
        }

    def _value(self, order_N: Tensor) -> float:
        labels_N = self._labels_N[order_N]
        values = evaluate(self._embeddings_ND[order_N], labels_N, [self._name], superclasses_N=labels_N // 3)
        return values[metric_name(self._name)]

    def _number_problem(self) -> str:
        first, second = (self._value(torch.arange(60)) for _ in range(2))
        if not math.isfinite(first):
            return f"For 60 images of 12 classes it is {first}."
        return "" if first == second else f"It is {first}, then {second} for the same embeddings."

    def _order_problem(self) -> str:
        first, second = self._value(torch.arange(60)), self._value(torch.randperm(60))
        close = math.isclose(first, second, rel_tol=1e-5, abs_tol=1e-6)
        return "" if close else f"It is {first}, and {second} with the images in another order."
