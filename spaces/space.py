"""Declared search spaces: parameters with their ranges, defaults and conditions, and a trial's params."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trainables.errors import InvalidInput

if TYPE_CHECKING:  # a value and its text are used where Optuna is missing
    from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

Value = bool | int | float | str | None
"""A value of a parameter."""


def value_text(value: Value) -> str:
    """Return a value as shown in tables: floats with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One searchable hyperparameter.

    ``distribution`` is Optuna's: range, step, log and choices. ``when`` maps another parameter of the same space to the
    values for which this one exists (PNP's ``alpha`` only for variant Dq). ``paper_grid`` is the grid searched in a
    paper, in its order, if it differs from the distribution's.
    """

    distribution: "BaseDistribution"
    default: Value
    source: str
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=lambda: MappingProxyType({}))
    paper_grid: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        if problem := indistinct(getattr(self.distribution, "choices", ())):
            raise ValueError(f"{problem}.")
        if not self.contains(self.default):
            raise ValueError(f"The default {self.default!r} is outside {self.distribution}: widen the range.")
        if outside := [value for value in self.paper_grid if not self.contains(value)]:
            raise ValueError(f"The values {outside} of paper_grid are outside {self.distribution}: widen the range.")

    def contains(self, value: Value) -> bool:
        """Return True if ``value`` is within the distribution, ignoring its steps."""
        from optuna.distributions import CategoricalDistribution

        distribution = self.distribution
        if isinstance(distribution, CategoricalDistribution):
            return value in distribution.choices
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return bool(distribution.low <= value <= distribution.high)  # type: ignore[attr-defined]

    @property
    def grid(self) -> tuple[Value, ...] | None:
        """Values of a grid search: the paper's, or every choice or step; None for a continuous range."""
        return self.paper_grid or steps(self.distribution)

    def exists(self, others: Mapping[str, Value]) -> bool:
        """Return True if this parameter exists, given the values of the others in its space."""
        return all(others.get(name) in values for name, values in self.when.items())


def indistinct(choices: Sequence[Value]) -> str | None:
    """Return why Optuna, which finds a choice by ``==``, cannot tell ``choices`` apart; None if it can."""
    for place, choice in enumerate(choices):
        if choice != choice:
            return f"The choice {choice!r} equals nothing, not even itself: remove it"
        for earlier in choices[:place]:
            if choice == earlier:
                return f"The choices {earlier!r} and {choice!r} are equal, so only one of them would be tried: keep one"
    return None


Space = Mapping[str, Parameter]
"""Parameters by name, each after those that its ``when`` names."""


def lies_within(narrow: "BaseDistribution", wide: "BaseDistribution") -> bool:
    """Return True if every value of ``narrow`` is one of ``wide``, a distribution of the same kind and scale."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(narrow, CategoricalDistribution) and isinstance(wide, CategoricalDistribution):
        return all(choice in wide.choices for choice in narrow.choices)
    if not isinstance(narrow, FloatDistribution | IntDistribution) or type(narrow) is not type(wide):
        return False
    assert isinstance(wide, FloatDistribution | IntDistribution), "it is of the same type"
    steps_between = (narrow.low - wide.low) / narrow.step if narrow.step else 0.0
    same = (narrow.log, narrow.step) == (wide.log, wide.step) and math.isclose(steps_between, round(steps_between))
    return same and wide.low <= narrow.low <= narrow.high <= wide.high


def has_choices(parameter: Parameter) -> bool:
    """Return True if the parameter has a list of choices, which Optuna fixes for a study."""
    from optuna.distributions import CategoricalDistribution

    return isinstance(parameter.distribution, CategoricalDistribution)


def steps(distribution: "BaseDistribution") -> tuple[Value, ...] | None:
    """Return every value of ``distribution`` in order; None if it is continuous."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

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
    """Round a stepped value to 12 digits: 0.3 and not 0.30000000000000004."""
    return round(value, 12)


def position(distribution: "FloatDistribution | IntDistribution", value: float) -> float:
    """Return ``value`` as a share of its range: 0 at the low end, 1 at the high end, on a log scale if the range is."""
    if distribution.log:
        return math.log(value / distribution.low) / math.log(distribution.high / distribution.low)
    return (value - distribution.low) / (distribution.high - distribution.low)


def value_at(distribution: "FloatDistribution | IntDistribution", share: float) -> float:
    """Return the number at ``share`` of a range, the inverse of :func:`position`; steps are ignored."""
    if distribution.log:
        low, high = math.log(distribution.low), math.log(distribution.high)
        return math.exp(low + share * (high - low))
    return on_step(float(distribution.low + share * (distribution.high - distribution.low)))


def numeric_range(
    low: float, high: float, *, log: bool = False, step: float | None = None, whole: bool = False
) -> "FloatDistribution | IntDistribution":
    """Return the range of numbers from ``low`` to ``high``.

    Raises:
        InvalidInput: the range is impossible, or steps from ``low`` do not end at ``high``.
    """
    from optuna.distributions import FloatDistribution, IntDistribution

    found: FloatDistribution | IntDistribution
    try:
        with warnings.catch_warnings(record=True) as changed:  # Optuna moves the end of a range with a warning
            warnings.simplefilter("always")
            if whole:
                found = IntDistribution(int(low), int(high), log=log, step=1 if step is None else int(step))
            else:
                found = FloatDistribution(float(low), float(high), log=log, step=step)
    except ValueError as error:
        raise InvalidInput(f"{str(error).rstrip('.')}; correct the range.") from error
    if changed:
        raise InvalidInput(
            f"steps of {step} from {low} do not end at {high}, but at {found.high}; set high to that, or give another "
            "step."
        )
    return found


TRAINING, MODEL = "training", "model"
"""Sections of the search file whose parameters can be searched beside those of the loss."""


def in_section(section: str, name: str) -> str:
    """Return the name in a space of a section's parameter: ``training.lr``, to distinguish it from the loss's."""
    return f"{section}.{name}"


@dataclass(frozen=True, eq=False)  # equality is the Mapping's
class Params(Mapping[str, Value]):
    """A trial's params: values by name, those of a section as ``training.<name>`` or ``model.<name>``."""

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
    def loss(self) -> dict[str, Value]:
        """Keyword arguments of the loss."""
        return {name: value for name, value in self.items() if "." not in name}

    @property
    def training(self) -> dict[str, Any]:
        """Fields of the training section."""
        return self._of(TRAINING)

    @property
    def model(self) -> dict[str, Any]:
        """Fields of the model section."""
        return self._of(MODEL)

    def _of(self, section: str) -> dict[str, Any]:
        prefix = in_section(section, "")
        return {name.removeprefix(prefix): value for name, value in self.items() if name.startswith(prefix)}
