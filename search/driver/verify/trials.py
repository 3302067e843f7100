"""Checks of the studies, their trials and their prunings."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from optuna.trial import FrozenTrial, TrialState

from search.driver.verify.records import Check, Records, as_json, check, differing
from search.plan.plan import training_of
from search.plan.search import COPIED_FROM
from search.stages import Stage
from search.study import PRUNERS, pruning_sentence
from search.trials import TrialValue, by_fold, epochs_of, params_of, record_key, record_keys
from spaces.space import Params
from trainables.metrics import metric_name
from trainables.spec import EpochRecord, TrialSpec, derived_seed

# One trial's values, from its epochs.


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


# The studies: their attributes, and of each trial parameters, seed, epochs, values and end.


def check_studies(records: Records, stage: Stage) -> Iterator[Check]:
    """Every study of a stage."""
    for loss in records.losses(stage):
        name = records.name_of(loss, stage)
        numbers = records.numbers(loss, stage)
        if not numbers:
            yield Check(name, is_there=False)
            continue
        if numbers != (all_numbers := list(range(len(numbers)))):  # nothing could be looked up by its number
            yield check(name, differing(f"{name}: the trials' numbers", numbers, all_numbers))
            return
        trials = records.search.trials(loss, stage)
        yield check(f"{name}: what it says of its search", _attribute_problems(records, loss, stage))
        ended = sum(trial.state.is_finished() for trial in trials)
        under_way = "" if ended == len(trials) else f", {ended} of which have ended"
        yield check(
            f"{name}: {len(trials)} trials{under_way}, with parameters, seeds, epochs and values",
            _trial_problems(records, loss, stage, trials),
        )


def _attribute_problems(records: Records, loss: str, stage: Stage) -> Iterator[str]:
    """What an opened study says of itself, compared with what it would say if it were opened anew."""
    name, stored = records.name_of(loss, stage), records.attributes(loss, stage)
    anew = records.search_without((name,)).study(loss, stage).attributes()
    budget, trials = records.plan.budget(loss), records.search.trials(loss, stage)
    for key, value in as_json(anew).items():
        if key.startswith("planned_") and not budget.done(trials):
            continue  # more trials may have been asked for since the last driver
        yield from differing(f"{name} {key}", stored.get(key), value)
    if "ended_early" in stored:
        yield from differing(f"{name} ended_early", stored["ended_early"], budget.early_end(trials))


def _trial_problems(records: Records, loss: str, stage: Stage, trials: Sequence[FrozenTrial]) -> Iterator[str]:
    name = records.name_of(loss, stage)
    first_with: dict[Params, int] = {}
    for trial in trials:
        what = f"{name} trial {trial.number}"
        if trial.state == TrialState.WAITING:
            continue
        yield from _proposal_problems(records, loss, trial, what)
        if COPIED_FROM not in trial.user_attrs:  # another search's own numbers and seed
            first = first_with.get(params_of(trial))
            yield from differing(f"{what} replicate_of", trial.user_attrs.get("replicate_of"), first)
            if stage is Stage.SEARCH:
                seed = derived_seed(records.plan.config.search.seed, loss, trial.number)
                yield from differing(f"{what} seed", trial.user_attrs["seed"], seed)
        first_with.setdefault(params_of(trial), trial.number)
        yield from differing(
            f"{what}: its epochs", record_keys(trial), [record_key(record) for record in epochs_of(trial)]
        )
        spec = training_of(records.plan, loss, stage, trial)
        yield from epoch_problems(trial, spec, records.plan.trial_value(stage), what)
        yield from _end_problems(trial, spec.epochs, what)


def _proposal_problems(records: Records, loss: str, trial: FrozenTrial, what: str) -> Iterator[str]:
    """Check that the parameters lie in the space, and are the default's in trial 0 of a search."""
    space = records.plan.spaces[loss]
    yield from differing(f"{what} params", trial.params, dict(space.complete(trial.params)))
    for parameter, distribution in trial.distributions.items():
        if distribution != space.parameters[parameter].distribution:
            yield (
                f"{what}: {parameter} was drawn from {distribution}, and the search's range is "
                f"{space.parameters[parameter].distribution}."
            )
        if not distribution._contains(distribution.to_internal_repr(trial.params[parameter])):
            yield f"{what}: {parameter} is {trial.params[parameter]}, which lies outside {distribution}."
    if trial.user_attrs.get("default"):
        yield from differing(f"{what} params", trial.params, dict(space.default))


def _end_problems(trial: FrozenTrial, epochs: int, what: str) -> Iterator[str]:
    """Why it ended is what its state says."""
    tell = partial(differing, f"{what} outcome", trial.user_attrs.get("outcome"))
    if trial.state == TrialState.COMPLETE:
        yield from tell(f"all {epochs} epochs trained")
    if trial.state == TrialState.FAIL:
        failure = trial.user_attrs.get("failure")
        yield from tell(f"{failure['cause']}: {failure['reason']}" if failure else None)
    elif "failure" in trial.user_attrs:
        yield f"{what}: it is {trial.state.name}, and a failure is stored ({trial.user_attrs['failure']})."


# The prunings: all reports of a search again, in the order in which they came, to the pruner that it had.

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
    comparison = pruner.rule(records.name_of(loss, Stage.SEARCH))
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
