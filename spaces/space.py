"""A declared search space: what may be searched, where its default comes from, and when it exists."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from optuna.distributions import BaseDistribution, CategoricalDistribution

Value = bool | int | float | str | None


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One hyperparameter that may be searched.

    ``distribution`` is Optuna's own, so that range, step, log and choices have one home. ``when`` maps another
    parameter of the same space to the values for which this one exists (PNP's ``alpha`` only for variant Dq).
    """

    distribution: BaseDistribution
    default: Value
    source: str
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not self.contains(self.default):
            raise ValueError(f"The default {self.default!r} lies outside {self.distribution}: widen the range.")

    def contains(self, value: Value) -> bool:
        """Whether ``value`` is one that the distribution can propose (steps are not asked for)."""
        distribution = self.distribution
        if isinstance(distribution, CategoricalDistribution):
            return value in distribution.choices
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return bool(distribution.low <= value <= distribution.high)  # type: ignore[attr-defined]

    def exists(self, others: Mapping[str, Value]) -> bool:
        """Whether this parameter exists beside the values ``others`` of its space."""
        return all(others.get(name) in values for name, values in self.when.items())


Space = Mapping[str, Parameter]
"""A loss's space: its hyperparameters by name, each parameter after those that its ``when`` names."""
