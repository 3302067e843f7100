"""The pipeline that runs the stages of one or more searches side by side: noise, search, select, test."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial
from rich.console import Console

from search.config.tables import PRUNERS
from search.driver.disk_needs import check_space
from search.driver.listeners import CheckpointCleanup, GpuMemoryCheck, MlflowUpdates
from search.driver.progress import Progress
from search.driver.progress_view import phase
from search.driver.sealed_test import (
    AnyScoring,
    SealedImagesCheck,
    catch_up,
    note_opened_images,
    resumed_opening,
    score_test,
    with_training_images,
)
from search.driver.stages import (
    NothingToSelect,
    Outcome,
    confirm_stage,
    final_stage,
    freeze,
    frozen_selection,
    noise_stage,
    recorded_outcome,
    refuse_failed,
    refuse_unmet,
    search_stage,
    side_by_side,
)
from search.driver.start_up import Phases, get_ready, hold
from search.driver.synchronise import behind, make_projection, synchronise, try_to_write, where_to_look
from search.driver.untrained import validate_baselines, without_baselines
from search.engines.base import Engine, make_engine
from search.extra import check_extra
from search.plan.checks.parts import slow_precision
from search.plan.plan import Plan
from search.plan.runs import folder_if_needed
from search.plan.search import OpenedSearch, copy_trials, open_search
from search.plan.stored import StoredSearch
from search.report.formats import noise_text
from search.report.models import write_model_folders
from search.report.summary import write_summary
from search.selection import Family, validate_untrained
from search.stages import Stage, search_of
from search.study import QueuedStage, RunningTrial, TrialListener, TrialQueue, without_model
from search.tracking import Projection, Tracker
from trainables.inference.model_files import DESCRIPTION
from trainables.mistakes import Mistakes, counted
from trainables.storage import DiskFull, full_disk_errors

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Request:
    """What the caller of :func:`run_stages` asked for."""

    opener: str
    reason: str | None
    family: Family | None
    allow_failed: bool
    started: float
    listeners: Sequence[TrialListener]


def run_stages(
    plans: Sequence[Plan],
    console: Console,
    stages: Sequence[Stage],
    *,
    started: float,
    opener: str,
    reason: str | None = None,
    family: Family | None = None,
    on_begin: Callable[[], None] = lambda: None,
    allow_failed: bool = False,
    listeners: Sequence[TrialListener] = (),
) -> list[Outcome]:
    """Run the remaining ones of ``stages`` for searches with the same resources.

    Args:
        plans: the searches.
        console: where progress is shown.
        stages: the requested stages, in the order of :class:`Stage`.
        started: when the command began, in seconds since 1970; start-up is timed from here.
        opener: the name of the search or campaign that opens the test classes.
        reason: the reason for opening them again after an earlier opening; None to open them at most once.
        family: the table that all searches share, frozen with each choice; None for one table per search.
        on_begin: called after the last check that can refuse the run, just before the searches are opened.
        allow_failed: continue without the losses that failed in every trial.
        listeners: further listeners of every trial.

    Raises:
        Mistakes: the disk or the cluster is too small, images cannot be read, another process runs one of the searches,
            or packages are missing. Nothing is created.
        FailedLosses: a loss failed in every trial; nothing was chosen.
        NothingToSelect: no configuration of any search could be confirmed.
        DiskFull: the disk filled up during the run. The same call resumes it.
    """
    check_extra("Running a search")
    phases = Phases(console, started)
    request = _Request(
        opener=opener,
        reason=reason,
        family=family,
        allow_failed=allow_failed,
        started=started,
        listeners=[phases, *listeners],
    )
    with ExitStack() as stack:
        stack.enter_context(full_disk_errors(plans[0].folder.runs.absolute()))
        stack.enter_context(folder_if_needed(plans[0].folder.runs))
        is_new = not all(plan.folder.config.exists() for plan in plans)
        if is_new:
            engine, concurrent = _engine_ready(plans, console, phases, stack)
            plans = [with_training_images(plan) for plan in plans]
        killed = {plan.config.name for plan in plans if plan.folder.was_killed()}
        stack.enter_context(hold(plans))
        for plan in plans:
            plan.folder.remove_drafts()
            catch_up(plan.folder)
        for plan in plans:
            if not plan.folder.config.exists() and (told := note_opened_images(plan)):
                logger.warning("%s: %s.", plan.config.name, told)
        on_begin()
        searches = [stack.enter_context(closing(open_search(plan))) for plan in plans]
        for search in searches:
            copy_trials(search)
        left = [stage for stage in stages if _undone(searches, stage)]
        if reason is not None:
            left.append(Stage.TEST)
        if not left:
            with phase(console, "Reading the result …"):
                outcomes = [recorded_outcome(search) for search in searches]
            _write_missing(outcomes, console, opener, killed)
            return outcomes
        if not allow_failed and Stage.SEARCH not in left:
            refuse_failed(_undone(searches, Stage.SELECT), Stage.SEARCH)  # before anything is started
        if not is_new:
            engine, concurrent = _engine_ready(plans, console, phases, stack)
            for plan in plans:
                with_training_images(plan)  # raises if the images changed
        for search in searches:
            search.begin_session(started, concurrent)
        phases.begin(f"Starting {concurrent} {'worker' if concurrent == 1 else 'workers'} …")
        look = SealedImagesCheck([search.plan for search in _undone(searches, Stage.TEST)])
        outcomes = _carry_out(searches, left, engine, concurrent, request, console)
        look.wait()
        return outcomes


def _engine_ready(plans: Sequence[Plan], console: Console, phases: Phases, stack: ExitStack) -> tuple[Engine, int]:
    """Check the space and start an engine; return it with the number of trials at once."""
    _say_needs(plans, console)
    config = plans[0].config
    engine = make_engine(config.resources, config.search.max_concurrent)
    return engine, get_ready(plans, engine, console, phases, stack)


def _say_needs(plans: Sequence[Plan], console: Console) -> None:
    """Print what the searches need, and warnings about this machine."""
    slow = dict.fromkeys(sentence for plan in plans if (sentence := slow_precision(plan.config)))
    for sentence in (*check_space(plans), *slow):
        console.print(sentence, style="dim", highlight=False, markup=False, soft_wrap=True)


def _undone(searches: Sequence[OpenedSearch], stage: Stage) -> list[OpenedSearch]:
    return [search for search in searches if not search.is_done(stage)]


def _carry_out(
    searches: Sequence[OpenedSearch],
    left: Sequence[Stage],
    engine: Engine,
    concurrent: int,
    request: _Request,
    console: Console,
) -> list[Outcome]:
    if missing := without_baselines(searches):
        with phase(console, "Scoring the untrained network …"):
            validate_baselines(missing, partial(engine.map, validate_untrained))
    _print_rungs(searches, console)
    if Stage.SEARCH in left:
        _print_without_model(searches, console, concurrent)
    projections = {search.name: make_projection(search.plan) for search in searches}
    tracker = Tracker(projections)

    try:
        queued = stage_by_stage(
            searches, left, console, request.reason, request.family, allow_failed=request.allow_failed
        )
        with Progress(console, searches, left, concurrent=concurrent, started=request.started) as progress:
            listeners = [
                _OfEachSearch({search.name: CheckpointCleanup(search) for search in searches}),
                progress,
                MlflowUpdates(tracker),
                GpuMemoryCheck(engine.resources),
                *request.listeners,
            ]
            engine.run(TrialQueue(queued, listeners=listeners), concurrent)
        if Stage.TEST in left and (waiting := _to_test(searches, request.reason)):
            score_all = partial(_score_on_workers, engine)
            score_test(waiting, console, opener=request.opener, reason=request.reason, score_all=score_all)
        outcomes = [recorded_outcome(search) for search in searches]
        if Stage.TEST in left:
            for outcome in outcomes:
                _write_models(outcome)
        _draw_report(outcomes, console, request.opener)
    finally:
        in_step = tracker.close(lambda text: console.print(text, style="dim", highlight=False))
    said = [
        _synchronised(outcome, projections[outcome.search.name]) if in_step else behind(outcome.search.name)
        for outcome in outcomes
    ]
    _say_once(said, console)
    return outcomes


def _write_missing(outcomes: Sequence[Outcome], console: Console, opener: str, killed: Set[str]) -> None:
    """Write what finished searches lack whose driver was killed: the models, the report and their MLflow runs."""
    for outcome in outcomes:
        folder = outcome.search.plan.folder
        if not all((folder.model(loss) / DESCRIPTION).exists() for loss in outcome.search.config.loss_names):
            _write_models(outcome)
    if not outcomes[0].search.plan.folder.report.exists():
        _draw_report(outcomes, console, opener)
    behind_studies = [outcome for outcome in outcomes if outcome.search.name in killed]
    _say_once([_synchronised(outcome, make_projection(outcome.search.plan)) for outcome in behind_studies], console)


def _say_once(sentences: Sequence[str], console: Console) -> None:
    for sentence in dict.fromkeys(sentences):  # the searches of a campaign share a page
        console.print(sentence, style="dim", highlight=False, markup=False, soft_wrap=True)


def _draw_report(outcomes: Sequence[Outcome], console: Console, opener: str) -> None:
    """Draw the report of a search; a campaign writes one for all of its searches."""
    if [outcome.search.name for outcome in outcomes] == [opener]:
        from search.report.document import write_search_report

        runs = outcomes[0].search.plan.folder.runs
        draw_report(partial(write_search_report, runs, [opener]), opener, console)


def _write_models(outcome: Outcome) -> None:
    """Write the chosen models. Best effort: they are rewritten on demand."""
    folder = outcome.search.plan.folder
    if not folder.test.exists():
        return
    try:
        with closing(StoredSearch(folder)) as stored:
            write_model_folders(stored, outcome.comparison)
    except (Mistakes, OSError, DiskFull) as error:
        logger.warning("The models of %s cannot be written: %s", folder.name, error)


def draw_report(write: Callable[[], Path], name: str, console: Console) -> None:
    """Write the report of the search or campaign ``name``; if that fails, log a warning."""
    with phase(console, "Drawing the report …"):
        try:
            write()
        except Exception as error:  # any error raised by the libraries that draw
            logger.warning("The report was not drawn (%s); retry with `holdout report %s`.", type(error).__name__, name)


def _score_on_workers(engine: Engine, tasks: Sequence[AnyScoring]) -> list[Any]:
    from search.selection import score  # imports torch

    return engine.map(score, tasks)


class _OfEachSearch(TrialListener):
    """Listener that passes the end of a trial to the listener of its search."""

    def __init__(self, listeners: Mapping[str, TrialListener]) -> None:
        self._listeners = listeners

    def on_end(self, running: RunningTrial, trial: FrozenTrial) -> None:
        self._listeners[search_of(running.study.name)].on_end(running, trial)


def _to_test(searches: Sequence[OpenedSearch], reason: str | None) -> list[OpenedSearch]:
    """Return the searches to test: those with a frozen choice and, unless there is a ``reason``, without scores."""
    waiting = _undone(searches, Stage.TEST) if reason is None else searches
    return [search for search in waiting if search.is_done(Stage.SELECT)]


def stage_by_stage(
    searches: Sequence[OpenedSearch],
    left: Sequence[Stage],
    console: Console,
    reason: str | None,
    family: Family | None = None,
    *,
    allow_failed: bool = False,
) -> Iterator[QueuedStage]:
    """Yield the trials of each stage; the code after a ``yield`` runs once all trials of that stage have ended.

    Raises:
        FailedLosses: a loss failed in every trial and ``allow_failed`` is False.
    """
    if Stage.NOISE in left:
        noisy = _undone(searches, Stage.NOISE)
        yield side_by_side(Stage.NOISE, [noise_stage(search) for search in noisy])
        for search in noisy:
            if noise := write_summary(search).noise:
                console.print(noise_text(noise, search.config.objective), highlight=False)
    if Stage.SEARCH in left:
        yield side_by_side(Stage.SEARCH, [search_stage(search) for search in searches])
        _summarise(searches)
        _print_early_ends(searches, console)
    if Stage.SELECT in left:
        unchosen = _undone(searches, Stage.SELECT)
        if not allow_failed:
            refuse_failed(unchosen, Stage.SEARCH)
        yield side_by_side(Stage.SELECT, [confirm_stage(search) for search in unchosen])
        if not allow_failed:
            refuse_failed(unchosen, Stage.SELECT)
            refuse_unmet(unchosen)
        _freeze(searches, family)
        _summarise(searches)
    if Stage.TEST in left:
        frozen = [(search, frozen_selection(search)) for search in _to_test(searches, reason)]
        for search, selection in frozen:
            resumed_opening(search, selection, reason)  # raises before anything is trained again
        yield side_by_side(Stage.TEST, [final_stage(search, selection) for search, selection in frozen])


def _freeze(searches: Sequence[OpenedSearch], family: Family | None) -> None:
    """Freeze the choice of every search; warn about those of a campaign that have nothing to select.

    Raises:
        NothingToSelect: no search has anything to select.
    """
    failures = []
    for search in _undone(searches, Stage.SELECT):
        try:
            freeze(search, family)
        except NothingToSelect as nothing:
            failures.append(nothing)
    if failures and not any(search.is_done(Stage.SELECT) for search in searches):
        raise failures[0]
    for failure in failures:
        logger.warning("%s", failure)


def _summarise(searches: Sequence[OpenedSearch]) -> None:
    for search in searches:
        write_summary(search)


def _print_rungs(searches: Sequence[OpenedSearch], console: Console) -> None:
    for pruner, steps, unit in dict.fromkeys(
        (search.config.search.pruner, search.plan.steps, search.plan.unit) for search in searches
    ):
        plan = PRUNERS[pruner](steps=steps, unit=unit).plan
        console.print(f"Pruning ({pruner}, {counted(steps, unit)}): {plan}.", style="dim", highlight=False)


def _print_without_model(searches: Sequence[OpenedSearch], console: Console, slots: int) -> None:
    """Print how many trials of each new study are proposed without a model; all losses share the slots."""
    new = [
        (search.config.search.sampler, sampler)
        for search in searches
        for loss in search.config.loss_names
        if not search.trials(loss, Stage.SEARCH) and (sampler := search.plan.budget(loss).sampler)
    ]
    for text in dict.fromkeys(without_model(name, sampler, slots, len(new)) for name, sampler in new):
        if text:
            console.print(text, style="dim", highlight=False)


def _print_early_ends(searches: Sequence[OpenedSearch], console: Console) -> None:
    for search in searches:
        for loss in search.config.loss_names:
            study = search.study(loss, Stage.SEARCH)
            if reason := search.plan.budget(loss).early_end(trials := study.trials()):
                console.print(f"{study.name}: {counted(len(trials), 'trial')}, {reason}.", style="dim", highlight=False)


def _synchronised(outcome: Outcome, projection: Projection) -> str:
    """Synchronise MLflow with the studies; return the address of the search's page, or how to retry."""
    if try_to_write(lambda: synchronise(outcome, projection)):
        return where_to_look(outcome.search.plan, projection)
    return behind(outcome.search.name)
