"""When a trial is LOST: its own process died three times, on machines that live, without an epoch between."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState
from support.commands import command, stored, without_ended_workers, write_search
from support.driving import Opened, only
from support.forks import alive
from support.services import ROOT, Nodes, needs_ray, ray_nodes
from support.sleeping_engine import DIES, FLOOR, LOOPS, STOPS, sleeping_search

from benchmarks.slots import SECONDS
from search.config.sections import ResourcesSection
from search.driver.stages import search_stage
from search.study.trial_queue import TrialQueue
from search.trials import epochs_of
from trainables.common.errors import Failure
from trainables.common.storage import Limits

pytestmark = [pytest.mark.cluster, needs_ray]

PATIENCE_S = 900
IDLE_S = 30
"""Most time in which a worker that is free may train nothing."""
NODES_LOST = 5
"""So many that one of two trials dies three times, if each time one of them does."""


class SleepingSearch:
    """A search whose trainings only sleep, with a driver in a subprocess, observed from outside."""

    def __init__(self, path: Path, *, trials: int, epochs: int) -> None:
        self.runs = path / "runs"
        self._said = path / "said.txt"
        self._file = write_search(path / "sleeps.yaml", sleeping_search(trials=trials, epochs=epochs))

    @contextmanager
    def driven(self) -> Iterator[None]:
        """Run ``holdout run``, and kill it if it still runs at the end of the context."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
        words = command("run", self._file, "--runs", self.runs)
        with (
            self._said.open("ab") as said,
            subprocess.Popen(words, stdout=said, stderr=said, env=environment) as driver,
        ):
            self._driver = driver
            try:
                yield
            finally:
                self._driver.kill()
                self._driver.wait()

    def said(self) -> str:
        """Return the output of its driver."""
        return self._said.read_text()

    def trials(self) -> list[FrozenTrial]:
        """Return the trials, read by Optuna."""
        return stored(self.runs, "sleeps", "mpa")

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds while the driver runs."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self._driver.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def finish(self) -> None:
        """Wait for the successful end of the driver."""
        assert self._driver.wait(PATIENCE_S) == 0, self.said()
        assert "Traceback" not in without_ended_workers(self.said()), self.said()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A Ray whose head trains nothing, which drivers find."""
    token = tmp_path_factory.mktemp("token") / "auth_token"
    with ray_nodes(token, cpus=0) as nodes, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", nodes.gcs_address)
        yield nodes


def node_with(nodes: Nodes, cpus: int = 1, **environment: str) -> Any:
    """A node more, for one trial on each CPU."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return nodes.add(cpus)


def trains(node: Any) -> list[int]:
    """Return the processes of a node's workers that are in an epoch: an actor is called otherwise while it waits."""
    raylet = node.all_processes["raylet"][0].process.pid
    words = ["ps", "--ppid", str(raylet), "-o", "pid=,args="]
    listed = subprocess.run(words, capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "ray::ResourceTrainable.train" in line]


def test_a_trial_that_dies_three_times_is_lost(empty: Nodes, tmp_path: Path) -> None:
    node = node_with(empty, **{SECONDS: "0.1", DIES: "/0001"})
    search = SleepingSearch(tmp_path, trials=3, epochs=2)
    try:
        with search.driven():
            search.finish()
    finally:
        empty.kill(node)
    trials = search.trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
    reason = "its process died 3 times without a new epoch; the last time: ActorDiedError"
    assert trials[1].user_attrs["outcome"] == f"LOST: {reason}"
    assert trials[1].user_attrs["failure"] == {"cause": "LOST", "reason": reason}
    assert search.said().count("trial 1 was lost") == 2  # and the third time it is not tried again


@pytest.mark.parametrize("trials", [1, 4])
def test_a_lost_trial_gets_the_next_free_worker(empty: Nodes, tmp_path: Path, trials: int) -> None:
    """One of two machines dies; the other one has no work, or has trained other trials in turn."""
    nodes = [node_with(empty, **{SECONDS: "6"}) for _ in range(2)]
    search = SleepingSearch(tmp_path, trials=trials, epochs=2)

    def steady() -> list[Any]:
        """The nodes that train: a worker that waits for work is in steps of a fraction of a second."""
        return [node for node in nodes if all(trains(node) for _ in range(20))]

    try:
        with search.driven():
            while len(training := steady()) != min(2, trials):
                search.until(lambda: any(map(trains, nodes)))
            lost = training[0]
            nodes.remove(lost)
            empty.kill(lost)
            killed = time.time()
            search.finish()
    finally:
        for node in nodes:
            empty.kill(node)
    assert lost_trials(search) == 1
    epochs = [epochs_of(trial) for trial in search.trials()]
    assert [len(entries) for entries in epochs] == [2] * trials
    busy = sorted((entry["start"], entry["end"]) for entries in epochs for entry in entries if entry["end"] > killed)
    ends = [killed, *(end for _, end in busy)]
    assert all(start - end < IDLE_S for (start, _), end in zip(busy, ends, strict=False))
    if trials > 1:
        assert "have room for 1 of 2 workers now" in search.said()
        assert "; 1 of 2 workers" in search.said()


def lost_trials(search: SleepingSearch) -> int:
    """Return how often a search has said that a trial was lost."""
    return len(re.findall(r"trial \d was lost", search.said()))


@pytest.mark.parametrize("is_announced", [False, True])
def test_dead_machines_do_not_count_against_a_trial(empty: Nodes, tmp_path: Path, is_announced: bool) -> None:
    """A preempted machine ends its processes in any order, the one that would tell Ray last."""
    node = node_with(empty, 2, **{SECONDS: "3600"})
    search = SleepingSearch(tmp_path, trials=2, epochs=2)
    try:
        with search.driven():
            for lost in range(1, NODES_LOST + 1):
                search.until(lambda node=node: len(trains(node)) == 2)
                if is_announced:
                    words = ["drain-node", "--address", empty.gcs_address, "--node-id", node.node_id]
                    words += ["--reason-message", "spot", "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
                    words += ["--deadline-remaining-seconds", "3600"]
                    subprocess.run([sys.executable, "-m", "ray.scripts.scripts", *words], check=True)
                    os.kill(trains(node)[0], signal.SIGKILL)
                    search.until(lambda lost=lost: lost_trials(search) == 2 * lost - 1)
                empty.kill(node)
                search.until(lambda lost=lost: lost_trials(search) == 2 * lost)
                node = node_with(empty, 2, **{SECONDS: "3600" if lost < NODES_LOST else "0.1"})
            search.finish()
    finally:
        empty.kill(node)
    assert [trial.state for trial in search.trials()] == [TrialState.COMPLETE] * 2
    assert [sorted(trial.intermediate_values) for trial in search.trials()] == [[1, 2]] * 2


# Workers that live and say nothing any more, one stopped and one in an endless loop: found, ended and replaced.


def test_silent_workers_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {SECONDS: "0.1", STOPS: "/0000", LOOPS: "/0001", FLOOR: "30"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    search = SleepingSearch(tmp_path, trials=3, epochs=3)
    with search.driven():
        search.finish()
    hung = [int(path.read_text()) for path in (search.runs / "sleeps" / "trials" / "mpa").glob("*-hung")]
    assert len(hung) == 2
    assert not [process for process in hung if alive(process)]
    assert [trial.state for trial in search.trials()] == [TrialState.COMPLETE] * 3
    assert [sorted(trial.intermediate_values) for trial in search.trials()] == [[1, 2, 3]] * 3
    said = " ".join(search.said().split())
    for number in (0, 1):  # after half a minute, or ten times an epoch that took more than three seconds
        silence = r"no report from its worker for (\d\.\d) minutes, treated as dead;"
        found = re.search(rf"sleeps/mpa trial {number} was lost \({silence}", said)
        assert found
        assert float(found[1]) >= 0.5
    assert said.count("treated as dead") == 2


def test_a_trial_for_which_no_machine_comes_ends_the_search(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No machine has a GPU, and none had when the search began: what refuses that is passed by."""
    from search.engines.ray_engine import RayEngine

    class Impatient(RayEngine):
        limits = Limits(machine_said_s=2.0, machine_s=8.0)

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    queue = TrialQueue(only(search_stage(opened(search={"trials": 2}, losses=["mpa"]))))
    engine = Impatient(ResourcesSection(gpus_per_trial=1))
    with (
        engine.session(),
        pytest.raises(Failure, match=r"each requests 1 CPUs and 1 GPUs, the cluster has 1 .* none can be added"),
    ):
        engine.run(queue, concurrent=2)
    assert "Without one the search ends soon" in caplog.text
