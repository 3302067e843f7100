"""MLflow as a projection of the studies: complete, and without losses during an outage."""

import os
import pwd
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.utils.validation import _validate_metric
from optuna.trial import FrozenTrial
from support.driving import begun, drive, only, record
from support.finished_search import recorded
from support.mlflow_rows import assert_mlflow_equals_the_studies
from support.small_disk import small_disk

from search.driver.listeners import MlflowUpdates
from search.driver.stages import confirm_stage, search_stage
from search.driver.synchronise import make_projection, mlflow_errors, synchronise
from search.records.writable import WritableRecords
from search.stages import Stage
from search.study.trial_queue import TrialQueue
from search.tracking.client import open_client
from search.tracking.projection import Projection, Tracker
from search.tracking.summary_runs import key_of, origin_tags
from trainables.common.errors import Failure
from trainables.training.spec import Epochs, Failed

Opened = Callable[..., WritableRecords]
OF_CLUSTERS = {
    "ENABLE_ASYNC_LOGGING": "true", "RUN_ID": "0" * 32, "EXPERIMENT_ID": "77", "EXPERIMENT_NAME": "of another program",
    "TRACKING_URI": "http://127.0.0.1:9",
}  # fmt: skip
"""MLflow's variables that others set for their own programs."""


@pytest.fixture
def search(opened: Opened) -> WritableRecords:
    search = opened(losses=["pnp"], search={"trials": 2})
    drive(search, lambda job, epoch: 0.5 - job.number / 10 + epoch / 100)
    return search


def synced(search: WritableRecords) -> int:
    """Bring MLflow up to date as a new process does, which knows no run; return the number of trials."""
    return synchronise(recorded(search), make_projection(search.plan))


def mlflow_runs(search: WritableRecords) -> list[Run]:
    client = MlflowClient(search.folder.tracking)
    return list(client.search_runs([entry.experiment_id for entry in client.search_experiments()]))


def test_a_study_is_projected_whole_and_only_once(search: WritableRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into no experiment that somebody has deleted."""
    for name, value in OF_CLUSTERS.items():
        monkeypatch.setenv(f"MLFLOW_{name}", value)
    for _ in range(2):  # by a second process, which does not know the runs of the first one
        assert synced(search) == 2
        assert_mlflow_equals_the_studies(search.folder.runs, "small", ("pnp",))
    client = MlflowClient(search.folder.tracking)
    (experiment,) = [entry for entry in client.search_experiments() if entry.name == "small"]
    client.delete_experiment(experiment.experiment_id)
    with pytest.raises(Failure, match="The experiment 'small' is deleted in MLflow; restore it"), mlflow_errors():
        synced(search)
    client.restore_experiment(experiment.experiment_id)
    assert synced(search) == 2


def test_searches_of_one_name_in_one_store_are_known_by_their_ids(
    search_made: Callable[..., WritableRecords], tmp_path: Path
) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    of_folder = {
        name: search_made(tmp_path / name, losses=["pnp"], tracking={"uri": uri}, search={"trials": 1})
        for name in ("one", "two")
    }
    values = {"one": 0.1, "two": 0.7}
    for name, search in of_folder.items():
        drive(search, lambda job, epoch, value=values[name]: value)  # type: ignore[misc]
    client = MlflowClient(uri)
    for _ in range(2):  # in turns, so that a run of the other search is there to be taken for its own
        for search in of_folder.values():
            assert synced(search) == 1
        experiment = client.get_experiment_by_name("small")
        assert experiment is not None
        runs = client.search_runs([experiment.experiment_id], max_results=1000)
        assert len(runs) == 2 * (1 + 1 + 1)
        ids = {run.info.run_id: run.data.tags["holdout.id"] for run in runs}
        for name, search in of_folder.items():
            own = [run for run in runs if run.data.tags["holdout.id"] == search.folder.own_id()]
            assert {run.data.metrics["objective/value"] for run in own if "holdout.trial" in run.data.tags} == {
                values[name]
            }
            above = {run.data.tags["mlflow.parentRunId"] for run in own if "mlflow.parentRunId" in run.data.tags}
            assert {ids[run] for run in above} == {search.folder.own_id()}


def test_a_user_without_a_name_is_known_by_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*number: int) -> str:
        raise KeyError(f"getpwuid(): uid not found: {os.getuid()}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert origin_tags.__wrapped__()["mlflow.user"] == f"uid {os.getuid()}"  # without its cache


def test_what_a_killed_process_left_is_completed(opened: Opened) -> None:
    search = opened(losses=["pnp"], search={"trials": 1})
    queue = TrialQueue(only(search_stage(search)))
    job = begun(queue)
    queue.on_trial_result(job, Epochs([record(1, 0.1)], finished=False))
    synced(search)
    assert {run.info.status for run in mlflow_runs(search)} == {"RUNNING"}

    queue.on_trial_result(job, Epochs([record(2, 0.3), record(3, 0.2)], finished=True))
    synced(search)
    assert_mlflow_equals_the_studies(search.folder.runs, "small", ("pnp",))


def test_a_trial_that_is_tried_again_has_a_run_of_its_own(opened: Opened) -> None:
    search = opened(losses=["pnp"], search={"trials": 1})
    queue = TrialQueue(only(search_stage(search)))
    queue.on_trial_result(begun(queue), Failed(cause="CODE_ERROR", reason="KeyError: 'x'", place="line 3"))
    for _ in range(2):  # by a second process, which finds the run
        synced(search)
        assert_mlflow_equals_the_studies(search.folder.runs, "small", ("pnp",))
    drive(search)
    for _ in range(2):
        synced(search)
        trials = [run for run in mlflow_runs(search) if "holdout.trial" in run.data.tags]
        assert sorted(run.info.status for run in trials) == ["FAILED", "FINISHED"]
        (trained,) = (run for run in trials if run.info.status == "FINISHED")
        assert "holdout.failure" not in trained.data.tags


def test_tables_whose_making_was_killed_are_made_anew(search: WritableRecords) -> None:
    database = Path(search.folder.tracking.removeprefix("sqlite:///"))

    def killed(address: str, artifacts: str) -> None:
        Path(address.partition("///")[2]).write_bytes(b"half of a database")
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow.store.tracking.sqlalchemy_store.SqlAlchemyStore", killed)
        with pytest.raises(KeyboardInterrupt):
            open_client(search.folder.tracking)
    assert {path.suffix for path in database.parent.glob(f"{database.name}*")} == {".draft", ".lock"}
    synced(search)
    assert_mlflow_equals_the_studies(search.folder.runs, "small", ("pnp",))


def confirm(search: WritableRecords, projection: Projection) -> int:
    """Train the confirmation while MLflow is written; return the number of trials that it lacks afterwards."""
    tracker = Tracker({"small": projection})
    queue = TrialQueue(iter([confirm_stage(search)]), listeners=[MlflowUpdates(tracker)])
    while job := queue.next_trial():
        queue.on_trial_result(job, Epochs([record(1, 0.1), record(2, 0.2), record(3, 0.3)], finished=True))
    tracker.close(print)
    return tracker.behind


def test_an_outage_costs_the_training_nothing_and_is_said_once(
    search: WritableRecords, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = replace(make_projection(search.plan), uri="http://127.0.0.1:9", artifacts=None)
    assert confirm(search, nobody)
    assert sum("MLflow cannot be written" in message for message in caplog.messages) == 1
    assert len(search.study("pnp", Stage.SEARCH).trials()) == 2
    synced(search)
    assert_mlflow_equals_the_studies(search.folder.runs, "small", ("pnp",))


def test_a_full_disk_is_said_in_a_sentence(
    search: WritableRecords, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Found by `make soak`: MLflow also logs such an error, in 80 lines."""
    with small_disk(tmp_path / "small", size=4_000_000) as disk:
        place = {"uri": f"sqlite:///{disk.path}/mlflow.db", "artifacts": str(tmp_path / "artifacts")}
        projection = replace(make_projection(search.plan), **place)
        synchronise(recorded(search), projection)
        disk.fill()
        assert confirm(search, projection)
        (said,) = [message for message in caplog.messages if "MLflow" in message]
        assert said.startswith(
            "MLflow cannot be written (OperationalError: database or disk is full). Training continues"
        )
        assert "Traceback" not in capfd.readouterr().err
        disk.clear()
        synchronise(recorded(search), projection)


def test_every_run_shows_the_training_of_its_own_loss_and_what_it_used(opened: Opened) -> None:
    of_triplet = {"triplet": {"sampler": "random"}}
    search = opened(losses=["pnp", "triplet"], training_by_loss=of_triplet, search={"trials": 1})
    queue = TrialQueue(only(search_stage(search)))
    while job := queue.next_trial():
        for epoch in (1, 2, 3):
            used = {"used": {"triplets": 100 * epoch}} if job.loss == "triplet" else {}
            queue.on_trial_result(job, Epochs([{**record(epoch, 0.1), **used}], finished=epoch == 3))
    synced(search)
    runs = mlflow_runs(search)
    (of_search,) = [run.data.params for run in runs if "loss" not in run.data.params]
    assert (of_search["training.sampler"], of_search["training_by_loss.triplet.sampler"]) == ("balanced", "random")
    of_losses = [run for run in runs if "loss" in run.data.params]  # a loss's run and its trial's
    params = [run.data.params for run in of_losses]
    found = sorted((of_loss["loss"], of_loss["training.sampler"]) for of_loss in params)
    assert found == [("pnp", "balanced")] * 2 + [("triplet", "random")] * 2
    assert not any(name.startswith("training_by_loss") for of_loss in params for name in of_loss)
    used = {
        run.data.params["loss"]: run.data.metrics.get("train/triplets")
        for run in of_losses
        if "stage" in run.data.params
    }
    assert used == {"triplet": 300, "pnp": None}


@settings(max_examples=20)
@given(st.text())
@example("train/Recall@1")
@example("train/../../x")
@example("é" * 300)
def test_mlflow_accepts_every_name(name: str) -> None:
    _validate_metric(key_of(name), 0.5, 0, 0)
    assert len(key_of(name)) <= 250


class _Refuses(Projection):
    def project(self, study: str, trial: FrozenTrial) -> None:
        if trial.number == 1:
            raise ValueError("no such thing")
        super().project(study, trial)


def test_one_refused_run_does_not_block_the_others(search: WritableRecords) -> None:
    given = vars(make_projection(search.plan)).items()
    projection = _Refuses(**{name: value for name, value in given if not name.startswith("_")})
    with pytest.raises(Failure, match=r"MLflow lacks trial 1 of small/pnp of small.*no such thing"):
        synchronise(recorded(search), projection)
    tracker = Tracker({"small": projection})
    for trial in search.study("pnp", Stage.SEARCH).trials():
        tracker.mark("small/pnp", trial)
    tracker.close(print)
    assert not tracker.behind
    found = [run.data.tags.get("holdout.trial") for run in mlflow_runs(search)]
    assert sorted(filter(None, found)) == ["small/pnp/0"]
