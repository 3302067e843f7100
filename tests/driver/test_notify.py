"""Notifications: what is posted, to whom, and that no server can fail or delay a run."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here, plain, write_search
from support.listening import listening

from search.config.search_config import validate_config
from search.driver.notify import MOST_CHARACTERS, Notifications
from search.stages import Stage
from search.study import QueuedStage
from trainables.mistakes import Failure

SECRET = "/services/T0/for-no-eye"


@contextmanager
def receiving(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the address of a local server, and the lines that are posted there."""
    posted: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            assert self.path == SECRET
            assert body.count("\n") == 1
            posted.append(json.loads(body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{SECRET}", posted
    finally:
        server.shutdown()
        server.server_close()


def test_a_run_posts_the_end_of_each_stage_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [Stage.NOISE, Stage.SEARCH, Stage.SELECT, Stage.SELECT, Stage.TEST]  # halving confirms in steps
    with receiving() as (address, posted):
        monkeypatch.setenv("WEBHOOK", address)
        with Notifications("birds", ["${WEBHOOK}"] * 3) as notifications:
            list(notifications.told(QueuedStage(stage=stage, studies=()) for stage in stages))
            notifications.ended(Stage.TEST)
    assert [line["stage"] for line in posted] == ["noise", "search", "select", "test"]
    assert {(line["search"], line["event"]) for line in posted} == {("birds", "stage_ended")}
    assert posted[0]["text"] == "birds: the stage noise ended"


@pytest.mark.parametrize(
    ("error", "told"), [(Failure("the disk is full"), True), (KeyboardInterrupt(), False)], ids=["fault", "interrupt"]
)
def test_a_fault_is_posted_and_an_interrupt_is_not(
    error: BaseException, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as (address, posted):
        monkeypatch.setenv("WEBHOOK", address)
        with suppress(Failure, KeyboardInterrupt), Notifications("birds", ["${WEBHOOK}"]):
            raise error
    assert [(line["event"], line["error"], line["message"]) for line in posted] == [
        ("stopped", "Failure", "the disk is full")
    ] * told


def test_a_password_in_an_error_is_not_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as (address, posted):
        monkeypatch.setenv("WEBHOOK", address)
        with suppress(Failure), Notifications("birds", ["${WEBHOOK}"]):
            raise Failure("postgresql://me:for-no-eye@host/db does not answer" + "!" * 9_999)
    assert "for-no-eye" not in json.dumps(posted)
    assert len(posted[0]["message"]) <= MOST_CHARACTERS


@contextmanager
def refusing() -> Iterator[str]:
    with receiving(status=500) as (address, _):
        yield address


@contextmanager
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}{SECRET}"


@contextmanager
def hanging_up() -> Iterator[str]:
    with listening() as (port, _):
        yield f"http://127.0.0.1:{port}{SECRET}"


@contextmanager
def absent() -> Iterator[str]:
    yield f"http://127.0.0.1:1{SECRET}"


@pytest.mark.parametrize("server", [refusing, silent, hanging_up, absent])
def test_no_server_fails_or_delays_a_run(
    server: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with server() as address:
        monkeypatch.setenv("WEBHOOK", address)
        with Notifications("birds", ["${WEBHOOK}"], patience_s=0.3) as notifications:
            began = time.monotonic()
            for _ in range(5):
                notifications.ended(Stage.SEARCH)
            assert time.monotonic() - began < 0.2
            began = time.monotonic()
        assert time.monotonic() - began < 2
    assert "for-no-eye" not in caplog.text
    if server is not silent:
        assert "a notification to ${WEBHOOK} failed" in caplog.text


def test_only_a_reference_is_accepted() -> None:
    file = {"name": "a", "dataset": {"name": "glyphs"}, "losses": ["pnp"]}
    for written in ("https://hooks.example.org/T0", "https://${HOST}/T0", "${A}${B}", ""):
        (said,) = validate_config({**file, "tracking": {"webhook": written}}).mistakes
        assert "must be a reference such as ${WEBHOOK}" in said
        assert "T0" not in said


@pytest.mark.parametrize("value", [None, "not an address", "file:///etc/passwd", "http://"])
def test_a_variable_without_an_address_is_refused_and_not_shown(
    value: str | None, search_file: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEBHOOK", raising=False)
    if value is not None:
        monkeypatch.setenv("WEBHOOK", value)
    file = write_search(tmp_path / "a.yaml", search_file(tracking={"webhook": "${WEBHOOK}"}))
    said = plain(holdout_here("run", file, "--runs", tmp_path / "runs", code=2).stderr)
    assert "tracking.webhook" in said
    assert value is None or value not in said
    assert not (tmp_path / "runs").exists()


def test_a_search_posts_its_stages(
    search_file: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = {"training": {"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16}}
    content = search_file(
        **smaller,
        losses=["pnp"],
        search={"trials": 1},
        selection={"finalists": 1, "seeds": 1},
        final={"seeds": 1},
        resources={"engine": "in_process"},
        tracking={"webhook": "${WEBHOOK}"},
    )
    with receiving() as (address, posted):
        monkeypatch.setenv("WEBHOOK", address)
        holdout_here("run", write_search(tmp_path / "a.yaml", content), "--runs", tmp_path / "runs")
        assert [line["stage"] for line in posted] == ["search", "select", "test"]
    stored = tmp_path / "runs" / "small" / "search.yaml"
    assert "webhook: ${WEBHOOK}" in stored.read_text()
    assert not [
        file for file in (tmp_path / "runs").rglob("*.*") if file.is_file() and SECRET.encode() in file.read_bytes()
    ]
