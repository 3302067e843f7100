"""Malformed requests to the live page, and paths that leave its folder."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.serving import asked, served

from search.report.live import live_app


@pytest.mark.parametrize("host", [b"10.0.0.1:port", b"10.0.0.1:99999999", b"[::1", b"", b"a b:1", b"x" * 5000])
def test_a_host_of_another_form_is_refused(host: bytes, tmp_path: Path) -> None:
    assert asked(live_app(tmp_path), "/api/searches", "", (b"host", host))[0] == 400


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real server, next to a private file."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "runs").mkdir()
    (folder / "private.txt").write_text("private content")
    with served(folder / "runs") as found:
        yield found[1]


def sent(port: int, content: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(content)
        answer = b""
        try:
            while part := client.recv(65536):
                answer += part
                client.settimeout(0.5)  # the server may wait for another request
        except (ConnectionResetError, TimeoutError):  # the rest of a long request is not read
            pass
    return answer


PATHS = [
    "/files/../../private.txt", "/files/..%2f..%2fprivate.txt", "/files/%2e%2e/%2e%2e/private.txt",
    "/files/..%5c..%5cprivate.txt", "/files/%2fetc%2fpasswd", "/files/%00", "/files/%c0%ae%c0%ae%2fprivate.txt",
    "/searches/..%2f..%2fx", "/api/searches/..", "/api/searches/%2e%2e", "/api/searches/..%2fprivate.txt",
    "/api/searches/%00", "/api/searches/%ff%fe", f"/api/searches/{'x' * 3000}", "/api/searches/../report",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:40])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_no_path_leads_out(path: str, version: str, server: int) -> None:
    host = f"Host: localhost\r\n{'Connection: close' if version == '1.1' else 'X: y'}\r\n"
    answer = sent(server, f"GET {path} HTTP/{version}\r\n{host}\r\n".encode())
    status = answer.split(b" ", 2)[1]
    assert status in (b"404", b"400") or (status == b"200" and path.startswith("/searches/"))
    assert b"private content" not in answer
    assert b"root:" not in answer


LONG = [
    b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01",  # a TLS client
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
]


@pytest.mark.parametrize("content", LONG, ids=lambda content: repr(content[:20]))
def test_a_malformed_request_ends_only_itself(content: bytes, server: int) -> None:
    assert b" 200 " not in sent(server, content).split(b"\r\n")[0]
    assert b" 200 " in sent(server, b"GET /api/searches HTTP/1.0\r\nHost: localhost\r\n\r\n").split(b"\r\n")[0]
