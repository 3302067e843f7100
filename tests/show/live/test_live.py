"""The API of the live page on a real server: it agrees with the studies, is read-only, and checks access."""

import http.client
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here
from support.driving import begun, only, record, train
from support.serving import asked as asked_of, served

from search.driver.stages import search_stage
from search.records.runs import RunFolder
from search.records.writable import WritableRecords
from search.show.live import live_app
from search.stages import Stage
from search.study.trial_queue import TrialQueue
from trainables.training.spec import Epochs

Server = int


def answered(server: Server, path: str, method: str = "GET") -> http.client.HTTPResponse:
    """Return the response without following redirects; the server closes the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server, timeout=60)
    connection.request(method, path, headers={"Connection": "close"})
    return connection.getresponse()


def asked(server: Server, path: str, method: str = "GET") -> tuple[int, str]:
    answer = answered(server, path, method)
    return answer.status, answer.read().decode()


def told(server: Server, path: str) -> Any:
    status, text = asked(server, path)
    assert status == 200, text
    return json.loads(text)


@pytest.fixture(scope="module")
def running(
    tested: Path, search_made: Callable[..., WritableRecords], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WritableRecords]:
    """A search in the middle of its trials, driven by this process, beside a finished one."""
    runs = tmp_path_factory.mktemp("live") / "runs"
    (runs.parent / "private.txt").write_text("private content")
    shutil.copytree(tested, runs)
    search = search_made(runs, name="running", search={"trials": 6, "pruner": "none"})
    search.begin_session(time.time(), 2)
    queue = TrialQueue(only(search_stage(search)))
    first, second = begun(queue), begun(queue)
    train(queue, first, lambda job, epoch: epoch / 10)
    queue.on_trial_result(second, Epochs([record(1, 0.2)], finished=False))
    begun(queue)
    with RunFolder(runs, "running").only_driver():
        yield search
    search.close()


@pytest.fixture(scope="module")
def server(running: WritableRecords) -> Iterator[Server]:
    """The port of ``holdout serve``."""
    with served(running.plan.folder.runs) as (_, port, _):
        yield port


def test_all_searches_are_listed_as_by_status(server: Server, running: WritableRecords) -> None:
    listed = told(server, "/api/searches")
    lines = [entry["status"] for entry in listed]
    status = json.loads(holdout_here("status", "--runs", running.plan.folder.runs, "--json").stdout)
    assert [line["name"] for line in lines] == ["running", "small"] == [entry["name"] for entry in status]
    for line, entry in zip(lines, status, strict=True):
        assert line["state"] == entry["state"]
        for shown, wanted in zip(line["studies"], entry["studies"], strict=True):
            assert {key: wanted[key] for key in shown} == shown
    assert lines[1]["driver"] is None
    assert listed[1]["left_s"] is None
    split = running.plan.folder.split
    split.rename(split.with_suffix(".away"))
    again = told(server, "/api/searches")
    split.with_suffix(".away").rename(split)
    assert [entry["status"]["name"] for entry in again] == ["running", "small"], "an unreadable one hides no other"
    assert listed[0]["left_s"] == pytest.approx(told(server, "/api/searches/running")["left_s"], rel=0.1)
    assert f"process {os.getpid()}" in lines[0]["driver"]


def test_a_running_trial_is_shown_with_its_values(server: Server, running: WritableRecords) -> None:
    found = told(server, "/api/searches/running")
    wanted = {
        (loss, trial.number): [
            of["metrics"]["map_at_r"] for key, of in sorted(trial.user_attrs.items()) if "epoch:" in key
        ]
        for loss in running.config.loss_names
        for trial in running.study(loss, Stage.SEARCH).trials()
        if trial.state.name == "RUNNING"
    }
    assert wanted
    assert {(entry["study"], entry["number"]): entry["values"] for entry in found["running"]} == wanted
    assert found["left_s"] > 0
    assert found["slots"] == 2
    found = told(server, "/api/searches/small")
    assert (found["running"], found["left_s"], found["elapsed_s"]) == ([], None, None), "nobody drives it"


def test_the_report_so_far_begins_with_the_answer(server: Server) -> None:
    sections = told(server, "/api/searches/running/report")
    assert [entry["name"] for entry in sections][:2] == ["answer", "comparison"]
    assert "sealed" in sections[0]["html"]
    assert told(server, "/api/searches/running/report") == sections


def test_nothing_can_be_written(server: Server, running: WritableRecords) -> None:
    before = {path: path.stat().st_mtime_ns for path in running.plan.folder.path.rglob("*") if path.is_file()}
    schema = told(server, "/openapi.json")
    assert all(set(methods) == {"get"} for methods in schema["paths"].values())
    for path in schema["paths"]:
        assert asked(server, path.replace("{name}", "running"), "POST")[0] == 405
        asked(server, path.replace("{name}", "running"))
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_only_our_files_and_known_searches_are_served(server: Server) -> None:
    for name in ("page.js", "style.css", "plotly.js", "live.js", "live.css"):
        assert asked(server, f"/files/{name}")[0] == 200
    assert asked(server, "/small") == asked(server, "/searches/small"), "the short address of a search"
    searches = ("nothing", "<b>", "small%00", "a%0d%0ab:c")
    for unknown in ("/files/report.py", *(f"/api/searches/{name}" for name in searches)):
        status, text = asked(server, unknown)
        assert status == 404
        assert "Traceback" not in text


def test_headers_forbid_embedding_and_inline_scripts(server: Server) -> None:
    for path in ("/", "/api/searches", "/files/live.js", "/nowhere"):
        headers = answered(server, path).headers
        for part in ("script-src 'self';", "frame-ancestors 'none'"):
            assert part in headers["content-security-policy"]
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"


def test_records_of_a_stranger_are_a_sentence_and_not_an_error_of_the_server(
    running: WritableRecords, tmp_path: Path
) -> None:
    """Those of a renamed folder, and a link to a file whose content is nobody's business."""
    runs = tmp_path / "runs"
    shutil.copytree(running.plan.folder.path, runs / "renamed")
    (runs / "linked").mkdir()
    (tmp_path / "private").write_text("root:x:0:0 is nobody's business")
    (runs / "linked" / "search.yaml").symlink_to(tmp_path / "private")
    for name, sentence in {"renamed": "a search called 'running', which", "linked": "is a link, which is not"}.items():
        for page in ("", "/report"):
            status, _, text = asked_of(live_app(runs), f"/api/searches/{name}{page}", "", (b"host", b"localhost"))
            assert status == 404, text
            assert sentence in text
            assert "business" not in text


def test_another_host_is_refused(tmp_path: Path) -> None:
    """Against DNS rebinding: a foreign name that resolves to this machine, or one of another form."""
    for host in (b"example.com", b"10.0.0.1:port", b"10.0.0.1:99999999", b"[::1", b"", b"x" * 5000):
        assert asked_of(live_app(tmp_path), "/api/searches", "", (b"host", host))[0] == 400, host


PATHS = [
    "/files/../../private.txt", "/files/..%2f..%2fprivate.txt", "/files/%2e%2e/%2e%2e/private.txt",
    "/files/..%5c..%5cprivate.txt", "/files/%2fetc%2fpasswd", "/files/%00", "/files/%c0%ae%c0%ae%2fprivate.txt",
    "/searches/..%2f..%2fx", "/api/searches/..", "/api/searches/..%2fprivate.txt", "/api/searches/%ff%fe",
    f"/api/searches/{'x' * 3000}", "/api/searches/../report",
]  # fmt: skip


def test_no_path_leads_out(server: Server) -> None:
    for path in PATHS:
        status, text = asked(server, path)
        assert status in (404, 400) or (status == 200 and path.startswith("/searches/")), path
        assert "private content" not in text
        assert "root:" not in text
