"""Contracts of data sets and batch samplers."""

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from spaces.contract.outcome import Check, CheckOutcome, outcomes_of
from trainables.data import DATASETS, Dataset
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.data.samplers import BatchSampler
from trainables.mistakes import raise_if_any

# What is asked of a data set, built-in or one's own.


def check_dataset(dataset: str | Dataset, options: Mapping[str, Any] | None = None) -> Iterator[CheckOutcome]:
    """Whether a data set keeps the contract: a made one, or a name or import path and ``options``."""

    def load() -> Mapping[str, Check]:
        if isinstance(dataset, Dataset):
            return _DatasetContract(dataset).checks()
        raise_if_any(DATASETS.problems("The data set", dataset))
        return _DatasetContract(DATASETS[dataset](**options or {})).checks()

    return outcomes_of(load)


def _copy(dataset: Dataset) -> Dataset:
    """An equal data set that has remembered nothing."""
    return replace(dataset)  # type: ignore[type-var]


class _DatasetContract:
    """The checks of one data set."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def checks(self) -> Mapping[str, Check]:
        return {
            "It is a frozen dataclass with keywords.": self._dataclass_problem,
            "Its classes are named without opening an image.": self._unopened_problem,
            "Its classes and images are the same each time.": self._names_problem,
            "Its identity is the same in every process.": self._identity_problem,
            "Its images are uint8 RGB, and the same each time.": self._images_problem,
            "Its published halves are classes that it has.": self._halves_problem,
            "Its superclasses are of every class.": self._superclasses_problem,
            "Its test subsets are of its published test classes.": self._subsets_problem,
        }

    @property
    def _keys(self) -> list[str]:
        return [key for keys in self._dataset.classes().values() for key in keys]

    def _dataclass_problem(self) -> str:
        kind = type(self._dataset)
        if not is_dataclass(kind) or not kind.__dataclass_params__.frozen:
            return "Its class is no frozen dataclass: put @dataclass(frozen=True, kw_only=True) over it."
        positional = [entry.name for entry in fields(kind) if not entry.kw_only]
        return f"{', '.join(positional)} can be given without a name: add kw_only=True." if positional else ""

    def _unopened_problem(self) -> str:
        opened = AssertionError("classes() opens images")
        with patch.object(type(self._dataset), "read", side_effect=opened), patch("PIL.Image.open", side_effect=opened):
            try:
                _copy(self._dataset).classes()
            except AssertionError as error:
                if error is not opened:
                    raise
                return "classes() opens images: it has to name them by their files or lists alone."
        return ""

    def _names_problem(self) -> str:
        classes = self._dataset.classes()
        if not classes:
            return "classes() names no class."
        if list(classes.items()) != list(_copy(self._dataset).classes().items()):
            return "classes() gives other classes or another order when it is asked again: sort them."
        keys = self._keys
        if len(set(keys)) != len(keys):
            return f"{len(keys) - len(set(keys))} image keys come more than once: a key names one image."
        strings = all(isinstance(name, str) for name in (*classes, *keys))
        return "" if strings else "Names of classes and images must be strings."

    def _identity_problem(self) -> str:
        identity = self._dataset.identity()
        if not isinstance(identity, str) or not identity:
            return f"identity() must be a text that says which data this is; it is {identity!r}."
        sent: Dataset = pickle.loads(pickle.dumps(self._dataset))
        for other in (_copy(self._dataset), sent):
            if other.identity() != identity:
                return f"identity() is {identity!r}, and {other.identity()!r} of an equal data set."
        return "" if sent.classes() == self._dataset.classes() else "Sent to another process, it has other classes."

    def _images_problem(self) -> str:
        for key in {self._keys[0]: None, self._keys[-1]: None}:
            pixels = self._dataset.read(key)
            if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
                return f"read({key!r}) must give a uint8 array; it gives {getattr(pixels, 'dtype', type(pixels))}."
            if pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
                return f"read({key!r}) must give height × width × 3 (RGB); it gives {pixels.shape}."
            if not np.array_equal(pixels, self._dataset.read(key)):
                return f"read({key!r}) gives other pixels when it is asked again."
            if damage := self._dataset.damage(key):
                return f"damage({key!r}) is {damage!r} of an image that read() gives: it has to be None then."
            stamp = self._dataset.stamp(key)
            if not isinstance(stamp, str) or stamp != self._dataset.stamp(key):
                return f"stamp({key!r}) must be a text that changes only when the image does; it is {stamp!r}."
        return ""

    def _halves_problem(self) -> str:
        halves = self._dataset.published_split()
        if halves is None:
            return ""
        train, test = map(set, halves)
        if both := train & test:
            return f"{len(both)} classes are in both published halves."
        unknown = (train | test) - set(self._dataset.classes())
        return f"{len(unknown)} classes of the published halves are not in classes()." if unknown else ""

    def _superclasses_problem(self) -> str:
        superclass_of = self._dataset.superclasses()
        if superclass_of is None:
            return ""
        if without := [name for name in self._dataset.classes() if name not in superclass_of]:
            return f"superclasses() leaves out {len(without)} classes, {without[0]!r} among them: give each its own."
        same = dict(_copy(self._dataset).superclasses() or {}) == dict(superclass_of)
        return "" if same else "superclasses() gives others when it is asked again."

    def _subsets_problem(self) -> str:
        _, test = self._dataset.published_split() or ((), ())
        for name, classes in self._dataset.test_subsets().items():
            if unknown := set(classes) - set(test):
                return f"The test subset {name!r} has {len(unknown)} classes that published_split() does not test."
            if not name.isidentifier():
                return f"The test subset {name!r} must be called by letters, digits and '_', as in recall_at_1-small."
        return ""


# What is asked of a batch sampler, built-in or one's own.

Setting = tuple[list[int], int, int]

SETTINGS: tuple[Setting, ...] = (
    ([6] * 10, 20, 4),
    ([6] * 10, 20, 5),
    ([3, 9, 1, 5, 7, 2, 8, 4], 12, 3),
    ([8] * 4, 32, 8),
    ([40, 40], 10, 5),
)
"""Class sizes, batch size and images a class; those that the sampler's own rule forbids are left out."""


def check_batch_sampler(name: str) -> Iterator[CheckOutcome]:
    """Whether a batch sampler keeps the contract: a name or an import path."""
    return outcomes_of(lambda: _SamplerContract(name).checks())


class _SamplerContract:
    """The checks of one batch sampler."""

    def __init__(self, name: str) -> None:
        raise_if_any(BATCH_SAMPLERS.problems("The batch sampler", name))
        self._class = BATCH_SAMPLERS[name]

    def checks(self) -> Mapping[str, Check]:
        return {
            "It can fill some batches, and says which not.": self._settings_problem,
            "Its batches hold whole numbers of images, as many as asked for at most.": self._batches_problem,
            "An epoch has as many batches as its length says.": self._length_problem,
            "Its batches are a function of seed and epoch.": self._function_problem,
            "Seeds and epochs differ.": self._difference_problem,
        }

    def _settings(self) -> list[Setting]:
        return [setting for setting in SETTINGS if not self._class.problems(*setting)]

    def _sampler(self, setting: Setting, seed: int = 0) -> tuple[BatchSampler, int]:
        """The sampler of ``setting``, on labels in no order and with gaps, and the number of images."""
        sizes, batch_size, images_per_class = setting
        labels_N = torch.tensor([3 * label + 5 for label, size in enumerate(sizes) for _ in range(size)])
        labels_N = labels_N[torch.randperm(len(labels_N), generator=torch.Generator().manual_seed(7))]
        sampler = self._class(labels_N, batch_size=batch_size, images_per_class=images_per_class, seed=seed)
        return sampler, len(labels_N)

    def _settings_problem(self) -> str:
        if not self._settings():
            return "Its rule (problems) forbids ordinary batches, such as 20 of 10 classes of 6 images."
        refused = self._class.problems([2, 2], 0, 1)
        return "" if refused else "Its rule (problems) has nothing against a batch of 0 images."

    def _batches_problem(self) -> str:
        for setting in self._settings():
            sampler, images = self._sampler(setting)
            for batch_B in sampler.batches(3):
                if not isinstance(batch_B, torch.Tensor) or batch_B.dtype != torch.int64 or batch_B.ndim != 1:
                    return f"A batch must be an int64 tensor of image numbers; it is {batch_B!r:.100}."
                if not 0 < len(batch_B) <= setting[1]:
                    return f"A batch has {len(batch_B)} images where at most {setting[1]} were asked for."
                if batch_B.min() < 0 or batch_B.max() >= images:
                    return f"A batch names image {batch_B.max()} of {images}, which are counted from 0."
        return ""

    def _length_problem(self) -> str:
        for setting in self._settings():
            sampler, _ = self._sampler(setting)
            if (count := len(list(sampler.batches(1)))) != len(sampler):
                return f"An epoch has {count} batches, and len() says {len(sampler)}."
        return ""

    def _function_problem(self) -> str:
        for setting in self._settings():
            epochs = []
            for noise in range(2):
                torch.manual_seed(noise)
                sampler, _ = self._sampler(setting)
                if noise:
                    list(sampler.batches(1))  # a resumed training has not seen the epochs before
                epochs.append(list(sampler.batches(2)))
            if len(epochs[0]) != len(epochs[1]) or not all(map(torch.equal, *epochs)):
                return "The same seed and epoch give other batches when asked again: draw with self.generator(epoch)."
        return ""

    def _difference_problem(self) -> str:
        for setting in self._settings()[:1]:
            drawn = {
                tuple(tuple(batch_B.tolist()) for batch_B in self._sampler(setting, seed)[0].batches(epoch))
                for seed in (0, 1)
                for epoch in (0, 1)
            }
            if len(drawn) < 4:
                return "Two seeds or two epochs have the same batches: draw with self.generator(epoch)."
        return ""
