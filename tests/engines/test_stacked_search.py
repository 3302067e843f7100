"""Searches whose worker trains several trials at once, on a real Ray: one is killed in the middle, and one prunes."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from optuna.trial import TrialState
from support.commands import command, holdout, holdout_here, plain, stored, without_ended_workers
from support.stacked_search import STACK, TRIALS, assert_same_studies, sizes, stackable_search

from search.trials import epochs_of

pytestmark = pytest.mark.cluster

PATIENCE_S = 500


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The runs folder, and what the driver said."""
    folder = tmp_path_factory.mktemp("stacked")
    runs, said = folder / "runs", folder / "said.txt"
    file = stackable_search(folder / "small.yaml", "ray", stack=STACK)
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with said.open("wb") as output:
        driver = subprocess.Popen(command("run", file, "--runs", runs), stdout=output, stderr=output, env=environment)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while len(sizes(runs, "proxy_anchor")) <= STACK:
                assert driver.poll() is None, said.read_text()
                assert time.monotonic() < deadline, said.read_text()
                time.sleep(0.05)
            os.kill(worker_of(runs), signal.SIGKILL)
            assert driver.wait(PATIENCE_S) == 0, said.read_text()
        finally:
            driver.kill()
            driver.wait()
    return runs, said.read_text()


def worker_of(runs: Path) -> int:
    """The process that trains, as the trials' logs are called: ``<start>-<host>-<process>.log``."""
    (process,) = {int(path.stem.rpartition("-")[2]) for path in (runs / "small").glob("trials/*/*/logs/*.log")}
    return process


def test_a_killed_stack_gives_the_undisturbed_result(killed: tuple[Path, str], tmp_path: Path) -> None:
    """The undisturbed search trains one trial after the other."""
    holdout_here("run", stackable_search(tmp_path / "small.yaml", "in_process"), "--runs", tmp_path / "runs")
    assert_same_studies(tmp_path / "runs", killed[0])


def test_members_of_a_dead_stack_are_retried_alone(killed: tuple[Path, str]) -> None:
    runs, said = killed
    assert plain(said).count("; retrying it alone") == STACK
    assert "Traceback" not in without_ended_workers(said)
    assert {1, STACK} <= set(sizes(runs, "proxy_anchor"))
    for number in range(TRIALS):
        logs = (runs / "small" / "trials" / "proxy_anchor" / f"{number:04d}" / "logs").iterdir()
        told = "\n".join(path.read_text() for path in logs)
        assert told.count("Training is done.") == 1
    assert set(sizes(runs, "proxy_anchor@final")) == {STACK}
    assert len(stored(runs, "small", "proxy_anchor")) == TRIALS


def test_a_pruned_trial_is_replaced_in_its_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is told of it between two steps; nobody begins twice."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    file, runs = stackable_search(tmp_path / "small.yaml", "ray", stack=3), tmp_path / "runs"
    changes = {"search.pruner": "asha", "search.trials": 8, "search.max_concurrent": 3, "stages": "[search]"}
    settings = [argument for key, value in changes.items() for argument in ("--set", f"{key}={value}")]
    holdout("run", file, "--runs", runs, *settings)
    trials = stored(runs, "small", "proxy_anchor")
    assert len(trials) == 8
    assert TrialState.PRUNED in {trial.state for trial in trials}
    for trial in trials:
        assert trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        assert [entry["epoch"] for entry in epochs_of(trial)] == list(range(1, len(epochs_of(trial)) + 1))
        assert len(list((runs / "small" / "trials" / "proxy_anchor" / f"{trial.number:04d}" / "logs").iterdir())) == 1
    worker_of(runs)  # one process trained them all
    began = [epochs_of(trial)[0] for trial in trials[3:]]
    assert 3 in [entry.get("together") for entry in began], "none joined a stack that trained"
