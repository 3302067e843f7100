"""The pages of MLflow: the tree of runs, the views, and no duplicates; and its server."""

import base64
import getpass
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run
from support.commands import holdout_here, plain, stored
from support.driving import drive
from support.finished_search import recorded
from support.kinds import FinishedCampaign
from support.mlflow_database import write_migrated
from support.mlflow_rows import assert_mlflow_equals_the_studies, everything_in
from support.services import ROOT, free_port
from support.tampered import Copied

from search.addresses import results_page
from search.driver.synchronise import make_projection, synchronise, where_to_look
from search.records.runs import RunFolder, mlflow_page
from search.records.writable import WritableRecords

Opened = Callable[..., WritableRecords]
LOSSES = ("proxy_anchor", "pnp")


@pytest.fixture(scope="module")
def search(search_made: Opened, tmp_path_factory: pytest.TempPathFactory) -> WritableRecords:
    """A search that is synchronised with MLflow; read-only."""
    space = {"training": {"lr": {"low": 1e-4, "high": 1e-1, "log": True}}}
    runs = tmp_path_factory.mktemp("pages") / "runs"
    search = search_made(runs, losses=[*LOSSES], search={"trials": 2}, space=space)
    drive(search, lambda job, epoch: 0.5 - job.number / 10 + epoch / 100)
    synchronise(recorded(search), make_projection(search.plan))
    return search


def client_of(search: WritableRecords) -> tuple[MlflowClient, str]:
    client = MlflowClient(search.folder.tracking)
    (experiment,) = [entry for entry in client.search_experiments() if entry.name == "small"]
    return client, experiment.experiment_id


def runs_of(search: WritableRecords, kind: str) -> dict[str, Run]:
    client, experiment = client_of(search)
    found = client.search_runs([experiment], f"tags.`holdout.kind` = '{kind}'")
    return {run.info.run_name.removeprefix("small/"): run for run in found}


def views_of(search: WritableRecords) -> dict[str, dict[str, Any]]:
    client, experiment = client_of(search)
    prefix = "mlflow.sharedViewState."
    tags = client.get_experiment(experiment).tags
    return {key.removeprefix(prefix): json.loads(value) for key, value in tags.items() if key.startswith(prefix)}


def test_one_run_sums_the_search_up_and_keeps_its_files(search: WritableRecords, tmp_path: Path) -> None:
    client, _ = client_of(search)
    ((name, run),) = runs_of(search, "search").items()
    assert name == "small"
    files = {entry.path for entry in client.list_artifacts(run.info.run_id)}
    assert files == {"search.yaml", "split.json", "comparison.md", "comparison.csv"}
    copy = client.download_artifacts(run.info.run_id, "search.yaml", str(tmp_path))
    assert yaml.safe_load(Path(copy).read_text()) == yaml.safe_load(search.config.to_yaml())
    assert all(f"| {loss} " in run.data.tags["mlflow.note.content"].replace("\\", "") for loss in LOSSES)
    assert run.data.tags["mlflow.user"] == getpass.getuser()
    assert run.data.params["model.embedding_dim"] == "8"
    assert "search.trials" not in run.data.params, "it may be raised, and MLflow changes no parameter"
    trials = [trial for loss in LOSSES for trial in search.storage.trials_of(f"small/{loss}")]
    begun, ended = ([getattr(trial, name) for trial in trials] for name in ("datetime_start", "datetime_complete"))
    assert run.info.start_time == int(min(begun).timestamp() * 1000)
    assert run.info.end_time == int(max(ended).timestamp() * 1000)


def test_a_trial_says_what_it_is_trained_with(search: WritableRecords) -> None:
    run = runs_of(search, "trial")["pnp/1"]
    (trial,) = [trial for trial in search.storage.trials_of("small/pnp") if trial.number == 1]
    assert run.data.params.items() >= {key: str(value) for key, value in trial.params.items()}.items()
    assert run.data.params["model.backbone"] == search.config.model.backbone
    assert run.data.params["training.lr"] == str(trial.params["training.lr"]), "the searched one"
    assert trial.params["training.lr"] != search.config.training.lr
    assert "training.lr" not in runs_of(search, "loss")["pnp"].data.params, "none is chosen yet"


def columns(view: dict[str, Any]) -> list[str]:
    chosen: list[str] = json.loads(view["state"])["selectedColumns"]
    return chosen


def test_the_printed_link_opens_a_view_that_is_there(search: WritableRecords) -> None:
    assert where_to_look([search.plan]) == f"MLflow: `mlflow/serve.sh {search.folder.runs}` starts its server."
    client, experiment = client_of(search)
    page = mlflow_page([search.folder])
    assert page == (
        f"http://127.0.0.1:5000/#/experiments/{experiment}/runs?workflowType=machine_learning"
        "&viewStateShareKey=holdout-results"
    )
    view = views_of(search)[page.rpartition("=")[2]]
    assert view["name"] == "Results"
    tags = ("recommended", "confirmed map_at_r", "test map_at_r", "minus default", "minus no training")
    assert columns(view)[:5] == [f"tags.`{tag}`" for tag in tags]
    ordered = json.loads(view["state"])["orderByKey"]
    assert ordered == "metrics.`confirmed/map_at_r`", "the best of many trials sorts nothing"
    found = client.search_runs([experiment], json.loads(view["state"])["searchFilter"])
    assert {run.info.run_name for run in found} == {f"small/{loss}" for loss in LOSSES}


def test_one_page_compares_searches(opened: Opened, tmp_path: Path) -> None:
    """The rows of both name their search; `sync` and `compare` print the page, and the report has it."""
    runs = tmp_path / "runs"
    for name in ("one", "two"):
        search = opened(name=name, losses=["pnp"], search={"trials": 1})
        drive(search)
        search.close()
    synced = holdout_here("sync", "one", "two", "--runs", runs, "--json").stdout
    assert json.loads(synced) == [{"name": "one", "trials": 1}, {"name": "two", "trials": 1}]
    client = MlflowClient(f"sqlite:///{runs}/mlflow.db")
    ids = [client.get_experiment_by_name(name).experiment_id for name in ("one", "two")]
    page = results_page(None, ids)
    assert page in plain(holdout_here("compare", "one", "two", "--runs", runs).stderr)
    assert page is not None
    path, _, query = page.partition("?")
    (experiments,), (view,) = (parse_qs(query)[name] for name in ("experiments", "viewStateShareKey"))
    assert (path.rpartition("#")[2], json.loads(experiments)) == ("/compare-experiments/s", ids)
    assert all(f"mlflow.sharedViewState.{view}" in client.get_experiment(each).tags for each in ids)
    holdout_here("report", "one", "two", "--runs", runs, "--output", tmp_path / "both.html")
    assert page.replace("&", "&amp;") in (tmp_path / "both.html").read_text()


def test_a_damaged_record_of_the_experiment_gives_no_page(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "small")
    folder.path.mkdir()
    for damage in ("{", "[]", '{"uri": null, "experiment": "1/../.."}', '{"uri": "javascript:1", "experiment": "1"}'):
        folder.experiment.write_text(damage)
        assert mlflow_page([folder]) is None


def test_two_searches_of_one_experiment_share_its_views(opened: Opened) -> None:
    """A second synchronisation writes nothing."""
    tracking = {"experiment": "small"}
    searches = [opened(name=f"small-{loss}", losses=[loss], search={"trials": 1}, tracking=tracking) for loss in LOSSES]
    for search in searches:
        drive(search)
        synchronise(recorded(search), make_projection(search.plan))
    database = searches[0].plan.folder.runs / "mlflow.db"
    before = everything_in(database)
    assert len(before[1]) > 4
    for search in searches:
        synchronise(recorded(search), make_projection(search.plan))
        own = {f"params.`{name}`" for name in search.plan.spaces[search.config.loss_names[0]].default}
        assert own <= set(columns(views_of(search)["holdout-results"]))
    assert everything_in(database) == before
    assert set(runs_of(searches[0], "loss")) == {f"small-{loss}/{loss}" for loss in LOSSES}


STUDIES = ("pnp", "pnp@confirm", "pnp@final")


def test_a_sync_shows_the_campaign_above_its_searches_once(lot: FinishedCampaign, tmp_path: Path) -> None:
    runs = Copied(lot.runs, tmp_path / "runs", "lot").runs
    names = [each.name for each in lot.campaign.searches]
    trials = sum(len(stored(runs, name, study)) for name in names for study in STUDIES)
    rows = []
    for _ in range(2):
        done = holdout_here("sync", "lot", "--runs", runs)
        assert f"all {trials} trials of lot" in done.stdout
        rows.append(everything_in(runs / "mlflow.db"))
    assert rows[0] == rows[1]

    assert_mlflow_equals_the_studies(runs, "lot-folds", ("pnp",), experiment_name="lot")
    client = MlflowClient(f"sqlite:///{runs / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("lot")
    assert experiment is not None
    (whole,) = client.search_runs([experiment.experiment_id], "tags.`holdout.kind` = 'campaign'")
    assert whole.info.run_name == "lot"
    assert whole.info.status == "FINISHED"
    below = client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{whole.info.run_id}'")
    assert {run.info.run_name for run in below} == {*names}
    files = {entry.path for entry in client.list_artifacts(whole.info.run_id)}
    assert files == {"campaign.yaml", "campaign.json", "table.md", "table.csv"}
    assert whole.data.metrics["epochs/search"] == lot.result.epochs["search"]
    assert "| pnp" in whole.data.tags["mlflow.note.content"]


# ``mlflow/serve.sh``: it reports when MLflow responds, and errors at once.

SERVE = str(ROOT / "mlflow" / "serve.sh")
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def refused(*arguments: str | Path, cwd: Path | None = None) -> str:
    """What the script says when it refuses its arguments."""
    done = subprocess.run([SERVE, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=cwd)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_a_password_that_all_could_read_is_refused_and_not_shown(tmp_path: Path) -> None:
    for address in ("postgresql://u:a/hush@h/x", "postgresql://h/x?password=hush"):
        said = refused("--database", address, tmp_path)
        assert "holds a password" in said
        assert "hush" not in said


def test_a_port_that_is_none_is_refused(tmp_path: Path) -> None:
    runs = tmp_path / 'it\'s a "folder" $(touch x)'
    runs.mkdir()
    for port in ("0", "70000", "5000;touch x", "-1"):
        sentence = f"PORT must be a whole number between 1 and 65535; it is {port}.\n"
        assert refused(runs, port, cwd=tmp_path) == sentence
    assert "quote a path that has spaces" in refused(tmp_path, "5001", "more")
    assert [path.name for path in tmp_path.rglob("*")] == [runs.name]


def status(port: int, path: str, host: str, **headers: str) -> int:
    asking = http.client.HTTPConnection("127.0.0.2", port, timeout=60)
    asking.request("GET", path, headers={"Host": host, "Connection": "close", **headers})
    return asking.getresponse().status


@pytest.mark.slow
def test_only_users_get_in_and_only_by_names_that_are_its_own(tmp_path: Path) -> None:
    port = free_port()
    write_migrated(tmp_path / "mlflow.db")
    password = "long-enough-to-be-one"
    environment = {**os.environ, "PATH": PATH, "HOME": str(tmp_path), "MLFLOW_AUTH_ADMIN_PASSWORD": password}
    command = [SERVE, "--auth", "--host", "127.0.0.2", str(tmp_path), str(port)]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet, text=True, env=environment, start_new_session=True) as server:
        try:
            assert server.stdout is not None
            assert any("answers at" in line for line in server.stdout)
            experiments, own = "/api/2.0/mlflow/experiments/search?max_results=1", f"127.0.0.2:{port}"
            known, wrong = (
                {"Authorization": f"Basic {base64.b64encode(f'admin:{given}'.encode()).decode()}"}
                for given in (password, "password1234")
            )
            assert status(port, experiments, own, **known) == 200
            assert status(port, experiments, f"localhost:{port}", **known) == 200
            for host in ("evil.example", "10.0.0.1.evil.example", f"10.0.0.1.evil.example:{port}"):
                assert status(port, experiments, host, **known) == 403
            for path in (experiments, "/", "/get-artifact?path=x&run_uuid=x", "/graphql", "/version", "/signup"):
                assert status(port, path, own) == status(port, path, own, **wrong) == 401
            assert (tmp_path / "mlflow_users.db").stat().st_mode & 0o777 == 0o600
            assert (tmp_path / ".config" / "holdout" / "mlflow_secret_key").stat().st_mode & 0o777 == 0o600
        finally:
            os.killpg(server.pid, signal.SIGKILL)
