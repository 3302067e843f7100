"""Grid search and coordinate search, which go through the steps of a space one by one."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from search.study.sampler import READY, WAIT, Availability, Fixed, Sampler
from search.trials import configuration_of
from spaces.space import Value

# What grid and coordinate search share: they go over steps and choices one by one, and come to an end.


class Stepwise(Sampler):
    """A sampler with a finite number of proposals."""

    in_order = True

    @property
    @abstractmethod
    def size(self) -> int:
        """How many trials it takes; the most, where that depends on their values."""

    @property
    @abstractmethod
    def size_told(self) -> str:
        """``size``, in words."""

    def values(self, name: str) -> Sequence[Value]:
        """What is gone over of one parameter."""
        grid = self.space.parameters[name].grid
        assert grid is not None, "a continuous range was refused"
        return grid

    def problems(self) -> list[str]:
        """Ranges without steps; more to go over than there are trials."""
        found = []
        for name, parameter in self.space.searched.items():
            if parameter.grid is None:
                distribution = parameter.distribution
                assert isinstance(distribution, FloatDistribution)
                found.append(
                    f"search.sampler: it goes over steps and choices, and {self.config_key(name)} is a range without "
                    f"steps ({distribution.low:g} to {distribution.high:g}); give it a step or a list of choices, or "
                    "pin it."
                )
        if not found and self.size > self.trials:
            found.append(
                f"search.trials is {self.trials} and {self.size_told}; ask for as many trials, or override "
                f"space.{self.loss}."
            )
        return found


# Grid search: every combination of the steps and choices, once.


class Grid(Stepwise):
    """Trial ``n`` is cell ``n``: the default, then the others with the last parameter changing fastest.

    Optuna's ``GridSampler`` knows no conditions, stops a study by itself, and draws its next cell by lot.
    """

    summary = "every combination of steps and choices, once"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """The trial's cell."""
        return Fixed(self.cells[number])

    def availability(self, trials: Sequence[FrozenTrial]) -> Availability:
        """Over after the last cell."""
        if len(trials) < self.size:
            return READY
        return Availability(open=False, over=f"each of the grid's {self.size} cells has had its trial")

    @cached_property
    def cells(self) -> list[Mapping[str, Value]]:
        """All cells, the default first."""
        default = self.space.default
        return [default, *(cell for cell in self._cells({}, list(self.space.parameters)) if cell != default)]

    def _cells(self, cell: Mapping[str, Value], names: Sequence[str]) -> Iterator[Mapping[str, Value]]:
        """Every way to complete ``cell`` by the parameters ``names``."""
        if not names:
            yield cell
        elif not self.space.parameters[names[0]].exists(cell):
            yield from self._cells(cell, names[1:])
        else:
            for value in self.values(names[0]):
                yield from self._cells({**cell, names[0]: value}, names[1:])

    @property
    def size(self) -> int:
        """The number of cells, counted without making them: there may be billions."""
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
    def size_told(self) -> str:
        """The number of cells."""
        return f"the grid of {self.loss} has {self.size:,} cells"


# Coordinate search, the thesis's way (section 5.2, Table 15): one hyperparameter after the other over its grid.

_SWEPT = Availability(open=False, over="every hyperparameter has been gone over")


class Coordinate(Stepwise):
    """Goes over one hyperparameter's grid while the others are held, keeps the best value, and takes the next one.

    The first ones to be held are the default's. What is held is not trained again: its trial stands for its value, and
    stays the best unless another is better. One hyperparameter's values may run side by side; the next one waits for
    all of them. Which one is next follows from the stored trials: they come in the order of their proposals.
    """

    summary = "one hyperparameter after the other over its grid, the best value kept (the thesis's way)"
    without_pruning = "keeps the value that is best after all epochs, which a pruned trial does not reach"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """The next value of the hyperparameter whose turn it is."""
        step = self._next(trials[:number]) if number else self.space.default
        assert not isinstance(step, Availability)
        return Fixed(step)

    def availability(self, trials: Sequence[FrozenTrial]) -> Availability:
        """Waits between two hyperparameters; over after the last one."""
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
                    best = max(complete, key=lambda trial: trial.values[0])  # the first of equals: what was held
                    held, rivals = configuration_of(best), [best]
            if name not in held:
                continue
            others = self._others(held, name)
            turn = trials[begun : begun + len(others)]
            if len(turn) < len(others):
                return self.space.complete({**held, name: others[len(turn)]})
            rivals += turn
            begun += len(turn)
        return _SWEPT

    def _others(self, held: Mapping[str, Value], name: str) -> list[Value]:
        return [value for value in self.values(name) if value != held[name]]

    @property
    def size(self) -> int:
        """The default and all values beside the held ones, on the longest way that a choice may open."""
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
    def size_told(self) -> str:
        """How many trials a whole search takes."""
        return f"going over all hyperparameters of {self.loss} takes up to {self.size:,} trials"
