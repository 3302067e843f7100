"""A driver that is killed twenty times: 200 trials, each of their epochs once.

The trainings sleep, on a real Ray with 8 logical CPUs. Optuna and MLflow alone read the results.
"""

import logging
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from optuna.trial import FrozenTrial, TrialState
from support.services import Nodes, ray_nodes
from support.sleeping_search import SleepingSearch

from benchmarks.slots import SECONDS

logger = logging.getLogger(__name__)

pytestmark = pytest.mark.cluster

SLOTS = 8
TRIALS = 200
EPOCHS = 8
RUNGS = (2, 4)
EPOCH_S = 0.6
KILLS = 20
STATUS = {TrialState.COMPLETE: "FINISHED", TrialState.PRUNED: "KILLED"}


@pytest.fixture(scope="module")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A Ray of 8 slots, which drivers find."""
    token = tmp_path_factory.mktemp("token") / "auth_token"
    with ray_nodes(token, cpus=SLOTS, **{SECONDS: str(EPOCH_S)}) as nodes, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", nodes.gcs_address)
        yield nodes


def test_twenty_kills_lose_nothing_and_double_nothing(slots: Nodes, tmp_path: Path) -> None:
    """Half of the kills fall while trainings report, the others while the driver or its actors start."""
    killed = SleepingSearch(tmp_path, trials=TRIALS, epochs=EPOCHS)
    moments = random.Random(20)
    for kill in range(KILLS):
        driver = killed.start()
        try:
            if moments.random() < 0.5:
                killed.progresses(moments.randint(1, 20), driver)
                time.sleep(moments.uniform(0, EPOCH_S))
            else:
                time.sleep(moments.uniform(0, 20))
            if kill == KILLS // 2:
                _second_driver_is_refused(killed, driver)
            assert driver.poll() is None, killed.said()
        finally:
            driver.kill()
            driver.wait()
        logger.info("Kill %d: %d epochs are stored.", kill, len(killed.reports()))
    killed.finish(killed.start())
    _assert_whole(killed)


def _second_driver_is_refused(search: SleepingSearch, driver: subprocess.Popen[bytes]) -> None:
    """Also where the first one hangs: it may come to itself."""
    search.progresses(1, driver)
    driver.send_signal(signal.SIGSTOP)
    assert f"The search sleeps is being run by process {driver.pid} on" in search.refusal()


def _assert_whole(search: SleepingSearch) -> None:
    """All trials are there once, ended rightly, and MLflow equals them."""
    trials = search.trials()
    assert [trial.number for trial in trials] == list(range(TRIALS))
    states = Counter(trial.state for trial in trials)
    assert set(states) == {TrialState.COMPLETE, TrialState.PRUNED}
    assert states[TrialState.PRUNED] > TRIALS // 4
    for trial in trials:
        _assert_whole_trial(trial)
    _assert_pruned_rightly(trials, search.reports())
    _assert_in_mlflow(trials, search.runs)


def _epochs(trial: FrozenTrial) -> list[dict[str, Any]]:
    """A trial's epochs as they were stored."""
    return [record for key, record in trial.user_attrs.items() if key.startswith("epoch:")]


def _assert_whole_trial(trial: FrozenTrial) -> None:
    """Epochs without a hole or a doublet, and the best value so far after each."""
    epochs = sorted(_epochs(trial), key=lambda record: record["epoch"])
    assert [record["epoch"] for record in epochs] == list(range(1, len(epochs) + 1))
    told = [record["metrics"]["map_at_r"] for record in epochs]
    assert trial.intermediate_values == {epoch: max(told[:epoch]) for epoch in range(1, len(told) + 1)}
    if trial.state == TrialState.COMPLETE:
        assert len(epochs) == EPOCHS
        assert trial.value == max(told)
        assert trial.user_attrs["outcome"] == f"all {EPOCHS} epochs trained"


def _assert_pruned_rightly(trials: list[FrozenTrial], reports: list[tuple[int, int, float]]) -> None:
    """Successive halving replayed in the order of the reports: what is below the best half of its rung ends there."""
    assert Counter(reports).most_common(1)[0][1] == 1
    reached = defaultdict[int, list[float]](list)
    below = set[tuple[int, int]]()
    for number, step, value in reports:
        if step in RUNGS:
            reached[step].append(value)
            best_half = sorted(reached[step], reverse=True)[: max(1, len(reached[step]) // 2)]
            if value < best_half[-1] and number > 0:
                below.add((number, step))
    ends = {(trial.number, max(trial.intermediate_values)) for trial in trials if trial.state == TrialState.PRUNED}
    assert ends == below


def _assert_in_mlflow(trials: list[FrozenTrial], runs: Path) -> None:
    """One run a trial, the same as the study; those of the loss and the search above; nothing else."""
    client = MlflowClient(tracking_uri=f"sqlite:///{runs}/mlflow.db")
    experiment = client.get_experiment_by_name("sleeps")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], max_results=5 * TRIALS)
    assert len(found) == TRIALS + 2
    above = {run.data.tags["holdout.kind"]: run for run in found if run.data.tags["holdout.kind"] != "trial"}
    by_trial = {run.data.tags["holdout.trial"]: run for run in found if run.data.tags["holdout.kind"] == "trial"}
    parent = above["loss"]
    assert {run.info.status for run in above.values()} == {"FINISHED"}
    assert parent.data.tags["holdout.loss"] == "mpa"
    assert parent.data.tags["mlflow.parentRunId"] == above["search"].info.run_id
    assert len(by_trial) == TRIALS
    for trial in trials:
        run = by_trial[f"sleeps/mpa/{trial.number}"]
        assert run.info.status == STATUS[trial.state]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.tags["holdout.state"] == trial.state.name
        assert run.data.tags["holdout.outcome"] == trial.user_attrs["outcome"]
        proposed = {name: str(value) for name, value in trial.params.items()}
        assert run.data.params.items() >= proposed.items()
        told = {record["epoch"]: record["metrics"]["map_at_r"] for record in _epochs(trial)}
        assert _history(client, run.info.run_id, "validation/map_at_r") == sorted(told.items())
        assert _history(client, run.info.run_id, "objective/value") == sorted(trial.intermediate_values.items())


def _history(client: MlflowClient, run_id: str, metric: str) -> list[tuple[int, float]]:
    return sorted((entry.step, entry.value) for entry in client.get_metric_history(run_id, metric))
