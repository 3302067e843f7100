"""What grid and coordinate search share: they go over steps and choices one by one, and come to an end."""

from abc import abstractmethod
from collections.abc import Sequence

from optuna.distributions import FloatDistribution

from search.study.samplers.sampler import Sampler
from spaces.value import Value


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
