"""A trial as its study stores it: its epochs, its parameters and its value; and counts of trials."""

import copy
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from spaces.space import Params

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from trainables.training.spec import EpochRecord, TrialSpec

# The epochs of a trial are user attributes: ``epoch:<n>``, in a cross-validation ``epoch:<fold>:<n>``.

EPOCH = "epoch:"


def record_key(record: "EpochRecord") -> str:
    """Return the user attribute that holds ``record``; keys sort in the order of the epochs."""
    fold = f"{record['fold']:03d}:" if "fold" in record else ""
    return f"{EPOCH}{fold}{record['epoch']:06d}"


def record_keys(trial: "FrozenTrial") -> list[str]:
    """Return the keys of all epochs that ``trial`` has reported, in order."""
    return sorted(key for key in trial.user_attrs if key.startswith(EPOCH))


def epochs_of(trial: "FrozenTrial") -> "list[EpochRecord]":
    """Return the records of all epochs that ``trial`` has reported, in order."""
    return [trial.user_attrs[key] for key in record_keys(trial)]


def whole_training(trial: "FrozenTrial", spec: "TrialSpec") -> str:
    """Return the outcome of a trial that trained all epochs of ``spec``."""
    text = "its only epoch trained" if spec.epochs == 1 else f"all {spec.epochs} epochs trained"
    nothing = learned_nothing(trial, own=spec.trainable is not None)
    return f"{text}, but the loss was 0 in all of them: nothing was learned" if nothing else text


def learned_nothing(trial: "FrozenTrial", *, own: bool) -> bool:
    """Return True if the loss of every epoch was exactly 0, as of pairs where no batch has one that counts."""
    records = epochs_of(trial)
    if not records or any(record.get("loss") != 0 for record in records):
        return False
    return not own or is_constant(records)  # a library may clear the loss of a user-defined training


def is_constant(records: "Sequence[EpochRecord]") -> bool:
    """Return True if each fold has two epochs or more, and the same metrics, apart from costs, in all of them."""
    folds = by_fold(sorted(records, key=lambda record: record.get("fold", 0)))
    found = [[{**record["metrics"], "embed_ms": 0, "size_mb": 0} for record in fold] for fold in folds]
    return all(of.count(of[0]) == len(of) > 1 and len(of[0]) > 2 for of in found)


def changed(trial: "FrozenTrial", **changes: Any) -> "FrozenTrial":
    """Return a copy of ``trial`` with other values of some of its attributes."""
    result = copy.copy(trial)
    for name, value in changes.items():
        setattr(result, name, value)
    return result


class InState:
    """The number of trials in a state, by its name."""

    def __init__(self, state: str) -> None:
        self._state = state

    def __get__(self, tally: "Tally", owner: object = None) -> int:
        return tally.states[self._state]


@dataclass(kw_only=True)
class Tally:
    """Counts of a study's trials and epochs.

    ``states`` counts trials by the name of their state (Optuna's ``TrialState``), ``epochs`` the epochs that they
    reported, ``epochs_running`` those of running trials, and ``code_errors`` failures due to the code by their place.
    ``work_ms`` is the time of all epochs in whole milliseconds, so that it does not depend on their order. ``best`` is
    the highest value of a complete trial, None before the first one.
    """

    states: Counter[str] = field(default_factory=Counter)
    epochs: int = 0
    epochs_running: int = 0
    work_ms: int = 0
    code_errors: Counter[str] = field(default_factory=Counter)
    untestable: int = 0
    best: float | None = None

    waiting = InState("WAITING")
    """The number of enqueued trials that have not started."""
    running = InState("RUNNING")
    complete = InState("COMPLETE")
    pruned = InState("PRUNED")
    failed = InState("FAIL")

    @classmethod
    def of(cls, trials: "Iterable[FrozenTrial]") -> "Tally":
        tally = cls()
        for trial in trials:
            tally.count(trial)
        return tally

    def count(self, trial: "FrozenTrial", sign: int = 1) -> None:
        """Add a trial; with ``sign`` -1, remove it as it was before a change."""
        records = epochs_of(trial)
        epochs = sign * len(records)
        self.states[trial.state.name] += sign
        self.epochs += epochs
        self.work_ms += sign * sum(round(1000 * (record["end"] - record["start"])) for record in records)
        failure = trial.user_attrs.get("failure", {})
        if failure.get("cause") == "CODE_ERROR":
            self.code_errors[failure.get("place", failure["reason"])] += sign
            self.untestable += sign * failure.get("untestable", False)
        if trial.state.name == "RUNNING":
            self.epochs_running += epochs
        if trial.state.name == "COMPLETE" and trial.value is not None:  # complete trials never change
            self.best = trial.value if self.best is None else max(self.best, trial.value)

    @property
    def trials(self) -> int:
        return self.states.total()

    @property
    def started(self) -> int:
        """The number of trials that have started, finished ones included."""
        return self.trials - self.waiting

    @property
    def ended(self) -> int:
        """The number of complete, pruned and failed trials."""
        return self.started - self.running

    @property
    def failed_without_value(self) -> int:
        """The number of failures due to the code if no trial has a value of a model that can be tested, 0 otherwise."""
        valued = self.complete or self.pruned or self.epochs_running
        return self.code_errors.total() if self.untestable or not valued else 0

    @property
    def stopped(self) -> bool:
        """True if no model can be tested, or the code failed in one line in two trials before any reported an epoch."""
        return bool(self.untestable) or (not self.epochs and max(self.code_errors.values(), default=0) > 1)


# Trials with equal parameters are replicates: they differ in their seeds only.


def params_of(trial: "FrozenTrial") -> Params:
    """Return the parameters of ``trial``, pinned ones included, in a form that can be a dictionary's key."""
    return Params(trial.params)


def values_of(trials: "Sequence[FrozenTrial]") -> tuple[float, ...]:
    """Return the values of ``trials``, which have equal parameters; empty if no trial is complete.

    A pruned replicate is extrapolated: it is assumed to gain from its last step to the end as much as the complete
    replicates did on average. Leaving pruned replicates out would bias the mean upwards.
    """
    complete = [(trial, trial.value) for trial in trials if trial.state.name == "COMPLETE"]
    values = [value for _, value in complete if value is not None]
    for trial in trials:
        if trial.state.name != "PRUNED" or not trial.intermediate_values:
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


def running_value(records: "Sequence[EpochRecord]", objective: str) -> float:
    """Return the value of a trial after its last record, which pruning compares: the best validation so far.

    In a cross-validation it is the mean over the complete folds, and within the first fold that of its epochs so far.
    Without validation it is minus the last training loss.
    """
    if not records[-1]["metrics"]:
        return value_in(records[-1], objective)
    first, *others = by_fold(records)
    complete = [first, *(fold for fold in others if len(fold) == len(first))]
    return statistics.fmean(max(value_in(record, objective) for record in fold) for fold in complete)


def by_fold(records: "Sequence[EpochRecord]") -> "list[list[EpochRecord]]":
    """Group records by fold; a training without folds is one group."""
    return [list(fold) for _, fold in groupby(records, key=lambda record: record.get("fold"))]


def value_in(record: "EpochRecord", objective: str) -> float:
    """Return the validation of one epoch, or minus its training loss if nothing is validated."""
    value = record["metrics"].get(objective, -record.get("loss", 0.0))
    assert value is not None, "a training without its objective fails"
    return value


def classes_of(trial: "FrozenTrial") -> dict[str, float]:
    """Return the objective of each class that validated ``trial``, at the best epoch of each fold.

    Empty unless the trial records them, and if the objective has no values by class.
    """
    kept = [record for fold in by_fold(epochs_of(trial)) for record in fold if record["checkpoint"]]
    return {name: value for record in kept for name, value in record.get("classes", {}).items()}


def best_epochs(records: "Sequence[EpochRecord]", objective: str) -> list[int]:
    """Return for each fold the first epoch with its highest validation."""
    return [max(fold, key=lambda record: value_in(record, objective))["epoch"] for fold in by_fold(records)]
