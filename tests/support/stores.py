"""Places for files that are no folder of this machine; a real FTP server is reached by other processes as well."""

import logging
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import ThreadedFTPServer

EVERYTHING = "elradfmwMT"


@contextmanager
def silent_server() -> Iterator[int]:
    """The port of a server that lets everybody connect, and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:  # the system accepts for it
        yield listening.getsockname()[1]


PLACES = ("folder", "memory", "ftp")
"""A folder of this machine, a store without folders, a server."""


@contextmanager
def place(kind: str, folder: Path) -> Iterator[str]:
    """The address of an empty place for files, one of :data:`PLACES`, below ``folder`` or called by it."""
    if kind == "ftp":
        with ftp_store(folder / "ftp") as url:
            yield url
    else:
        yield f"memory:/{folder}" if kind == "memory" else str(folder)


@contextmanager
def ftp_store(folder: Path, port: int = 0, kind: type[FTPHandler] = FTPHandler) -> Iterator[str]:
    """The URL of a server that keeps its files in ``folder``, and lets anybody of this machine write.

    ``kind`` is how it answers.
    """
    folder.mkdir(exist_ok=True)
    authorizer = DummyAuthorizer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that anybody may write
        authorizer.add_anonymous(str(folder), perm=EVERYTHING)
    logger = logging.getLogger("pyftpdlib")
    logger.setLevel(logging.ERROR)
    logger.addHandler(logging.NullHandler())  # the server makes one that prints where there is none
    handler = type("Handler", (kind,), {"authorizer": authorizer})
    server = ThreadedFTPServer(("127.0.0.1", port), handler)
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            server.serve_forever(timeout=0.1, blocking=False)
        server.close_all()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"ftp://127.0.0.1:{server.address[1]}"
    finally:
        ended.set()
        thread.join()
