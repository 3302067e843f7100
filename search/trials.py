"""A trial as its study stores it: its parameters, its epochs and its value."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Protocol

from optuna.trial import FrozenTrial, TrialState

from spaces.space import Params, Value
from trainables.spec import EpochRecord

# The epochs of a trial, as its user attributes hold them: ``epoch:<n>``, of a fold ``epoch:<fold>:<n>``.

EPOCH = "epoch:"
"""What the keys begin with."""


def record_key(record: EpochRecord) -> str:
    """The user attribute that holds ``record``; keys sort in the order of the epochs."""
    fold = f"{record['fold']:03d}:" if "fold" in record else ""
    return f"{EPOCH}{fold}{record['epoch']:06d}"


def record_keys(trial: "FrozenTrial") -> list[str]:
    """The keys of all epochs that ``trial`` has reported, in order."""
    return sorted(key for key in trial.user_attrs if key.startswith(EPOCH))


def epochs_of(trial: "FrozenTrial") -> list[EpochRecord]:
    """The records of all epochs that ``trial`` has reported, in order."""
    return [trial.user_attrs[key] for key in record_keys(trial)]


def count_epochs(trial: "FrozenTrial") -> int:
    """The number of epochs that ``trial`` has reported."""
    return sum(key.startswith(EPOCH) for key in trial.user_attrs)


def epochs_trained(trials: "Iterable[FrozenTrial]") -> int:
    """The number of epochs that ``trials`` have reported."""
    return sum(map(count_epochs, trials))


# The configurations of a study's trials, as their user attribute ``params`` holds them, pinned values too.


def configuration_of(trial: FrozenTrial) -> Params:
    """What ``trial`` proposed."""
    return Params(trial.user_attrs["params"])


def by_configuration(trials: Sequence[FrozenTrial]) -> list[list[FrozenTrial]]:
    """``trials`` with equal parameters together, in the order of each configuration's first trial."""
    groups: dict[Params, list[FrozenTrial]] = {}
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


# A trial's value while it runs: one after each step, which pruning compares; the last one is the trial's own.
#
# A step is an epoch. In a cross-validation it is a fold, and every trial trains the same folds in the same order.


class TrialValue(Protocol):
    """A rule that gives the records of a trial, as far as it has come, their step and value."""

    unit: ClassVar[str]

    @property
    def objective(self) -> str:
        """The validation metric that is looked at."""

    def __call__(self, records: Sequence[EpochRecord]) -> tuple[int, float] | None:
        """The step that the last record ends and the value then; None where it ends none."""


@dataclass(frozen=True, kw_only=True)
class ByEpoch:
    """The best validation so far, after each epoch; minus the training loss where nothing validates."""

    unit: ClassVar[str] = "epoch"
    objective: str

    def __call__(self, records: Sequence[EpochRecord]) -> tuple[int, float]:
        last = records[-1]
        if not last["metrics"]:
            return last["epoch"], -last["loss"]
        return last["epoch"], best_value(records, self.objective)


@dataclass(frozen=True, kw_only=True)
class ByFold:
    """The mean over the folds done of each one's best validation, after each fold of ``epochs``."""

    unit: ClassVar[str] = "fold"
    objective: str
    epochs: int

    def __call__(self, records: Sequence[EpochRecord]) -> tuple[int, float] | None:
        if records[-1]["epoch"] < self.epochs:
            return None
        folds = by_fold(records)
        return len(folds), statistics.fmean(best_value(fold, self.objective) for fold in folds)


def by_fold(records: Sequence[EpochRecord]) -> list[list[EpochRecord]]:
    """The records of each fold; of a training without folds, all of them as one."""
    return [list(fold) for _, fold in groupby(records, key=lambda record: record.get("fold"))]


def best_value(records: Sequence[EpochRecord], objective: str) -> float:
    """The highest validation of one training."""
    return max(record["metrics"][objective] for record in records)


def best_epochs(records: Sequence[EpochRecord], objective: str) -> list[int]:
    """The first epoch of each fold at which its validation was highest."""
    return [max(fold, key=lambda record: record["metrics"][objective])["epoch"] for fold in by_fold(records)]
