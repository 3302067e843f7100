"""Where proposals come from: one row a sampler.

A sampler is made anew for each trial, from the stored trials and the trial's number alone, so that a search that was
killed goes on as if it had not been.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from spaces.search_space import SearchSpace
from trainables.spec import derived_seed


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """A way to propose trials of ``space`` for ``loss``; ``seed`` is the search's, ``trials`` how many are planned."""

    loss: str
    space: SearchSpace
    seed: int
    trials: int
    summary: ClassVar[str]

    @abstractmethod
    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """What proposes trial ``number``, given the study's ``trials``."""

    def seed_of(self, number: int) -> int:
        """The seed of one proposal: a sampler made again with the same one would repeat itself."""
        return derived_seed(self.seed, self.loss, "proposal", number)

    @property
    def unmodelled(self) -> int:
        """How many trials a model waits for: a quarter of those planned, at least 4 and at most 10."""
        return min(10, max(4, self.trials // 4))


class Tpe(Sampler):
    """The tree-structured Parzen estimator (Bergstra et al. 2011), multivariate."""

    summary = "tree-structured Parzen estimator, all hyperparameters together"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Optuna's. Running trials count as bad ones, so that neighbours in time do not propose the same."""
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


class Random(Sampler):
    """Independent draws."""

    summary = "independent draws from every range"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Optuna's."""
        return RandomSampler(seed=self.seed_of(number))


SAMPLERS: dict[str, type[Sampler]] = {"tpe": Tpe, "random": Random}
