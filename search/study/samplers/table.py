"""The samplers: one row each."""

import math
import warnings
from collections.abc import Sequence

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from search.study.samplers.coordinate import Coordinate
from search.study.samplers.gaussian_process import GaussianProcess
from search.study.samplers.grid import Grid
from search.study.samplers.qmc import Qmc
from search.study.samplers.sampler import Sampler


class Tpe(Sampler):
    """The tree-structured Parzen estimator (Bergstra et al. 2011), multivariate."""

    summary = "tree-structured Parzen estimator over all hyperparameters together"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Optuna's. Running trials count as bad ones, so that what runs side by side differs."""
        with warnings.catch_warnings():
            # Conditional parameters (PNP's alpha) need the decomposition into groups, which Optuna calls experimental.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return TPESampler(
                seed=self.seed_of(number),
                multivariate=True,
                group=True,
                constant_liar=True,
                n_startup_trials=self.unmodelled,
            )

    @property
    def waits_for(self) -> int:
        """Those that Optuna leaves to chance."""
        return self.unmodelled


class Random(Sampler):
    """Independent draws."""

    summary = "independent draws from every range"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Optuna's."""
        return RandomSampler(seed=self.seed_of(number))


class CmaEs(Sampler):
    """The covariance matrix adaptation evolution strategy (Hansen 2016)."""

    summary = "covariance matrix adaptation: for many trials of numeric hyperparameters"
    without_pruning = "learns from complete trials alone, of which a pruner leaves few"
    models_complete = True

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Optuna's. It keeps each generation's state in the trials, so in the storage."""
        return CmaEsSampler(seed=self.seed_of(number))

    @property
    def waits_for(self) -> int:
        """The default and the first generation, 4 + ⌊3 ln d⌋ trials in d dimensions (Hansen 2016, eq. 48)."""
        return 5 + int(3 * math.log(max(1, len(self.space.searched))))

    def problems(self) -> list[str]:
        """Choices and conditional parameters, which Optuna would draw at random beside it."""
        choices = [
            f"search.sampler: cmaes moves through numbers, and {self.config_key(name)} is a choice of "
            f"{', '.join(map(str, parameter.distribution.choices))}; pin it, give it a range, or use tpe."
            for name, parameter in self.space.searched.items()
            if isinstance(parameter.distribution, CategoricalDistribution)
        ]
        return choices + self.conditions()


SAMPLERS: dict[str, type[Sampler]] = {
    "tpe": Tpe,
    "random": Random,
    "qmc": Qmc,
    "grid": Grid,
    "coordinate": Coordinate,
    "gp": GaussianProcess,
    "cmaes": CmaEs,
}
