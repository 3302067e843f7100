"""Jobs of a cluster whose descriptions somebody else wrote."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest
from support.commands import holdout_here, plain

GOOD: dict[str, Any] = {
    "submission_id": "holdout-birds-1",
    "status": "SUCCEEDED",
    "start_time": 1_000,
    "end_time": 2_000,
    "driver_exit_code": 0,
    "metadata": {"holdout.search": "birds", "holdout.attempt": "1", "holdout.runs": "runs", "holdout.file": "0"},
}
FORGED: dict[str, dict[str, Any]] = {
    "no attempt": {"metadata": {"holdout.search": "other"}},
    "an attempt that is no number": {"metadata": GOOD["metadata"] | {"holdout.attempt": "x"}},
    "a name with escape characters": {"metadata": GOOD["metadata"] | {"holdout.search": "\x1b]0;owned\x07"}},
    "a time beyond the calendar": {"start_time": 2**63},
    "a time that is text": {"start_time": "yesterday"},
    "a state that is a number": {"status": 3},
    "no times": {"start_time": ..., "end_time": ...},
    "an exit code that is text": {"driver_exit_code": "none"},
}


class Dashboard(BaseHTTPRequestHandler):
    """A dashboard with ``jobs``."""

    jobs: ClassVar[list[Any]] = []

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        is_version = self.path.endswith("version")
        self.wfile.write(json.dumps({"ray_version": "2.60.0"} if is_version else self.jobs).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Dashboard) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED)
def test_a_forged_description_hides_no_other_job(changes: dict[str, Any], address: str) -> None:
    forged = {key: value for key, value in (GOOD | {"submission_id": "forged"} | changes).items() if value is not ...}
    Dashboard.jobs = [GOOD, forged]
    done = holdout_here("list", "--address", address, "--json")
    assert [(job["name"], job["job"]) for job in json.loads(done.stdout)] == [("birds", "holdout-birds-1")]
    assert "The description of the job 'forged' on the cluster is damaged" in plain(done.stderr)
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("answer", [3, None, [3], {"a": 1}], ids=repr)
def test_a_list_that_is_none_is_a_sentence(answer: Any, address: str) -> None:
    Dashboard.jobs = answer
    said = plain(holdout_here("list", "--address", address, code=2).stderr)
    assert f"The list of jobs at {address} is damaged" in said
