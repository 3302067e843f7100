"""Draws around the papers' default, which take a share of a search's trials from its sampler.

Measured on hills of height 1 in four numbers and a choice, 100 searches of 16 trials: what a share of .25 changes in
the height of what is chosen. Where the default's numbers deviate from the optimum's by .1 of their ranges it is +.008 ±
.007 beside TPE and +.011 ± .004 beside random draws; by .25, -.020 ± .018 and +.056 ± .008; where it lies anywhere,
-.037 ± .019 and -.008 ± .009. So searches do without unless asked (``make bench-statistics``).
"""

import math
from statistics import NormalDist

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from search.study.samplers.shares import at, share_of
from spaces.search_space import SearchSpace
from spaces.value import Value
from trainables.spec import derived_seed

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
