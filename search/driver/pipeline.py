"""The pipeline that runs the stages of one or more searches side by side: search, select, test."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import cache, partial
from threading import Thread

from rich.console import Console

from search.difference import Family
from search.driver.finish import draw_search_report, write_missing, write_models, write_runs
from search.driver.listeners import CheckpointCleanup, FolderCheck, GpuMemoryCheck, MlflowUpdates, Phases
from search.driver.notices import at_ceiling, early_ends, first_proposals, pruning, resumed, say
from search.driver.progress import Progress
from search.driver.progress_view import StoreProgress, phase
from search.driver.sealed import (
    CHECK_S,
    catch_up,
    check_sealed_images,
    copies_among_classes,
    note_opened_images,
    resumed_opening,
    score_test,
    with_training_images,
)
from search.driver.stages import (
    NothingToSelect,
    confirm_stage,
    final_stage,
    freeze,
    refuse_failed,
    refuse_unmet,
    retry,
    search_stage,
    side_by_side,
    to_retry,
    unchanged_selection,
)
from search.driver.synchronise import behind, make_projection
from search.driver.untrained import check_weights, validate_baselines, without_baselines
from search.engines.base import Engine, make_engine
from search.packages import TESTED, check_extra, untested
from search.plan.checks.parts import slow_precision
from search.plan.disk import check_space
from search.plan.plan import Plan
from search.plan.records import Records
from search.plan.runs import folder_if_needed
from search.plan.search import WritableRecords, copy_trials, open_search
from search.results.summarise import write_summary
from search.selection import validate_untrained
from search.stages import Stage
from search.study import QueuedStage, TrialListener, TrialQueue
from search.tracking import Tracker, import_mlflow
from trainables.errors import InvalidInput, counted
from trainables.storage import full_disk_errors

logger = logging.getLogger(__name__)

STALL_S = 600.0


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
) -> list[WritableRecords]:
    """Run the remaining ones of ``stages``, in their order, for searches with the same resources.

    Args:
        started: when the command began, in seconds since 1970; start-up is timed from here.
        opener: the name of the search or campaign that opens the test classes.
        reason: the reason for opening them again after an earlier opening; None to open them at most once.
        family: the table that all searches share, frozen with each choice; None for one table per search.
        on_begin: called after the last check that can refuse the run, just before the searches are opened.

    Raises:
        InvalidInput: the searches cannot be run here and now; nothing is created.
        FailedLosses, NothingToSelect: nothing was chosen. The records are complete.
        DiskFull: the disk filled up during the run. The same call resumes it.
    """
    check_extra("Running a search")
    phases = Phases(console, started)
    with ExitStack() as stack:
        stack.enter_context(full_disk_errors(plans[0].folder.runs.absolute()))
        stack.enter_context(folder_if_needed(plans[0].folder.runs))
        ready = cache(lambda: _engine_ready(plans, console, phases, stack))
        # If a new search cannot run, it leaves nothing; one without its split.json computes the images' digest again.
        if is_new := not all(plan.folder.config.exists() and plan.split.images for plan in plans):
            ready()
            check_weights(plans)  # those of a successor are its predecessor's
            plans = [with_training_images(plan) for plan in plans]
        killed = {plan.config.name for plan in plans if plan.folder.was_killed()}
        searches = _opened(plans, opener, on_begin, stack)
        left = [stage for stage in stages if _undone(searches, stage) or (stage is Stage.TEST and reason is not None)]
        if left:
            if not allow_failed and Stage.SEARCH not in left:
                refuse_failed(_undone(searches, Stage.SELECT), Stage.SEARCH)  # before anything is started
            say(console, resumed(searches, left))
            engine, slots = ready()
            if not is_new:
                check_weights(plans)
            for search in searches:
                if not is_new:
                    with_training_images(search.plan)  # raises if the images changed
                search.begin_session(started, slots)
            phases.begin(f"Starting {counted(slots, 'worker')} …")
            trials = stage_by_stage(searches, left, console, reason, family, allow_failed=allow_failed)
            _train_and_test(
                searches, left, trials, engine, slots, console,
                started=started, opener=opener, reason=reason, listeners=[phases, *listeners],
            )  # fmt: skip
        else:
            with phase(console, "Reading the result …"):
                _summarise(searches)
            write_missing(searches, console, opener, killed)
        if not allow_failed:
            refuse_failed(_undone(searches, Stage.SELECT), Stage.SEARCH)
        return searches


def _train_and_test(
    searches: Sequence[WritableRecords],
    left: Sequence[Stage],
    trials: Iterator[QueuedStage],
    engine: Engine,
    slots: int,
    console: Console,
    *,
    started: float,
    opener: str,
    reason: str | None,
    listeners: Sequence[TrialListener],
) -> None:
    """Train the ``trials`` of all stages ``left``, open the test if it is one of them, and write the results."""
    to_check = [search.plan for search in _undone(searches, Stage.TEST)]
    images = Thread(target=check_sealed_images, args=(to_check,), daemon=True)
    images.start()
    if missing := without_baselines(searches):
        on_vectors = all(search.plan.images.dataset.features() is not None for search in missing)
        with phase(console, f"Scoring the {'vectors as they are' if on_vectors else 'untrained network'} …"):
            validate_baselines(missing, partial(engine.map, validate_untrained))
    say(console, pruning(searches))
    if Stage.SEARCH in left:
        say(console, (*first_proposals(searches, slots), *at_ceiling(searches)))
    projections = {search.name: make_projection(search.plan) for search in searches}
    if engine.trains_here:
        import_mlflow()
    tracker = Tracker(projections)
    try:
        with Progress(console, searches, left, concurrent=slots, started=started) as progress:
            each = [kind(search) for search in searches for kind in (FolderCheck, CheckpointCleanup)]
            own = (*each, MlflowUpdates(tracker), GpuMemoryCheck(engine.resources))
            engine.on_workers = progress.on_workers
            engine.run(TrialQueue(trials, listeners=[progress, *own, *listeners]), slots)
        if Stage.TEST in left and (waiting := _to_test(searches, reason)):
            for search in waiting:
                search.folder.raise_if_moved()
            check_weights([search.plan for search in waiting])
            score_test(waiting, console, opener=opener, reason=reason, run=engine.map)
        _summarise(searches)
        if Stage.TEST in left:
            for search in searches:
                write_models(search)
    finally:
        tracker.close(lambda text: say(console, [text]))
    draw_search_report(searches, console, opener)  # the tracker's thread, which imports MLflow, has ended
    if tracker.behind:
        say(console, [behind(search.name) for search in searches])
    else:
        write_runs(searches, projections, console)
    images.join(CHECK_S)


def _engine_ready(plans: Sequence[Plan], console: Console, phases: Phases, stack: ExitStack) -> tuple[Engine, int]:
    """Check the space and start an engine; return it with the number of trials at once."""
    check_space(plans)
    say(console, filter(None, (slow_precision(plan.config) for plan in plans)))
    config = plans[0].config
    engine = make_engine(config.resources, config.search.max_concurrent)
    return engine, get_ready(plans, engine, console, phases, stack)


def get_ready(plans: Sequence[Plan], engine: Engine, console: Console, phases: Phases, stack: ExitStack) -> int:
    """Decode the images of the training halves while ``engine`` starts; return the number of trials at once.

    ``stack`` keeps the engine's session and the decoded images.

    Raises:
        InvalidInput: images that cannot be read, or machines that are too small.
        NoEngine: the engine does not start.
    """
    for library in TESTED:
        if sentence := untested(library):
            logger.warning("%s", sentence)
    images = list(dict.fromkeys(plan.images for plan in plans))
    nouns = " and ".join(dict.fromkeys(entry.dataset.noun for entry in images))
    phases.begin(f"Reading {nouns} and starting {engine.title} …")
    held = stack.enter_context(ExitStack())  # while it is open, no other search removes the images
    progresses = [StoreProgress(console, entry.dataset.noun) for entry in images]

    def prepare() -> None:
        for entry, progress in zip(images, progresses, strict=True):
            held.enter_context(entry.held(progress))
        engine.load()

    preparation = _Background(prepare, progresses)
    if engine.images_first:
        preparation.wait()
    stack.enter_context(engine.session())
    preparation.wait()
    concurrent = engine.slots()
    engine.prepare(images, list(dict.fromkeys(plan.checkpoint_storage for plan in plans)))
    phases.end(f"{nouns.capitalize()} and {engine.title} are ready")
    return concurrent


class _Background:
    """A call in a daemon thread, with the progress of the images that it decodes."""

    def __init__(self, call: Callable[[], None], images: Sequence[StoreProgress]) -> None:
        self._call = call
        self._images = images
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Wait for the call, with a warning for every :data:`STALL_S` without progress; raise its exception."""
        self._thread.join(STALL_S)
        while self._thread.is_alive():
            silent_s = time.monotonic() - max(images.heard for images in self._images)
            if silent_s >= STALL_S:
                logger.warning(
                    "Nothing was read for %.0f minutes. Check that the disk or network of the data set responds, and "
                    "that no other process that reads it is stuck (dataset.cache).",
                    silent_s / 60,
                )
            self._thread.join(STALL_S)
        if self._error is not None:
            raise self._error


def _opened(
    plans: Sequence[Plan], opener: str, on_begin: Callable[[], None], stack: ExitStack
) -> list[WritableRecords]:
    """Lock and open the searches until ``stack`` ends."""
    for plan in plans:
        stack.enter_context(plan.folder.only_driver())
    for plan in plans:
        records = Records(plan.folder, plan)
        if lost := records.lost_opening(scored=False):
            raise InvalidInput(f"{records.name}: {lost}, or search under a new name.")
        plan.folder.remove_drafts()
        catch_up(records)
    new = [plan for plan in plans if not (plan.folder.config.exists() or plan.folder.journal.exists())]
    for plan in new:
        for warning in filter(None, (note_opened_images(plan), copies_among_classes(plan))):
            logger.warning("%s: %s.", plan.config.name, warning)
    on_begin()
    if len(new) == len(plans):  # else the campaign has begun
        Records(plans[0].folder).ledger.begin(opener, {plan.split.test_digest for plan in new}, plans[0].predecessor)
    searches = [stack.enter_context(closing(open_search(plan))) for plan in plans]
    for search in searches:
        copy_trials(search)
    return searches


def _undone(searches: Sequence[WritableRecords], stage: Stage) -> list[WritableRecords]:
    return [search for search in searches if not search.is_done(stage) or to_retry(search, stage)]


def _to_test(searches: Sequence[WritableRecords], reason: str | None) -> list[WritableRecords]:
    """Return the searches to test: those with a frozen choice and, unless there is a ``reason``, without scores."""
    waiting = _undone(searches, Stage.TEST) if reason is None else searches
    return [search for search in waiting if search.is_done(Stage.SELECT)]


def stage_by_stage(
    searches: Sequence[WritableRecords],
    left: Sequence[Stage],
    console: Console,
    reason: str | None,
    family: Family | None = None,
    *,
    allow_failed: bool = False,
) -> Iterator[QueuedStage]:
    """Yield the trials of each stage; the code after a ``yield`` runs once all of them have ended."""
    if Stage.SEARCH in left:
        yield side_by_side(Stage.SEARCH, [search_stage(search) for search in searches])
        _summarise(searches)
        say(console, early_ends(searches))
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
        frozen = [(search, unchanged_selection(search)) for search in _to_test(searches, reason)]
        for search, selection in frozen:
            if resumed_opening(search, selection, reason) is None:  # raises before anything is trained again
                retry(search, Stage.TEST)
        yield side_by_side(Stage.TEST, [final_stage(search, selection) for search, selection in frozen])
        if not allow_failed:
            refuse_failed([search for search, _ in frozen], Stage.TEST)


def _freeze(searches: Sequence[WritableRecords], family: Family | None) -> None:
    """Freeze the choice of every search; warn about those with nothing to select, and raise if that is all."""
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


def _summarise(searches: Sequence[WritableRecords]) -> None:
    for search in searches:
        write_summary(search)
