"""One trial's values, from its epochs."""

import math
from collections.abc import Iterator, Sequence

from optuna.trial import FrozenTrial, TrialState

from search.study.records import epochs_of
from search.study.trial_value import TrialValue, by_fold
from search.verify.check import differing
from trainables.metrics import metric_name
from trainables.spec import TrialSpec
from trainables.training.epoch_record import EpochRecord


def epoch_problems(trial: FrozenTrial, spec: TrialSpec, trial_value: TrialValue, what: str) -> Iterator[str]:
    """What does not fit between the epochs that ``trial`` reported, its value after each step, and its own."""
    records = epochs_of(trial)
    order = [
        (fold, epoch)
        for fold in range(1, len(spec.folds) + 1) or (None,)
        for epoch in range(1, spec.training.epochs + 1)
    ]
    expected = order if trial.state == TrialState.COMPLETE else order[: len(records)]
    found = [(record.get("fold"), record["epoch"]) for record in records]
    yield from differing(f"{what}: its folds and epochs", found, expected)
    measured = {metric_name(name) for name in spec.metrics} if spec.validation_classes or spec.folds else set()
    for record in records:
        yield from differing(
            f"{what} epoch {record['epoch']}: its metrics", sorted(record["metrics"]), sorted(measured)
        )
    for fold in by_fold(records):
        yield from _checkpoint_problems(fold, metric_name(spec.objective), what)
    reached = [trial_value(records[:count]) for count in range(1, len(records) + 1)]
    steps = dict(step for step in reached if step is not None)
    yield from differing(f"{what}: its value after step", trial.intermediate_values, steps)
    if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
        yield from differing(f"{what}: its value", trial.value, steps[max(steps)])


def _checkpoint_problems(records: Sequence[EpochRecord], objective: str, what: str) -> Iterator[str]:
    """A model is kept of each epoch that is the best so far, and of no other."""
    best = -math.inf
    for record in records:
        value = record["metrics"].get(objective, float(record["epoch"]))
        yield from differing(
            f"{what} epoch {record['epoch']}: whether its model was kept",
            record["checkpoint"] is not None,
            value > best,
        )
        best = max(best, value)
