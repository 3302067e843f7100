"""Passwords stay out of everything that is shown or written."""

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from search.config.secrets import holds_password, without_password
from search.plan.checks.addresses import check_tracking
from trainables.mistakes import Mistakes


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:secret@h/x", "postgresql://u:***@h/x"),
        ("postgresql+psycopg://u:a/b:c@h:1/x", "postgresql+psycopg://u:***@h:1/x"),
        ("http://:secret@h", "http://:***@h"),
        ("postgresql://h/x?user=u&password=secret&sslmode=on", "postgresql://h/x?user=u&password=***&sslmode=on"),
        ("(Error) no answer from [http://u:secret@h] [x", "(Error) no answer from [http://u:***@h] [x"),
    ],
)
def test_a_password_is_seen_and_not_shown(address: str, shown: str) -> None:
    assert without_password(address) == shown
    assert holds_password(address)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u@h:5432/x",
        "http://h:5000",
        "postgresql://u:${PASSWORD}@h/x",
        "sqlite:////home/u/x.db",
        "no address",
    ],
)
def test_an_address_without_a_password_is_shown_as_it_is(address: str) -> None:
    assert not holds_password(address)


class _Guarded(BaseHTTPRequestHandler):
    """As MLflow with users: everybody may ask for its health, and only the right user for anything else."""

    known = base64.b64encode(b"u:secret").decode()

    def do_GET(self) -> None:
        allowed = self.path == "/health" or self.headers["Authorization"] == f"Basic {self.known}"
        body = b"{}" if allowed else b"secret?"
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    with HTTPServer(("127.0.0.1", 0), _Guarded) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_server_that_asks_for_a_user_is_answered_by_reference(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "secret")
    check_tracking(f"http://u:${{WORD}}@127.0.0.1:{port}")
    monkeypatch.setenv("WORD", "wrong")
    with pytest.raises(Mistakes, match=r"does not let this user in \(HTTP status 401\)"):
        check_tracking(f"http://u:${{WORD}}@127.0.0.1:{port}")
    with pytest.raises(Mistakes) as nobody:
        check_tracking("http://u:${WORD}@127.0.0.1:9")
    assert "wrong" not in str(nobody.value)
