"""``holdout serve`` in a subprocess, and requests to the live page without one."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from fastapi import FastAPI


@contextmanager
def served(runs: Path, *more: str) -> Iterator[tuple[str, int, str]]:
    """Serve ``runs`` in a subprocess; yield its host, its port, and the address that it prints."""
    command = [sys.executable, "-m", "holdout", "serve", "--runs", str(runs), "--port", "0", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        host, _, port = address.removeprefix("http://").partition("/")[0].rpartition(":")
        try:
            yield host, int(port), address
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Answer requests on loopback by ``handler``; yield the port."""
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


HOST = (b"host", b"10.0.0.1:8000")


def asked(
    app: FastAPI, path: str, query: str = "", *headers: tuple[bytes, bytes], method: str = "GET", body: bytes = b""
) -> tuple[int, dict[str, str], str]:
    """Return the status, headers and body of the response of ``app`` to a request without a connection."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(errors="replace"), "query_string": query.encode(), "root_path": "",
        "server": ("10.0.0.1", 8000), "client": ("10.0.0.2", 1), "headers": headers or (HOST,),
    }  # fmt: skip
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    found = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent).decode()
