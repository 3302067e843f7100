"""Gaussian process search."""

from collections.abc import Sequence

from optuna.samplers import BaseSampler, GPSampler
from optuna.trial import FrozenTrial

from search.study.samplers.sampler import Sampler


class GaussianProcess(Sampler):
    """A Gaussian process and the logarithm of its expected improvement."""

    summary = "Gaussian process with expected improvement: for few, expensive trials"
    without_pruning = "models complete trials alone, of which a pruner leaves few"
    models_complete = True

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Optuna's."""
        return GPSampler(seed=self.seed_of(number), n_startup_trials=self.unmodelled)

    @property
    def waits_for(self) -> int:
        """Those that Optuna leaves to chance."""
        return self.unmodelled

    def problems(self) -> list[str]:
        """Conditional parameters, which Optuna would draw at random beside the model."""
        return self.conditions()
