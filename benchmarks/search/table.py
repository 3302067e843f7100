"""A table of real trainings, and the curves that a replayed search draws from it.

Nearest rows: the samplers propose from the whole space, and the configuration of the table that is nearest to a
proposal is trained in its place and stored with its own parameters, so that a model learns from what was trained.
Distances are Euclidean; a range has length 1 (on a log scale if it is one), and another choice, or a parameter that
only one of both has, is 1 away. Proposals are not restricted to rows without a trial: the tables are small, and a
search of as many trials as there are rows would find the best one without any skill.

Legend: C configurations, S seeds, E epochs, V validation classes, K classes of the training half.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import json_to_distribution
from pyarrow import parquet
from scipy.stats import spearmanr
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from spaces.search_space import SearchSpace
from spaces.space import Float, Params, Space, Value
from trainables.common.ranges import range_of

Floats = NDArray[np.float64]

KEY = b"holdout"
"""The key of the file's metadata."""

ALIKE = 8
"""Noise is drawn from that of this many rows with the nearest mean value."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """The trainings of one loss on one division of a data set; configuration 0 is the default.

    Attributes:
        validation: the validation value after each epoch, [C, S, E]; NaN from the epoch on in which it diverged.
        test: the value of the test classes at the best validated epoch, [C, S]; NaN without an epoch.
        split: the value of each validation class there, the mean over seeds, [C, V]; NaN if a training diverged.
        halves: the value of each class of the training half by a model of the other half, [C, K]; the same.
        first: the number of classes of the first half.
        halved: the validation value after each epoch of training on the other half, [C, 2, E]; the same.
        about: the metadata, which say how the table was made.
    """

    name: str
    space: SearchSpace
    configurations: tuple[Params, ...]
    validation: Floats
    test: Floats
    split: Floats
    halves: Floats
    first: int
    halved: Floats
    about: Mapping[str, Any]

    @property
    def epochs(self) -> int:
        """The number of epochs of a whole training."""
        return self.validation.shape[-1]

    @cached_property
    def worth(self) -> Floats:
        """What each configuration is worth, [C]: the mean value of the test classes over seeds, in points.

        A training that diverged is worth what its best epoch was, 0 without one.
        """
        return 100 * np.nan_to_num(self.test).mean(1)

    def gain(self, configuration: int) -> float:
        """Return what a configuration is worth more than the default, in points."""
        return float(self.worth[configuration] - self.worth[0])

    def best(self, configurations: Sequence[int]) -> float:
        """Return what the best of some configurations gains; too much, since it is the best of noisy means."""
        return max(map(self.gain, configurations))

    def best_of_one_seed(self, configurations: Sequence[int]) -> float:
        """Return what the best configuration by one seed gains by the other ones; too little: one seed errs more."""
        tests = 100 * np.nan_to_num(self.test)[list(configurations)]
        others = (tests.sum(1, keepdims=True) - tests) / (tests.shape[1] - 1)
        return float(np.take_along_axis(others, tests.argmax(0, keepdims=True), 0).mean() - self.worth[0])

    # What validation says about it.

    @cached_property
    def validated(self) -> Floats:
        """The value of each training, [C, S]: its highest validation; 0 without an epoch."""
        return np.where(np.isnan(self.validation), 0, self.validation).max(-1)

    @property
    def noise(self) -> float:
        """The standard deviation of a training's test value over seeds, in points."""
        return 100 * float(np.sqrt(np.nan_to_num(self.test).var(1, ddof=1).mean()))

    def correlation(self, values_C: Floats) -> float:
        """Return the rank correlation of a value of each configuration with its worth."""
        return float(spearmanr(np.nan_to_num(values_C), self.worth).statistic)

    # What a training would report.

    @cached_property
    def _means(self) -> Floats:
        """The mean curves over the seeds, [C, E]; NaN where no seed came so far."""
        known = ~np.isnan(self.validation)
        sums = np.nan_to_num(self.validation).sum(1)
        return np.where(known.any(1), sums / np.maximum(known.sum(1), 1), np.nan)

    @cached_property
    def _alike(self) -> NDArray[np.int64]:
        """The rows, [C, ALIKE], whose mean values at the end are the nearest, without those that diverge."""
        ends = self._means[:, -1]
        distances = np.abs(ends[:, None] - ends[None])
        whole = ~np.isnan(self.validation).any((1, 2))
        return np.where(whole[None], distances, np.inf).argsort(1, kind="stable")[:, :ALIKE]

    def curve(self, configuration: int, generator: np.random.Generator) -> Floats:
        """Draw the validation values of a training, [E], or fewer if it diverges.

        It is the mean curve of the row with noise: that of one of the rows with a similar value, whose seeds' deviation
        from their mean is added with a random sign, scaled to the variance of one training. So there are as many fresh
        seeds as a search asks for.
        """
        own = self.validation[configuration, generator.integers(self.validation.shape[1])]
        if np.isnan(own).any():
            return own[: int(np.isnan(own).argmax())]
        return self._means[configuration] + self._deviation(configuration, generator)

    def half_curve(self, configuration: int, half: int, generator: np.random.Generator) -> Floats:
        """Draw the validation values of a training that a half (0 or 1) of the classes validates, as :meth:`curve`.

        The deviation is that of seeds on the fixed split, whose fewer classes make it larger.
        """
        own = self.halved[configuration, half]
        if np.isnan(own).any():
            return own[: int(np.isnan(own).argmax())]
        return own + self._deviation(configuration, generator)

    def _deviation(self, configuration: int, generator: np.random.Generator) -> Floats:
        seeds = self.validation.shape[1]
        row = generator.choice(self._alike[configuration])
        deviation = self.validation[row, generator.integers(seeds)] - self._means[row]
        noise: Floats = generator.choice((-1, 1)) * deviation * (seeds / (seeds - 1)) ** 0.5
        return noise

    # The nearest row.

    def nearest(self, params: Mapping[str, Value]) -> int:
        """Return the configuration that is nearest to ``params``."""
        return int(((self._points - self._point(params)) ** 2).sum(1).argmin())

    def best_predicted(self, values: Mapping[int, float]) -> int:
        """Return the configuration with the best mean of a Gaussian process that is fitted to ``values``."""
        tried = list(values)
        kernel = ConstantKernel() * Matern(nu=2.5) + WhiteKernel()
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(self._points[tried], list(values.values()))
        return tried[int(process.predict(self._points[tried]).argmax())]

    def number(self, params: Mapping[str, Value]) -> int:
        """Return the number of a configuration by its parameters."""
        return self._numbers[Params(dict(params))]

    @cached_property
    def _numbers(self) -> dict[Params, int]:
        return {params: number for number, params in reversed(list(enumerate(self.configurations)))}

    @cached_property
    def _points(self) -> Floats:
        return np.stack([self._point(params) for params in self.configurations])

    def _point(self, params: Mapping[str, Value]) -> Floats:
        """Return coordinates whose distances are those described above."""
        point: list[float] = []
        for name, parameter in self.space.searched.items():
            if isinstance(parameter, Float):
                there = name in params
                place = parameter.position(params[name]) if there else 0.5
                point += [place, float(there)] if parameter.when else [place]
            else:  # two choices are 1 apart
                point += [np.sqrt(0.5) * (params.get(name) == choice) for choice in parameter.ends]
        return np.array(point)


def read_table(path: Path) -> Table:
    """Read a table written by :mod:`benchmarks.search.tables`."""
    content = parquet.read_table(path)
    about = json.loads(content.schema.metadata[KEY])
    rows = content.to_pylist()
    count, seeds = (1 + max(row[key] for row in rows) for key in ("configuration", "seed"))
    validation, test = np.full((count, seeds, about["epochs"]), np.nan), np.full((count, seeds), np.nan)
    halved = np.full((count, 2, about["epochs"]), np.nan)
    classes: dict[tuple[int, int], list[list[float]]] = {}
    for row in rows:
        whole = len(row["validation"]) == about["epochs"]
        classes.setdefault((row["configuration"], row["half"]), []).append(row["classes"] if whole else [np.nan])
        if half := row["half"]:
            halved[row["configuration"], half - 1][: len(row["validation"])] = row["validation"]
        else:
            at = row["configuration"], row["seed"]
            validation[at][: len(row["validation"])] = row["validation"]
            test[at] = np.nan if row["test"] is None else row["test"]
    split, first, second = (
        [
            sum(np.array(values) for values in classes[number, half]) / len(classes[number, half])
            for number in range(count)
        ]
        for half in (0, 1, 2)
    )
    halves = [np.concatenate(pair) for pair in zip(first, second, strict=True)]
    parameters: Space = {
        name: replace(
            range_of(json_to_distribution(entry["distribution"])),
            default=entry["default"],
            source=entry["source"],
            when={other: tuple(choices) for other, choices in entry["when"].items()},
        )
        for name, entry in about["parameters"].items()
    }
    return Table(
        name=path.stem,
        space=SearchSpace(parameters=parameters, declared=parameters),
        configurations=tuple(map(Params, about["configurations"])),
        about=about,
        validation=validation,
        test=test,
        split=_filled(split),
        halves=_filled(halves),
        first=max(map(len, first)),
        halved=halved,
    )


def _filled(rows: Sequence[Floats]) -> Floats:
    """Return an array of the rows; one that is not whole, because a training diverged, is NaN."""
    width = max(map(len, rows))
    return np.stack([row if len(row) == width else np.full(width, np.nan) for row in rows])
