"""What every sampler is: how it proposes, what it cannot do, and whether it has something left."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from search.study.samplers.around_default import around_default, is_turn
from spaces.search_space import SearchSpace
from spaces.value import Value
from trainables.spec import derived_seed


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
