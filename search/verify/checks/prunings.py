"""The prunings: all reports of a search again, in the order in which they came, to the pruner that it had."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from optuna.trial import FrozenTrial, TrialState

from search.plan.copied_trials import COPIED_FROM
from search.study.names import Stage
from search.study.pruners import PRUNERS
from search.study.records import epochs_of
from search.study.study import pruning_sentence
from search.verify.check import Check, check, differing
from search.verify.records import Records

Pruned = Mapping[tuple[int, int], str]
"""Why a trial was to be pruned after a step, by both numbers."""
Interrupted = Callable[[FrozenTrial, int], bool]


def check_prunings(records: Records) -> Iterator[Check]:
    """What was pruned had to be, for the reason that is stored, and what went on was right to."""
    for loss in records.plan.config.loss_names:
        trials = [trial for trial in records.search.trials(loss, Stage.SEARCH) if trial.state != TrialState.WAITING]
        if not trials:
            continue
        pruned = sum(trial.state == TrialState.PRUNED for trial in trials)
        name = records.name_of(loss, Stage.SEARCH)
        what = f"{name}: {pruned or 'no'} prunings, from all reports in their order"
        epochs = records.plan.config.training.epochs if records.plan.split.folds else 1
        interrupted = partial(_interrupted, epochs=epochs, sessions=records.search.sessions)
        yield check(what, _problems(name, trials, _replayed(records, loss, trials), interrupted))


def _replayed(records: Records, loss: str, trials: Sequence[FrozenTrial]) -> Pruned:
    plan = records.plan
    by_number = {trial.number: trial for trial in trials}
    trial_value = plan.trial_value(Stage.SEARCH)
    pruner = PRUNERS[plan.config.search.pruner](steps=plan.steps, unit=plan.unit)
    comparison = pruner.comparison(records.name_of(loss, Stage.SEARCH))
    for trial in trials:
        if COPIED_FROM in trial.user_attrs:  # they were there before the first report
            comparison.add(trial)
    due: dict[tuple[int, int], str] = {}
    for number, step, value in records.reports(loss):
        trial = by_number[number]
        if COPIED_FROM in trial.user_attrs:
            continue
        reason = comparison.reason(number, step, value)
        if reason and number and step < plan.steps:
            due[number, step] = pruning_sentence(trial_value, step, value, reason)
        if step == max(trial.intermediate_values):
            comparison.end(trial)
    return due


def _problems(name: str, trials: Sequence[FrozenTrial], due: Pruned, interrupted: Interrupted) -> Iterator[str]:
    by_number = {trial.number: trial for trial in trials}
    for trial in trials:
        if trial.state == TrialState.PRUNED and COPIED_FROM not in trial.user_attrs:
            expected = due.get((trial.number, max(trial.intermediate_values)))
            yield from differing(f"{name} trial {trial.number} outcome", trial.user_attrs["outcome"], expected)
    for (number, step), sentence in due.items():
        trial = by_number[number]
        ended_there = step == max(trial.intermediate_values)
        if ended_there and trial.state in (TrialState.PRUNED, TrialState.RUNNING):
            continue
        if not interrupted(trial, step):
            yield f"{name} trial {number}: it is {trial.state.name} and went on; recomputed, it was {sentence}."


def _interrupted(trial: FrozenTrial, step: int, *, epochs: int, sessions: Sequence[float]) -> bool:
    """Whether a driver began after ``step``, of ``epochs`` epochs: one that dies before it answers prunes nothing."""
    ends = [record["end"] for record in epochs_of(trial)[: step * epochs]]
    ended = trial.datetime_complete
    return any(max(ends) < began and (ended is None or began < ended.timestamp()) for began in sessions)
