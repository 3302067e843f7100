"""Start-up of a driver: its lock, Ray, and the decoding of images."""

import hashlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from threading import Thread

import sqlalchemy
from optuna.trial import FrozenTrial
from rich.console import Console
from sqlalchemy.engine import Connection, Engine

from search.driver.progress_view import StoreProgress
from search.engines.ray_session import import_ray, ray_session
from search.plan.plan import Plan
from search.secrets import expand
from search.study import RunningTrial, TrialListener
from trainables.mistakes import Mistakes
from trainables.spec import EpochRecord

# One driver a search: a lock in its runs folder and, wherever that lies, one in the PostgreSQL that holds its studies.
#
# Whatever writes a search holds it, be it for moments: its driver knows what it has written, and reads nothing again.

logger = logging.getLogger(__name__)

LOOK_S = 5.0
_TRY = sqlalchemy.text("SELECT pg_try_advisory_lock(:key)")
_FREE = sqlalchemy.text("SELECT pg_advisory_unlock_all()")
_HOLDER = sqlalchemy.text(
    "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)"
    " WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND datname = current_database()"
    " AND (classid::bigint << 32) + objid::bigint = :key"
)
# The server notices within a minute that a driver's machine is gone, and not after two hours.
_KEEPALIVE = "-c tcp_keepalives_idle=20 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=4"


def lock_key(search: str) -> int:
    """The search's number among the database's advisory locks: 63 bits of SHA-256."""
    return int.from_bytes(hashlib.sha256(f"holdout:{search}".encode()).digest()[:8], "big") >> 1


@contextmanager
def hold(plans: Sequence[Plan]) -> Iterator[None]:
    """Hold the searches of ``plans`` for this process alone.

    Raises:
        Mistakes: another process holds one of them.
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
def only_driver_of(searches: Sequence[str], storage: str) -> Iterator[None]:
    """Hold ``searches`` for this process alone among all that use their database ``storage``, a PostgreSQL.

    A server that was restarted has forgotten the locks: they are taken again, and a driver that another overtook in
    between is interrupted.

    Raises:
        Mistakes: another process holds one of them.
    """
    name = f"process {os.getpid()} on {socket.gethostname()}"
    arguments = {"application_name": name[:63], "options": _KEEPALIVE, "connect_timeout": 10}
    engine = sqlalchemy.create_engine(storage, connect_args=arguments, poolclass=sqlalchemy.pool.NullPool)
    connection = _take(engine, searches)
    done = threading.Event()
    keeper = threading.Thread(target=_keep, args=(engine, connection, searches, done), name="driver lock", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        done.set()
        keeper.join()


def _take(engine: Engine, searches: Sequence[str]) -> Connection:
    """A connection that holds the locks as long as it is open."""
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        for search in searches:
            key = {"key": lock_key(search)}
            if not connection.execute(_TRY, key).scalar():
                holder = connection.execute(_HOLDER, key).scalar() or "another process"
                raise Mistakes(
                    f"The search {search} is being run by {holder}; wait for it, or end it and give the command again."
                )
    except BaseException:
        _let_go(connection)
        raise
    return connection


def _let_go(connection: Connection) -> None:
    """Give the locks back and close: a server ends a session some time after its connection."""
    with suppress(sqlalchemy.exc.DatabaseError), connection:
        connection.execute(_FREE)


def _keep(engine: Engine, connection: Connection, searches: Sequence[str], done: threading.Event) -> None:
    """Look after the locks until ``done``."""
    held: Connection | None = connection
    while not done.wait(LOOK_S):
        try:
            held = held or _take(engine, searches)
            held.execute(sqlalchemy.text("SELECT 1"))
        except sqlalchemy.exc.DatabaseError:  # the server is away; asked again until it is back
            if held is not None:
                held.close()
            held = None
        except Mistakes as error:
            logger.error("%s It began while the database was away.", error)
            os.kill(os.getpid(), signal.SIGINT)
            return
    if held is not None:
        _let_go(held)


# From a plan to a cluster that waits for trials: the images are decoded while Ray starts, and each phase is said.

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

    from search.engines.ray_nodes import make_nodes_ready
    from search.engines.ray_tune import slots

    resources = plans[0].config.resources
    concurrent = slots(resources, plans[0].config.search.max_concurrent)
    make_nodes_ready(images, list(dict.fromkeys(plan.checkpoint_storage for plan in plans)))
    phases.end("Images and Ray are ready")
    return concurrent


def _prepare(holds: Sequence[Callable[[], object]]) -> None:
    """Decode the images, hold them, and import what is needed as soon as Ray is there."""
    for hold in holds:
        hold()
    import search.engines.ray_nodes
    import search.engines.ray_tune  # noqa: F401
