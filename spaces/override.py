"""A search file's word on a declared parameter: it restricts, pins or widens it."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from spaces.space import Parameter, on_step
from spaces.value import Value
from trainables.mistakes import Mistakes

RANGE_KEYS = ("low", "high", "step", "log")
MOST_STEPS = 1_000_000
"""Samplers that go over steps make a list of them."""


def override(parameter: Parameter, wish: Any, *, name: str, refuse: Callable[[Value], None]) -> Parameter:
    """``parameter`` as the search file wishes it: a range, a list of choices, or one value.

    ``refuse`` raises ``ValueError`` for a value outside the hyperparameter's domain; it is asked about every choice
    and both ends of a range. The declared default stays, or becomes the nearest value that is allowed; a printed grid
    gives way to the wish's own steps or choices.

    Raises:
        Mistakes: the wish cannot be understood or leaves the domain.
    """
    distribution: BaseDistribution
    ends: tuple[Value, ...]
    if isinstance(wish, Mapping):
        bounded = _range(parameter.distribution, wish, name)
        distribution, ends = bounded, (bounded.low, bounded.high)
    else:
        listed = _choices(wish, name)
        distribution, ends = listed, listed.choices
    mistakes = []
    for value in dict.fromkeys(ends):
        try:
            refuse(value)
        except ValueError as error:
            mistakes.append(f"space.{name}: {error}")
    if mistakes:
        raise Mistakes(mistakes)
    default = nearest(distribution, parameter.default)
    return replace(parameter, distribution=distribution, default=default, paper_grid=())


def _choices(wish: Any, name: str) -> CategoricalDistribution:
    choices = tuple(wish) if isinstance(wish, list) else (wish,)
    if not choices:
        raise Mistakes(f"space.{name}: the list of choices is empty; name at least one value.")
    if not all(value is None or isinstance(value, bool | int | float | str) for value in choices):
        raise Mistakes(f"space.{name}: choices must be plain values; the list is {wish!r}.")
    return CategoricalDistribution(choices)


def _range(declared: BaseDistribution, wish: Mapping[str, Any], name: str) -> FloatDistribution | IntDistribution:
    if unknown := [key for key in wish if key not in RANGE_KEYS]:
        raise Mistakes(
            f"space.{name}: a range has the keys {', '.join(RANGE_KEYS)}, not {', '.join(map(str, unknown))}."
        )
    bounds: dict[str, Any]
    if isinstance(declared, CategoricalDistribution):
        numbers: list[Any] = [choice for choice in declared.choices if _is_number(choice)]
        if len(numbers) < len(declared.choices):
            raise Mistakes(
                f"space.{name}: a range needs numbers, and this is one of {', '.join(map(repr, declared.choices))}; "
                "give a list of choices."
            )
        whole = all(isinstance(choice, int) for choice in numbers)
        bounds = {"low": min(numbers), "high": max(numbers)}
    else:
        assert isinstance(declared, FloatDistribution | IntDistribution)
        whole = isinstance(declared, IntDistribution)
        bounds = {"low": declared.low, "high": declared.high}
    bounds |= {key: wish[key] for key in ("low", "high") if key in wish}
    step, log = wish.get("step"), wish.get("log", False)
    numbers_given = [*bounds.values(), *([] if step is None else [step])]
    if not all(_is_number(number) for number in numbers_given) or not isinstance(log, bool):
        raise Mistakes(f"space.{name}: low, high and step must be numbers and log true or false; it is {dict(wish)}.")
    if whole and not all(float(number).is_integer() for number in numbers_given):
        raise Mistakes(f"space.{name}: low, high and step must be whole numbers; it is {dict(wish)}.")
    try:
        with warnings.catch_warnings(record=True) as changed:  # Optuna would move the end of the range
            warnings.simplefilter("always")
            found = _distribution(bounds["low"], bounds["high"], log=log, step=step, whole=whole)
    except ValueError as error:
        raise Mistakes(f"space.{name}: {str(error).rstrip('.')}; it is {dict(wish)}.") from error
    if changed:
        raise Mistakes(
            f"space.{name}: steps of {step} from {bounds['low']} do not end at {bounds['high']}, but at {found.high}; "
            f"set high to that, or give another step."
        )
    if found.step and (found.high - found.low) / found.step >= MOST_STEPS:
        raise Mistakes(
            f"space.{name}: it has more than {MOST_STEPS:,} steps, from {found.low} to {found.high}; give a larger "
            "step or a smaller range."
        )
    return found


def _distribution(
    low: float, high: float, *, log: bool, step: float | None, whole: bool
) -> FloatDistribution | IntDistribution:
    if whole:
        return IntDistribution(int(low), int(high), log=log, step=1 if step is None else int(step))
    return FloatDistribution(float(low), float(high), log=log, step=step)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def nearest(distribution: BaseDistribution, value: Value) -> Value:
    """What ``distribution`` can propose nearest to ``value``: its first choice where nearness means nothing."""
    if isinstance(distribution, CategoricalDistribution):
        if value in distribution.choices:
            return value
        numbers = [choice for choice in distribution.choices if _is_number(choice)]
        if _is_number(value) and numbers:
            return min(numbers, key=lambda choice: abs(choice - value))  # type: ignore[operator]
        return distribution.choices[0]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if not _is_number(value):
        return distribution.low
    assert isinstance(value, int | float)
    inside = min(max(value, distribution.low), distribution.high)
    if not distribution.step:
        return inside
    steps = round((inside - distribution.low) / distribution.step)
    snapped = min(distribution.low + steps * distribution.step, distribution.high)
    return int(snapped) if isinstance(distribution, IntDistribution) else on_step(snapped)
