"""Start-up of a driver: its lock, its engine, and the decoding of images."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Thread

from optuna.trial import FrozenTrial
from rich.console import Console

from search.driver.progress_view import StoreProgress
from search.engines.base import Engine
from search.packages import TESTED, untested
from search.plan.plan import Plan
from search.study import RunningTrial, TrialListener
from trainables.spec import EpochRecord

logger = logging.getLogger(__name__)


@contextmanager
def hold(plans: Sequence[Plan]) -> Iterator[None]:
    """Lock the searches of ``plans`` for this process: everything that writes a search holds its lock.

    Raises:
        InvalidInput: another process has locked one of them.
    """
    with ExitStack() as stack:
        for plan in plans:
            stack.enter_context(plan.folder.only_driver())
        yield


# From plans to workers that wait for trials: the images are decoded while the engine starts.

STALL_S = 600.0


class Phases(TrialListener):
    """Messages on the phases of a start-up until the first epoch; ``started`` is in seconds since 1970."""

    def __init__(self, console: Console, started: float) -> None:
        self._console = console
        self._started = started
        self._begun = 0.0
        self._waits = True

    def begin(self, text: str) -> None:
        self._begun = time.time()
        self._say(text)

    def end(self, text: str) -> None:
        """Print that the phase ended, with its duration."""
        self._say(f"{text} after {time.time() - self._begun:.1f} s.")

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        if self._waits:
            self._waits = False
            self._say(f"First epoch {time.time() - self._started:.1f} s after the start.")

    def _say(self, text: str) -> None:
        self._console.print(text, style="dim", highlight=False)


class _Background:
    """A call in a daemon thread, with the progress of the images that it decodes."""

    def __init__(self, call: Callable[[], None], images: Sequence[StoreProgress], stall_s: float = STALL_S) -> None:
        self._call = call
        self._stall_s = stall_s
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
        """Wait for the call, with a warning for every ``stall_s`` without progress; raise its exception."""
        self._thread.join(self._stall_s)
        while self._thread.is_alive():
            silent_s = time.monotonic() - max(images.heard for images in self._images)
            if silent_s >= self._stall_s:
                logger.warning(
                    "No image was decoded for %.0f minutes. Check that the disk or network of the images responds "
                    "(dataset.root), and that no other process that decodes them is stuck (dataset.cache).",
                    silent_s / 60,
                )
            self._thread.join(self._stall_s)
        if self._error is not None:
            raise self._error


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
    phases.begin(f"Decoding images and starting {engine.title} …")
    held = stack.enter_context(ExitStack())  # while it is open, no other search removes the images
    told = [StoreProgress(console) for _ in images]

    def prepare() -> None:
        for entry, progress in zip(images, told, strict=True):
            held.enter_context(entry.held(progress))
        engine.load()

    preparation = _Background(prepare, told)
    if engine.images_first:
        preparation.wait()
    stack.enter_context(engine.session())
    preparation.wait()
    concurrent = engine.slots()
    engine.prepare(images, list(dict.fromkeys(plan.checkpoint_storage for plan in plans)))
    phases.end(f"Images and {engine.title} are ready")
    return concurrent
