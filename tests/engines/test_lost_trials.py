"""When a trial is LOST: its own process died three times, on machines that live, without an epoch between."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from support.services import Nodes, ray_nodes
from support.sleeping_engine import DIES
from support.sleeping_search import SleepingSearch

from benchmarks.slots import SECONDS

pytestmark = pytest.mark.cluster

NODES_LOST = 4
"""One more than a trial's own deaths may be."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A Ray whose head trains nothing, which drivers find."""
    token = tmp_path_factory.mktemp("token") / "auth_token"
    with ray_nodes(token, cpus=0) as nodes, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", nodes.gcs_address)
        yield nodes


def node_with(nodes: Nodes, **environment: str) -> Any:
    """A node more, for one trial."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return nodes.add(cpus=1)


def trains(node: Any) -> bool:
    """Whether a node's worker is in an epoch: an actor is called otherwise while it waits."""
    raylet = node.all_processes["raylet"][0].process.pid
    listed = subprocess.run(["ps", "--ppid", str(raylet), "-o", "args="], capture_output=True, text=True, check=False)
    return "ray::ResourceTrainable.train" in listed.stdout


def test_a_trial_that_dies_three_times_is_lost(empty: Nodes, tmp_path: Path) -> None:
    node = node_with(empty, **{SECONDS: "0.1", DIES: "/0001"})
    search = SleepingSearch(tmp_path, trials=3, epochs=2)
    driver = search.start()
    try:
        search.finish(driver)
    finally:
        driver.kill()
        driver.wait()
        empty.kill(node)
    trials = search.trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
    reason = "its process died 3 times without a new epoch; the last time: ActorDiedError"
    assert trials[1].user_attrs["outcome"] == f"LOST: {reason}"
    assert trials[1].user_attrs["failure"] == {"cause": "LOST", "reason": reason}
    assert search.said().count("trial 1 was lost") == 2  # and the third time it is not tried again


def test_dead_machines_do_not_count_against_a_trial(empty: Nodes, tmp_path: Path) -> None:
    node = node_with(empty, **{SECONDS: "3600"})
    search = SleepingSearch(tmp_path, trials=1, epochs=2)
    driver = search.start()
    try:
        for lost in range(1, NODES_LOST + 1):
            search.until(lambda node=node: trains(node), driver)
            empty.kill(node)
            search.until(lambda lost=lost: search.said().count("trial 0 was lost") == lost, driver)
            assert search.reports() == []
            node = node_with(empty, **{SECONDS: "3600" if lost < NODES_LOST else "0.1"})
        search.finish(driver)
    finally:
        driver.kill()
        driver.wait()
        empty.kill(node)
    (trial,) = search.trials()
    assert trial.state == TrialState.COMPLETE
    assert sorted(trial.intermediate_values) == [1, 2]
