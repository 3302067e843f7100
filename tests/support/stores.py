"""Storage other than local folders. The FTP server is real, so other processes can use it too."""

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
    """Yield the port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:  # the system accepts connections
        yield listening.getsockname()[1]


PLACES = ("folder", "memory", "ftp")
"""A local folder, a store without folders, and a server."""


@contextmanager
def place(kind: str, folder: Path) -> Iterator[str]:
    """Yield the address of empty storage, one of :data:`PLACES`, below or named after ``folder``."""
    if kind == "ftp":
        with ftp_store(folder / "ftp") as url:
            yield url
    else:
        yield f"memory:/{folder}" if kind == "memory" else str(folder)


@contextmanager
def ftp_store(folder: Path, port: int = 0) -> Iterator[str]:
    """Yield the URL of a server that stores its files in ``folder``, writable from this machine."""
    folder.mkdir(exist_ok=True)
    authorizer = DummyAuthorizer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # about anonymous write access
        authorizer.add_anonymous(str(folder), perm=EVERYTHING)
    logger = logging.getLogger("pyftpdlib")
    logger.setLevel(logging.ERROR)
    logger.addHandler(logging.NullHandler())  # or the server adds one that prints
    handler = type("Handler", (FTPHandler,), {"authorizer": authorizer})
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
