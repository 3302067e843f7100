"""The outcome of a check, and the checks of studies: what of each trial follows from its params and epochs."""

import json
import math
import operator
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from optuna.trial import FrozenTrial, TrialState

from search.records.plan import training_of
from search.records.records import Records
from search.records.writable import WritableRecords, in_memory
from search.stages import Stage, study_name
from search.study import QueuedStage, StudyStorage, pruning_sentence
from search.tables import PRUNERS
from search.trials import epochs_of, params_of, record_key, record_keys, running_value, value_in, whole_training
from spaces.space import Params
from trainables.common.errors import counted, listed
from trainables.common.files import read_json
from trainables.common.ranges import range_of
from trainables.common.storage import AnyPath
from trainables.metrics import is_retrieval, metric_name
from trainables.training.spec import TrialSpec, derived_seed

LONGEST = 160
"""Most characters of a value in a sentence."""
ABSENT = object()
"""A value that a record does not have."""


class Check(NamedTuple):
    """The outcome of checking ``what``: the first problem, or None; ``is_there`` is False if nothing is stored yet."""

    what: str
    problem: str | None = None
    is_there: bool = True


def check(what: str, problems: Iterable[str]) -> Check:
    """Return the check of ``what`` with the first of ``problems``; do not compute the others."""
    return Check(what, next(iter(problems), None))


def differing(what: str, stored: Any, recomputed: Any, same: Callable[[Any, Any], bool] = operator.eq) -> Iterator[str]:
    """Yield a sentence for each place at which two records differ, with the path to it; ``same`` compares floats."""
    pairs: dict[Any, tuple[Any, Any]] = {}
    both_lists = all(isinstance(each, Sequence) and not isinstance(each, str) for each in (stored, recomputed))
    if isinstance(stored, Mapping) and isinstance(recomputed, Mapping):
        keys = dict.fromkeys((*stored, *recomputed))
        pairs = {key: (stored.get(key, ABSENT), recomputed.get(key, ABSENT)) for key in keys}
    elif both_lists and len(stored) == len(recomputed):
        pairs = dict(enumerate(zip(stored, recomputed, strict=True)))
    elif not (same if isinstance(stored, float) and isinstance(recomputed, float) else operator.eq)(stored, recomputed):
        yield f"{what.rstrip()}: {_shown(stored)} is stored, {_shown(recomputed)} recomputed."
    for key, pair in pairs.items():
        yield from differing(f"{what}{'' if what.endswith(' ') else '.'}{key}", *pair, same)


def _shown(value: Any) -> str:
    text = "nothing" if value is ABSENT else json.dumps(value, default=str)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def file_problems(path: AnyPath, recomputed: Any) -> Iterator[str]:
    """Compare the JSON file at ``path`` with its ``recomputed`` content."""
    stored = read_json(path) if path.is_file() else ABSENT
    yield from differing(f"{path} ", stored, json.loads(json.dumps(recomputed)))


Pair = tuple[str, Any, Any]
"""The name of a part of a trial, with its stored and its recomputed value."""
Reports = Sequence[tuple[int, int, float]]
"""The (trial number, step, value) of all reports of a study, in their order."""
Prunings = Mapping[tuple[int, int], str]
"""The reasons for pruning, by trial number and step."""


def studies_in(search: Records) -> list[tuple[Stage, str]]:
    """Return the stages and losses of all studies that the search may have."""
    return [(stage, loss) for stage in Stage for loss in search.config.loss_names]


def check_studies(search: Records) -> Iterator[Check]:
    """Check every study: its attributes, and all that follows of each trial from its params and epochs."""
    reports, known = search.counts.reports, {study_name(search.name, loss, stage) for stage, loss in studies_in(search)}
    if others := sorted({study.study_name for study in search.studies.get_all_studies()} - known):
        yield Check("", f"study.journal: {listed(others)} {'is' if len(others) == 1 else 'are'} not of this search.")
    for stage, loss in studies_in(search):
        name = study_name(search.name, loss, stage)
        trials = search.trials(loss, stage)
        prunings = " and prunings" if stage is Stage.SEARCH else ""
        what = f"{name}: {counted(len(trials), 'trial')}, seeds, epochs, values{prunings}"
        problems = _study_problems(search, loss, stage, trials, reports.get(name, ()))
        yield check(what, problems) if trials else Check(name, is_there=False)


def _study_problems(
    search: Records, loss: str, stage: Stage, trials: Sequence[FrozenTrial], reports: Reports
) -> Iterator[str]:
    name, budget = study_name(search.name, loss, stage), search.plan.budget(loss)
    yield from differing(f"{name} trials", [trial.number for trial in trials], list(range(len(trials))))
    stored = search.attributes(loss, stage)
    anew = WritableRecords(search.folder, search.plan, storage=StudyStorage()).study(loss, stage).attributes()
    if not budget.done(trials):  # more trials may have been requested since the last run
        anew = {key: value for key, value in anew.items() if not key.startswith("planned_")}
    if "ended_early" in stored:
        anew["ended_early"] = budget.early_end(trials)
    yield from differing(name, {key: stored.get(key) for key in anew}, anew)
    begun = [trial for trial in trials if trial.state != TrialState.WAITING]
    due = _due_prunings(search, loss, begun, reports) if stage is Stage.SEARCH else {}
    first_with: dict[Params, int] = {}
    for trial in begun:
        first = first_with.setdefault(params_of(trial), trial.number)
        for part, *pair in _parts(search, loss, stage, trial, None if first == trial.number else first, due):
            yield from differing(f"{name} trial {trial.number}: {part}", *pair)


def _parts(
    search: Records, loss: str, stage: Stage, trial: FrozenTrial, first: int | None, due: Prunings
) -> Iterator[Pair]:
    """Yield all parts of a trial that follow from others; ``first`` is the first trial with the same params."""
    plan, attributes, space = search.plan, trial.user_attrs, search.plan.spaces[loss]
    yield "params", trial.params, dict(space.default if attributes.get("default") else space.complete(trial.params))
    for name, drawn in trial.distributions.items():
        if not space.parameters[name].covers(range_of(drawn)):  # it may have become wider
            yield f"the range of {name}", str(drawn), str(space.parameters[name].distribution)
        if not drawn._contains(drawn.to_internal_repr(trial.params[name])):
            yield name, trial.params[name], f"a value of {drawn}"
    yield "replicate_of", attributes.get("replicate_of"), first
    if stage is Stage.SEARCH:
        yield "seed", attributes["seed"], derived_seed(plan.config.search.seed, loss, trial.number)
    spec = training_of(plan, loss, stage, trial)
    yield from _epochs(trial, spec, plan.queries)
    records, objective = epochs_of(trial), plan.config.objective
    values = {step: running_value(records[:step], objective) for step in range(1, len(records) + 1)}
    last = max(values, default=0)
    yield "values", trial.intermediate_values, values
    if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
        yield "value", trial.value, values[last]
    failure = attributes.get("failure") if trial.state == TrialState.FAIL else None
    yield "failure", attributes.get("failure"), failure
    outcome = {
        TrialState.COMPLETE: whole_training(trial, spec),
        TrialState.FAIL: failure and f"{failure['cause']}: {failure['reason']}",
        TrialState.PRUNED: due.get((trial.number, last)),
    }
    yield "outcome", attributes.get("outcome"), outcome.get(trial.state)
    for (number, step), sentence in due.items():
        if number == trial.number and not (step == last and trial.state == TrialState.PRUNED):
            yield "outcome", attributes.get("outcome"), sentence


def _epochs(trial: FrozenTrial, spec: TrialSpec, queries_of: Mapping[str, int]) -> Iterator[Pair]:
    """Yield the folds, metrics, checkpoints and classes of the epochs; ``queries_of`` counts those of each class.

    Exactly the best epochs so far have a checkpoint and values by class, whose mean by query is the objective.
    """
    records, objective = epochs_of(trial), metric_name(spec.objective)
    folds = range(1, len(spec.folds) + 1) if spec.folds else (None,)
    order = [(fold, epoch) for fold in folds for epoch in range(1, spec.training.epochs + 1)]
    order = order if trial.state == TrialState.COMPLETE else order[: len(records)]
    yield "epochs", [(record.get("fold"), record["epoch"]) for record in records], order
    yield "keys of the epochs", record_keys(trial), [record_key(record) for record in records]
    measured = (*map(metric_name, spec.metrics), *spec.costs) if spec.validation_classes or spec.folds else ()
    best = -math.inf
    for record in records:
        fold, epoch = record.get("fold"), record["epoch"]
        value = value_in(record, objective) if objective in record["metrics"] else float(epoch)
        best = -math.inf if epoch == 1 else best
        found, is_best, best = record.get("classes"), value > best, max(value, best)
        stored = sorted(record["metrics"]), record["checkpoint"] is not None, found is not None
        anew = sorted(measured), is_best, is_best and spec.by_class
        yield f"epoch {epoch}: metrics, checkpoint, classes", stored, anew
        if found and is_retrieval(objective):
            validating = (spec.of_fold(fold) if fold else spec).validation_classes
            queries = {name: count for name in validating if (count := queries_of[name])}
            yield f"epoch {epoch}: classes", [*found], [*queries]
            mean = statistics.fmean(found.values(), queries.values())
            if not math.isclose(mean, value, rel_tol=1e-9, abs_tol=1e-12):
                yield f"epoch {epoch}: mean of the classes by query", mean, value


def _due_prunings(search: Records, loss: str, trials: Sequence[FrozenTrial], reports: Reports) -> Prunings:
    """Return the prunings that follow from all reports in their order; trial 0 is never pruned."""
    plan, name = search.plan, study_name(search.name, loss, Stage.SEARCH)
    rule = PRUNERS[plan.config.search.pruner](steps=plan.steps).rule(name)
    by_number = {trial.number: trial for trial in trials}
    due: dict[tuple[int, int], str] = {}
    for number, step, value in reports:
        if number not in by_number:
            continue
        reason = rule.reason(number, step, value)
        if reason and number and step < plan.steps:
            due[number, step] = pruning_sentence(plan.config.objective, step, value, reason)
    return due


def check_enqueued(search: Records, stage: Stage, queue: Callable[[WritableRecords], QueuedStage]) -> Iterator[Check]:
    """Check that the studies of ``stage`` have the trials that ``queue`` enqueues, if the stage has begun."""
    stored = {study_name(search.name, loss, stage): search.trials(loss, stage) for loss in search.config.loss_names}
    if not any(stored.values()):
        return
    for queued in queue(in_memory(search, without=stored)).studies:
        name, wanted = queued.study.name, queued.study.trials()
        what = f"{name}: {counted(len(wanted), 'trial')}, as they follow from the stage before"
        yield check(what, _enqueued_problems(name, stored[name], wanted))


def _enqueued_problems(name: str, stored: Sequence[FrozenTrial], wanted: Sequence[FrozenTrial]) -> Iterator[str]:
    """Yield the wanted trials that are not stored once as wanted; those of earlier finalists may be there, too."""
    for trial in wanted:
        found = [entry for entry in stored if trial.user_attrs.items() <= entry.user_attrs.items()]
        yield from differing(f"{name} trials with {trial.user_attrs}, their number", len(found), 1)
        for entry in found:
            is_waiting = entry.state == TrialState.WAITING
            params = entry.system_attrs.get("fixed_params") if is_waiting else entry.params
            yield from differing(f"{name} trial {entry.number}: params", params, trial.system_attrs["fixed_params"])
    seeds = sorted({trial.user_attrs["seed"] for trial in wanted})
    for entry in stored:
        if (seed := entry.user_attrs["seed"]) not in seeds:
            yield from differing(f"{name} trial {entry.number}: seed", seed, f"one of {seeds}")
