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
    """The mean value of the complete trials with ``params``: a lucky replicate is not a better configuration."""
    return mean_of([trial for trial in trials if trial.user_attrs.get("params") == params])


def mean_of(trials: Sequence[FrozenTrial]) -> float | None:
    """The mean value of the complete ones among ``trials``, which have the same configuration."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    values = [trial.value for trial in complete if trial.value is not None]
    return statistics.fmean(values) if values else None
