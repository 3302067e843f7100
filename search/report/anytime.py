"""A study's anytime curve: its incumbents, in the order in which epochs ended."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from search.report.results.curves import ComparedCurve, CurvePoint
from search.report.results.incumbent import Incumbent
from search.report.results.loss_summary import LossSummary
from search.report.statistics.anytime import Curve, certain_cost_ratio, mean_curve
from search.study.records import epochs_of
from trainables.training.epoch_record import EpochRecord

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Where a curve is shown: after these shares of the epochs."""


def incumbents(
    trials: "Sequence[FrozenTrial]",
    value_of: Callable[[Sequence[EpochRecord]], float | None],
    confirmed: Mapping[int, float],
) -> tuple[Incumbent, ...]:
    """Each improvement of a search, in order.

    Args:
        trials: the trials of a search study; what pruned and failed ones measured counts as well.
        value_of: a trial's value by its records so far; None while it has none.
        confirmed: the confirmed means that are known, by trial.
    """
    ended = sorted(
        (record["end"], trial.number, count)
        for trial in trials
        for count, record in enumerate(epochs_of(trial), start=1)
    )
    records = {trial.number: epochs_of(trial) for trial in trials}
    found: list[Incumbent] = []
    best = -math.inf
    for epochs, (_, number, count) in enumerate(ended, start=1):
        value = value_of(records[number][:count])
        if value is not None and value > best:
            best = value
            found.append(Incumbent(epochs=epochs, value=value, trial=number, confirmed=confirmed.get(number)))
    return tuple(found)


def curve_of(incumbents: Sequence[Incumbent], epochs: int) -> Curve:
    """The whole curve of a search of ``epochs`` epochs, a value an epoch; minus infinity before the first value."""
    curve: Curve = np.full(epochs, -np.inf)
    for incumbent in incumbents:
        curve[incumbent.epochs - 1 :] = incumbent.value
    return curve


def compared_curves(loss: str, entries: Mapping[str, Sequence[LossSummary]]) -> dict[str, ComparedCurve]:
    """The curves of ``loss`` beside each other at a few points, and what each costs against the first.

    Args:
        loss: the loss.
        entries: for each label what the summaries of its searches say of the loss; their mean curve is the label's.
            Those that have no value are left out.
    """
    valued = {label: [entry for entry in found if entry.anytime] for label, found in entries.items()}
    curves = {
        label: [curve_of(entry.anytime, entry.epochs) for entry in found] for label, found in valued.items() if found
    }
    first = next(iter(curves), None)
    return {
        label: ComparedCurve(
            loss=loss,
            points=_points(mean_curve(of_label), valued[label]),
            against=first if label != first else None,
            cost_ratio=certain_cost_ratio(of_label, curves[first]) if first is not None and label != first else None,
        )
        for label, of_label in curves.items()
    }


def _points(curve: Curve, entries: Sequence[LossSummary]) -> tuple[CurvePoint, ...]:
    return tuple(_point(curve, share, entries) for share in SHARES)


def _point(curve: Curve, share: float, entries: Sequence[LossSummary]) -> CurvePoint:
    """The curve after a share of its epochs."""
    epochs = math.ceil(share * len(curve))
    last = [[step for step in entry.anytime if step.epochs <= epochs][-1:] for entry in entries]
    confirmed = [step.confirmed for steps in last for step in steps if step.confirmed is not None]
    return CurvePoint(
        epochs=epochs,
        value=float(curve[epochs - 1]) if curve[epochs - 1] > -math.inf else None,
        confirmed=statistics.fmean(confirmed) if len(confirmed) == len(entries) else None,
    )
