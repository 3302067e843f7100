"""Quasi-Monte-Carlo search: the points of a Sobol sequence, which fill a space more evenly than random ones."""

from collections.abc import Sequence

from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from search.study.samplers.sampler import Fixed, Sampler
from search.study.samplers.shares import at
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
