"""Studies, the trials that a stage enqueues, and the scores of an opening: recomputed from what they follow from."""

import math
import statistics
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial, TrialState

from search.driver.sealed import final_model, scored_as, sealed, test_scorings
from search.driver.verify.comparison import Check, check, differing
from search.plan.plan import Plan, training_of
from search.plan.records import Records
from search.plan.search import COPIED_FROM, WritableRecords, in_memory
from search.selection import (
    BaselineScoring,
    FailedScoring,
    ImageSet,
    ScoredOpening,
    Scoring,
    Selection,
    baseline_entry,
    images_in,
)
from search.stages import BASELINES, Stage, study_name
from search.study import QueuedStage, StudyStorage, pruning_sentence
from search.tables import PRUNERS
from search.trials import epochs_of, params_of, record_key, record_keys, running_value, value_in, whole_training
from spaces.space import Params
from trainables.common.errors import counted, listed
from trainables.common.files import read_arrays, reading
from trainables.common.ranges import range_of
from trainables.data.store.store_spec import StoreSpec
from trainables.metrics import is_retrieval, metric_name, split_subset
from trainables.training.spec import TrialSpec, defined, derived_seed
from trainables.training.trainable import trainable_class

if TYPE_CHECKING:
    from trainables.data.store.view import StoreView

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
    """Check every study: its attributes, and what follows of each trial from its params and epochs."""
    reports, known = search.counts.reports, {study_name(search.name, loss, stage) for stage, loss in studies_in(search)}
    if others := sorted({study.study_name for study in search.studies.get_all_studies()} - known):
        yield Check("", f"study.journal: {listed(others)} {'is' if len(others) == 1 else 'are'} not of this search.")
    for stage, loss in studies_in(search):
        name = study_name(search.name, loss, stage)
        trials = search.trials(loss, stage)
        prunings = " and prunings" if stage is Stage.SEARCH else ""
        what = f"{name}: {counted(len(trials), 'trial')}, seeds, epochs, values{prunings}"
        yield (
            check(what, _study_problems(search, loss, stage, trials, reports.get(name, ())))
            if trials
            else Check(name, is_there=False)
        )


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
    copied = attributes.get(COPIED_FROM)
    yield "params", trial.params, dict(space.default if attributes.get("default") else space.complete(trial.params))
    for name, drawn in trial.distributions.items():
        if not space.parameters[name].covers(range_of(drawn)):  # it may have become wider
            yield f"the range of {name}", str(drawn), str(space.parameters[name].distribution)
        if not drawn._contains(drawn.to_internal_repr(trial.params[name])):
            yield name, trial.params[name], f"a value of {drawn}"
    if copied:  # copied trials keep the numbers and seeds of their search
        yield "copied from", copied["search"], plan.predecessor
    else:
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
        TrialState.PRUNED: attributes.get("outcome") if copied else due.get((trial.number, last)),
    }
    yield "outcome", attributes.get("outcome"), outcome.get(trial.state)
    for (number, step), sentence in due.items():
        if number == trial.number and not (step == last and trial.state == TrialState.PRUNED):
            yield "outcome", attributes.get("outcome"), sentence


def _epochs(trial: FrozenTrial, spec: TrialSpec, queries_of: Mapping[str, int]) -> Iterator[Pair]:
    """Yield the folds, metrics, checkpoints and classes of the epochs.

    Exactly the best epochs so far have a checkpoint and values by class, whose mean by query is the objective.
    ``queries_of`` counts the queries of each class.
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
        yield (
            f"epoch {epoch}: metrics, checkpoint, classes",
            stored,
            (sorted(measured), is_best, is_best and spec.by_class),
        )
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
    by_number = {trial.number: trial for trial in trials if COPIED_FROM not in trial.user_attrs}
    for trial in trials:
        if trial.number not in by_number:  # copied before the first report
            rule.add(trial)
    due: dict[tuple[int, int], str] = {}
    for number, step, value in reports:
        if number not in by_number:
            continue
        reason = rule.reason(number, step, value)
        if reason and number and step < plan.steps:
            due[number, step] = pruning_sentence(plan.config.objective, step, value, reason)
        if step == max(by_number[number].intermediate_values):
            rule.end(by_number[number])
    return due


# The trials of a stage.


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
    """Yield the wanted trials that are not stored exactly once, or with other params, and unexpected seeds.

    Other stored trials are accepted: trials added to the search since may have changed the finalists.
    """
    for trial in wanted:
        found = [entry for entry in stored if trial.user_attrs.items() <= entry.user_attrs.items()]
        params = trial.system_attrs["fixed_params"]
        yield from differing(f"{name} trials with {trial.user_attrs}, their number", len(found), 1)
        for entry in found:
            stored_params = (
                entry.system_attrs.get("fixed_params") if entry.state == TrialState.WAITING else entry.params
            )
            yield from differing(f"{name} trial {entry.number}: params", stored_params, params)
    seeds = sorted({trial.user_attrs["seed"] for trial in wanted})
    for entry in stored:
        if (seed := entry.user_attrs["seed"]) not in seeds:
            yield from differing(f"{name} trial {entry.number}: seed", seed, f"one of {seeds}")


# The scores of an opening.

CLOSE = partial(math.isclose, rel_tol=1e-9)
"""Comparison of means recomputed in another order."""


@contextmanager
def decoded_anew(images: StoreSpec) -> Iterator[Path]:
    """Decode ``images`` into a temporary store: the cached one may be of an earlier state of the files."""
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as folder:
        yield replace(images, cache=folder).make()


@contextmanager
def decoded_test(
    search: Records, selection: Selection, record: ScoredOpening
) -> "Iterator[tuple[StoreSpec, Path, Any]]":
    """Decode the images of a scored opening anew; yield them, their store, and what the ledger knows of them."""
    openings = search.ledger.of_selection(selection.digest)
    (opening,) = (entry for entry in openings if entry.id == record.id)
    images = sealed(search.plan).images(selection, opening)
    with decoded_anew(images) as store:
        yield replace(images, cache=str(store.parent)), store, opening.images


def check_scores(search: Records, selection: Selection, record: ScoredOpening, training: ImageSet) -> Iterator[Check]:
    """Check the ``record`` of an opening in ``test.json``; ``training`` are the images of the training half."""
    from trainables.data.store.view import Store

    plan, what = search.plan, f"test.json opening {record.id[:12]}"
    with decoded_test(search, selection, record) as (images, store, opened):
        found = images_in(store)
        stored = {
            "images": opened and opened.digest,
            "file of images": opened and search.ledger.image_set(opened).digest,
            "overlap with the training images": record.overlap,
            "copies within the test set": record.copies,
        }
        overlap = int(found.known_images(training).sum())
        anew = dict(zip(stored, (found.digest, found.digest, overlap, found.copies), strict=True))
        yield check(f"{what}: its images, and how many of them trained", differing(f"{what} ", stored, anew))
        yield check(
            f"{what}: the trainings and the networks without training that were scored",
            scored_problems(what, search, selection, record),
        )
        problems = _metric_problems(what, plan, selection, record, Store(store).subset(plan.split.test))
        yield check(f"{what}: its metrics, from the results of each image", problems)
        failed = [entry.per_image for entry in record.failed]
        scorings = kept_scorings(search, selection, {*scored_names(record), *failed}, images)
        yield check(f"{what}: its metrics, from the kept models", again_problems(what, scorings, record))


def kept_scorings(
    search: Records, selection: Selection, scored: Container[str], images: StoreSpec
) -> list[Scoring | BaselineScoring]:
    """Return the requests to score on ``images`` the kept models with ``scored`` results, and the baselines."""
    import torch

    finals = [(loss, trial) for loss in selection.chosen for trial in search.trials(loss, Stage.TEST)]
    models = [final_model(search.plan, *of) for of in finals if scored_as(*of)["per_image"] in scored]
    return test_scorings(search.plan, selection, models, images, gpu=torch.cuda.is_available())


def scored_problems(what: str, search: Records, selection: Selection, record: ScoredOpening) -> Iterator[str]:
    """Check that exactly the frozen baselines and all final trainings that did not fail were scored.

    Those that could not be scored are listed in ``failed`` of the record.
    """
    frozen = search.baselines if selection.baselines else None
    trials = [(loss, trial) for loss in selection.chosen for trial in search.trials(loss, Stage.TEST)]
    ended = (TrialState.PRUNED, TrialState.FAIL)
    due = {
        "scores": [scored_as(loss, trial) for loss, trial in trials if trial.state not in ended],
        "baselines": [baseline_entry(name, frozen.network, frozen.whitening_sha256) for name in BASELINES if frozen],
    }
    failed = {entry.per_image for entry in record.failed}
    wanted = {part: [entry for entry in entries if entry["per_image"] not in failed] for part, entries in due.items()}
    content = record.content()
    stored = {
        part: [{key: entry.get(key) for key in next(iter(entries), entry)} for entry in content.get(part, ())]
        for part, entries in wanted.items()
    }
    configurations = {(entry["loss"], entry["source_trial"]) for entry in due["scores"]}
    yield from differing(f"{what} configurations", content["configurations"].get(search.name), len(configurations))
    yield from differing(f"{what} ", stored, wanted)


def _metric_problems(
    what: str, plan: Plan, selection: Selection, record: ScoredOpening, view: "StoreView"
) -> Iterator[str]:
    """Check the images, queries and superclasses of the stored results, and recompute every metric from them."""
    import torch

    from search.selection import images_of, kept_metrics
    from trainables.data.store.view import protocol_for, superclasses_for
    from trainables.metrics.evaluation import SUPERCLASS

    dataset, names, folder = (plan.config.dataset.source, selection.test_metrics, plan.folder.path / "test" / record.id)
    protocol, superclasses_N = protocol_for(dataset, view.image_keys), superclasses_for(names, dataset, view)
    queries_N = torch.ones(len(view), dtype=torch.bool) if protocol is None else protocol.queries_N
    for model in (*record.scores, *record.baselines):
        name, metrics = model.per_image, model.metrics
        with reading(folder / name):
            arrays = read_arrays(folder / name)
            stored = {"keys": arrays.pop("keys").tolist(), "metrics": [*metrics], "labels": arrays["labels"].tolist()}
        anew = {"keys": view.image_keys, "metrics": [*map(metric_name, names)], "labels": view.labels_N.tolist()}
        kept = {part: torch.from_numpy(array) for part, array in arrays.items()}
        for part, values in kept.items():
            kind, subset = split_subset(part)
            if is_retrieval(part):
                stored[f"{part} queries"], anew[f"{part} queries"] = (~values.isnan()).tolist(), queries_N.tolist()
            if kind == SUPERCLASS and superclasses_N is not None:
                of_N = images_of(subset, view.labels_N, view.class_names, dataset.test_subsets())
                stored[part], anew[part] = values.tolist(), superclasses_N[of_N].tolist()
        yield from differing(f"{what} {name} ", stored, anew)
        found = kept_metrics(kept, view.class_names, dataset, names)
        yield from differing(f"{what} {name} ", {key: metrics[key] for key in found}, defined(found), CLOSE)


AGAIN = {True: 2e-3, False: 2e-2}
"""The largest differences, by :func:`is_retrieval`, of a test metric between two machines that embed with one model."""


def scored_names(record: ScoredOpening) -> dict[str, Mapping[str, float | None]]:
    """Return the metrics of the models and networks that were scored in an opening, by the file of their results."""
    return {model.per_image: model.metrics for model in (*record.scores, *record.baselines)}


def again_problems(what: str, scorings: Sequence[Scoring | BaselineScoring], record: ScoredOpening) -> Iterator[str]:
    """Score models and networks without training on the test images again, and compare with the ``record``."""
    from search.selection import score

    stored = scored_names(record)
    for scoring in scorings:
        tolerance = 0.0
        if isinstance(scoring, Scoring):  # user code is set up with the items that it trained on
            trained_on = replace(scoring.spec.images, cache=scoring.images.cache)
            scoring = replace(scoring, spec=replace(scoring.spec, images=trained_on))
            tolerance = trainable_class(scoring.spec.trainable).tolerance if scoring.spec.trainable else 0.0
        for again in (scored.record for scored in score(scoring)):
            place, kept = f"{what} {again.per_image} scored again, ", stored.get(again.per_image)
            if isinstance(again, FailedScoring):
                if kept is not None:
                    yield f"{place}its model gives no scores ({again.reason})."
                continue
            if kept is None:
                yield f"{place}its model has scores, and the record says that it could not be scored."
                continue
            for name, value in again.metrics.items():
                close = partial(math.isclose, rel_tol=0, abs_tol=max(tolerance, AGAIN[is_retrieval(name)]))
                yield from differing(f"{place}{name}", kept.get(name), value, close)
