"""The table of samplers."""

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import CategoricalDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from search.study.sampler import Fixed, Sampler, at
from search.study.stepwise_samplers import Coordinate, Grid
from trainables.spec import derived_seed

if TYPE_CHECKING:
    from optuna._gp.acqf import BaseAcquisitionFunc


# Gaussian process search whose incumbent is the best posterior mean, and not the luckiest value.


class PosteriorMeanGPSampler(GPSampler):
    """Optuna's sampler with another incumbent: expected improvement with a plug-in.

    Optuna (5.0) fits the noise of the values, and yet asks what may exceed the highest of them, which luck made. Here
    it asks what may exceed the highest posterior mean of the trials, T = max_i m_n(x_i) in Picheny et al., A benchmark
    of kriging-based infill criteria for noisy optimization, 2013, section 3.1.

    Measured on hills of height 1 in three dimensions, 16 searches of 16 trials: what the model proposes lies .05 ± .02
    higher with noise of .05, .09 ± .03 with .15. The highest trial is no higher (-.03 ± .02, -.02 ± .02), so this
    wastes fewer trials and finds no better ones (``make bench-statistics``).
    """

    def _optimize_acqf(
        self, acqf: "BaseAcquisitionFunc", best_params: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        from optuna._gp.acqf import LogEI, qLogEI  # imports torch

        assert self._gprs_cache_list is not None
        assert isinstance(acqf, LogEI | qLogEI), "one objective without constraints"
        (model,) = self._gprs_cache_list
        tried = model._X_train
        means, _ = model.posterior(tried)
        best = int(means.argmax())
        acqf._threshold = float(means[best])
        return super()._optimize_acqf(acqf, tried[best].numpy()[np.newaxis])


class GaussianProcess(Sampler):
    """A Gaussian process and the logarithm of its expected improvement."""

    summary = "Gaussian process with expected improvement on its best mean: for few, expensive trials"
    without_pruning = "models complete trials alone, of which a pruner leaves few"
    models_complete = True

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Optuna's, with our incumbent."""
        return PosteriorMeanGPSampler(seed=self.seed_of(number), n_startup_trials=self.unmodelled)

    @property
    def waits_for(self) -> int:
        """Those that Optuna leaves to chance."""
        return self.unmodelled

    def problems(self) -> list[str]:
        """Conditional parameters, which Optuna would draw at random beside the model."""
        return self.conditions()


# Quasi-Monte-Carlo search: the points of a Sobol sequence, which fill a space more evenly than random ones.


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


# The samplers: one row each.


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
