"""A declared search space: what may be searched, where its default comes from, and when it exists."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from spaces.value import Value


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One hyperparameter that may be searched.

    ``distribution`` is Optuna's own, so that range, step, log and choices have one home. ``when`` maps another
    parameter of the same space to the values for which this one exists (PNP's ``alpha`` only for variant Dq).
    ``paper_grid`` is the grid that a paper went over, in its order, where that is not the distribution's own.
    """

    distribution: BaseDistribution
    default: Value
    source: str
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=lambda: MappingProxyType({}))
    paper_grid: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        if not self.contains(self.default):
            raise ValueError(f"The default {self.default!r} lies outside {self.distribution}: widen the range.")
        if outside := [value for value in self.paper_grid if not self.contains(value)]:
            raise ValueError(f"The values {outside} of paper_grid lie outside {self.distribution}: widen the range.")

    def contains(self, value: Value) -> bool:
        """Whether ``value`` is one that the distribution can propose (steps are not asked for)."""
        distribution = self.distribution
        if isinstance(distribution, CategoricalDistribution):
            return value in distribution.choices
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return bool(distribution.low <= value <= distribution.high)  # type: ignore[attr-defined]

    @property
    def grid(self) -> tuple[Value, ...] | None:
        """The values to go over one by one: as printed, else every choice or step; None where a range has no steps."""
        return self.paper_grid or steps(self.distribution)

    def exists(self, others: Mapping[str, Value]) -> bool:
        """Whether this parameter exists beside the values ``others`` of its space."""
        return all(others.get(name) in values for name, values in self.when.items())


Space = Mapping[str, Parameter]
"""A loss's space: its hyperparameters by name, each parameter after those that its ``when`` names."""


def steps(distribution: BaseDistribution) -> tuple[Value, ...] | None:
    """Every value of ``distribution`` in order; None where it is continuous."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    if isinstance(distribution, IntDistribution):
        return tuple(range(distribution.low, distribution.high + 1, distribution.step))
    assert isinstance(distribution, FloatDistribution)
    if distribution.single():
        return (distribution.low,)
    if distribution.step is None:
        return None
    count = round((distribution.high - distribution.low) / distribution.step) + 1
    return tuple(on_step(distribution.low + index * distribution.step) for index in range(count))


def on_step(value: float) -> float:
    """A value on a step without the dust of binary fractions: 0.3 and not 0.30000000000000004."""
    return round(value, 12)
