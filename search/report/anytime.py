"""A study's anytime curve: its incumbents, in the order in which epochs ended."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from optuna.trial import FrozenTrial

from search.report.statistics.anytime import Curve, cost_ratio, mean_curve
from search.study.records import epochs_of
from trainables.epoch_record import EpochRecord

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Where a curve is shown: after these shares of the epochs."""

Label = TypeVar("Label")


def incumbents(
    trials: Sequence[FrozenTrial],
    value_of: Callable[[Sequence[EpochRecord]], float | None],
    confirmed: Mapping[int, float],
) -> list[dict[str, int | float | None]]:
    """Each improvement of a search: after how many epochs of all trials, to which value, by which trial.

    Args:
        trials: the trials of a search study; what pruned and failed ones measured counts as well.
        value_of: a trial's value by its records so far; None while it has none.
        confirmed: the confirmed means that are known, by trial.

    Returns:
        one entry an improvement; ``confirmed`` is its trial's confirmed mean, None where it was not confirmed.
    """
    ended = sorted(
        (record["end"], trial.number, count)
        for trial in trials
        for count, record in enumerate(epochs_of(trial), start=1)
    )
    records = {trial.number: epochs_of(trial) for trial in trials}
    found: list[dict[str, int | float | None]] = []
    best = -math.inf
    for epochs, (_, number, count) in enumerate(ended, start=1):
        value = value_of(records[number][:count])
        if value is not None and value > best:
            best = value
            found.append({"epochs": epochs, "value": value, "trial": number, "confirmed": confirmed.get(number)})
    return found


def curve_of(entry: Mapping[str, Any]) -> Curve:
    """The whole curve of a loss in ``summary.json``, an entry an epoch; minus infinity before the first value."""
    curve: Curve = np.full(entry["epochs"], -np.inf)
    for step in entry["anytime"]:
        curve[step["epochs"] - 1 :] = step["value"]
    return curve


def compared_curves(entries: Mapping[Label, Sequence[Mapping[str, Any]]]) -> dict[Label, dict[str, Any]]:
    """Curves beside each other at a few places, and what each costs against the first.

    Args:
        entries: for each label what the summaries of its searches say of one loss; their mean curve is the label's.
            Those that have no value are left out.
    """
    valued = {label: [entry for entry in found if entry["anytime"]] for label, found in entries.items()}
    curves = {label: mean_curve([curve_of(entry) for entry in found]) for label, found in valued.items() if found}
    first = next(iter(curves), None)
    return {
        label: {
            "places": [_place(curve, share, valued[label]) for share in SHARES],
            "against": first if label != first else None,
            "cost_ratio": cost_ratio(curve, curves[first]) if first is not None and label != first else None,
        }
        for label, curve in curves.items()
    }


def _place(curve: Curve, share: float, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The curve after a share of its epochs, and the incumbents' mean confirmed value where all are confirmed."""
    epochs = math.ceil(share * len(curve))
    steps = [[step for step in entry["anytime"] if step["epochs"] <= epochs][-1:] for entry in entries]
    confirmed = [step["confirmed"] for last in steps for step in last if step["confirmed"] is not None]
    return {
        "epochs": epochs,
        "value": float(curve[epochs - 1]) if curve[epochs - 1] > -math.inf else None,
        "confirmed": statistics.fmean(confirmed) if len(confirmed) == len(entries) else None,
    }
