"""The live page on an address."""

import ipaddress
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from search.pages.live.app import live_app
from trainables.mistakes import Mistakes


def serve(runs: Path, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve the page of ``runs`` until the process is interrupted; ``say`` gets its address when it answers.

    This machine's own addresses need no token; any other one has a new token in the address that is told.

    Raises:
        Mistakes: the runs folder is not there, or the address cannot be listened on.
    """
    import uvicorn

    if not runs.is_dir():
        raise Mistakes(f"There is no runs folder {runs}; give the one that your searches are in with --runs.")
    token = None if _is_loopback(host) else secrets.token_urlsafe(32)
    listening = _listening(host, port)
    shown = f"[{host}]" if ":" in host else host
    server = uvicorn.Server(uvicorn.Config(live_app(runs, token, host), log_level="warning"))
    # The socket listens already: who is told the address is answered as soon as the program is there.
    say(f"http://{shown}:{listening.getsockname()[1]}/" + (f"?token={token}" if token else ""))
    server.run([listening])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise Mistakes(
            f"{host}:{port} cannot be listened on ({error.strerror or error}); give another one with --host and "
            "--port, or --port 0 for any that is free."
        ) from error
