"""A study's anytime curve: its incumbents, in the order in which epochs ended."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial

from search.statistics.anytime import Curve
from search.study import epochs_of
from trainables.train import EpochRecord


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
