"""Ray's session: starts that fail, or never could work, and errors held against a trial."""

import os
import pickle
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from hypothesis import given, settings, strategies as st
from optuna.trial import TrialState
from ray.air.execution._internal import RayActorManager
from ray.exceptions import ActorDiedError, ActorUnavailableError, OutOfMemoryError, RayActorError
from support.commands import holdout_here, plain, stored, write_search
from support.refusals import NOWHERE
from support.services import ROOT, needs_ray
from support.sleeping_engine import sleeping_search
from support.small_search import SearchFile

import holdout
from benchmarks.slots import SECONDS
from search.engines import NoEngine, ray_session as session
from search.engines.ray_session import ATTEMPTS, ray_session
from search.engines.ray_tune import ActorManager, ActorOutOfMemory, _is_own, error_of
from search.tables import ray_mistakes
from trainables.common.errors import InvalidInput


class FakeRay:
    """Ray that does not start the first times, each of which leaves a process with its folder in the arguments."""

    __file__ = "/somewhere/ray/__init__.py"

    def __init__(self, failures: int, *, connected: bool = False) -> None:
        self.failures = failures
        self.connected = connected
        self.calls: list[str] = []
        self.left: list[subprocess.Popen[bytes]] = []

    def init(self, **options: Any) -> None:
        self.calls.append(f"init {options['address']}")
        if self.failures:
            self.failures -= 1
            self.left.append(
                subprocess.Popen(["sh", "-c", "read line", "/somewhere/ray/raylet"], stdin=subprocess.PIPE)
            )
            raise RuntimeError("Timed out waiting for the node.\nand more")

    def is_initialized(self) -> bool:
        return self.connected

    def shutdown(self) -> None:
        self.calls.append("shutdown")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    def start(failures: int, address: str | None = None) -> FakeRay:
        ray = FakeRay(failures)
        monkeypatch.setattr(session, "import_ray", lambda: ray)
        if address:
            monkeypatch.setenv("RAY_ADDRESS", address)
        else:
            monkeypatch.delenv("RAY_ADDRESS", raising=False)
        return ray

    return start


def test_retries_of_the_start_are_bounded_and_leave_no_process(started: Any) -> None:
    ray = started(failures=ATTEMPTS)
    with (
        pytest.raises(NoEngine, match=r"Ray did not start at this machine \(Timed out .*\); run the same command"),
        ray_session(),
    ):
        pass
    assert ray.calls == [*["init local", "shutdown"] * ATTEMPTS, "shutdown"]
    for process in ray.left:
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL


def test_a_given_cluster_is_tried_once(started: Any) -> None:
    ray = started(failures=1, address="10.0.0.1:6379")
    with pytest.raises(NoEngine, match=r"at 10\.0\.0\.1:6379 .* see that a cluster runs there"), ray_session():
        pass
    assert ray.calls == ["init 10.0.0.1:6379", "shutdown"]
    ray.left[0].communicate()
    assert ray.left[0].returncode == 1, "it ended by itself"


def test_a_sigterm_during_the_start_is_handled(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray sets a handler of its own, which would end the process without a word."""
    ray = started(failures=0)
    monkeypatch.setattr(ray, "init", lambda **options: sys.exit(signal.SIGTERM))
    ours = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), ray_session():
            pass
    finally:
        signal.signal(signal.SIGTERM, ours)
    assert ray.calls == ["shutdown"]


# A process that is connected to a Ray of its own.


def test_a_connection_is_used_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(failures=9, connected=True)
    monkeypatch.setattr(session, "import_ray", lambda: ray)
    monkeypatch.setenv("RAY_ADDRESS", NOWHERE)  # where another program's Ray is
    handler = signal.getsignal(signal.SIGTERM)
    with ray_session() as used:
        assert used is ray
    with pytest.raises(KeyboardInterrupt), ray_session():
        raise KeyboardInterrupt
    assert ray.calls == []
    assert signal.getsignal(signal.SIGTERM) is handler


def test_ray_client_is_refused_before_anything_is_created(
    search_file: SearchFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray.util.client.ray, "is_connected", lambda: True)
    with pytest.raises(InvalidInput) as refused:
        holdout.run(search_file(resources={"engine": "ray"}), runs=tmp_path / "runs")
    assert "This process uses Ray through Ray Client (ray://); call ray.shutdown()" in str(refused.value)
    assert not (tmp_path / "runs").exists()


CONNECTED = """
import os, sys, time
import ray
import holdout

FILE = sys.argv[1]
changes = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "TUNE_GLOBAL_CHECKPOINT_S", "PYTHONBREAKPOINT")}


def run(name, **options):
    holdout.run(FILE, {"name": name}, **options)
    return ray.is_initialized()


assert not run("imported"), "Ray was imported before, and had read the environment"
assert changes == {name: os.environ.get(name) for name in changes}
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="mine")
environment = {name: value for name, value in os.environ.items() if "MLFLOW" not in name}


@ray.remote(num_cpus=1)
class Counter:
    count = 41

    def more(self):
        self.count += 1
        return self.count


counter = Counter.options(name="counter").remote()
assert ray.get(counter.more.remote()) == 42


def left():
    deadline = time.monotonic() + 20
    while ray.available_resources().get("CPU") != 1:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert {group["state"] for group in ray.util.placement_group_table().values()} == {"REMOVED"}


for kind in (RuntimeError, KeyboardInterrupt):

    def stop(*_, kind=kind):
        raise kind("stop")

    try:
        run("stopped", on_epoch=stop)
    except kind as error:
        kept = error  # with its frames, as in a notebook
    left()
assert run("stopped"), "of two slots the user's actor has one"
left()


@ray.remote(num_cpus=0)
def nested():
    return run("nested")


assert ray.get(nested.remote())
assert ray.get(ray.get_actor("counter", "mine").more.remote()) == 43
assert environment == {name: value for name, value in os.environ.items() if "MLFLOW" not in name}
ray.shutdown()
assert not run("after")
print("all done")
"""


@needs_ray
@pytest.mark.cluster
def test_a_search_leaves_the_ray_of_its_process_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {SECONDS: "0.3", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}.items():
        monkeypatch.setenv(name, value)
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    file = write_search(tmp_path / "sleeps.yaml", sleeping_search(trials=2, epochs=2))
    done = subprocess.run(
        [sys.executable, "-c", CONNECTED, file], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["all done"], done.stdout + done.stderr
    assert "Ray did not start" not in done.stderr
    for name in ("imported", "stopped", "nested", "after"):
        trials = stored(tmp_path / "runs", name, "mpa")
        assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 2, name


# A Python whose path a shell would take apart: Ray's workers would never start from it, and this is found first.

SPACED = "/home/me/my project/.venv/bin/python"


@settings(max_examples=15)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1))
def test_a_path_that_passes_stays_one_word(name: str) -> None:
    """Against the two ways that Ray's own command takes: joined and split again, and through bash."""
    python = f"/nowhere/{name}/bin/python"
    if ray_mistakes(python):
        return
    assert shlex.split(subprocess.list2cmdline([python])) == [python]
    found = subprocess.run(["bash", "-c", f"printf '[%s]' {python}"], capture_output=True, check=True).stdout
    assert found == f"[{python}]".encode()


def test_a_path_that_a_shell_takes_apart_is_refused_and_no_other() -> None:
    for name in ("my_project-2.0+cu", "élan", "a#b", "~me", "a=b,c@d"):
        assert ray_mistakes(f"/home/{name}/bin/python") == []
    for name in ("my project", "it's", 'a"b', "a\\b", "a&b", "copy (1)", "$HOME"):
        (mistake,) = ray_mistakes(f"/home/{name}/bin/python")
        assert f"/home/{name}/bin/python, because this path contains " in mistake
        assert "virtual environment in a folder without it, or set resources.engine to local." in mistake
    again = pickle.loads(pickle.dumps(mistake))  # as a sentence of an error does, between processes
    assert (again, again.text, again.advice) == (mistake, mistake.text, mistake.advice)


@settings(max_examples=20)
@given(st.text("aé", min_size=1, max_size=60))
def test_a_folder_that_passes_has_room_for_sockets(name: str) -> None:
    folder = f"/{name}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        found = ray_mistakes("/bin/python")
        patch.setenv("RAY_ADDRESS", "there:6379")
        assert not ray_mistakes("/bin/python")
    fits = len(f"{folder}/ray/session_2026-11-26_16-00-00_123456_1234567/sockets/plasma_store".encode()) <= 107
    assert found == [] if fits else f"sockets below {folder}, because" in found[0]


def test_a_search_is_refused_at_once(search_file: SearchFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", SPACED)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    file = write_search(tmp_path / "x.yaml", search_file(resources={"engine": "ray"}))
    done = holdout_here("run", file, "--runs", tmp_path / "runs", code=2)
    assert f"Ray cannot start workers with {SPACED}" in plain(done.stderr)
    assert not (tmp_path / "runs").exists()


# Which of Ray's errors are held against a trial.

DIED = ActorDiedError()
UNAVAILABLE = ActorUnavailableError("Socket closed", None)
NOT_MADE = RayActorError("0" * 32, "raised in its creation task", True, False)


@pytest.mark.parametrize(
    ("error", "node", "own"),
    [
        (DIED, "lives", True),
        (DIED, "gone", False),
        (DIED, "draining", False),  # a preempted machine ends its processes before it goes
        (DIED, None, False),  # it never came to run
        (UNAVAILABLE, "lives", False),  # its machine died a moment ago, and nobody has noticed
        (NOT_MADE, None, True),
        (ActorOutOfMemory(error_msg="low on memory"), "lives", True),
        (None, "lives", True),
    ],
)
def test_a_death_counts_on_a_living_machine_only(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, node: str | None, own: bool
) -> None:
    nodes = [{"NodeID": name, "Alive": name != "gone"} for name in ("lives", "gone", "draining")]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray._private.state.state, "get_draining_nodes", lambda: ["draining"])
    assert _is_own(error, node) is own


def test_the_error_is_the_one_that_tune_met(tmp_path: Path) -> None:
    file = tmp_path / "error.pkl"
    file.write_bytes(ray.cloudpickle.dumps(UNAVAILABLE))
    assert isinstance(error_of(SimpleNamespace(pickled_error_file=str(file))), ActorUnavailableError)
    assert error_of(SimpleNamespace(pickled_error_file=None)) is None


def test_an_actor_killed_for_its_memory_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """To Tune's own manager it is the end of everything."""
    met: list[Exception] = []
    monkeypatch.setattr(RayActorManager, "_actor_task_failed", lambda self, task, exception: met.append(exception))
    manager = ActorManager.__new__(ActorManager)
    for error in (OutOfMemoryError("low on memory"), DIED):
        manager._actor_task_failed(None, error)
    assert isinstance(met[0], ActorOutOfMemory)
    assert str(met[0]) == "low on memory"
    assert met[1] is DIED
