"""From a plan to a cluster that waits for trials: the images are decoded while Ray starts, and each phase is said."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from threading import Thread

from optuna.trial import FrozenTrial
from rich.console import Console

from search.cluster.session import import_ray, ray_session
from search.plan.plan import Plan
from search.stages.progress.store_progress import StoreProgress
from search.study.trial_queue import RunningTrial, TrialListener
from trainables.training.epoch_record import EpochRecord

logger = logging.getLogger(__name__)

STALL_S = 600.0


class Phases(TrialListener):
    """Says what a start-up waits for, until the first epoch is reported; ``started`` in seconds since 1970."""

    def __init__(self, console: Console, started: float) -> None:
        self._console = console
        self._started = started
        self._begun = 0.0
        self._waits = True

    def begin(self, text: str) -> None:
        """Say that a phase begins."""
        self._begun = time.time()
        self._say(text)

    def end(self, text: str) -> None:
        """Say that a phase ended, and how long it took."""
        self._say(f"{text} after {time.time() - self._begun:.1f} s.")

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        """Say when the first epoch ended."""
        if self._waits:
            self._waits = False
            now = time.time()
            self._say(f"First epoch after {now - self._begun:.1f} s, {now - self._started:.1f} s from the start.")

    def _say(self, text: str) -> None:
        self._console.print(text, style="dim", highlight=False)


class _Background:
    """A call in a thread of its own, for which the end of the process does not wait, and what its images tell."""

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
        """Wait until the call returns, and say where it stands still; raise what it raises."""
        self._thread.join(STALL_S)
        while self._thread.is_alive():
            silent_s = time.monotonic() - max(images.heard for images in self._images)
            if silent_s >= STALL_S:
                logger.warning(
                    "No image was decoded for %.0f minutes. See whether the disk or network of the images answers "
                    "(dataset.root), and whether another process that decodes them stands still (dataset.cache).",
                    silent_s / 60,
                )
            self._thread.join(STALL_S)
        if self._error is not None:
            raise self._error


def get_ready(plans: Sequence[Plan], console: Console, phases: Phases, stack: ExitStack) -> int:
    """Decode the images of the training halves, connect to Ray; how many trials run at once.

    Raises:
        Mistakes: images that cannot be read, or a cluster that is too small.
        NoRay: Ray does not start.
    """
    images = list(dict.fromkeys(plan.images for plan in plans))
    cluster = os.environ.get("RAY_ADDRESS")
    phases.begin("Decoding images and starting Ray …")
    import_ray()  # sets its token, which has to happen before anything else imports Ray
    held = stack.enter_context(ExitStack())  # to its end no other search removes its images
    told = [StoreProgress(console) for _ in images]
    holds = [
        lambda entry=entry, progress=progress: held.enter_context(entry.held(progress))
        for entry, progress in zip(images, told, strict=True)
    ]
    preparation = _Background(partial(_prepare, holds), told)
    if cluster:  # where several nodes share a disk, Ray unpacks a job's code anew for each as they join it
        preparation.wait()
    stack.enter_context(ray_session())
    preparation.wait()

    from search.cluster.nodes import make_nodes_ready
    from search.cluster.tune.tuner import slots

    resources = plans[0].config.resources
    concurrent = slots(resources, plans[0].config.search.max_concurrent)
    make_nodes_ready(images, list(dict.fromkeys(plan.checkpoint_storage for plan in plans)))
    phases.end("Images and Ray are ready")
    return concurrent


def _prepare(holds: Sequence[Callable[[], object]]) -> None:
    """Decode the images, hold them, and import what is needed as soon as Ray is there."""
    for hold in holds:
        hold()
    import search.cluster.nodes
    import search.cluster.tune.tuner  # noqa: F401
