"""Grid search and coordinate search, which try the steps and choices of a space one by one."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from search.study.sampler import READY, WAIT, Availability, Fixed, Sampler
from spaces.space import Float, Value


class Stepwise(Sampler):
    """A sampler with a finite number of proposals, in a fixed order."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of trials; the maximum, if it depends on their values."""

    @property
    @abstractmethod
    def size_in_words(self) -> str:
        """The clause about ``size`` in an error message."""

    def values(self, name: str) -> Sequence[Value]:
        """Return the values of one parameter to try."""
        grid = self.space.parameters[name].grid
        assert grid is not None, "continuous ranges are refused"
        return grid

    def problems(self) -> list[str]:
        """Return a sentence for each range without steps, or one if there are too few trials."""
        found = []
        for name, parameter in self.space.searched.items():
            if isinstance(parameter, Float) and parameter.grid is None:
                found.append(
                    f"search.sampler: it tries steps and choices one by one, and {self.config_key(name)} is a range "
                    f"without steps ({parameter.low:g} to {parameter.high:g}); give it a step or a list of "
                    "choices, or pin it."
                )
        if not found and self.size > self.trials:
            found.append(
                f"search.trials is {self.trials} and {self.size_in_words}; ask for as many trials, or override "
                f"space.{self.loss}."
            )
        return found


class Grid(Stepwise):
    """Grid search: every combination of the steps and choices once.

    Trial ``n`` is cell ``n``: first the default, then the others with the last parameter changing fastest. Optuna's
    ``GridSampler`` is not used: it does not support conditions, stops the study itself and draws cells at random.
    """

    summary = "every combination of steps and choices, once"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return a sampler of the trial's cell."""
        return Fixed(self.cells[number])

    def availability(self, trials: Callable[[], Sequence[FrozenTrial]]) -> Availability:
        """Return READY before the last cell."""
        if len(trials()) < self.size:
            return READY
        return Availability(open=False, over=f"each of the grid's {self.size} cells has had its trial")

    @cached_property
    def cells(self) -> list[Mapping[str, Value]]:
        """All cells, the default first."""
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

    @property
    def size_in_words(self) -> str:
        """The number of cells, for an error message."""
        return f"the grid of {self.loss} has {self.size:,} cells"


class Coordinate(Stepwise):
    """Coordinate search, as in the thesis (section 5.2, Table 15): the grid of one hyperparameter after the other.

    It tries all values of a hyperparameter while the others are held, starting from the default, keeps the best value
    and continues with the next hyperparameter. The held values are not trained again: their trial takes part in the
    comparison and wins ties. The values of one hyperparameter may run concurrently; the next hyperparameter waits for
    all of them. The state follows from the stored trials, which are in the order of their proposals.
    """

    summary = "one hyperparameter after the other over its grid, the best value kept (as in Psomas, 2020)"
    without_pruning = "compares values after all epochs, which pruned trials do not reach"
    one_metric = True

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return a sampler of the next value of the current hyperparameter."""
        step = self._next(trials[:number]) if number else self.space.default
        assert not isinstance(step, Availability)
        return Fixed(step)

    def availability(self, trials: Callable[[], Sequence[FrozenTrial]]) -> Availability:
        """Return WAIT between two hyperparameters; over after the last one."""
        step = self._next(trials())
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
        return Availability(open=False, over="all values of every hyperparameter have been tried")

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

    @property
    def size_in_words(self) -> str:
        """The maximum number of trials, for an error message."""
        return f"trying all hyperparameters of {self.loss} takes up to {self.size:,} trials"
