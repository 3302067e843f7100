"""Numbers, hyperparameters and verdicts as text."""

from collections.abc import Mapping, Sequence

from search.difference import LEVEL
from search.results.pairs import Pair
from spaces.space import Value, value_text
from trainables.common.errors import counted
from trainables.metrics import is_bounded, unit

# Numbers and hyperparameters.


def interval(ends: tuple[float, float] | None, *, scale: float = 1.0, digits: int = 4) -> str:
    """Return an interval, if there is one, in units of 1 / ``scale``; an end that is not 0 is not shown as 0."""
    return f"[{', '.join(_end(scale * end, digits) for end in ends)}]" if ends else ""


def shown_interval(metric: str, ends: tuple[float, float] | None) -> str:
    """Return the interval of a metric, if there is one, as :func:`trainables.metrics.score_text` its values."""
    return interval(ends, scale=unit(metric), digits=2 if is_bounded(metric) else 4)


def _end(value: float, digits: int) -> str:
    while value and round(value, digits) == 0 and digits < MOST_DIGITS:
        digits += 1
    return f"{value:.{digits}f}" if round(value, digits) or not value else f"{value:.0e}"


MOST_DIGITS = 6


def in_points(metric: str, difference: float) -> str:
    """Return a difference in points, or in its own unit if the metric is not between 0 and 1."""
    return f"{difference_text(metric, difference)}{' points' if is_bounded(metric) else ''}"


def difference_text(metric: str, difference: float) -> str:
    """Return the number of :func:`in_points`.

    >>> difference_text("map_at_r", 0.0514)
    '+5.1'
    """
    return f"{100 * difference:+.1f}" if is_bounded(metric) else f"{difference:+.4g}"


def difference_interval(pair: Pair) -> str:
    """Return the interval of a pair, in the unit of :func:`in_points`."""
    return interval(pair.ci95, scale=100.0, digits=1) if is_bounded(pair.metric) else interval(pair.ci95)


def difference_with_interval(pair: Pair) -> str:
    """Return the difference of a pair with its interval: ``+5.1 points [1.8, 8.5]``."""
    return f"{in_points(pair.metric, pair.difference)} {difference_interval(pair)}"


def parameters(params: Mapping[str, Value]) -> str:
    """Return hyperparameters in one line."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in params.items())


def sentence(text: str) -> str:
    """Return a phrase with a full stop, and an initial capital unless it begins with a name and a colon."""
    first = text[0] if text.split(" ")[0].endswith(":") else text[0].upper()
    return f"{first}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


# Pairs.

NO_DIFFERENCE = "no significant difference"

SMALLEST_P = 0.0001


def p_value(p: float) -> str:
    """Return a p-value with four digits, more if it is above the level of the tests and would be rounded to it."""
    digits = 4
    while p > LEVEL and round(p, digits) == LEVEL:
        digits += 1
    return f"< {SMALLEST_P}" if p < SMALLEST_P else f"{p:.{digits}f}"


def verdict(pair: Pair) -> str:
    """Return "higher" or "lower" for the first row of a pair; empty if the difference is not significant.

    With a margin of equivalence, pairs within it are "the same", and those that may be either "undecided".
    """
    if pair.differ:
        higher = "higher" if pair.difference > 0 else "lower"
        return f"{higher}, but {the_same(pair)}" if pair.same else higher
    if pair.within is None:
        return ""
    return the_same(pair) if pair.same else "undecided"


def the_same(pair: Pair) -> str:
    """Return "the same within 1 point", with the margin of equivalence of ``pair``."""
    assert pair.within is not None
    points = f"{100 * pair.within:g}"
    return f"the same within {points} point{'s' * (points != '1')}"


def not_different(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence on the number of pairs without a significant difference; none if all differ."""
    same = sum(not pair.differ for pair in pairs)
    if not same:
        return []
    count = f"{same} of {len(pairs)} pairs" if same < len(pairs) else f"any of the {len(pairs)} pairs"
    where = "the pair" if len(pairs) == 1 else count
    equal = [pair for pair in pairs if pair.same]
    sentence = f"{NO_DIFFERENCE} in {where} ({pairs[0].metric} on the test classes)"
    if equal:
        are = "is" if len(equal) == 1 else "are"
        sentence += f"; {len(equal)} of {counted(len(pairs), 'pair')} {are} {the_same(equal[0])}"
    return [sentence]
