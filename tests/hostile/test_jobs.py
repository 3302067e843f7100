"""Jobs of a cluster whose descriptions somebody else wrote, their logs, and what is sent to a cluster."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import pytest
from support.commands import holdout_here, plain, refusal
from support.serving import answering

from holdout.cli.ray_jobs import Jobs, LogFilter
from holdout.cli.submission import submission, working_directory
from trainables.common.errors import InvalidInput

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
    "a state that is a number": {"status": 3},
    "no times": {"start_time": ..., "end_time": ...},
}


class Dashboard(BaseHTTPRequestHandler):
    jobs: ClassVar[list[Any]] = []

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        is_version = self.path.endswith("version")
        self.wfile.write(json.dumps({"ray_version": "2.60.0"} if is_version else self.jobs).encode())

    do_POST = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with answering(Dashboard) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED)
def test_a_forged_description_hides_no_other_job(changes: dict[str, Any], address: str) -> None:
    forged = {key: value for key, value in (GOOD | {"submission_id": "forged"} | changes).items() if value is not ...}
    Dashboard.jobs = [GOOD, forged]
    done = holdout_here("status", "--jobs", "--address", address, "--json")
    assert [(job["name"], job["job"]) for job in json.loads(done.stdout)] == [("birds", "holdout-birds-1")]
    assert "The description of the job 'forged' on the cluster is damaged" in plain(done.stderr)
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("answer", "command", "damaged"),
    [
        (None, ("status", "--jobs"), "The list of jobs"), ([3], ("status", "--jobs"), "The list of jobs"),
        ([GOOD], ("logs", "birds"), "The log of the job 'holdout-birds-1'"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_a_sentence(
    answer: Any, command: tuple[str, ...], damaged: str, address: str
) -> None:
    Dashboard.jobs = answer
    assert f"{damaged} at {address} is damaged" in refusal(*command, "--address", address)


@pytest.mark.parametrize("job", ["../../nodes", "a/../b?x=1#y", "a b\n\x1b\ud7ff"], ids=ascii)
@pytest.mark.parametrize("command", ["logs", "stop"])
def test_the_id_of_a_job_is_one_part_of_a_path(command: str, job: str, address: str) -> None:
    Dashboard.jobs = [GOOD | {"submission_id": job, "status": "RUNNING"}]
    Dashboard.asked.clear()
    done = holdout_here(command, "birds", "--address", address, code=2)
    assert "is damaged" in plain(done.stderr)  # the list of jobs is no log and no description
    paths = [path for path in Dashboard.asked if path not in ("/api/version", "/api/jobs/")]
    assert paths
    for path in paths:
        parts = path.split("/")
        assert parts[:3] == ["", "api", "jobs"]
        assert unquote(parts[3]) == job
        assert parts[4:] in ([], ["logs"], ["stop"])


# What is sent to a cluster.


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A user's package next to a private file."""
    (tmp_path / "key.txt").write_text("private")
    folder = tmp_path / "lab"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "net.py").write_text("")
    (folder / "net.py").symlink_to("inner/net.py")
    (folder / ".env").write_text("PASSWORD=private")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("private")
    (folder / ".link").symlink_to(tmp_path)
    return folder


UNFIT: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link to a private file": (lambda package: (package / "x").symlink_to("../key.txt"), "x is a link to ../key.txt"),
    "a loop": (lambda package: (package / "loop").symlink_to("."), "loop is a link to ."),
    "a broken link": (lambda package: (package / "gone").symlink_to("nothing"), "gone is not a regular file"),
    "a pipe": (lambda package: os.mkfifo(package / "pipe"), "pipe is not a regular file"),
    "a file of 200 GB": (lambda package: os.truncate(package / "__init__.py", 200 * 10**9), "has 200,000 MB, and"),
}


@pytest.mark.parametrize(("make", "says"), UNFIT.values(), ids=UNFIT)
def test_more_than_code_is_not_sent(make: Callable[[Path], object], says: str, package: Path) -> None:
    make(package)
    with pytest.raises(InvalidInput, match=r"^ship: ") as raised, working_directory("", {"lab": package}):
        pass
    assert says in str(raised.value)


def test_the_code_of_a_package_is_sent_without_hidden_files(package: Path) -> None:
    with working_directory("text", {"lab": package}) as folder:
        sent = sorted(str(path.relative_to(folder / "lab")) for path in (folder / "lab").rglob("*"))
        assert sent == ["__init__.py", "inner", "inner/net.py", "net.py"]
        assert not [path for path in folder.rglob("*") if path.name.startswith(".")]
        assert (folder / "submitted.yaml").read_text() == "text"


class Client:
    """Ray's client, which only records what it is asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def submit_job(self, **asked: Any) -> str:
        files = sorted(Path(asked["runtime_env"]["working_dir"]).rglob("*"))
        self.asked.append(asked | {"content": {path: path.read_bytes() for path in files if path.is_file()}})
        return "job"


RUNS = ["/with space", "$(touch x)`touch x`", "a;touch x\ntouch x", "'\"~", "--yes\u202e"]


@pytest.mark.parametrize("runs", RUNS, ids=ascii)
def test_neither_the_environment_nor_a_shell_reaches_a_job(
    runs: str, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_PASSWORD", "for-no-eye")
    Dashboard.jobs = [GOOD | {"metadata": GOOD["metadata"] | {"holdout.runs": runs, "holdout.search": "small"}}]
    content = {
        "name": "small", "dataset": {"name": "glyphs"}, "losses": ["pnp"],
        "tracking": {"uri": "postgresql+psycopg://u:${MY_PASSWORD}@db/small"},
    }  # fmt: skip
    jobs, client = Jobs(address), Client()
    jobs.__dict__["_client"] = client
    jobs.submit(submission(content), runs)
    (asked,) = client.asked
    assert asked.keys() == {"entrypoint", "runtime_env", "metadata", "submission_id", "content"}
    assert asked["runtime_env"].keys() == {"working_dir"}
    assert "for-no-eye" not in repr(asked)
    assert any(b"${MY_PASSWORD}" in text for text in asked["content"].values())
    # A shell passes the folder on as one word.
    script = asked["entrypoint"].replace("exec python -P -m holdout", "exec printf '%s\\0'")
    environment = {"HOME": str(tmp_path), "OLDPWD": "/code", "PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", "-c", script], env=environment, cwd="/", capture_output=True, check=True)
    assert done.stdout.split(b"\0")[-3:] == [b"--runs", runs.encode(), b""]
    assert not list(tmp_path.iterdir())


# The filter of a job's log, with lines that Ray 2.60 writes when a machine dies.

OURS = (
    "Searching …\n",
    "\x1b[36m(TrainingTrial pid=214, ip=10.0.0.7)\x1b[0m OPENMP DISPLAY ENVIRONMENT BEGIN\n",
    "\x1b[36m(ResourceTrainable pid=214)\x1b[0m     raise RuntimeError\n",
    "small/pnp trial 3 was lost (ActorUnavailableError); retrying.\n",
    "MLflow is 12 trials behind and catching up …\n",
    "                 searched  best\n",
    "  pnp                   3  0.51\n",
    "\n",
    "(TrainingTrial pid=214) [2026-11-21] a date\n",
    "(raylets are Ray's; this line is ours)\n",
    "2026-11-21 is a day",  # where it was cut
)
RAYS = (
    "2026-11-21 23:20:00,123\tINFO job_manager.py:568 -- Runtime env is setting up.\n",
    "Running entrypoint for job holdout-small-1: cd && exec python -P -m holdout run x\n",
    "\x1b[33m(raylet)\x1b[0m A worker died or was killed while executing a task by an unexpected system error.\n",
    "\x1b[33m(raylet, ip=10.0.0.7)\x1b[0m Raylet is terminated. Last 20 lines of the Raylet logs:\n"
    "    [state-dump] \tNodeManager.deadline_timer.flush_free_objects - 1 total (1 active)\n"
    "    [2026-11-21 23:22:01,126 I 15971 15971] (raylet) accessor.cc:475: Received address\n"
    "    - objects spillable: 0\n"
    "    \n"
    "\n",
    "\x1b[33m(raylet)\x1b[0m The node with node id: 7d16 has been marked dead. This can happen when a \t(1) raylet\n"
    "\t(2) raylet has lagging heartbeats due to slow network or busy workload.\n",
    "\x1b[36m(autoscaler +1m4s)\x1b[0m Adding 2 node(s) of type gpu.\n",
    "[2026-11-21 23:22:10,371 E 16001 16020] core_worker.cc:475: :info_message: Attempting to recover\n",
    "(raylet) Without colours.\n",
    "\x1b[36m(pid=gcs_server)\x1b[0m [2026-11-21 23:37:19,839 E 22951 22951] Failed to remove 1 bundle(s)\n",
    "\x1b[36m(TrainingTrial pid=7, ip=10.0.0.7)\x1b[0m [2026-11-21 23:37:19,839 C 22 29] core_worker.cc:1: Exiting\n",
)
MIXED = "".join(ray + ours for ray, ours in zip(RAYS, OURS)) + "".join(OURS[len(RAYS) :])


@pytest.mark.parametrize("size", [1, 64, len(MIXED)])
def test_the_search_s_lines_are_shown_and_ray_s_are_counted(size: int) -> None:
    lines = LogFilter()
    shown = "".join(lines.take(MIXED[start : start + size]) for start in range(0, len(MIXED), size)) + lines.end()
    assert (shown, lines.left_out) == ("".join(OURS), "".join(RAYS).count("\n"))
