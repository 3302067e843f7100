"""The sampler interface and the messages about proposals made without a model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from spaces.search_space import SearchSpace
from spaces.space import Float, Int, Range, Value
from trainables.spec import derived_seed


@dataclass(frozen=True, kw_only=True)
class Availability:
    """The answer to "may another trial start now?"; ``over`` is the reason if no trial will ever start again."""

    open: bool
    over: str | None = None


READY = Availability(open=True)
WAIT = Availability(open=False)


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """A method that proposes trials of ``space`` for ``loss``.

    ``seed`` is the search's, ``trials`` the planned number of trials. Trial 0, the default, is not proposed by it.

    A new Optuna sampler is built for each trial from the trial's number and the stored trials alone, so that a search
    that was killed and resumed proposes the same trials.
    """

    loss: str
    space: SearchSpace
    seed: int
    trials: int
    summary: ClassVar[str]
    without_pruning: ClassVar[str | None] = None
    """The reason why the sampler cannot be combined with a pruner."""
    one_metric: ClassVar[bool] = False
    """True if it compares trials by one metric, and knows neither further objectives nor constraints."""
    has_model: ClassVar[bool] = False
    """True if it uses a model after some startup trials."""
    models_complete: ClassVar[bool] = False
    """True if Optuna's model ignores all but complete trials."""

    @abstractmethod
    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return the Optuna sampler that proposes trial ``number``, given the study's ``trials``."""

    def availability(self, trials: Callable[[], Sequence[FrozenTrial]]) -> Availability:
        """Return whether there is something to propose; ``trials`` lists those of the study, which takes long."""
        return READY

    @property
    def size(self) -> int | None:
        """The maximum number of trials, the default included; None if unlimited."""
        return None

    def problems(self) -> list[str]:
        """Return a sentence for each property of the space that the sampler cannot handle."""
        return []

    def conditions(self) -> list[str]:
        """Return a sentence for each conditional parameter, for samplers that cannot handle them."""
        return [
            f"search.sampler: its model needs every hyperparameter in every trial, and {self.config_key(name)} exists "
            f"only for some values of {', '.join(self.space.parameters[name].when)}; pin that, or use tpe."
            for name in self.space.conditional
        ]

    def seed_of(self, number: int) -> int:
        """Return the seed of one proposal; samplers rebuilt with the same seed would repeat themselves."""
        return derived_seed(self.seed, self.loss, "proposal", number)

    @property
    def startup_trials(self) -> int:
        """The number of trials before a model is used: a quarter of those planned, at least 4 and at most 10."""
        return min(10, max(4, self.trials // 4))

    @property
    def waits_for(self) -> int | None:
        """The number of finished trials that the model needs; None for a sampler without a model."""
        return self.startup_trials if self.has_model else None

    def trials_before_model(self, slots: int) -> int:
        """Return how many trials start before the model is used, with ``slots`` trials running at once.

        Trial n starts when n + 1 - slots trials have ended. The result is 0 for a sampler without a model.
        """
        return 0 if self.waits_for is None else min(self.trials, self.waits_for + slots - 1)

    def point_of_sobol(self, number: int) -> BaseSampler:
        """Return an Optuna sampler of trial ``number``: point ``number - 1`` of the search's scrambled Sobol sequence.

        Trial 0 is the default. A condition only leaves a dimension unused.
        """
        searched = self.space.searched
        if not searched or number == 0:
            return Fixed(self.space.default)
        from scipy.stats.qmc import Sobol  # takes half a second, only spent where it is used

        sequence = Sobol(len(searched), scramble=True, rng=derived_seed(self.seed, self.loss, "sobol"))
        if number > 1:  # fast_forward(0) is an error
            sequence.fast_forward(number - 1)
        (point,) = sequence.random(1)
        return Fixed(
            {
                name: quantile(parameter, float(share))
                for (name, parameter), share in zip(searched.items(), point, strict=True)
            }
        )

    def config_key(self, name: str) -> str:
        """Return the key of a parameter in the search file."""
        return f"space.{name}" if "." in name else f"space.{self.loss}.{name}"


CAUSED_BY_PARAMS = ("DIVERGED", "OUT_OF_MEMORY")
"""The failures caused by a trial's parameters; CODE_ERROR and LOST say nothing about them."""


def failed_by_params(trial: FrozenTrial) -> bool:
    """Return True if ``trial`` failed because of its parameters, from which samplers learn."""
    failure = trial.user_attrs.get("failure")
    return trial.state == TrialState.FAIL and failure is not None and failure["cause"] in CAUSED_BY_PARAMS


class Fixed(BaseSampler):
    """An Optuna sampler that proposes given values."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return an empty space: no parameters are sampled jointly."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return no values: no parameters are sampled jointly."""
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the given value of the parameter."""
        return self._values[param_name]


def quantile(entry: Range, share: float) -> Value:
    """Return the value of ``entry`` with ``share``, in [0, 1), of its probability below it.

    Whole numbers on a logarithmic scale reach half way to their neighbours.
    """
    if isinstance(entry, Float) and entry.log:
        margin = 0.5 if isinstance(entry, Int) else 0.0
        value = Float(entry.low - margin, entry.high + margin, log=True).value_at(share)
        value = min(max(value, entry.low), entry.high)
        return round(value) if isinstance(entry, Int) else value
    if entry.steps is not None:
        return entry.steps[int(share * len(entry.steps))]
    assert isinstance(entry, Float)
    return entry.low + share * (entry.high - entry.low)


def without_model(name: str, sampler: Sampler, slots: int, studies: int = 1) -> str | None:
    """Return a sentence on the trials that ``sampler``, called ``name``, proposes without its model; None without one.

    ``studies`` share the ``slots``. A search of the default alone has nothing to propose.
    """
    waits = sampler.waits_for
    if waits is None or sampler.trials == 1 or not sampler.space.searched:
        return None
    each = -(-slots // studies)
    because = f"the model needs {waits} finished trials, and each loss runs {each} at once"
    if not is_blind(sampler, slots, studies):
        first = f"the first {sampler.trials_before_model(each)} of {sampler.trials} trials"
        return f"Sampling ({name}): {first} are proposed without the model: {because}."
    fix = f"ask for more than {waits} trials"
    if (useful := (sampler.trials - waits) * studies) > 0:
        fix = f"set search.max_concurrent to {useful} at most, or ask for more trials"
    all_trials = f"all {sampler.trials} trials are proposed without the model"
    return f"Sampling ({name}): {all_trials}: {because}. To use it, {fix}."


def is_blind(sampler: Sampler, slots: int, studies: int = 1) -> bool:
    """Return True if a sampler with a model proposes all trials without it."""
    return sampler.trials_before_model(-(-slots // studies)) >= sampler.trials
