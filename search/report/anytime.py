"""Anytime curves: the best value so far against the epochs spent by all trials."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from search.report.compared import ComparedCurve, CurvePoint
from search.report.loss_results import Incumbent, LossSummary
from search.report.statistics import LEVEL
from search.report.text_table import NOTHING, TextTable
from search.trials import epochs_of
from trainables.spec import EpochRecord

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


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


# The curve of a study.

SHARES = (0.25, 0.5, 0.75, 1.0)
"""A curve is shown after these shares of the epochs."""


def incumbents(
    trials: "Sequence[FrozenTrial]",
    value_of: Callable[[Sequence[EpochRecord]], float | None],
    confirmed: Mapping[int, float],
) -> tuple[Incumbent, ...]:
    """Return each improvement of a search, in order.

    A failed trial counts with its epochs and not with its values: it cannot be chosen. With every pruner the last
    improvement of a finished search is then the leading trial's.

    Args:
        trials: the trials of a search study, pruned and failed ones included.
        value_of: returns a trial's value from its records so far; None while it has none.
        confirmed: confirmed means by trial.
    """
    from optuna.trial import TrialState  # as late as its readers

    ended = sorted(
        (record["end"], trial.number, count)
        for trial in trials
        for count, record in enumerate(epochs_of(trial), start=1)
    )
    records = {trial.number: epochs_of(trial) for trial in trials if trial.state != TrialState.FAIL}
    found: list[Incumbent] = []
    best = -math.inf
    for epochs, (_, number, count) in enumerate(ended, start=1):
        value = value_of(records[number][:count]) if number in records else None
        if value is not None and value > best:
            best = value
            found.append(Incumbent(epochs=epochs, value=value, trial=number, confirmed=confirmed.get(number)))
    return tuple(found)


def curve_of(incumbents: Sequence[Incumbent], epochs: int) -> Curve:
    """Return the curve of a search of ``epochs`` epochs; minus infinity before the first value."""
    curve: Curve = np.full(epochs, -np.inf)
    for incumbent in incumbents:
        curve[incumbent.epochs - 1 :] = incumbent.value
    return curve


def compared_curves(loss: str, entries: Mapping[str, Sequence[LossSummary]]) -> dict[str, ComparedCurve]:
    """Return the curves of ``loss`` at a few points, and the cost of each relative to the first.

    Args:
        loss: name of the loss.
        entries: for each label, the results of its searches for the loss; their mean is the curve of the label.
            Searches without values are left out.
    """
    valued = {label: [entry for entry in found if entry.anytime] for label, found in entries.items()}
    curves = {
        label: [curve_of(entry.anytime, entry.epochs) for entry in found] for label, found in valued.items() if found
    }
    first = next(iter(curves), None)
    return {
        label: ComparedCurve(
            loss=loss,
            points=tuple(_point(mean_curve(of_label), share, valued[label]) for share in SHARES),
            against=first if label != first else None,
            cost_ratio=certain_cost_ratio(of_label, curves[first]) if first is not None and label != first else None,
        )
        for label, of_label in curves.items()
    }


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


def anytime_table(
    objective: str, curves: Sequence[tuple[str, ComparedCurve]], number: Callable[[float], str]
) -> TextTable:
    """Return a table of named curves, one per row; ``number`` returns a value as text."""
    notes = ["below a value: the confirmed mean of its configuration, if it was confirmed"] if curves else []
    for name, curve in curves:
        if curve.cost_ratio is not None:
            reached = f"takes {curve.cost_ratio:.2f} × the epochs to reach the best value of"
            notes.append(f"{name} {reached} {curve.against}/{curve.loss} (permutation of the searches, 5 %)")
    if any(curve.against is not None and curve.cost_ratio is None for _, curve in curves):
        notes.append(f"other differences are not significant, which takes at least {MIN_SEARCHES} searches per curve")
    return TextTable(
        title=f"Best {objective} so far, by the epochs spent",
        header=("loss", *(f"{share:.0%} of the epochs" for share in SHARES)),
        rows=tuple((name, *(_cell(point, number) for point in curve.points)) for name, curve in curves),
        labels=1,
        notes=tuple(notes),
    )


def _cell(point: CurvePoint, number: Callable[[float], str]) -> str:
    if point.value is None:
        return NOTHING
    text = f"{number(point.value)} after {point.epochs}"
    return text if point.confirmed is None else f"{text}\n{number(point.confirmed)} confirmed"
