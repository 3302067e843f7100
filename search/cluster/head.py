"""Whether the head of a Ray cluster is there: a driver that it leaves is ended, and only Ray's own line says why."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

EVERY_S = 3.0
"""Between two looks; the head is gone after two in a row that found nobody."""
CONNECT_S = 5.0


@contextmanager
def watched_head(address: str) -> Iterator[None]:
    """While this is open, say it when nothing listens any more at ``address``, where the cluster's GCS did.

    A driver whose GCS is away for ``RAY_gcs_rpc_server_reconnect_timeout_s`` (60) is ended by Ray with code 1, in C++
    and without a single handler of Python's: what its user should do has to be said before.
    """
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(address, over), name="head", daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def _watch(address: str, over: threading.Event) -> None:
    misses = 0
    while not over.wait(EVERY_S):
        misses = 0 if _listens(address) else misses + 1
        if misses == 2:
            logger.warning(
                "Ray's head at %s is gone. Unless it comes back, Ray ends this program within a minute or two; nothing "
                "that is stored is lost, and the same command goes on once there is a Ray again.",
                address,
            )


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError:
        return False
    return True
