"""An optimum at the edge of its range: the range may be too small."""

import math
from collections.abc import Callable, Iterator, Mapping

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from search.report.diagnostics.finding import Finding
from search.report.diagnostics.scale import Range, position, value_at
from spaces.space import Parameter, Space
from spaces.value import Value

NEAR = 0.05


def edges(space: Space, best: Mapping[str, Value], allowed: Callable[[str, Value], bool]) -> Iterator[Finding]:
    """The parameters of ``best`` within a step or 5 % of an end of their range, in its own scale.

    Of a list of three or more numbers, the smallest and the largest are its ends. Nothing is said of an end beyond
    which the parameter's domain does not reach, nor of a parameter that is pinned.

    Args:
        space: what was searched.
        best: the best configuration.
        allowed: whether a parameter may have a value at all, inside its range or outside.
    """
    for name, value in best.items():
        parameter = space[name]
        near = None if parameter.distribution.single() else _near_end(parameter, value)
        if near is None:
            continue
        end, beyond, upwards = near
        if allowed(name, beyond):
            direction, its_end = ("upwards", "high") if upwards else ("downwards", "low")
            yield Finding(
                kind="edge",
                parameters=(name,),
                sentence=f"the best {name}, {value:.4g}, lies at the {its_end} end of its range, {end:.4g}: "
                f"a new search should widen it {direction}",
            )


def _near_end(parameter: Parameter, value: Value) -> tuple[float, float, bool] | None:
    """The end that ``value`` is near to, a value beyond that end, and whether it is the upper one."""
    distribution = parameter.distribution
    if isinstance(distribution, CategoricalDistribution):
        return _last_choice(distribution, value)
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    assert isinstance(value, int | float)
    share, step = position(distribution, value), _step(distribution)
    for upwards, distance in ((False, share), (True, 1 - share)):
        if distance <= max(NEAR, step) + 1e-9 and distance < 0.5 - 1e-9:
            beyond = value_at(distribution, 1 + step if upwards else -step)
            if isinstance(distribution, IntDistribution):
                beyond = math.ceil(beyond) if upwards else math.floor(beyond)
            return (distribution.high if upwards else distribution.low), beyond, upwards
    return None


def _step(distribution: Range) -> float:
    """A step as a share of the range; a hundredth where it has none."""
    step = None if distribution.log else distribution.step
    return step / (distribution.high - distribution.low) if step else 0.01


def _last_choice(distribution: CategoricalDistribution, value: Value) -> tuple[float, float, bool] | None:
    numbers = sorted(
        entry for entry in distribution.choices if isinstance(entry, int | float) and not isinstance(entry, bool)
    )
    if len(numbers) < max(3, len(distribution.choices)):
        return None
    for upwards, end, inner in ((False, numbers[0], numbers[1]), (True, numbers[-1], numbers[-2])):
        if value == end:
            gap = 1 if isinstance(end, int) else abs(end - inner)
            return end, end + gap if upwards else end - gap, upwards
    return None
