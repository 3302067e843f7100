"""One driver a search: a lock in its runs folder and, wherever that lies, one in the PostgreSQL that holds its studies.

Whatever writes a search holds it, be it for moments: its driver knows what it has written, and reads nothing again.
"""

import hashlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import sqlalchemy
from sqlalchemy.engine import Connection, Engine

from search.config.secrets import expand
from search.plan.plan import Plan
from trainables.mistakes import Mistakes

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
