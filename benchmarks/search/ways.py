"""The ways to search that ``make bench-search`` compares."""

from collections.abc import Sequence

from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from benchmarks.search.replay import Way
from search.study.samplers import CmaEs, GaussianProcess, Qmc, Random, Tpe

TODAY = "TPE, halving (default)"
"""The search file's defaults, with which all others are compared."""


class RandomFirst(Tpe):
    """The tree-structured Parzen estimator after random trials, the default until it began with a Sobol sequence."""

    def point_of_sobol(self, number: int) -> BaseSampler:
        """Return a sampler of random values."""
        return RandomSampler(seed=self.seed_of(number))


class OptunasTpe(Tpe):
    """Optuna's TPE with its defaults, as Ray Tune's ``OptunaSearch`` has it: each parameter alone, 10 random trials."""

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return Optuna's sampler."""
        return TPESampler(seed=self.seed_of(number))


WAYS = {
    TODAY: Way(sampler=Tpe),
    "random, then TPE, halving (the default of before)": Way(sampler=RandomFirst),
    "random": Way(sampler=Random, pruner="none"),
    "random, halving": Way(sampler=Random),
    "Sobol": Way(sampler=Qmc, pruner="none"),
    "Sobol, halving": Way(sampler=Qmc),
    "random, one epoch, then top 3": Way(sampler=Random, pruner="none", probe=3),
    "Optuna's TPE, halving": Way(sampler=OptunasTpe),
    "GP": Way(sampler=GaussianProcess, pruner="none"),
    "CMA-ES": Way(sampler=CmaEs, pruner="none"),
}
