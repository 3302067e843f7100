"""Declared search spaces: parameters, their ranges, defaults and conditions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

# The value of a hyperparameter.

Value = bool | int | float | str | None


def value_text(value: Value) -> str:
    """A value as tables show it: four digits of a float."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# A declared search space: what may be searched, where its default comes from, and when it exists.


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


# What a trial proposes: a value for every parameter that exists in its space.

PREFIX = "training."
"""How the parameters of the training are told from those of the loss."""


@dataclass(frozen=True, eq=False)  # equal to what maps the same names to the same values
class Configuration(Mapping[str, Value]):
    """Values by name: those of the loss, and those of the training as ``training.<name>``."""

    values_by_name: Mapping[str, Value]

    def __getitem__(self, name: str) -> Value:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def __hash__(self) -> int:
        return hash(frozenset(self.values_by_name.items()))

    @property
    def hyperparameters(self) -> dict[str, Value]:
        """What the loss is built with."""
        return {name: value for name, value in self.items() if not name.startswith(PREFIX)}

    @property
    def training(self) -> dict[str, Any]:
        """Fields of the training's settings."""
        return {name.removeprefix(PREFIX): value for name, value in self.items() if name.startswith(PREFIX)}
