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
    groups: list[list[FrozenTrial]] = []
    for trial in trials:
        same = (group for group in groups if configuration_of(group[0]) == configuration_of(trial))
        if group := next(same, None):
            group.append(trial)
        else:
            groups.append([trial])
    return groups


def mean_value(trials: Sequence[FrozenTrial], params: Mapping[str, Value]) -> float | None:
    """The mean value of the complete trials with ``params``: a lucky replicate is not a better configuration."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    values = [trial.value for trial in complete if configuration_of(trial) == params and trial.value is not None]
    return statistics.fmean(values) if values else None
