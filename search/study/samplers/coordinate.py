"""Coordinate search, the thesis's way (section 5.2, Table 15): one hyperparameter after the other over its grid."""

from collections.abc import Mapping, Sequence

from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from search.study.configurations import configuration_of
from search.study.samplers.sampler import READY, WAIT, Availability, Fixed
from search.study.samplers.stepwise import Stepwise
from spaces.value import Value

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
