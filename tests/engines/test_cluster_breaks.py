"""A search with MLflow on PostgreSQL and two Ray nodes, each of them broken: nothing is lost, nothing doubled."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from optuna.trial import TrialState
from support.commands import holdout, holdout_here, kill_when, plain, stored, write_search
from support.mlflow_rows import assert_mlflow_equals_the_studies
from support.services import MlflowServer, Nodes, Postgres, mlflow_server, postgres, ray_nodes
from support.small_search import draw_folder, small_search

from search.trials import epochs_of

pytestmark = pytest.mark.cluster

LOSSES = ("proxy_anchor", "pnp")
TRIALS = 5
EPOCHS = 60
ALL_EPOCHS = len(LOSSES) * TRIALS * EPOCHS
OUTAGE_S = 60


class Services:
    """Everything that one search needs, and what can be seen of it from outside."""

    def __init__(self, path: Path, database: Postgres, tracking: MlflowServer, nodes: Nodes) -> None:
        self.runs, self.database, self.tracking, self.nodes = path / "runs", database, tracking, nodes
        self.there = ("--address", nodes.address)
        content = small_search(
            draw_folder(path / "images", images=40),  # an epoch takes a moment: the search outlives what is done to it
            losses=list(LOSSES),
            search={"trials": TRIALS, "pruner": "none"},
            tracking={"uri": tracking.url},
            stages=["search"],
            resources={"engine": "ray"},
        )
        content["training"] |= {"epochs": EPOCHS, "image_size": 32}
        self.file = write_search(path / "small.yaml", content)

    def epochs(self) -> int:
        """How many epochs the search's trials have told."""
        studies = [f"{loss}{stage}" for loss in LOSSES for stage in ("", "@confirm", "@final")]
        return sum(len(trial.intermediate_values) for name in studies for trial in stored(self.runs, "small", name))

    def submit(self) -> None:
        """Submit the search, or go on with it; its journal is there when this returns."""
        holdout_here("submit", self.file, "--runs", self.runs, *self.there)
        self.until(lambda: stored(self.runs, "small", LOSSES[-1]))

    def progresses(self, by: int = 5) -> None:
        """Wait until some more epochs are told."""
        wanted = self.epochs() + by
        assert wanted <= ALL_EPOCHS, "the search ended before everything was done to it"
        self.until(lambda: self.epochs() >= wanted)

    def trainers(self, node: object) -> list[int]:
        """The processes on a node that train."""
        raylet = node.all_processes["raylet"][0].process.pid  # type: ignore[attr-defined]
        listed = subprocess.run(
            ["ps", "--ppid", str(raylet), "-o", "pid=,args="], capture_output=True, text=True, check=False
        )
        # An actor is called ray::TrainingTrial while it waits, and ray::ResourceTrainable.train while it trains.
        return [int(line.split()[0]) for line in listed.stdout.splitlines() if "ray::" in line and "Train" in line]

    def trains_on(self, node: object) -> int:
        """Wait until a node trains; which process does."""
        pid, *_ = self.until(lambda: self.trainers(node))
        return pid

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until something holds, a quarter of an hour at most; what it then is."""
        deadline = time.monotonic() + 900
        while not (met := condition()):
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.5)
        return met

    def log(self, *options: str) -> str:
        """What the search says on the cluster."""
        return holdout_here("logs", "small", *options, *self.there).stdout


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    path = tmp_path_factory.mktemp("breaks")
    with (
        postgres(path, "mlflow") as database,
        mlflow_server(path / "mlflow", database.url("mlflow")) as tracking,
        ray_nodes(path / "auth_token") as nodes,
    ):
        yield Services(path, database, tracking, nodes)


def test_everything_breaks_and_nothing_is_lost(services: Services) -> None:
    nodes = services.nodes
    second = nodes.add(cpus=1)
    services.submit()
    (listed,) = json.loads(holdout_here("status", "--jobs", *services.there, "--json").stdout)
    assert (listed["name"], listed["attempt"], listed["runs"]) == ("small", 1, str(services.runs))
    services.progresses()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", nodes.gcs_address)
        refusal = plain(holdout("run", services.file, "--runs", services.runs, code=2).stderr)
    assert "The search small is being run by process" in refusal

    os.kill(services.trains_on(second), signal.SIGKILL)
    services.progresses()

    services.tracking.stop()
    away_since = time.monotonic()

    services.database.stop()
    time.sleep(5)
    services.database.start()
    services.progresses()

    services.trains_on(second)
    nodes.kill(second)
    services.progresses()
    nodes.add(cpus=1)

    assert json.loads(holdout_here("stop", "small", *services.there, "--json").stdout)["state"] == "stopped"
    log = services.log()
    assert "was lost" in log
    assert "MLflow cannot be written" in log
    assert "(raylet" not in log
    assert "Raylet is terminated" in services.log("--all")
    so_far = services.epochs()
    kill_when(
        lambda: services.epochs() > so_far + 5, "run", services.file, "--runs", services.runs
    )  # here, for a while
    services.submit()

    time.sleep(max(0.0, OUTAGE_S - (time.monotonic() - away_since)))
    services.tracking.start()
    said = plain(holdout("logs", "small", "--follow", *services.there).stdout)
    assert f"all {EPOCHS} epochs trained" in said
    assert services.epochs() == ALL_EPOCHS
    done = json.loads(holdout_here("logs", "small", "--follow", *services.there, "--json").stdout)
    assert done["state"] == "succeeded"
    assert done["attempt"] == 2


def test_every_trial_is_finished_exactly_once(services: Services) -> None:
    for loss in LOSSES:
        trials = stored(services.runs, "small", loss)
        assert [trial.state for trial in trials] == [TrialState.COMPLETE] * TRIALS
        for trial in trials:
            assert sorted(trial.intermediate_values) == list(range(1, EPOCHS + 1))
            assert [record["epoch"] for record in epochs_of(trial)] == list(range(1, EPOCHS + 1))


def test_mlflow_equals_the_studies_after_a_sync(services: Services) -> None:
    holdout("sync", "small", "--runs", services.runs, "--trust", "127.0.0.1")  # the job started it, on the cluster
    assert_mlflow_equals_the_studies(services.runs, "small", LOSSES, tracking=services.tracking.url)


def test_a_driver_with_another_token_is_refused(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Ray listens on all interfaces, and not only at its dashboard."""
    token = tmp_path / "token"
    token.write_text("0" * 64)
    token.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.setenv("RAY_ADDRESS", services.nodes.gcs_address)
    refusal = plain(holdout("run", services.file, "--runs", tmp_path / "runs", "--set", "name=stranger", code=1).stderr)
    assert f"Ray did not start at {services.nodes.gcs_address}" in refusal
    assert "token" in refusal
    assert not (tmp_path / "runs").exists()


def test_mlflow_refuses_requests_without_password(services: Services) -> None:
    with pytest.raises(HTTPError) as refusal:
        urlopen(f"{services.tracking.url}/api/2.0/mlflow/experiments/search?max_results=1", timeout=10)
    assert refusal.value.code == 401
    refusal.value.close()


def test_no_secret_is_printed_or_stored(services: Services) -> None:
    """Not in the runs folder, not by the job, not in a process list, not in the search's own words."""
    known = [
        services.database.password_file.read_text().strip().rpartition(":")[2],
        os.environ["MLFLOW_TRACKING_PASSWORD"],
        Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text(),
    ]
    from ray.job_submission import JobSubmissionClient

    details = JobSubmissionClient(services.nodes.address).list_jobs()
    told = [
        services.log("--all"),
        str(details),
        subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout,
    ]
    for secret in known:
        assert len(secret) >= 32
        assert not any(secret in text for text in told)
        found = subprocess.run(["grep", "--recursive", "--text", "--quiet", secret, str(services.runs)], check=False)
        assert found.returncode == 1
