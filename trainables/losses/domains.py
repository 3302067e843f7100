"""Checks of hyperparameters, each giving the sentences that are to be said (none when the value is right)."""

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import cast


def real(
    name: str,
    value: object,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> list[str]:
    """A finite number within the bounds given; a truth value is not a number."""
    bounds = {"of at least": at_least, "above": above, "of at most": at_most, "below": below}
    rule = " and ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None)
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(cast(float, value))
        if (
            math.isfinite(number)
            and (at_least is None or number >= at_least)
            and (above is None or number > above)
            and (at_most is None or number <= at_most)
            and (below is None or number < below)
        ):
            return []
    return [f"{name} must be a finite number{' ' if rule else ''}{rule}, not {value!r}: give one that is."]


def whole(name: str, value: object, *, at_least: int) -> list[str]:
    """A whole number of at least ``at_least``; 2.0 is not one, and neither is a truth value."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= at_least:
        return []
    return [f"{name} must be a whole number of at least {at_least}, not {value!r}: give one that is."]


def choice(name: str, value: object, options: Collection[object]) -> list[str]:
    """One of ``options``, which also tells 1 from True."""
    if any(type(value) is type(option) and value == option for option in options):
        return []
    return [f"{name} must be one of {', '.join(map(str, options))}, not {value!r}: name one of these."]
