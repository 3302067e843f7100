"""The trials that each stage of a search queues, and the frozen selection between the select and test stages."""

import logging
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.difference import Family, RowKey, shown_metrics
from search.plan.plan import training_of, trial_directory
from search.plan.records import Records
from search.plan.search import WritableRecords
from search.selection import (
    EXPORTED,
    Confirmation,
    Selection,
    choose,
    confirmations,
    finalists,
    recommend,
    rule_in_words,
    study_digest,
    unmet_sentence,
)
from search.stages import BASELINES, Role, Stage, short_study_name, study_name
from search.study import Budget, QueuedStage, QueuedStudy
from search.trials import Tally
from spaces.space import Value
from trainables.errors import Failure, counted, raise_if_any
from trainables.metrics.table import metric_name
from trainables.spec import derived_seed
from trainables.training.checkpoints import forget_last

logger = logging.getLogger(__name__)

Wanted = Sequence[tuple[Mapping[str, Value], dict[str, Any]]]
"""Trials to enqueue: parameters and user attributes."""


# Stages


def search_stage(search: WritableRecords) -> QueuedStage:
    """Return the search stage. Trial 0 of every loss is the default configuration from the papers."""
    retry(search, Stage.SEARCH)
    begin_studies(search)
    studies = [_queued(search, loss, Stage.SEARCH, search.plan.budget(loss)) for loss in search.config.loss_names]
    return QueuedStage(stage=Stage.SEARCH, studies=studies)


def to_retry(search: Records, stage: Stage) -> dict[str, int]:
    """Return how many trials failed, by loss, whose code failed before any value; empty if the stage has its result."""
    is_over = search.is_done(Stage.TEST if stage is Stage.TEST else Stage.SELECT)
    losses = () if is_over else search.config.loss_names
    return {loss: count for loss in losses if (count := Tally.of(search.trials(loss, stage)).failed_without_value)}


def retry(search: WritableRecords, stage: Stage) -> None:
    """Begin the studies anew whose code failed before any value."""
    for loss, count in to_retry(search, stage).items():
        study, trials = study_name(search.name, loss, stage), counted(count, "trial")
        logger.warning("Retrying %s of %s that failed before any was complete.", trials, study)
        for trial in search.trials(loss, stage):
            forget_last(trial_directory(search.plan, loss, stage, trial.number))  # if the driver was killed before
        search.begin_anew(loss, stage)


def begin_studies(search: WritableRecords) -> None:
    """Enqueue the default as the first trial of each study of the search stage that has none."""
    for loss in search.config.loss_names:
        study = search.study(loss, Stage.SEARCH)
        if not study.trials():
            study.enqueue([(search.plan.spaces[loss].default, {"default": True})])


def confirm_stage(search: WritableRecords) -> QueuedStage:
    """Return the confirmation: the finalists and the default with fresh seeds, which all losses share.

    On halves, each seed trains two models, each of which is validated by the half that it did not train on.
    """
    retry(search, Stage.SELECT)
    studies, plan = [], search.plan
    halves: Sequence[dict[str, int]] = ({"half": 1}, {"half": 2}) if plan.on_halves else ({},)
    for loss in search.config.loss_names:
        trials = search.trials(loss)
        wanted = [
            (finalist.params, {"source_trial": finalist.number, "seed": seed, **half})
            for finalist in finalists(trials, search.config.selection.finalists, search.config.goal)
            for seed in (_shared_seed(search, Stage.SELECT, index) for index in range(plan.confirmation_seeds))
            for half in halves
        ]
        studies.append(_enqueued(search, loss, Stage.SELECT, wanted))
    return QueuedStage(stage=Stage.SELECT, studies=studies)


def final_stage(search: WritableRecords, selection: Selection) -> QueuedStage:
    """Return the final trainings: the chosen configuration and the default of every loss, all with the same seeds.

    Under cross-validation one model per fold is trained and scored separately (as in Tables 12 and 13 of Metric
    Learning: A Deep Dive), unless ``final.train_on`` is "all".
    """
    studies = []
    for loss in selection.chosen:
        wanted = [
            (entry.params, {**attributes, "seed": _shared_seed(search, Stage.TEST, index)})
            for entry in selection.configurations(loss)
            for index in range(search.config.final.seeds)
            for attributes in _final_attributes(search, entry, selection.role(loss, entry))
        ]
        studies.append(_enqueued(search, loss, Stage.TEST, wanted))
    return QueuedStage(stage=Stage.TEST, studies=studies)


def _final_attributes(search: Records, entry: Confirmation, role: Role) -> list[dict[str, Any]]:
    """Return the user attributes of the models to train per seed of a configuration: one, or one per fold."""
    attributes: dict[str, Any] = {"source_trial": entry.number, "role": role.value}
    if search.config.final.train_on == "all":
        return [{**attributes, "epochs": entry.median_best_epoch or search.config.training.epochs}]
    return [{**attributes, "fold": fold + 1} for fold in range(len(search.plan.split.folds))] or [attributes]


def side_by_side(stage: Stage, stages: Sequence[QueuedStage]) -> QueuedStage:
    """Merge ``stage`` of several searches into one, so that no search waits for the last trial of another."""
    return QueuedStage(stage=stage, studies=[study for stage in stages for study in stage.studies])


def _enqueued(search: WritableRecords, loss: str, stage: Stage, wanted: Wanted) -> QueuedStudy:
    study = search.study(loss, stage)
    study.enqueue(wanted)
    # A search that has grown may have confirmed other configurations before, whose trials come first.
    asked = [
        trial.number for trial in study.trials() if any(of.items() <= trial.user_attrs.items() for _, of in wanted)
    ]
    return _queued(search, loss, stage, Budget(trials=1 + max(asked, default=-1)))


def _queued(search: WritableRecords, loss: str, stage: Stage, budget: Budget) -> QueuedStudy:
    return QueuedStudy(
        loss=loss,
        study=search.study(loss, stage),
        budget=budget,
        prune=stage is Stage.SEARCH,
        seed=partial(derived_seed, search.config.search.seed, loss),
        spec=partial(training_of, search.plan, loss, stage),
    )


def _shared_seed(search: Records, stage: Stage, index: int) -> int:
    return derived_seed(search.config.search.seed, stage.trainings, index)


# The frozen selection


class NothingToSelect(Failure):
    """Error of a search in which no configuration of any loss could be confirmed."""


class FailedLosses(Failure):
    """Error of a search before its choice: at least one loss failed in every trial."""


def refuse_failed(searches: Sequence[Records], stage: Stage) -> None:
    """Raise :class:`FailedLosses` with the error of each loss whose trials in ``stage`` failed or cannot be tested."""
    sentences, left, retries = [], [], []
    for search in searches:
        for loss in search.config.loss_names:
            trials = [trial for trial in search.trials(loss, stage) if trial.state != TrialState.WAITING]
            if Tally.of(trials).untestable or (trials and all(trial.state == TrialState.FAIL for trial in trials)):
                sentences.append(_first_failure(search, loss, stage, trials))
                retries.append(loss in to_retry(search, stage))
            else:
                left.append(loss)
    if not sentences:
        return
    fix = "Correct the cause and " + ("run the same search again" if all(retries) else "search under a new name")
    if left:
        others = ", ".join(dict.fromkeys(left))
        fix += f", or repeat the command with --allow-failed (in Python allow_failed=True) to continue with {others}"
    raise _nothing_chosen(sentences, fix, stage)


def refuse_unmet(searches: Sequence[Records]) -> None:
    """Raise :class:`FailedLosses` with what each loss lacks of which no configuration meets the constraints."""
    if sentences := [sentence for search in searches for sentence in _unmet(search)]:
        raise _nothing_chosen(
            sentences,
            "Raise search.trials, or search under a new name with other constraints or ranges; with --allow-failed (in "
            "Python allow_failed=True) the search continues without these losses",
        )


def _nothing_chosen(sentences: Sequence[str], fix: str, stage: Stage = Stage.SELECT) -> FailedLosses:
    so = "The" if stage is Stage.TEST else "Nothing was chosen, and the"
    return FailedLosses("\n".join([*sentences, f"{so} test classes stay sealed. {fix}."]))


def _first_failure(search: Records, loss: str, stage: Stage, trials: Sequence[FrozenTrial]) -> str:
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    failures = [trial.user_attrs["failure"] for trial in failed]
    first = next((place for place, failure in enumerate(failures) if "untestable" in failure), 0)
    counts = Counter(failure["cause"] for failure in failures).items()
    causes = ", ".join(f"{cause} in {count} of {len(trials)}" for cause, count in counts)
    study = short_study_name(loss, stage)
    what, did = ("No model", "can be tested") if "untestable" in failures[first] else ("Every trial", "failed")
    return (
        f"{what} of {search.name}/{study} {did} ({causes}). The first error: {failures[first]['reason'].rstrip('.')}. "
        f"`holdout trials {search.name} {study} {failed[first].number}` shows its log."
    )


def freeze(search: Records, family: Family | None = None) -> Selection:
    """Save and return :func:`selection_of` the search, the frozen choice."""
    selection = selection_of(search, family)
    selection.save(search.folder.selection)
    return selection


def selection_of(search: Records, family: Family | None = None) -> Selection:
    """Return the configuration of each loss that follows from the studies, with the rows and metrics of the test.

    ``family`` is the table of a campaign, None if the search has its own.

    Raises:
        NothingToSelect: no configuration of any loss could be confirmed.
    """
    plan = search.plan
    chosen: dict[str, Confirmation] = {}
    defaults: dict[str, Confirmation] = {}
    reasons: dict[str, str] = {}
    for loss in plan.config.loss_names:
        candidates, default = _candidates(search, loss), search.trials(loss)[0].params
        if choice := choose(candidates, default, plan.basis, plan.config.goal):
            chosen[loss], reasons[loss] = choice
            defaults[loss] = next(entry for entry in candidates.values() if entry.params == default)
    if not chosen:
        if unmet := _unmet(search):
            raise NothingToSelect("\n".join(unmet))
        raise NothingToSelect(
            f"No trial of {', '.join(plan.config.loss_names)} could be confirmed; `holdout status {plan.config.name}` "
            "counts the failed trials and MLflow shows their errors."
        )
    baselines = search.baselines
    names = plan.config.test_metrics
    return Selection(
        id=uuid.uuid4().hex,
        search=plan.config.name,
        objective=plan.config.objective,
        test_metrics=names,
        family=family or _own_family(search, tuple(map(metric_name, names)), chosen, baselines is not None),
        split_digest=plan.split.digest,
        test_digest=plan.split.test_digest,
        studies=_study_digests(search),
        rule=rule_in_words(plan.basis, plan.config.goal),
        exported=EXPORTED,
        chosen=chosen,
        defaults=defaults,
        reasons=reasons,
        recommended=recommend(chosen, baselines.classes if baselines else {}, plan.basis),
        trained_on_opened=search.trained_on_opened,
        baselines=baselines.digest if baselines else None,
    )


def _candidates(search: Records, loss: str) -> dict[int, Confirmation]:
    """Return the confirmations of the finalists of ``loss``, by the number of the trial."""
    trials, config = search.trials(loss), search.config
    numbers = [trial.number for trial in finalists(trials, config.selection.finalists, config.goal)]
    confirmed = search.trials(loss, Stage.SELECT)
    return confirmations(trials, confirmed, numbers, config.objective, config.goal)


def _unmet(search: Records) -> list[str]:
    """Return a sentence for each loss of which no confirmed configuration meets the constraints."""
    goal = search.config.goal
    losses = search.config.loss_names if goal.constraints else ()
    found = (unmet_sentence(loss, [*_candidates(search, loss).values()], goal) for loss in losses)
    return [sentence for sentence in found if sentence]


def _study_digests(search: Records) -> dict[str, str]:
    """Return the digests of the studies that the choice depends on, by study name."""
    return {
        study_name(search.name, loss, stage): study_digest(search.trials(loss, stage))
        for loss in search.config.loss_names
        for stage in (Stage.SEARCH, Stage.SELECT)
    }


def _own_family(
    search: Records, computed: Sequence[str], chosen: Mapping[str, Confirmation], has_baselines: bool
) -> Family:
    rows: dict[RowKey, int | None] = {
        RowKey(search.name, name, Role.BASELINE): None for name in (BASELINES if has_baselines else ())
    }
    for loss, entry in chosen.items():
        rows[RowKey(search.name, loss, Role.DEFAULT)] = 0
        rows[RowKey(search.name, loss, Role.TUNED)] = entry.number
    return Family.of(rows, shown_metrics(search.config.objective, computed), search.config.final.within)


def unchanged_selection(search: Records) -> Selection:
    """Return the frozen selection of ``search``; raise if it or a study was changed after the choice."""
    selection = search.frozen_selection
    now = _study_digests(search)
    changed = sorted(name for name in {*now, *selection.studies} if now.get(name) != selection.studies.get(name))
    raise_if_any(
        [
            f"The study {name} was changed after the choice of {search.name} was frozen (its digest does not match); "
            "restore it, or start a search with a new name."
            for name in changed
        ]
    )
    return selection
