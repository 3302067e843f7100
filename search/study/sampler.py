"""The interface of a sampler, and what all samplers share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from spaces.search_space import SearchSpace
from spaces.space import Value, steps
from trainables.spec import derived_seed

# Where a value lies in its range, as the share of the values (of their logarithms) below it, and back.


def at(distribution: BaseDistribution, share: float) -> Value:
    """The value of ``distribution`` below which lies ``share``, in [0, 1), of its values (of their logarithms)."""
    if isinstance(distribution, FloatDistribution | IntDistribution) and distribution.log:
        low, high = _logarithms(distribution)
        inside = min(max(math.exp(low + share * (high - low)), distribution.low), distribution.high)
        return round(inside) if isinstance(distribution, IntDistribution) else inside
    values = steps(distribution)
    if values is not None:
        return values[int(share * len(values))]
    assert isinstance(distribution, FloatDistribution)
    return distribution.low + share * (distribution.high - distribution.low)


def share_of(distribution: FloatDistribution | IntDistribution, value: float) -> float:
    """The share that :func:`at` makes ``value`` of; of a step or a whole number, the middle of its shares."""
    if distribution.single():
        return 0.5
    if distribution.log:
        low, high = _logarithms(distribution)
        return (math.log(value) - low) / (high - low)
    if distribution.step is None:
        return (value - distribution.low) / (distribution.high - distribution.low)
    count = round((distribution.high - distribution.low) / distribution.step) + 1
    return (round((value - distribution.low) / distribution.step) + 0.5) / count


def _logarithms(distribution: FloatDistribution | IntDistribution) -> tuple[float, float]:
    """Both ends. Whole numbers are as wide as the way to their neighbours' middles."""
    margin = 0.5 if isinstance(distribution, IntDistribution) else 0.0
    return math.log(distribution.low - margin), math.log(distribution.high + margin)


# Draws around the papers' default, which take a share of a search's trials from its sampler.
#
# Measured on hills of height 1 in four numbers and a choice, 100 searches of 16 trials: what a share of .25 changes in
# the height of what is chosen. Where the default's numbers deviate from the optimum's by .1 of their ranges it is
# +.008 ±
# .007 beside TPE and +.011 ± .004 beside random draws; by .25, -.020 ± .018 and +.056 ± .008; where it lies anywhere,
# -.037 ± .019 and -.008 ± .009. So searches do without unless asked (``make bench-statistics``).

SPREAD = 0.125
"""The deviation of a draw, as a share of the range (of its logarithms): NePS's high confidence in a default."""
WEIGHT = 6
"""How much likelier the default is than each other choice: NePS's again."""


def is_turn(share: float, seed: int, loss: str, number: int) -> bool:
    """Whether trial ``number`` of a search with ``seed`` is drawn around the default: ``share`` of all, evenly spread.

    Systematic sampling: a trial is drawn where the multiples of ``share``, from a start that the seed decides, pass a
    whole number. Of any n trials in a row ⌊n·share⌋ or one more are drawn. Trial 0 is the default itself.
    """
    start = derived_seed(seed, loss, "around the default") / 2**31
    return number > 0 and math.floor(start + number * share) > math.floor(start + (number - 1) * share)


def around_default(space: SearchSpace, seed: int) -> dict[str, Value]:
    """A value for every parameter of ``space``, independently, also for those that will not exist beside the others.

    A number is drawn from a normal distribution around the default, with the deviation ``SPREAD`` of the range, cut off
    at both ends; on logarithms where the range is logarithmic. It falls on a step in whose part of the range it lies. A
    choice is the default with ``WEIGHT`` times the probability of each other one. This is the prior of Mallik et al.,
    PriorBand, 2023, with the numbers of its program, NePS.
    """
    uniforms = np.random.default_rng(seed).random(len(space.parameters))
    return {
        name: _near(parameter.distribution, parameter.default, float(uniform))
        for (name, parameter), uniform in zip(space.parameters.items(), uniforms, strict=True)
    }


def _near(distribution: BaseDistribution, default: Value, uniform: float) -> Value:
    """The value at the quantile ``uniform``, in [0, 1), of the draws around ``default``."""
    if isinstance(distribution, CategoricalDistribution):
        weights = [WEIGHT if choice == default else 1 for choice in distribution.choices]
        return distribution.choices[int(np.searchsorted(np.cumsum(weights), uniform * sum(weights), side="right"))]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    assert isinstance(default, int | float)
    normal = NormalDist(share_of(distribution, default), SPREAD)
    low, high = normal.cdf(0), normal.cdf(1)
    share = normal.inv_cdf(low + uniform * (high - low))
    return at(distribution, min(max(share, 0.0), math.nextafter(1, 0)))


# What every sampler is: how it proposes, what it cannot do, and whether it has something left.


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether a further trial may start now, and why none ever will (None while one may)."""

    open: bool
    over: str | None = None


READY = Availability(open=True)
WAIT = Availability(open=False)


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """A way to propose trials of ``space`` for ``loss``; ``seed`` is the search's, ``trials`` how many are planned.

    ``prior`` is the share of the trials that are drawn around the default instead.

    Optuna's sampler is built anew for each trial, from the trial's number and the stored trials alone, so that a
    search that was killed goes on as if it had not been. Trial 0, the default, is no sampler's.
    """

    loss: str
    space: SearchSpace
    seed: int
    trials: int
    prior: float = 0.0
    summary: ClassVar[str]
    without_pruning: ClassVar[str | None] = None
    """Why it cannot work beside a pruner."""
    in_order: ClassVar[bool] = False
    """Whether its trials follow from each other one by one, so that no others can be among them."""
    models_complete: ClassVar[bool] = False
    """Whether Optuna's model passes over all but complete trials."""

    def sampler_of(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """What proposes trial ``number``, given the study's ``trials``: a draw around the default, or the sampler."""
        if is_turn(self.prior, self.seed, self.loss, number):
            return Fixed(around_default(self.space, self.seed_of(number)))
        return self.build(number, trials)

    @abstractmethod
    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """The sampler's own proposal of trial ``number``, given the study's ``trials``."""

    def availability(self, trials: Sequence[FrozenTrial]) -> Availability:
        """Whether it has something to propose, given the study's ``trials``."""
        return READY

    @property
    def size(self) -> int | None:
        """How many trials it has to propose at most, the default among them; None without an end."""
        return None

    def problems(self) -> list[str]:
        """What it cannot do with this space, a sentence each."""
        return []

    def conditions(self) -> list[str]:
        """That it cannot do conditional parameters, a sentence for each that there is."""
        return [
            f"search.sampler: its model needs every hyperparameter in every trial, and {self.config_key(name)} exists "
            f"only for some values of {', '.join(self.space.parameters[name].when)}; pin that, or use tpe."
            for name in self.space.conditional
        ]

    def seed_of(self, number: int) -> int:
        """The seed of one proposal: a sampler made again with the same one would repeat itself."""
        return derived_seed(self.seed, self.loss, "proposal", number)

    @property
    def unmodelled(self) -> int:
        """How many trials a model waits for: a quarter of those planned, at least 4 and at most 10."""
        return min(10, max(4, self.trials // 4))

    @property
    def waits_for(self) -> int | None:
        """How many trials have to have ended before a proposal learns from them; None where none ever does."""
        return None

    def unlearnt(self, slots: int) -> int:
        """How many trials begin before its model learns, ``slots`` at once: trial n begins when n + 1 - slots ended.

        None of a sampler without a model.
        """
        return 0 if self.waits_for is None else min(self.trials, self.waits_for + slots - 1)

    def config_key(self, name: str) -> str:
        """The key of a parameter in the search file."""
        return f"space.{name}" if name.startswith("training.") else f"space.{self.loss}.{name}"


class Fixed(BaseSampler):
    """Proposes values that are settled beforehand."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing is drawn together."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Nothing is drawn together."""
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The settled value."""
        return self._values[param_name]


# How much of a search is left to chance, because its trials begin before others have ended.


def left_to_chance(name: str, sampler: Sampler, slots: int, studies: int = 1) -> str | None:
    """One sentence on the trials that ``sampler``, called ``name``, proposes without a model; None where it has none.

    ``studies`` share the ``slots``. A search of the default alone has nothing to propose.
    """
    waits = sampler.waits_for
    if waits is None or sampler.trials == 1 or not sampler.space.searched:
        return None
    each = -(-slots // studies)
    because = f"its model needs {waits} that have ended, and each loss trains {each} at once"
    if not is_blind(sampler, slots, studies):
        blind = f"the first {sampler.unlearnt(each)} of {sampler.trials} trials"
        return f"Sampling ({name}): {blind} are left to chance: {because}."
    mend = f"ask for more than {waits} trials"
    if (useful := (sampler.trials - waits) * studies) > 0:
        mend = f"set search.max_concurrent to {useful} at most, or ask for more trials"
    return f"Sampling ({name}): all {sampler.trials} trials are left to chance: {because}. To learn from them, {mend}."


def is_blind(sampler: Sampler, slots: int, studies: int = 1) -> bool:
    """Whether a sampler with a model proposes all trials without it."""
    return sampler.unlearnt(-(-slots // studies)) >= sampler.trials
