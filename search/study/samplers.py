"""The table of samplers."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from search.study.sampler import READY, WAIT, Availability, Fixed, Sampler, failed_by_params
from spaces.space import Choice, Float, Value
from trainables.common.errors import Mistake


class Tpe(Sampler):
    """Tree-structured Parzen estimator (Bergstra et al. 2011), multivariate.

    It begins with points of the Sobol sequence, which cover the space more evenly (see ``docs/statistics.md``).
    """

    has_model = True

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return Optuna's sampler. Running trials count as bad ones, so that concurrent trials differ."""
        modelled = (TrialState.COMPLETE, TrialState.PRUNED)
        ended = sum(trial.state in modelled or failed_by_params(trial) for trial in trials)
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

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        return RandomSampler(seed=self.seed_of(number))


class Qmc(Sampler):
    """Quasi-Monte-Carlo search: trial ``n`` is point ``n - 1`` of a scrambled Sobol sequence over all parameters.

    Optuna's ``QMCSampler`` is not used: a driver that is killed between counting and storing a point skips it, and
    parameters that trial 0 does not have are drawn at random. Here a condition only leaves a dimension unused.
    """

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        return self.point_of_sobol(number)


class GaussianProcess(Sampler):
    """Gaussian process with the logarithm of the expected improvement."""

    has_model = True
    without_pruning = "models complete trials alone, and a pruner leaves few of them"
    models_complete = needs_every_parameter = True

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        return GPSampler(seed=self.seed_of(number), n_startup_trials=self.startup_trials)


class CmaEs(Sampler):
    """Covariance matrix adaptation evolution strategy (Hansen 2016)."""

    without_pruning = "learns from complete trials alone, and a pruner leaves few of them"
    without_constraints = models_complete = needs_every_parameter = True

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return Optuna's sampler. It stores each generation's state in the trials."""
        return CmaEsSampler(seed=self.seed_of(number))

    @property
    def waits_for(self) -> int:
        """The default and the first generation, 4 + ⌊3 ln d⌋ trials in d dimensions (Hansen 2016, eq. 48)."""
        return 5 + int(3 * math.log(max(1, len(self.space.searched))))

    def problems(self) -> list[Mistake]:
        """Return a mistake for each choice, which Optuna would draw at random, too."""
        before, fix = "cmaes needs numbers, and", "pin it, give it a range, or use tpe"
        choices = [
            self.mistake(before, name, f"is a choice of {', '.join(map(str, parameter.choices))}", fix)
            for name, parameter in self.space.searched.items()
            if isinstance(parameter, Choice)
        ]
        return choices + super().problems()


# Grid search and coordinate search, which try the steps and choices of a space one by one.


class Stepwise(Sampler):
    """A sampler with a finite number of proposals, in a fixed order."""

    def values(self, name: str) -> Sequence[Value]:
        """Return the values of one parameter to try."""
        grid = self.space.parameters[name].grid
        assert grid is not None, "continuous ranges are refused"
        return grid

    def problems(self) -> list[Mistake]:
        """Return a mistake for each range without steps, or one if there are too few trials."""
        before, fix = "it tries steps and choices one by one, and", "give it a step or a list of choices, or pin it"
        found = [
            self.mistake(before, name, f"is a range without steps ({parameter.low:g} to {parameter.high:g})", fix)
            for name, parameter in self.space.searched.items()
            if isinstance(parameter, Float) and parameter.grid is None
        ]
        if not found and (size := self.size or 0) > self.trials:
            text = f"is {self.trials} and trying all values of {self.loss} takes up to {size:,}"
            fix = f"ask for as many trials, or override space.{self.loss}"
            found.append(Mistake("search.trials", text, fix, ("search.trials", "search.sampler", "space")))
        return found


class Grid(Stepwise):
    """Grid search: every combination of the steps and choices once.

    Trial ``n`` is cell ``n``: first the default, then the others with the last parameter changing fastest. Optuna's
    ``GridSampler`` is not used: it does not support conditions, stops the study itself and draws cells at random.
    """

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        return Fixed(self.cells[number])

    def availability(self, trials: Sequence[FrozenTrial]) -> Availability:
        if len(trials) < self.size:
            return READY
        return Availability(over=f"each of the grid's {self.size} cells has had its trial")

    @cached_property
    def cells(self) -> list[Mapping[str, Value]]:
        default = self.space.default
        return [default, *(cell for cell in self._cells({}, list(self.space.parameters)) if cell != default)]

    def _cells(self, cell: Mapping[str, Value], names: Sequence[str]) -> Iterator[Mapping[str, Value]]:
        """Yield every completion of ``cell`` by the parameters ``names``."""
        if not names:
            yield cell
        elif not self.space.parameters[names[0]].exists(cell):
            yield from self._cells(cell, names[1:])
        else:
            for value in self.values(names[0]):
                yield from self._cells({**cell, names[0]: value}, names[1:])

    @property
    def size(self) -> int:
        """The number of cells, counted without building them: there may be billions."""
        return self._count({}, list(self.space.parameters))

    def _count(self, cell: Mapping[str, Value], names: Sequence[str]) -> int:
        if not names:
            return 1
        first, rest = names[0], names[1:]
        if not self.space.parameters[first].exists(cell):
            return self._count(cell, rest)
        values = self.values(first)
        if not any(first in self.space.parameters[name].when for name in rest):
            return len(values) * self._count(cell, rest)
        return sum(self._count({**cell, first: value}, rest) for value in values)


class Coordinate(Stepwise):
    """Coordinate search, as in the thesis (section 5.2, Table 15): the grid of one hyperparameter after the other.

    It tries all values of a hyperparameter while the others are held, starting from the default, keeps the best value
    and continues with the next hyperparameter, which waits for all of them. The held values are not trained again:
    their trial takes part in the comparison and wins ties. The state follows from the stored trials, in their order.
    """

    without_pruning = "compares values after all epochs, which pruned trials do not reach"
    without_constraints = True

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return a sampler of the next value of the current hyperparameter."""
        step = self._next(trials[:number]) if number else self.space.default
        assert not isinstance(step, Availability)
        return Fixed(step)

    def availability(self, trials: Sequence[FrozenTrial]) -> Availability:
        """Return WAIT between two hyperparameters; over after the last one."""
        step = self._next(trials)
        return step if isinstance(step, Availability) else READY

    def _next(self, trials: Sequence[FrozenTrial]) -> Mapping[str, Value] | Availability:
        held: Mapping[str, Value] = self.space.default
        rivals, begun = list(trials[:1]), 1
        for name in self.space.searched:
            if begun > 1:
                if not all(trial.state.is_finished() for trial in rivals):
                    return WAIT
                if complete := [trial for trial in rivals if trial.state == TrialState.COMPLETE]:
                    best = max(complete, key=lambda trial: trial.values[0])  # the held values win ties
                    held, rivals = best.params, [best]
            if name not in held:
                continue
            others = self._others(held, name)
            turn = trials[begun : begun + len(others)]
            if len(turn) < len(others):
                return self.space.complete({**held, name: others[len(turn)]})
            rivals += turn
            begun += len(turn)
        return Availability(over="all values of every hyperparameter have been tried")

    def _others(self, held: Mapping[str, Value], name: str) -> list[Value]:
        return [value for value in self.values(name) if value != held[name]]

    @property
    def size(self) -> int:
        """The default and all values except the held ones, for the choices that lead to the most."""
        return 1 + self._longest(self.space.default, list(self.space.searched))

    def _longest(self, held: Mapping[str, Value], names: Sequence[str]) -> int:
        if not names:
            return 0
        name, rest = names[0], names[1:]
        if name not in held:
            return self._longest(held, rest)
        others = self._others(held, name)
        decides = any(name in self.space.parameters[later].when for later in rest)
        ways = [held[name], *others] if decides else [held[name]]
        return len(others) + max(self._longest(self.space.complete({**held, name: value}), rest) for value in ways)
