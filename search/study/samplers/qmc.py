"""Quasi-Monte-Carlo search: the points of a Sobol sequence, which fill a space more evenly than random ones."""

import math
from collections.abc import Sequence

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from search.study.samplers.sampler import Fixed, Sampler
from spaces.space import steps
from spaces.value import Value
from trainables.spec import derived_seed


class Qmc(Sampler):
    """Trial ``n`` is point ``n - 1`` of a scrambled Sobol sequence with a dimension for every parameter.

    Optuna's ``QMCSampler`` counts its points in the study: a driver that is killed between counting and storing loses
    one; and it draws every parameter that trial 0 does not have at random. Here a condition only leaves a dimension
    unused.
    """

    summary = "points of a scrambled Sobol sequence, more even than random ones"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """The trial's point."""
        searched = self.space.searched
        if not searched or number == 0:
            return Fixed(self.space.default)
        from scipy.stats.qmc import Sobol  # takes half a second, which other samplers need not wait for

        sequence = Sobol(len(searched), scramble=True, rng=derived_seed(self.seed, self.loss, "sobol"))
        if number > 1:  # the sequence knows no way of zero
            sequence.fast_forward(number - 1)
        (point,) = sequence.random(1)
        return Fixed(
            {
                name: at(parameter.distribution, float(share))
                for (name, parameter), share in zip(searched.items(), point, strict=True)
            }
        )


def at(distribution: BaseDistribution, share: float) -> Value:
    """The value of ``distribution`` below which lies ``share``, in [0, 1), of its values (of their logarithms)."""
    if isinstance(distribution, FloatDistribution | IntDistribution) and distribution.log:
        # Whole numbers are as wide as the way to their neighbours' middles.
        margin = 0.5 if isinstance(distribution, IntDistribution) else 0.0
        low, high = math.log(distribution.low - margin), math.log(distribution.high + margin)
        value = math.exp(low + share * (high - low))
        inside = min(max(value, distribution.low), distribution.high)
        return round(inside) if isinstance(distribution, IntDistribution) else inside
    values = steps(distribution)
    if values is not None:
        return values[int(share * len(values))]
    assert isinstance(distribution, FloatDistribution)
    return distribution.low + share * (distribution.high - distribution.low)
