"""The configurations of a study's trials, as their user attribute ``params`` holds them, pinned values too."""

import statistics
from collections.abc import Mapping, Sequence

from optuna.trial import FrozenTrial, TrialState

from spaces.configuration import Configuration
from spaces.value import Value


def configuration_of(trial: FrozenTrial) -> Configuration:
    """What ``trial`` proposed."""
    return Configuration(trial.user_attrs["params"])


def by_configuration(trials: Sequence[FrozenTrial]) -> list[list[FrozenTrial]]:
    """``trials`` with equal parameters together, in the order of each configuration's first trial."""
    groups: dict[Configuration, list[FrozenTrial]] = {}
    for trial in trials:
        groups.setdefault(configuration_of(trial), []).append(trial)
    return list(groups.values())


def mean_value(trials: Sequence[FrozenTrial], params: Mapping[str, Value]) -> float | None:
    """The mean value of the trials with ``params``: a lucky replicate is not a better configuration."""
    return mean_of([trial for trial in trials if trial.user_attrs.get("params") == params])


def mean_of(trials: Sequence[FrozenTrial]) -> float | None:
    """The mean of :func:`values_of` ``trials``; None without any."""
    values = values_of(trials)
    return statistics.fmean(values) if values else None


def values_of(trials: Sequence[FrozenTrial]) -> tuple[float, ...]:
    """The values of ``trials``, which have the same configuration; none where not one is complete.

    A pruned replicate counts too, as if it had gained from there to its end what the complete ones gained on average:
    to leave out the unlucky ones would flatter those that are left.
    """
    complete = [(trial, trial.value) for trial in trials if trial.state == TrialState.COMPLETE]
    values = [value for _, value in complete if value is not None]
    for trial in trials:
        if trial.state != TrialState.PRUNED or not trial.intermediate_values:
            continue
        step = max(trial.intermediate_values)
        gains = [
            value - other.intermediate_values[step]
            for other, value in complete
            if value is not None and step in other.intermediate_values
        ]
        if gains:
            values.append(trial.intermediate_values[step] + statistics.fmean(gains))
    return tuple(values)
