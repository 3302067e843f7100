"""Requests to a live page that asks for a token: no answer without it, and it is not passed on."""

import socket
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from support.serving import HOST, asked, served

from search.report.live.app import live_app

TOKEN = "a-token-of-32-characters-at-least"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    return live_app(tmp_path_factory.mktemp("runs"), TOKEN, "0.0.0.0")


WRONG = ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\udcff", "é", "x" * 100_000]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda text: ascii(text)[:20])
def test_a_wrong_token_is_refused_in_every_place(wrong: str, app: FastAPI) -> None:
    content = wrong.encode(errors="surrogateescape")
    quoted = "".join(f"%{byte:02x}" for byte in content)
    places = [
        ("", HOST, (b"authorization", b"Bearer " + content)),
        ("", HOST, (b"cookie", b"holdout-8000=" + content)),
        (f"token={quoted}", HOST),
        (f"token={quoted}&token={quoted}", HOST),
    ]
    for query, *headers in places:
        status, found, body = asked(app, "/api/searches", query, *headers)
        assert status == 401
        assert "set-cookie" not in found
        assert TOKEN not in body


@pytest.mark.parametrize("path", ["/", "/api/searches", "/files/live.js", "/openapi.json", "/nowhere", "//", "/../x"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "NONE"])
def test_nothing_is_answered_without_a_token(path: str, method: str, app: FastAPI) -> None:
    assert asked(app, path, method=method)[0] == 401


def test_a_right_token_counts_beside_an_old_cookie(app: FastAPI) -> None:
    old, right = (b"cookie", b"holdout-8000=of-an-earlier-server"), (b"authorization", f"Bearer {TOKEN}".encode())
    assert asked(app, "/api/searches", "", HOST, old, right)[0] == 200


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "///evil.example", "/\\/evil.example"])
def test_the_redirect_stays_on_this_host_and_has_no_token(path: str, app: FastAPI) -> None:
    status, found, body = asked(app, path, f"token={TOKEN}")
    assert status == 307
    assert found["location"].startswith(("/evil.example", "/%5C"))
    assert TOKEN not in found["location"] + body
    assert found["referrer-policy"] == "no-referrer"
    cookie, *attributes = found["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict"} <= {*attributes}
    assert cookie.startswith("holdout-8000="), "servers on one machine keep separate cookies"
    assert asked(app, "/", "", HOST, (b"cookie", cookie.encode()))[0] == 200


@pytest.mark.parametrize("host", [b"10.0.0.1:port", b"10.0.0.1:99999999", b"[::1", b"", b"a b:1", b"x" * 5000])
def test_a_host_of_another_form_is_no_error_of_the_server(host: bytes, app: FastAPI) -> None:
    assert asked(app, "/api/searches", "", (b"host", host))[0] in (400, 401)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """The port and the token of a real server, next to a private file."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "runs").mkdir()
    (folder / "private.txt").write_text("private content")
    with served(folder / "runs", "--host", "0.0.0.0") as (_, port, address):
        token = address.partition("?token=")[2]
        assert len(token) >= 32
        yield port, token


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
def test_no_path_leads_out(path: str, version: str, server: tuple[int, str]) -> None:
    port, token = server
    host = "Host: localhost\r\nConnection: close\r\n" if version == "1.1" else ""
    request = f"GET {path} HTTP/{version}\r\n{host}"
    assert b" 401 " in sent(port, f"{request}\r\n".encode()).splitlines()[0]
    answer = sent(port, f"{request}Authorization: Bearer {token}\r\n\r\n".encode())
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
def test_a_malformed_request_ends_only_itself(content: bytes, server: tuple[int, str]) -> None:
    port, token = server
    assert b" 200 " not in sent(port, content).split(b"\r\n")[0]
    right = f"GET /api/searches HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n"
    assert b" 200 " in sent(port, right.encode()).split(b"\r\n")[0]
