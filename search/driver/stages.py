"""The stages of searches: the trials that each queues, and what follows once these have ended."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console

from search.difference import Family
from search.driver.choice import freeze_all, refuse_failed, refuse_unmet, to_retry, unchanged_selection
from search.driver.finish import write_summary
from search.driver.inputs import check_weights
from search.driver.notices import early_ends
from search.driver.progress_view import say
from search.driver.sealed import Run, resumed_opening, score_test
from search.records import Selection, finalists
from search.records.plan import training_of, trial_directory
from search.records.records import Records
from search.records.writable import WritableRecords
from search.stages import Stage, study_name
from search.study import Budget, QueuedStage, QueuedStudy, TrialListener
from spaces.space import Value
from trainables.common.errors import counted
from trainables.training.checkpoints import forget_last
from trainables.training.spec import derived_seed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Order:
    """A command's order to the driver, for searches with the same resources.

    Attributes:
        stages: those to run, in their order, unless they are done.
        started: when the command began, in seconds since 1970; start-up is timed from here.
        opener: the name of the search or campaign that opens the test classes.
        reason: the reason for opening them again after an earlier opening; None to open them at most once.
        family: the table that all searches share, frozen with each choice; None for one table per search.
        on_begin: called after the last check that can refuse the run, just before the searches are opened.
        allow_failed: continue without the losses that failed in every trial.
        listeners: called with the events of all trials.
        continues: True if the same command has just run the earlier stages.
    """

    console: Console
    stages: Sequence[Stage]
    started: float
    opener: str
    reason: str | None = None
    family: Family | None = None
    on_begin: Callable[[], None] = lambda: None
    allow_failed: bool = False
    listeners: Sequence[TrialListener] = ()
    continues: bool = False


class RunStage(ABC):
    """A stage of several searches side by side, so that no search waits for the last trial of another."""

    stage: Stage

    def __init__(self, searches: Sequence[WritableRecords], order: Order) -> None:
        self.searches = searches
        self.order = order

    def left(self) -> list[WritableRecords]:
        """Return the searches in which the stage is not done."""
        return [search for search in self.searches if not search.is_done(self.stage) or to_retry(search, self.stage)]

    @abstractmethod
    def queue(self) -> QueuedStage:
        """Return its trials; raise if an earlier stage does not permit them."""

    @abstractmethod
    def finish(self) -> None:
        """Draw the consequences once all of its trials have ended; workers may be busy."""

    def conclude(self, run: Run) -> None:  # noqa: B027
        """Do what is left once no stage has a trial; ``run`` computes functions on the workers."""


class SearchStage(RunStage):
    """The search for hyperparameters."""

    stage = Stage.SEARCH

    def queue(self) -> QueuedStage:
        return side_by_side(self.stage, map(search_stage, self.searches))

    def finish(self) -> None:
        summarise(self.searches)
        say(self.order.console, early_ends(self.searches))


class SelectStage(RunStage):
    """The confirmation with fresh seeds, and the choice that follows from it."""

    stage = Stage.SELECT

    def queue(self) -> QueuedStage:
        if not self.order.allow_failed:
            refuse_failed(self.left(), Stage.SEARCH)
        return side_by_side(self.stage, map(confirm_stage, self.left()))

    def finish(self) -> None:
        if not self.order.allow_failed:
            refuse_failed(self.left(), self.stage)
            refuse_unmet(self.left())
        freeze_all(self.searches, self.order.family)
        summarise(self.searches)


class FinalStage(RunStage):
    """The final trainings, and the one opening of the test classes, which scores them."""

    stage = Stage.TEST

    def left(self) -> list[WritableRecords]:
        return super().left() if self.order.reason is None else [*self.searches]

    def _chosen(self) -> list[WritableRecords]:
        return [search for search in self.left() if search.is_done(Stage.SELECT)]

    def queue(self) -> QueuedStage:
        frozen = [(search, unchanged_selection(search)) for search in self._chosen()]
        for search, selection in frozen:
            if resumed_opening(search, selection, self.order.reason) is None:  # raises before anything is trained again
                retry(search, self.stage)
        return side_by_side(self.stage, (final_stage(search, selection) for search, selection in frozen))

    def finish(self) -> None:
        if not self.order.allow_failed:
            refuse_failed(self._chosen(), self.stage)

    def conclude(self, run: Run) -> None:
        if not (waiting := self._chosen()):
            return
        for search in waiting:
            search.folder.raise_if_moved()
        check_weights([search.plan for search in waiting])
        score_test(waiting, self.order.console, opener=self.order.opener, reason=self.order.reason, run=run)


STAGES: Mapping[Stage, type[RunStage]] = {of.stage: of for of in (SearchStage, SelectStage, FinalStage)}


def trials_in_turn(stages: Sequence[RunStage]) -> Iterator[QueuedStage]:
    """Yield the trials of each stage; a stage is finished before the next one begins."""
    for stage in stages:
        yield stage.queue()
        stage.finish()


def summarise(searches: Sequence[Records]) -> None:
    """Write the summary of each search."""
    for search in searches:
        write_summary(search)


def search_stage(search: WritableRecords) -> QueuedStage:
    """Return the search stage. Trial 0 of every loss is the default configuration from the papers."""
    retry(search, Stage.SEARCH)
    begin_studies(search)
    studies = [_queued(search, loss, Stage.SEARCH, search.plan.budget(loss)) for loss in search.config.loss_names]
    return QueuedStage(stage=Stage.SEARCH, studies=studies)


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

    On halves, each seed trains two models, each validated by the half that it did not train on.
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
    config, studies = search.config, []
    for loss in selection.chosen:
        wanted = []
        for entry in selection.configurations(loss):
            each: list[dict[str, Any]] = [{"fold": fold + 1} for fold in range(len(search.plan.split.folds))] or [{}]
            if config.final.train_on == "all":
                each = [{"epochs": entry.median_best_epoch or config.training.epochs}]
            shared = {"source_trial": entry.number, "role": selection.role(loss, entry).value}
            seeds = [_shared_seed(search, Stage.TEST, index) for index in range(config.final.seeds)]
            wanted += [(entry.params, {**shared, **model, "seed": seed}) for seed in seeds for model in each]
        studies.append(_enqueued(search, loss, Stage.TEST, wanted))
    return QueuedStage(stage=Stage.TEST, studies=studies)


def side_by_side(stage: Stage, stages: Iterable[QueuedStage]) -> QueuedStage:
    """Merge ``stage`` of several searches into one."""
    return QueuedStage(stage=stage, studies=[study for stage in stages for study in stage.studies])


def _enqueued(
    search: WritableRecords, loss: str, stage: Stage, wanted: Sequence[tuple[Mapping[str, Value], dict[str, Any]]]
) -> QueuedStudy:
    """Enqueue trials given as (parameters, user attributes); return their study."""
    study = search.study(loss, stage)
    study.enqueue(wanted)
    # A search that has grown may have confirmed other configurations before, whose trials come first.
    trials, attributes = study.trials(), [of.items() for _, of in wanted]
    asked = [trial.number for trial in trials if any(of <= trial.user_attrs.items() for of in attributes)]
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
