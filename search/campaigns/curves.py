"""Anytime curves: the best value so far against the epochs spent by all trials, of several ways to search."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from search.campaigns.cells import CampaignCurve, CurvePoint, in_unit
from search.difference import LEVEL
from search.report.results import Incumbent, LossSummary
from search.text_table import NOTHING, TextTable

Curve = NDArray[np.float64]
"""An array over the epochs of all trials, in the order of their ends: entry e is the best value after e + 1 epochs."""

MIN_SEARCHES = 4
NEVER = 99.0
"""The log ratio of a curve that never reaches the value: larger than any other, and finite for subtraction."""


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """Return the mean of several searches' curves, up to the end of the shortest."""
    shortest = min(len(curve) for curve in curves)
    mean: Curve = np.mean([curve[:shortest] for curve in curves], axis=0)
    return mean


def epochs_to_reach(curve: Curve, value: float) -> int | None:
    """Return the number of epochs after which ``curve`` first reaches ``value``; None if it never does."""
    reached = np.flatnonzero(curve >= value)
    return int(reached[0]) + 1 if len(reached) else None


def cost_ratio(curve: Curve, other: Curve) -> float | None:
    """Return the epochs that ``curve`` needs to reach the final value of ``other``, divided by those of ``other``.

    Below 1, ``curve`` is cheaper. None if it never reaches the value.
    """
    needed = epochs_to_reach(curve, float(other[-1]))
    spent = epochs_to_reach(other, float(other[-1]))
    assert spent is not None
    return None if needed is None else needed / spent


def certain_cost_ratio(curves: Sequence[Curve], others: Sequence[Curve]) -> float | None:
    """Return the cost ratio of the mean curves of two groups of searches if it is significant, else None.

    The test permutes the searches between the groups, in all ways or in 999 random ones: the ratio is significant if at
    most 5 % of permutations are as extreme, which takes at least four searches per group. None too if the value is
    never reached.
    """
    from scipy.stats import permutation_test  # takes 0.5 s to import

    if min(len(curves), len(others)) < MIN_SEARCHES:
        return None
    every = [*curves, *others]

    def log_ratio(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
        ratio = cost_ratio(mean_curve([every[number] for number in first]), mean_curve([every[n] for n in second]))
        return NEVER if ratio is None else math.log(ratio)

    numbers = np.arange(len(every))
    split = numbers[: len(curves)], numbers[len(curves) :]
    found = permutation_test(split, log_ratio, vectorized=False, n_resamples=999, rng=np.random.default_rng(0))
    return None if found.pvalue > LEVEL else cost_ratio(mean_curve(curves), mean_curve(others))


SHARES = (0.25, 0.5, 0.75, 1.0)
"""A curve is shown after these shares of the epochs."""


def curve_of(incumbents: Sequence[Incumbent], epochs: int) -> Curve:
    """Return the curve of a search of ``epochs`` epochs; minus infinity before the first value."""
    curve: Curve = np.full(epochs, -np.inf)
    for incumbent in incumbents:
        curve[incumbent.epochs - 1 :] = incumbent.value
    return curve


def compared_curves(
    loss: str, objective: str, entries: Mapping[str, Sequence[LossSummary]], mean_over: tuple[str, ...]
) -> Iterator[CampaignCurve]:
    """Yield the curves of ``loss`` at a few points, and the cost of each relative to the first.

    Args:
        loss: name of the loss.
        objective: the objective of all searches.
        entries: for each way to search, the results of its searches for the loss; their mean is its curve. Searches
            without values are left out.
        mean_over: the axes over which the searches differ within a way.
    """
    valued = {way: found for way, every in entries.items() if (found := [entry for entry in every if entry.anytime])}
    curves = {way: [curve_of(entry.anytime, entry.epochs) for entry in found] for way, found in valued.items()}
    first = next(iter(curves), "")
    for way, of_way in curves.items():
        yield CampaignCurve(
            loss=loss,
            way=way,
            objective=objective,
            mean_over=mean_over,
            points=tuple(_point(mean_curve(of_way), share, valued[way]) for share in SHARES),
            against=None if way == first else first,
            cost_ratio=None if way == first else certain_cost_ratio(of_way, curves[first]),
        )


def _point(curve: Curve, share: float, entries: Sequence[LossSummary]) -> CurvePoint:
    """Return the curve after a share of its epochs."""
    epochs = math.ceil(share * len(curve))
    last = [[step for step in entry.anytime if step.epochs <= epochs][-1:] for entry in entries]
    confirmed = [step.confirmed for steps in last for step in steps if step.confirmed is not None]
    return CurvePoint(
        epochs=epochs,
        value=float(curve[epochs - 1]) if curve[epochs - 1] > -math.inf else None,
        confirmed=statistics.fmean(confirmed) if len(confirmed) == len(entries) else None,
    )


def anytime_table(curves: Sequence[CampaignCurve]) -> TextTable:
    """Return a table of curves, one per row."""
    objective = curves[0].objective
    notes = ["below a value: the confirmed mean of its configuration, if it was confirmed"]
    for curve in curves:
        if curve.cost_ratio is not None:
            reached = f"takes {curve.cost_ratio:.2f} × the epochs to reach the best value of"
            notes.append(
                f"{curve.way}/{curve.loss} {reached} {curve.against}/{curve.loss} (permutation of the searches, 5 %)"
            )
    if any(curve.against is not None and curve.cost_ratio is None for curve in curves):
        notes.append(f"other differences are not significant, which takes at least {MIN_SEARCHES} searches per curve")
    return TextTable(
        title=f"Best {objective} so far, by the epochs spent",
        header=("loss", *(f"{share:.0%} of the epochs" for share in SHARES)),
        rows=tuple(
            (f"{curve.way}/{curve.loss}", *(_cell(point, objective) for point in curve.points)) for curve in curves
        ),
        labels=1,
        notes=(*notes, *(f"mean over {axis}" for axis in curves[0].mean_over)),
    )


def _cell(point: CurvePoint, objective: str) -> str:
    if point.value is None:
        return NOTHING
    text = f"{in_unit(objective, point.value)} after {point.epochs}"
    return text if point.confirmed is None else f"{text}\n{in_unit(objective, point.confirmed)} confirmed"
