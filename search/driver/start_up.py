"""Start-up of a driver: its lock, its engine, and the decoding of images."""

import hashlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from threading import Thread

import sqlalchemy
from optuna.trial import FrozenTrial
from rich.console import Console
from sqlalchemy.engine import Connection

from search.driver.progress_view import StoreProgress
from search.engines.base import Engine
from search.plan.plan import Plan
from search.plan.runs import this_process
from search.private_parts import TESTED, untested
from search.secrets import expand
from search.study import RunningTrial, TrialListener
from trainables.errors import InvalidInput
from trainables.spec import EpochRecord

logger = logging.getLogger(__name__)

# One driver per search: a lock in its runs folder and, if its studies are in PostgreSQL, a lock there. Everything that
# writes a search holds it, so a driver never has to read again what it wrote.

POLL_S = 5.0
_TRY = sqlalchemy.text("SELECT pg_try_advisory_lock(:key)")
_FREE = sqlalchemy.text("SELECT pg_advisory_unlock_all()")
_HOLDER = sqlalchemy.text(
    "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)"
    " WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND datname = current_database()"
    " AND (classid::bigint << 32) + objid::bigint = :key"
)
# With these the server notices within a minute, not after two hours, that a driver's machine is gone.
_KEEPALIVE = "-c tcp_keepalives_idle=20 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=4"


def lock_key(search: str) -> int:
    """Return the number of the search's advisory lock: 63 bits of SHA-256."""
    return int.from_bytes(hashlib.sha256(f"holdout:{search}".encode()).digest()[:8], "big") >> 1


@contextmanager
def hold(plans: Sequence[Plan]) -> Iterator[None]:
    """Lock the searches of ``plans`` for this process.

    Raises:
        InvalidInput: another process has locked one of them.
    """
    databases: dict[str, list[str]] = {}
    with ExitStack() as stack:
        for plan in plans:
            stack.enter_context(plan.folder.only_driver())
            storage = expand(plan.config.search.storage or "")
            if storage.startswith("postgresql"):
                databases.setdefault(storage, []).append(plan.config.name)
        for storage, names in databases.items():
            stack.enter_context(only_driver_of(names, storage))
        yield


@contextmanager
def only_driver_of(searches: Sequence[str], storage: str, poll_s: float = POLL_S) -> Iterator[None]:
    """Lock ``searches`` for this process in their PostgreSQL database ``storage``.

    A restarted server has lost the locks. They are taken again within ``poll_s``; if another driver was
    faster, this one is interrupted.

    Raises:
        InvalidInput: another process has locked one of them.
    """
    arguments = {"application_name": this_process()[:63], "options": _KEEPALIVE, "connect_timeout": 10}
    engine = sqlalchemy.create_engine(storage, connect_args=arguments, poolclass=sqlalchemy.pool.NullPool)
    connection = _take(engine, searches)
    done = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(engine, connection, searches, poll_s, done), name="driver lock", daemon=True
    )
    keeper.start()
    try:
        yield
    finally:
        done.set()
        keeper.join()


def _take(engine: sqlalchemy.Engine, searches: Sequence[str]) -> Connection:
    """Return a connection that holds the locks while it is open."""
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        for search in searches:
            key = {"key": lock_key(search)}
            if not connection.execute(_TRY, key).scalar():
                holder = connection.execute(_HOLDER, key).scalar() or "another process"
                raise InvalidInput(
                    f"The search {search} is being run by {holder}; wait for it, or end it and run the command again."
                )
    except BaseException:
        _release(connection)
        raise
    return connection


def _release(connection: Connection) -> None:
    """Release the locks and close: a server ends a session some time after its connection."""
    with suppress(sqlalchemy.exc.DatabaseError), connection:
        connection.execute(_FREE)


def _keep(
    engine: sqlalchemy.Engine, connection: Connection, searches: Sequence[str], poll_s: float, done: threading.Event
) -> None:
    """Keep the locks until ``done`` is set."""
    held: Connection | None = connection
    while not done.wait(poll_s):
        try:
            held = held or _take(engine, searches)
            held.execute(sqlalchemy.text("SELECT 1"))
        except sqlalchemy.exc.DatabaseError:  # the server is away: retry until it is back
            if held is not None:
                held.close()
            held = None
        except InvalidInput as error:
            logger.error("%s It started while the database was unreachable.", error)
            os.kill(os.getpid(), signal.SIGINT)
            return
    if held is not None:
        _release(held)


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
            now = time.time()
            self._say(f"First epoch after {now - self._begun:.1f} s, {now - self._started:.1f} s from the start.")

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
    holds = [
        lambda entry=entry, progress=progress: held.enter_context(entry.held(progress))
        for entry, progress in zip(images, told, strict=True)
    ]
    preparation = _Background(partial(_prepare, holds, engine), told)
    if engine.images_first:
        preparation.wait()
    stack.enter_context(engine.session())
    preparation.wait()
    concurrent = engine.slots()
    engine.prepare(images, list(dict.fromkeys(plan.checkpoint_storage for plan in plans)))
    phases.end(f"Images and {engine.title} are ready")
    return concurrent


def _prepare(holds: Sequence[Callable[[], object]], engine: Engine) -> None:
    """Decode the images, hold them, and import the rest of the engine."""
    for hold in holds:
        hold()
    engine.load()
