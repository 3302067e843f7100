"""The way of a search through its stages: search, select, test.

Whatever is done is read from the records, so the same call starts a search, goes on with one that was killed at any
moment, extends one, or finds nothing left to do.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack

from rich.console import Console

from search.agenda import Agenda, Stage
from search.cluster.session import ray_session
from search.freeze import freeze
from search.plan import Plan
from search.progress import Progress, StoreProgress
from search.scoring import score
from search.sealed_test import score_test
from search.search import Search, open_search
from search.selection import Selection
from search.study import rungs
from search.tidy import Tidy
from search.tracked import make_projection, synchronise
from search.tracking import Projection, Tracker

logger = logging.getLogger(__name__)


def run_stages(plan: Plan, console: Console, stages: tuple[str, ...], reason: str | None = None) -> Search:
    """Carry out what is left of ``stages``. ``reason`` opens the test once more, although it was opened.

    Raises:
        Mistakes: what only shows now: images that cannot be read, a cluster that is too small, a search that another
            process runs. Nothing is created then.
    """
    with ExitStack() as stack:
        is_new = not plan.folder.config.exists()
        if is_new:
            concurrent = _get_ready(plan, console, stack)
        stack.enter_context(plan.folder.only_driver())
        search = open_search(plan, console)
        left = [stage for stage in stages if not search.is_done(stage)]
        if reason is not None:
            left.append("test")
        if left:
            if not is_new:
                concurrent = _get_ready(plan, console, stack)
            _carry_out(search, left, reason, concurrent)
        return search


def _get_ready(plan: Plan, console: Console, stack: ExitStack) -> int:
    """Decode the images of the training half, connect to Ray; how many trials run at once."""
    plan.images.open(StoreProgress(console))
    stack.enter_context(ray_session())
    from search.tuner import slots  # Ray may only be imported with its token set

    return slots(plan.config.resources, plan.config.search.max_concurrent)


def _carry_out(search: Search, left: list[str], reason: str | None, concurrent: int) -> None:
    from search.tuner import map_on_workers, run_agenda

    config = search.config
    search.begin_session(concurrent)
    _print_rungs(search)
    projection = make_projection(search.plan)
    tracker = Tracker(projection)
    try:
        with Progress(search.console, concurrent) as progress:
            agenda = Agenda(_stages(search, left), listeners=[Tidy(config.checkpoints), progress, tracker])
            run_agenda(agenda, resources=config.resources, concurrent=concurrent)
        if "test" in left:
            score_test(search, reason, lambda tasks: map_on_workers(score, tasks, resources=config.resources))
    finally:
        in_step = tracker.close()
    if not in_step or not _try_synchronise(search, projection):
        search.console.print(f"MLflow is behind the studies; `holdout sync {config.name}` writes what is missing.")


def _stages(search: Search, left: list[str]) -> Iterator[Stage]:
    """The stages' trials; the code between two of them runs when the first is done."""
    plan, storage = search.plan, search.storage
    if "search" in left:
        yield plan.search_stage(storage)
        search.summary()
    if "select" in left:
        yield plan.confirm_stage(storage)
        freeze(search)
        search.summary()
    if "test" in left:
        yield plan.final_stage(storage, Selection.load(plan.folder.selection))
        search.summary()


def _print_rungs(search: Search) -> None:
    pruner = search.config.search.pruner
    plan = rungs(pruner, search.config.training.epochs)
    text = f"after epochs {', '.join(map(str, plan))} the best half goes on" if plan else "no trial is pruned"
    search.console.print(f"Pruning ({pruner}): {text}.", style="dim", highlight=False)


def _try_synchronise(search: Search, projection: Projection) -> bool:
    try:
        synchronise(search, projection)
    except Exception as error:  # whatever MLflow meets, the search's result stands
        logger.warning("MLflow cannot be written (%s).", type(error).__name__)
        return False
    return True
