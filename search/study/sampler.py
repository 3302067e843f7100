"""The sampler interface, and the limits on the trials and epochs that a study trains."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState

from search.trials import Tally
from spaces.search_space import SearchSpace
from spaces.space import Float, Int, Range, Value
from trainables.common.errors import Mistake
from trainables.training.spec import derived_seed


@dataclass(frozen=True, kw_only=True)
class Availability:
    """The answer to "may another trial start now?"; ``over`` is the reason if no trial will ever start again."""

    open: bool = False
    over: str | None = None


READY = Availability(open=True)
WAIT = Availability()


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """A method that proposes trials of ``space`` for ``loss``, except trial 0, the default.

    ``seed`` is the search's, ``trials`` the planned number of trials. A new Optuna sampler is built for each trial from
    its number and the stored trials alone, so that a search that was killed and resumed proposes the same trials.
    """

    loss: str
    space: SearchSpace
    seed: int
    trials: int
    without_pruning: ClassVar[str | None] = None
    """The reason why the sampler cannot be combined with a pruner."""
    without_constraints: ClassVar[bool] = False
    """True if it compares trials by the objective alone."""
    has_model: ClassVar[bool] = False
    """True if it uses a model after some startup trials."""
    models_complete: ClassVar[bool] = False
    """True if Optuna's model ignores all but complete trials."""
    needs_every_parameter: ClassVar[bool] = False
    """True if Optuna would draw conditional parameters at random."""

    @abstractmethod
    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return the Optuna sampler that proposes trial ``number``, given all trials of the study so far."""

    def availability(self, trials: Sequence[FrozenTrial]) -> Availability:
        """Return whether there is something to propose, given all trials of the study so far."""
        return READY

    @property
    def size(self) -> int | None:
        """The maximum number of trials, the default included; None if unlimited."""
        return None

    def problems(self) -> list[Mistake]:
        """Return a mistake for each property of the space that the sampler cannot handle."""
        conditional = self.space.conditional if self.needs_every_parameter else ()
        before, fix = "its model needs every hyperparameter in every trial, and", "pin that, or use tpe"
        ends = {name: ", ".join(self.space.parameters[name].when) for name in conditional}
        return [self.mistake(before, name, f"exists only for some values of {end}", fix) for name, end in ends.items()]

    def mistake(self, before: str, name: str, after: str, fix: str) -> Mistake:
        """Return a mistake of the parameter ``name``, for which this is the wrong sampler."""
        key = f"space.{name}" if "." in name else f"space.{self.loss}.{name}"
        return Mistake("search.sampler", f": {before} {key} {after}", fix, ("search.sampler", key))

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
        """Return how many trials start before a model is used, with ``slots`` trials at once; 0 without a model."""
        # Trial n starts when n + 1 - slots trials have ended.
        return 0 if self.waits_for is None else min(self.trials, self.waits_for + slots - 1)

    def point_of_sobol(self, number: int) -> BaseSampler:
        """Return an Optuna sampler of trial ``number``, point ``number - 1`` of a scrambled Sobol sequence."""
        searched = self.space.searched
        if not searched or number == 0:
            return Fixed(self.space.default)
        from scipy.stats.qmc import Sobol  # takes half a second, only spent where it is used

        sequence = Sobol(len(searched), scramble=True, rng=derived_seed(self.seed, self.loss, "sobol"))
        if number > 1:  # fast_forward(0) is an error
            sequence.fast_forward(number - 1)
        (point,) = sequence.random(1)
        values = map(quantile, searched.values(), map(float, point))
        return Fixed(dict(zip(searched, values, strict=True)))


CAUSED_BY_PARAMS = ("DIVERGED", "OUT_OF_MEMORY")
"""The failures caused by a trial's parameters; CODE_ERROR and LOST say nothing about them."""


def failed_by_params(trial: FrozenTrial) -> bool:
    """Return True if ``trial`` failed because of its parameters, from which samplers learn."""
    failure = trial.user_attrs.get("failure")
    return trial.state == TrialState.FAIL and failure is not None and failure["cause"] in CAUSED_BY_PARAMS


class Fixed(RandomSampler):
    """An Optuna sampler that proposes given values; as the random one, it samples no parameters jointly."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        super().__init__()
        self._values = values

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
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


# The limits of a study.

STOPPED = "further ones would fail in the same way"
MS = 3_600_000
"""Milliseconds of an hour."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limits of a loss's study: at most ``trials`` trials and, if set, ``epochs`` epochs and ``hours`` of training.

    A finished trial counts with the epochs that it trained, a running one with a whole training, ``epochs_each``; so a
    loss trains its budget and less than one training more, no matter how many trials run at once. Hours are the sum
    over all recorded epochs, not the time of the clock, and the rest of a running trial is predicted from their mean.
    ``sampler`` may have nothing to propose for now, or at all; with one, :data:`STOPPED` ends a study.
    """

    trials: int
    epochs: int | None = None
    epochs_each: int = 0
    hours: float | None = None
    sampler: Sampler | None = None

    def availability(self, trials: Sequence[FrozenTrial], tally: Tally | None = None) -> Availability:
        """Return whether another trial of the study may start; ``tally`` saves counting its ``trials``."""
        tally = tally or Tally.of(trials)
        if tally.started >= self.trials:
            return Availability(over=f"{self.trials} trials were asked for")
        if self.sampler and tally.stopped:
            return WAIT if tally.running else Availability(over=STOPPED)
        to_train = tally.running * self.epochs_each - tally.epochs_running
        if self.epochs is not None:
            if tally.epochs >= self.epochs:
                return Availability(over=f"{tally.epochs} epochs are trained, and its budget is {self.epochs}")
            if tally.epochs + to_train >= self.epochs:
                return WAIT
        if self.hours is not None:
            left_ms = self.hours * MS - tally.work_ms
            if left_ms <= 0:
                done = f"{tally.work_ms / MS:.2f} hours are trained"
                return Availability(over=f"{done}, and its budget is {self.hours:g}")
            if tally.epochs and to_train * tally.work_ms / tally.epochs >= left_ms:
                return WAIT
        # Trial 0 is not the sampler's: it is enqueued, or about to be.
        return READY if self.sampler is None or not tally.started else self.sampler.availability(trials)

    def epochs_left(self, tally: Tally, seconds: float | None) -> float:
        """Return the maximum number of epochs left, infinity without a limit; ``seconds`` is the time of an epoch."""
        left: list[float] = [] if self.epochs is None else [self.epochs - tally.epochs]
        if self.hours is not None and seconds:
            left.append((self.hours * MS - tally.work_ms) / 1000 / seconds)
        return max(0.0, min(left, default=math.inf))

    @property
    def most(self) -> int:
        size = self.sampler.size if self.sampler else None
        return self.trials if size is None else min(self.trials, size)

    def problems(self) -> list[Mistake]:
        """Return a mistake for each limit that cannot work."""
        found = self.sampler.problems() if self.sampler else []
        if self.epochs is not None and self.epochs < self.epochs_each:
            text = f"gives each loss {self.epochs} and one training takes {self.epochs_each}"
            fix = "give each a budget for the default at least, or leave it null"
            keys = ("search.epochs", "training.epochs", "split.folds")
            found.append(Mistake("search.epochs", text, fix, keys))
        return found

    def done(self, trials: Sequence[FrozenTrial], tally: Tally | None = None) -> bool:
        """Return True if there is nothing left to start or to wait for; ``tally`` as of :meth:`availability`."""
        tally = tally or Tally.of(trials)
        return not tally.running and self.availability(trials, tally).over is not None

    def early_end(self, trials: Sequence[FrozenTrial]) -> str | None:
        """Return why a finished search has fewer than ``trials`` trials; None if it has all or is not finished."""
        return self.availability(trials).over if len(trials) < self.trials and self.done(trials) else None
