"""A trial's value while it runs: one after each step, which pruning compares; the last one is the trial's own.

A step is an epoch. In a cross-validation it is a fold, and every trial trains the same folds in the same order.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Protocol

from trainables.training.epoch_record import EpochRecord


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
