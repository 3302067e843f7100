"""A table of real trainings, and the curves that a replayed search draws from it.

Nearest rows: the samplers propose from the whole space, and the configuration of the table that is nearest to a
proposal is trained in its place and stored with its own parameters, so that a model learns from what was trained.
Distances are Euclidean; a range has length 1 (on a log scale if it is one), and another choice, or a parameter that
only one of both has, is 1 away. Proposals are not restricted to rows without a trial: the tables are small, and a
search of as many trials as there are rows would find the best one without any skill.

Legend: C configurations, D divisions of the classes, S seeds, E epochs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution, IntDistribution, json_to_distribution
from pyarrow import parquet

from spaces.search_space import SearchSpace
from spaces.space import Parameter, Params, Space, Value, position

Floats = NDArray[np.float64]

KEY = b"holdout"
"""The key of the file's metadata."""

ALIKE = 8
"""Noise is drawn from that of this many rows with the nearest mean value."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """The trainings of one loss on one data set; configuration 0 is the default.

    Attributes:
        validation: the validation value after each epoch, [C, D, S, E]; NaN from the epoch on in which it diverged.
        other: the value of the other classes at the best validated epoch, [C, D, S]; NaN without an epoch.
        about: the metadata, which say how the table was made.
    """

    name: str
    space: SearchSpace
    configurations: tuple[Params, ...]
    validation: Floats
    other: Floats
    about: Mapping[str, Any]

    @property
    def epochs(self) -> int:
        """The number of epochs of a whole training."""
        return self.validation.shape[-1]

    @property
    def divisions(self) -> int:
        """The number of divisions of the classes."""
        return self.validation.shape[1]

    @cached_property
    def worth(self) -> Floats:
        """What each configuration is worth, [C]: the mean of the other classes over divisions and seeds.

        A training that diverged is worth what its best epoch was, 0 without one.
        """
        return np.nan_to_num(self.other).mean((1, 2))

    def regret(self, configuration: int) -> float:
        """Return what a configuration is worth less than the best one, in points."""
        return 100 * float(self.worth.max() - self.worth[configuration])

    # What validation says about it.

    @cached_property
    def validated(self) -> Floats:
        """The value of each training, [C, D, S]: its highest validation; 0 without an epoch."""
        return np.where(np.isnan(self.validation), 0, self.validation).max(-1)

    @property
    def noise(self) -> float:
        """The standard deviation of a value over seeds, in points."""
        return 100 * float(np.sqrt(self.validated.var(2, ddof=1).mean()))

    @property
    def correlation(self) -> float:
        """The correlation of a configuration's mean value on a division with its worth, the mean over divisions."""
        values_CD = self.validated.mean(2)
        return float(np.mean([np.corrcoef(values_C, self.worth)[0, 1] for values_C in values_CD.T]))

    @property
    def floor(self) -> float:
        """The regret of the configuration with the highest mean value on a division, the mean over divisions."""
        return float(np.mean([self.regret(int(row)) for row in self.validated.mean(2).argmax(0)]))

    # What a training would report.

    @cached_property
    def _means(self) -> Floats:
        """The mean curves over the seeds, [C, D, E]; NaN where no seed came so far."""
        known = ~np.isnan(self.validation)
        sums = np.nan_to_num(self.validation).sum(2)
        return np.where(known.any(2), sums / np.maximum(known.sum(2), 1), np.nan)

    @cached_property
    def _alike(self) -> NDArray[np.int64]:
        """The rows, [C, D, ALIKE], whose mean values at the end are the nearest, without those that diverge."""
        ends = self._means[:, :, -1]
        distances = np.abs(ends[:, None] - ends[None])
        whole = ~np.isnan(self.validation).any((2, 3))
        return np.where(whole[None], distances, np.inf).argsort(1, kind="stable")[:, :ALIKE].transpose(0, 2, 1)

    def curve(self, configuration: int, division: int, generator: np.random.Generator) -> Floats:
        """Draw the validation values of a training, [E], or fewer if it diverges.

        It is the mean curve of the row with noise: that of one of the rows with a similar value, whose seeds' deviation
        from their mean is added with a random sign, scaled to the variance of one training. So there are as many fresh
        seeds as a search asks for.
        """
        seed = generator.integers(self.validation.shape[2])
        own = self.validation[configuration, division, seed]
        if np.isnan(own).any():
            return own[: int(np.isnan(own).argmax())]
        seeds = self.validation.shape[2]
        mean = self._means[configuration, division]
        if seeds == 1:
            return mean
        row = generator.choice(self._alike[configuration, division])
        deviation = self.validation[row, division, generator.integers(seeds)] - self._means[row, division]
        return mean + generator.choice((-1, 1)) * deviation * (seeds / (seeds - 1)) ** 0.5

    # The nearest row.

    def nearest(self, params: Mapping[str, Value]) -> int:
        """Return the configuration that is nearest to ``params``."""
        return int(((self._points - self._point(params)) ** 2).sum(1).argmin())

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
            distribution = parameter.distribution
            if isinstance(distribution, FloatDistribution | IntDistribution):
                there = name in params
                place = position(distribution, params[name]) if there else 0.5  # type: ignore[arg-type]
                point += [place, float(there)] if parameter.when else [place]
            else:  # two choices are 1 apart
                point += [np.sqrt(0.5) * (params.get(name) == choice) for choice in distribution.choices]  # type: ignore[attr-defined]
        return np.array(point)


def read_table(path: Path) -> Table:
    """Read a table written by :mod:`benchmarks.search.tables`."""
    content = parquet.read_table(path)
    about = json.loads(content.schema.metadata[KEY])
    rows = content.to_pylist()
    shape = tuple(1 + max(row[key] for row in rows) for key in ("configuration", "division", "seed"))
    validation, other = np.full((*shape, about["epochs"]), np.nan), np.full(shape, np.nan)
    for row in rows:
        at = row["configuration"], row["division"], row["seed"]
        validation[at][: len(row["validation"])] = row["validation"]
        if row["other"] is not None:
            other[at] = row["other"]
    parameters: Space = {
        name: Parameter(
            distribution=json_to_distribution(entry["distribution"]),
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
        other=other,
    )
