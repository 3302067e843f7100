"""Ranges of hyperparameters, in one form for losses, trainings, search files and reports; Optuna is imported late."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from trainables.common.errors import InvalidInput

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.distributions import BaseDistribution


Value = bool | int | float | str | None
"""A value of a hyperparameter."""

ENDLESS = (math.inf, -math.inf)

MOST = 2**53
"""The largest whole number of a range: a study holds a hyperparameter as a float64."""


def as_python(value: Any) -> Any:
    """Return a number or text of NumPy or PyTorch as Python's, and other values, also dates, as they are."""
    if getattr(value, "shape", None) != () or getattr(value.dtype, "kind", "f") not in "biufU":
        return value
    with suppress(ValueError, TypeError, NotImplementedError):  # a masked entry, a tensor of the meta device
        if hasattr(value, "cpu"):
            value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).detach().cpu().numpy()
        return float(str(value)) if value.dtype.kind == "f" else value.item()  # 0.1, and not 0.10000000149
    return value


@dataclass(frozen=True, kw_only=True)
class Range(ABC):
    """The values that a hyperparameter may have: a :class:`Float`, an :class:`Int` or a :class:`Choice`.

    Attributes:
        default: the value of trial 0.
        source: the publication of default and range, or "chosen".
        when: maps another hyperparameter of the same space to the values for which this one exists (PNP's ``alpha``
            only for variant Dq).
        paper_grid: the grid searched in a paper, in its order, if it differs from the steps or choices.
    """

    default: Value = None
    source: str = ""
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    paper_grid: tuple[Value, ...] = ()

    @property
    @abstractmethod
    def distribution(self) -> "BaseDistribution":
        """Optuna's distribution; raise if there is none, as where the steps do not end at the high end."""

    @property
    @abstractmethod
    def ends(self) -> tuple[Value, ...]:
        """Both ends, or every choice."""

    @property
    @abstractmethod
    def steps(self) -> tuple[Value, ...] | None:
        """Every value in order; None for a continuous range."""

    @abstractmethod
    def contains(self, value: Value) -> bool:
        """Return True if ``value`` is within the range, ignoring its steps."""

    @abstractmethod
    def covers(self, other: "Range") -> bool:
        """Return True if every value of ``other``, a range of the same kind and scale, is one of this range.

        Of choices, they must be the same ones: Optuna fixes those of a study.
        """

    @abstractmethod
    def nearest(self, value: Value) -> Value:
        """Return the value of the range nearest to ``value``; its first choice (or low) if not comparable."""

    @abstractmethod
    def suggest(self, trial: "Trial", name: str) -> Value:
        """Suggest a value of the hyperparameter ``name``."""

    def check(self) -> None:
        """Raise :class:`InvalidInput` if the range is impossible, or does not contain its default or grid."""
        _ = self.distribution
        if not self.contains(self.default):
            raise InvalidInput(f"The default {self.default!r} is outside {self}: widen the range.")
        if outside := [value for value in self.paper_grid if not self.contains(value)]:
            raise InvalidInput(f"The values {outside} of paper_grid are outside {self}: widen the range.")

    @property
    def is_single(self) -> bool:
        """True if there is only one value."""
        return len(set(self.ends)) == 1

    @property
    def grid(self) -> tuple[Value, ...] | None:
        """Values of a grid search: the paper's, or every choice or step; None for a continuous range."""
        return self.paper_grid or self.steps

    def exists(self, others: Mapping[str, Value]) -> bool:
        """Return True if this hyperparameter exists, given the values of the others in its space."""
        return all(others.get(name) in values for name, values in self.when.items())


@dataclass(frozen=True)
class Float(Range):
    """A real number from ``low`` to ``high``, on a log scale or in steps; trial 0 has the ``default``."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high", "step"):
            object.__setattr__(self, name, self._typed(as_python(getattr(self, name))))
        object.__setattr__(self, "default", as_python(self.default))

    @staticmethod
    def _typed(number: Any) -> Any:
        return float(number) if isinstance(number, Real) else number

    def _made(self) -> "BaseDistribution":
        from optuna.distributions import FloatDistribution

        if not math.isfinite(self.high - self.low):
            raise ValueError("its ends must be finite, and less than 1.8e308 apart")
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    @cached_property
    def distribution(self) -> "BaseDistribution":
        try:
            with warnings.catch_warnings(record=True) as changed:  # Optuna moves the end of a range with a warning
                warnings.simplefilter("always")
                found: Any = self._made()
        except ValueError as error:
            raise InvalidInput(f"{str(error).rstrip('.')}; correct the range.") from error
        if changed:
            text = f"steps of {self.step:g} from {self.low:g} do not end at {self.high:g}, but at {found.high:g}"
            raise InvalidInput(f"{text}; set high to that, or give another step.")
        return found

    @property
    def ends(self) -> tuple[Value, ...]:
        return self.low, self.high

    @property
    def steps(self) -> tuple[Value, ...] | None:
        if self.is_single:
            return (self.low,)
        if self.step is None:
            return None
        count = round((self.high - self.low) / self.step) + 1
        return tuple(self._typed(on_step(self.low + index * self.step)) for index in range(count))

    def contains(self, value: Value) -> bool:
        return is_number(value) and self.low <= value <= self.high  # type: ignore[operator]

    def covers(self, other: Range) -> bool:
        if not isinstance(other, Float) or type(other) is not type(self):
            return False
        steps_between = (other.low - self.low) / other.step if other.step else 0.0
        same = (other.log, other.step) == (self.log, self.step) and math.isclose(steps_between, round(steps_between))
        return same and self.low <= other.low <= other.high <= self.high

    def nearest(self, value: Value) -> Value:
        if not is_number(value):
            return self.low
        inside: float = min(max(value, self.low), self.high)  # type: ignore[type-var, assignment]
        if not self.step:
            return inside
        count = round((inside - self.low) / self.step)
        return self._typed(on_step(min(self.low + count * self.step, self.high)))

    def position(self, value: Any) -> float:
        """Return ``value`` as a share of the range: 0 at the low end, 1 at the high end, on its own scale."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return float((value - self.low) / (self.high - self.low))

    def value_at(self, share: float) -> float:
        """Return the number at ``share`` of the range, the inverse of :meth:`position`; steps are ignored."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return math.exp(low + share * (high - low))
        return on_step(float(self.low + share * (self.high - self.low)))

    def suggest(self, trial: "Trial", name: str) -> Value:
        return trial.suggest_float(name, self.low, self.high, step=self.step, log=self.log)

    def __str__(self) -> str:
        step = f" by {self.step:g}" if self.step and not self.log else ""
        return f"{self.low:g} to {self.high:g}{step}{' (log)' if self.log else ''}"


@dataclass(frozen=True)
class Int(Float):
    """A whole number from ``low`` to ``high``, on a log scale or in steps; trial 0 has the ``default``."""

    low: int
    high: int
    step: int = 1

    @staticmethod
    def _typed(number: Any) -> Any:
        whole = number.is_integer() if isinstance(number, float) else isinstance(number, Integral)
        return int(number) if whole else number

    def _made(self) -> "BaseDistribution":
        from optuna.distributions import IntDistribution

        if any(type(number) is not int or abs(number) > MOST for number in (self.low, self.high, self.step)):
            raise ValueError("its ends and its step must be whole numbers of at most 2^53, which a study holds exactly")
        return IntDistribution(self.low, self.high, log=self.log, step=self.step)

    def suggest(self, trial: "Trial", name: str) -> Value:
        return trial.suggest_int(name, self.low, self.high, step=self.step, log=self.log)


@dataclass(frozen=True)
class Choice(Range):
    """One of ``choices``; trial 0 has the ``default``."""

    choices: Sequence[Value]

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", tuple(map(as_python, self.choices)))
        object.__setattr__(self, "default", as_python(self.default))

    @cached_property
    def distribution(self) -> "BaseDistribution":
        from optuna.distributions import CategoricalDistribution

        if not self.choices:
            raise InvalidInput("the list of choices is empty; name at least one value.")
        if odd := [each for each in self.choices if not isinstance(each, Value) or each in ENDLESS or each != each]:
            raise InvalidInput(
                f"the choice {odd[0]!r:.80} is of {type(odd[0]).__name__}; give finite numbers, texts, true, false or "
                "null, such as names of what is chosen."
            )
        for place, choice in enumerate(self.choices):  # Optuna finds a choice by ==
            if (first := self.choices.index(choice)) < place:
                text = f"the choices {self.choices[first]!r} and {choice!r} are equal"
                raise InvalidInput(f"{text}, so only one of them would be tried: keep one.")
        return CategoricalDistribution(self.choices)

    @property
    def ends(self) -> tuple[Value, ...]:
        return tuple(self.choices)

    steps = ends

    def contains(self, value: Value) -> bool:
        return value in self.choices

    def covers(self, other: Range) -> bool:
        return isinstance(other, Choice) and other.choices == self.choices

    @property
    def numbers(self) -> list[float]:
        """The choices that are numbers, in ascending order."""
        return sorted(choice for choice in self.choices if is_number(choice))  # type: ignore[misc]

    def nearest(self, value: Value) -> Value:
        if value in self.choices:
            return value
        if not (self.numbers and is_number(value)):
            return self.choices[0]
        return min(filter(is_number, self.choices), key=lambda choice: abs(choice - value))  # type: ignore[operator]

    def suggest(self, trial: "Trial", name: str) -> Value:
        return trial.suggest_categorical(name, self.ends)

    def __str__(self) -> str:
        return f"one of {', '.join(map(str, self.choices))}"


def range_of(distribution: "BaseDistribution") -> Range:
    """Return the range with the values of Optuna's ``distribution``, as a stored trial has it."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return Choice(distribution.choices)
    low, high, log, step = (getattr(distribution, name) for name in ("low", "high", "log", "step"))
    return (Int if isinstance(distribution, IntDistribution) else Float)(low, high, log=log, step=step)


def is_number(value: object) -> bool:
    """Return True for a number that is not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def on_step(value: float) -> float:
    """Round a stepped value to 12 digits: 0.3 and not 0.30000000000000004."""
    return round(value, 12)
