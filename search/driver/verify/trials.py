"""Checks of the studies, of their trials and of the prunings."""

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from optuna.trial import FrozenTrial, TrialState

from search.config.tables import PRUNERS
from search.driver.verify.records import Check, Records, as_json, check, differing
from search.plan.plan import training_of
from search.plan.search import COPIED_FROM
from search.stages import Stage
from search.study import pruning_sentence
from search.trials import TrialValue, by_fold, epochs_of, params_of, record_key, record_keys, whole_training
from spaces.space import Params, lies_within
from trainables.data import Dataset
from trainables.data.marks import GALLERY
from trainables.files import as_path
from trainables.inference.model_files import LOSS, frozen_backbone, is_whole, parsed_tensors
from trainables.metrics import metric_name
from trainables.metrics.table import is_retrieval
from trainables.mistakes import counted
from trainables.spec import EpochRecord, TrialSpec, derived_seed


def check_studies(records: Records, stage: Stage) -> Iterator[Check]:
    """Check every study of ``stage``: its attributes, and each trial's parameters, seed, epochs, values and outcome."""
    for loss in records.losses(stage):
        name = records.name_of(loss, stage)
        numbers = records.numbers(loss, stage)
        if not numbers:
            yield Check(name, is_there=False)
            continue
        if numbers != (all_numbers := list(range(len(numbers)))):  # the checks below look trials up by their number
            yield check(name, differing(f"{name}: the trials' numbers", numbers, all_numbers))
            return
        trials = records.search.trials(loss, stage)
        yield check(f"{name}: the attributes of the study", _attribute_problems(records, loss, stage))
        ended = sum(trial.state.is_finished() for trial in trials)
        unfinished = "" if ended == len(trials) else f" ({ended} ended)"
        yield check(
            f"{name}: {counted(len(trials), 'trial')}{unfinished}, with parameters, seeds, epochs and values",
            _trial_problems(records, loss, stage, trials),
        )


def _attribute_problems(records: Records, loss: str, stage: Stage) -> Iterator[str]:
    """Compare the stored attributes of a study with those that it gets when it is created again."""
    name, stored = records.name_of(loss, stage), records.attributes(loss, stage)
    anew = records.search_without((name,)).study(loss, stage).attributes()
    budget, trials = records.plan.budget(loss), records.search.trials(loss, stage)
    for key, value in as_json(anew).items():
        if key.startswith("planned_") and not budget.done(trials):
            continue  # more trials may have been requested since the last run
        yield from differing(f"{name} {key}", stored.get(key), value)
    if "ended_early" in stored:
        yield from differing(f"{name} ended_early", stored["ended_early"], budget.early_end(trials))


def _trial_problems(records: Records, loss: str, stage: Stage, trials: Sequence[FrozenTrial]) -> Iterator[str]:
    """Check every trial of a study that has started."""
    name = records.name_of(loss, stage)
    first_with: dict[Params, int] = {}
    for trial in trials:
        what = f"{name} trial {trial.number}"
        if trial.state == TrialState.WAITING:
            continue
        yield from _proposal_problems(records, loss, trial, what)
        if copied := trial.user_attrs.get(COPIED_FROM):
            yield from differing(f"{what} {COPIED_FROM}", copied["search"], records.plan.predecessor)
        else:  # copied trials keep the numbers and seeds of their search
            first = first_with.get(params_of(trial))
            yield from differing(f"{what} replicate_of", trial.user_attrs.get("replicate_of"), first)
            if stage is Stage.SEARCH:
                seed = derived_seed(records.plan.config.search.seed, loss, trial.number)
                yield from differing(f"{what} seed", trial.user_attrs["seed"], seed)
        first_with.setdefault(params_of(trial), trial.number)
        yield from differing(
            f"{what}: the keys of its epochs", record_keys(trial), [record_key(record) for record in epochs_of(trial)]
        )
        spec = training_of(records.plan, loss, stage, trial)
        yield from _epoch_problems(trial, spec, records.plan.trial_value(stage), what)
        yield from _class_problems(trial, spec, records.plan.config.dataset.source, what)
        yield from _end_problems(trial, spec.epochs, what)


def check_files(records: Records) -> Iterator[Check]:
    """Check the files of all finished trials: each ``trial.json``, and the best models, which carry a digest."""
    for stage in Stage:
        for loss in records.losses(stage):
            trials = [
                trial
                for trial in records.search.trials(loss, stage)
                if trial.state.is_finished() and COPIED_FROM not in trial.user_attrs and epochs_of(trial)
            ]
            if trials:
                name = records.name_of(loss, stage)
                problems = chain.from_iterable(_file_problems(records, loss, stage, trial) for trial in trials)
                yield check(f"{name}: the files of {counted(len(trials), 'trial')}", problems)


def _file_problems(records: Records, loss: str, stage: Stage, trial: FrozenTrial) -> Iterator[str]:
    from trainables.losses.base import distinct_proxies  # imports torch
    from trainables.training.epoch_training import origin_of
    from trainables.training.inputs import backbone_digest

    spec = training_of(records.plan, loss, stage, trial)
    removable = stage is Stage.SEARCH and records.plan.config.checkpoints.max_gb is not None
    for of_fold in by_fold(epochs_of(trial)):
        training = spec.of_fold(of_fold[0]["fold"]) if spec.folds else spec
        path = as_path(training.directory) / "trial.json"
        stored = json.loads(path.read_bytes()) if path.is_file() else None
        digest = backbone_digest(training.model) if training.model.is_frozen else None
        yield from differing(str(path), stored, as_json({**origin_of(training), **frozen_backbone(digest)}))
        kept = [record for record in of_fold if record["checkpoint"]]
        best = as_path(spec.directory) / str(kept[-1]["checkpoint"]) if kept else None
        if best is None or (removable and not best.is_file()):
            continue
        if not best.is_file():
            yield f"{best}: the model is missing."
        elif not is_whole(content := best.read_bytes()):
            yield f"{best}: the model is damaged (its digest does not match)."
        elif "distinct_proxies" in kept[-1]:
            proxies_CKD = parsed_tensors(content, best)[0][f"{LOSS}proxies"]
            what = f"{best}: the number of distinct proxies"
            yield from differing(what, kept[-1]["distinct_proxies"], distinct_proxies(proxies_CKD))


def _proposal_problems(records: Records, loss: str, trial: FrozenTrial, what: str) -> Iterator[str]:
    """Check that the parameters are within the space, and in trial 0 of a search those of the default."""
    space = records.plan.spaces[loss]
    yield from differing(f"{what} params", trial.params, dict(space.complete(trial.params)))
    for parameter, distribution in trial.distributions.items():
        if not lies_within(distribution, space.parameters[parameter].distribution):  # it may have become wider
            yield (
                f"{what}: {parameter} was drawn from {distribution}, but the range of the search is "
                f"{space.parameters[parameter].distribution}."
            )
        if not distribution._contains(distribution.to_internal_repr(trial.params[parameter])):
            yield f"{what}: {parameter} is {trial.params[parameter]}, outside {distribution}."
    if trial.user_attrs.get("default"):
        yield from differing(f"{what} params", trial.params, dict(space.default))


def _epoch_problems(trial: FrozenTrial, spec: TrialSpec, trial_value: TrialValue, what: str) -> Iterator[str]:
    """Compare the epochs of ``trial`` with its training, and its values with those that follow from the epochs."""
    records = epochs_of(trial)
    order = [
        (fold, epoch)
        for fold in range(1, len(spec.folds) + 1) or (None,)
        for epoch in range(1, spec.training.epochs + 1)
    ]
    expected = order if trial.state == TrialState.COMPLETE else order[: len(records)]
    found = [(record.get("fold"), record["epoch"]) for record in records]
    yield from differing(f"{what}: its folds and epochs", found, expected)
    names = (*map(metric_name, spec.metrics), *spec.costs)
    measured = set(names) if spec.validation_classes or spec.folds else set()
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
    """Check that exactly the epochs that were the best so far have a checkpoint."""
    best = -math.inf
    for record in records:
        value = record["metrics"].get(objective, float(record["epoch"]))
        yield from differing(
            f"{what} epoch {record['epoch']}: whether it has a checkpoint",
            record["checkpoint"] is not None,
            value > best,
        )
        best = max(best, value)


def _class_problems(trial: FrozenTrial, spec: TrialSpec, dataset: Dataset, what: str) -> Iterator[str]:
    """Check that exactly the best epochs so far have values by class, and that their mean by query is the metric."""
    objective, classes, parts = metric_name(spec.objective), dataset.classes(), dataset.parts()
    for record in epochs_of(trial):
        of_class, which = record.get("classes"), f"{what} epoch {record['epoch']}: its objective by class"
        is_recorded = spec.by_class and record["checkpoint"] is not None
        yield from differing(f"{which}, whether it is there", of_class is not None, is_recorded)
        if of_class and is_retrieval(objective):
            validating = (spec.of_fold(record["fold"]) if spec.folds else spec).validation_classes
            queries = {name: sum(parts.get(key) != GALLERY for key in classes[name]) for name in validating}
            yield from differing(f"{which}, the classes", [*of_class], [name for name in validating if queries[name]])
            mean = statistics.fmean(of_class.values(), [queries[name] for name in of_class])
            if not math.isclose(mean, value := record["metrics"][objective], rel_tol=1e-9, abs_tol=1e-12):
                yield from differing(f"{which}, the mean by query", mean, value)


def _end_problems(trial: FrozenTrial, epochs: int, what: str) -> Iterator[str]:
    """Check that the outcome and the failure of ``trial`` agree with its state."""
    compared = partial(differing, f"{what} outcome", trial.user_attrs.get("outcome"))
    if trial.state == TrialState.COMPLETE:
        yield from compared(whole_training(epochs))
    if trial.state == TrialState.FAIL:
        failure = trial.user_attrs.get("failure")
        yield from compared(f"{failure['cause']}: {failure['reason']}" if failure else None)
    elif "failure" in trial.user_attrs:
        yield f"{what}: it is {trial.state.name}, but a failure is stored ({trial.user_attrs['failure']})."


# The prunings

DuePrunings = Mapping[tuple[int, int], str]
"""The reasons for pruning, by trial number and step."""
Interrupted = Callable[[FrozenTrial, int], bool]
"""``interrupted(trial, step)``: True if the driver restarted after the trial's report of ``step``."""


def check_prunings(records: Records) -> Iterator[Check]:
    """Replay all reports of each search in their order, and check that its pruner prunes the same trials.

    A pruned trial must have the recomputed reason; every other trial must pass each of its comparisons.
    """
    for loss in records.plan.config.loss_names:
        trials = [trial for trial in records.search.trials(loss, Stage.SEARCH) if trial.state != TrialState.WAITING]
        if not trials:
            continue
        pruned = sum(trial.state == TrialState.PRUNED for trial in trials)
        name = records.name_of(loss, Stage.SEARCH)
        what = f"{name}: {pruned or 'no'} pruning{'s' * (pruned != 1)}, from all reports in their order"
        epochs = records.plan.config.training.epochs if records.plan.split.folds else 1
        interrupted = partial(_interrupted, epochs=epochs, sessions=records.search.sessions)
        yield check(what, _pruning_problems(name, trials, _due_prunings(records, loss, trials), interrupted))


def _due_prunings(records: Records, loss: str, trials: Sequence[FrozenTrial]) -> DuePrunings:
    """Return the prunings that follow from the reports of a search."""
    plan = records.plan
    by_number = {trial.number: trial for trial in trials}
    trial_value = plan.trial_value(Stage.SEARCH)
    pruner = PRUNERS[plan.config.search.pruner](steps=plan.steps, unit=plan.unit)
    comparison = pruner.rule(records.name_of(loss, Stage.SEARCH))
    for trial in trials:
        if COPIED_FROM in trial.user_attrs:  # copied before the first report
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


def _pruning_problems(
    name: str, trials: Sequence[FrozenTrial], due: DuePrunings, interrupted: Interrupted
) -> Iterator[str]:
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
            yield f"{name} trial {number}: it is {trial.state.name} and was not pruned; recomputed: {sentence}."


def _interrupted(trial: FrozenTrial, step: int, *, epochs: int, sessions: Sequence[float]) -> bool:
    """Return True if a session began between the report of ``step`` and the end of ``trial``.

    A driver that dies between a report and its decision does not prune the trial. A step has ``epochs`` epochs.
    """
    ends = [record["end"] for record in epochs_of(trial)[: step * epochs]]
    ended = trial.datetime_complete
    return any(max(ends) < began and (ended is None or began < ended.timestamp()) for began in sessions)
