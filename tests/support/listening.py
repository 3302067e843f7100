"""A socket that records who connects to it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def listening() -> Iterator[tuple[int, list[bytes]]]:
    """Listen on loopback; yield the port, and what each connection sent first. Every connection is closed at once."""
    heard: list[bytes] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # closed
                return
            with connection:
                heard.append(connection.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
