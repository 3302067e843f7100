"""Grid search: every combination of the steps and choices, once."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from search.study.samplers.sampler import READY, Availability, Fixed
from search.study.samplers.stepwise import Stepwise
from spaces.value import Value


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
