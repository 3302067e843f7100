"""The pipeline that runs the stages of one or more searches side by side: search, select, test."""

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from functools import cache, partial
from threading import Thread

from rich.console import Console

from search.driver.choice import refuse_failed
from search.driver.finish import draw_search_report, write_missing, write_models, write_runs
from search.driver.inputs import (
    CHECK_S,
    check_sealed_images,
    check_weights,
    copies_among_classes,
    note_opened_images,
    validate_baselines,
    with_training_images,
    without_baselines,
)
from search.driver.listeners import CheckpointCleanup, FolderCheck, MlflowUpdates, Progress
from search.driver.notices import first_proposals, pruning, resumed
from search.driver.part_checks import slow_precision
from search.driver.progress_view import StoreProgress, phase, say
from search.driver.sealed import catch_up
from search.driver.stages import STAGES, Order, RunStage, SelectStage, summarise, trials_in_turn
from search.driver.synchronise import behind, make_projection
from search.engines.base import Engine, make_engine
from search.packages import check_extra
from search.records import validate_untrained
from search.records.disk import check_space
from search.records.plan import Plan
from search.records.records import Records
from search.records.runs import folder_if_needed
from search.records.writable import WritableRecords, open_search
from search.stages import UNTRAINED, Stage, baseline_phrase
from search.study import TrialQueue
from search.tracking import Tracker, import_mlflow
from trainables.common.errors import InvalidInput, counted
from trainables.common.storage import full_disk_errors

logger = logging.getLogger(__name__)


def run_stages(plans: Sequence[Plan], order: Order) -> list[WritableRecords]:
    """Run the stages of ``order`` that are not done, for searches with the same resources.

    Raises:
        InvalidInput: the searches cannot be run here and now; nothing is created.
        FailedLosses, NothingToSelect: nothing was chosen. The records are complete.
        DiskFull: the disk filled up during the run. The same call resumes it.
    """
    check_extra("Running a search")
    with ExitStack() as stack:
        stack.enter_context(full_disk_errors(plans[0].folder.runs.absolute()))
        stack.enter_context(folder_if_needed(plans[0].folder.runs))
        engine_ready = cache(lambda: _engine_ready(plans, order.console, stack))
        # If a new search cannot run, it leaves nothing; one without its split.json computes the images' digest again.
        if is_new := not all(plan.folder.config.exists() and plan.split.images for plan in plans):
            engine_ready()
            plans = [with_training_images(plan) for plan in plans]
        killed = {plan.config.name for plan in plans if plan.folder.was_killed()}
        searches = _opened(plans, order, stack)
        stages = [STAGES[stage](searches, order) for stage in order.stages]
        left = [stage for stage in stages if stage.left()]
        unchosen = SelectStage(searches, order).left
        if not left:
            with phase(order.console, "Reading the result …"):
                summarise(searches)
            write_missing(searches, order.console, order.opener, killed)
        else:
            if not order.allow_failed and left[0].stage is not Stage.SEARCH:
                refuse_failed(unchosen(), Stage.SEARCH)  # before anything is started
            engine, slots = engine_ready()
            if not order.continues:
                say(order.console, resumed(searches, [stage.stage for stage in left], slots))
            check_weights(plans)
            if not is_new:
                for plan in plans:
                    with_training_images(plan)  # raises if the images changed
            for search in searches:
                search.begin_session(order.started, slots)
            say(order.console, [f"Starting {counted(slots, 'worker')} …"])
            _carry_out(searches, left, engine, slots, order)
        if not order.allow_failed:
            refuse_failed(unchosen(), Stage.SEARCH)
        return searches


def _carry_out(
    searches: Sequence[WritableRecords], stages: Sequence[RunStage], engine: Engine, slots: int, order: Order
) -> None:
    """Carry out ``stages`` in turn, in one run of the engine so that workers live on, and write the results."""
    of = [stage.stage for stage in stages]
    sealed = [search.plan for search in searches if not search.is_done(Stage.TEST)]
    images = Thread(target=check_sealed_images, args=(sealed,), daemon=True)
    images.start()
    if missing := without_baselines(searches):
        on_vectors = all(search.plan.images.dataset.features() is not None for search in missing)
        with phase(order.console, f"Scoring {baseline_phrase(UNTRAINED, of_vectors=on_vectors)} …"):
            validate_baselines(missing, partial(engine.map, validate_untrained))
    if Stage.SEARCH in of:
        say(order.console, (*pruning(searches), *first_proposals(searches, slots)))
    projections = {search.name: make_projection(search.plan) for search in searches}
    if engine.trains_here:
        import_mlflow()
    tracker = Tracker(projections)
    try:
        with Progress(order.console, searches, of, concurrent=slots, started=order.started) as progress:
            each = [kind(search) for search in searches for kind in (FolderCheck, CheckpointCleanup)]
            listeners = [progress, *each, MlflowUpdates(tracker), *order.listeners]
            engine.on_workers = progress.on_workers
            engine.run(TrialQueue(trials_in_turn(stages), listeners=listeners), slots)
        for stage in stages:
            stage.conclude(engine.map)
        summarise(searches)
        if Stage.TEST in of:
            for search in searches:
                write_models(search)
    finally:
        tracker.close(lambda text: say(order.console, [text]))
    draw_search_report(searches, order.console, order.opener)  # the tracker's thread, which imports MLflow, has ended
    if tracker.behind:
        say(order.console, [behind(search.name) for search in searches])
    else:
        write_runs(searches, projections, order.console)
    images.join(CHECK_S)


def _engine_ready(plans: Sequence[Plan], console: Console, stack: ExitStack) -> tuple[Engine, int]:
    """Check the space and start an engine; return it with the number of trials at once."""
    check_space(plans)
    say(console, filter(None, (slow_precision(plan.config) for plan in plans)))
    config = plans[0].config
    engine = make_engine(config.resources, config.search.max_concurrent)
    return engine, get_ready(plans, engine, console, stack)


def get_ready(plans: Sequence[Plan], engine: Engine, console: Console, stack: ExitStack) -> int:
    """Decode the images of the training halves while ``engine`` starts; return the number of trials at once.

    ``stack`` keeps the engine's session and the decoded images. Raise if images cannot be read, machines are too small
    or the engine does not start.
    """
    images = list(dict.fromkeys(plan.images for plan in plans))
    nouns = " and ".join(dict.fromkeys(entry.dataset.noun for entry in images))
    say(console, [f"Reading {nouns} and starting {engine.title} …"])
    held = stack.enter_context(ExitStack())  # while it is open, no other search removes the images
    preparation = Future[None]()

    def prepare() -> None:
        try:
            for entry in images:
                held.enter_context(entry.held(StoreProgress(console, entry.dataset.noun)))
            engine.load()
            preparation.set_result(None)
        except BaseException as error:
            preparation.set_exception(error)

    Thread(target=prepare, daemon=True).start()
    if engine.images_first:
        preparation.result()
    stack.enter_context(engine.session())
    preparation.result()
    concurrent = engine.slots()
    engine.prepare(images, list(dict.fromkeys(plan.checkpoint_storage for plan in plans)))
    return concurrent


def _opened(plans: Sequence[Plan], order: Order, stack: ExitStack) -> list[WritableRecords]:
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
    order.on_begin()
    if len(new) == len(plans):  # else the campaign has begun
        tests = {plan.split.test_digest for plan in new}
        Records(plans[0].folder).ledger.begin(order.opener, tests)
    return [stack.enter_context(closing(open_search(plan))) for plan in plans]
