"""The table of samplers."""

import math
import warnings
from collections.abc import Sequence

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from search.study.sampler import Sampler, failed_by_params
from spaces.space import Choice

MODELLED = (TrialState.COMPLETE, TrialState.PRUNED)
"""The states of the trials that Optuna's TPE counts before it uses its model."""


class Tpe(Sampler):
    """Tree-structured Parzen estimator (Bergstra et al. 2011), multivariate.

    It begins with points of the Sobol sequence in place of random ones, which cover the space more evenly. Replayed
    from tables of trainings, with pruning, searches of 8, 16 and 32 Sobol points gain 0.69, 0.82 and 0.89 points over
    the default, random ones 0.55, 0.72 and 0.89, and this sampler 0.62, 0.74 and 0.78
    (``python -m benchmarks choice``).
    """

    summary = "tree-structured Parzen estimator over all hyperparameters together, after points of a Sobol sequence"
    has_model = True

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return Optuna's sampler. Running trials count as bad ones, so that concurrent trials differ."""
        ended = sum(trial.state in MODELLED or failed_by_params(trial) for trial in trials)
        if ended < self.startup_trials:
            return self.point_of_sobol(number)
        with warnings.catch_warnings():
            # Conditional parameters (PNP's alpha) need the decomposition into groups, which is experimental in Optuna.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return TPESampler(
                seed=self.seed_of(number),
                multivariate=True,
                group=True,
                constant_liar=True,
                n_startup_trials=self.startup_trials,
            )


class Random(Sampler):
    """Independent draws."""

    summary = "independent draws from every range"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        return RandomSampler(seed=self.seed_of(number))


class Qmc(Sampler):
    """Quasi-Monte-Carlo search: trial ``n`` is point ``n - 1`` of a scrambled Sobol sequence over all parameters.

    Optuna's ``QMCSampler`` is not used: it counts its points in the study, so that a driver that is killed between
    counting and storing skips one, and it draws every parameter that trial 0 does not have at random. Here a condition
    only leaves a dimension unused.
    """

    summary = "points of a scrambled Sobol sequence, more even than random ones"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return a sampler of the trial's point."""
        return self.point_of_sobol(number)


class GaussianProcess(Sampler):
    """Gaussian process with the logarithm of the expected improvement."""

    summary = "Gaussian process with expected improvement: for few, expensive trials"
    has_model = True
    without_pruning = "models complete trials alone, and a pruner leaves few of them"
    models_complete = True

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        return GPSampler(seed=self.seed_of(number), n_startup_trials=self.startup_trials)

    def problems(self) -> list[str]:
        """Return a sentence for each conditional parameter: Optuna would draw it at random."""
        return self.conditions()


class CmaEs(Sampler):
    """Covariance matrix adaptation evolution strategy (Hansen 2016)."""

    summary = "covariance matrix adaptation: for many trials of numeric hyperparameters"
    without_pruning = "learns from complete trials alone, and a pruner leaves few of them"
    one_metric = True
    models_complete = True

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return Optuna's sampler. It stores each generation's state in the trials."""
        return CmaEsSampler(seed=self.seed_of(number))

    @property
    def waits_for(self) -> int:
        """The default and the first generation, 4 + ⌊3 ln d⌋ trials in d dimensions (Hansen 2016, eq. 48)."""
        return 5 + int(3 * math.log(max(1, len(self.space.searched))))

    def problems(self) -> list[str]:
        """Return a sentence for each choice or conditional parameter: Optuna would draw them at random."""
        choices = [
            f"search.sampler: cmaes needs numbers, and {self.config_key(name)} is a choice of "
            f"{', '.join(map(str, parameter.choices))}; pin it, give it a range, or use tpe."
            for name, parameter in self.space.searched.items()
            if isinstance(parameter, Choice)
        ]
        return choices + self.conditions()
