"""SIGKILL of a driver in the confirmation; the same command resumes; nothing is lost or duplicated.

The checkpoints are in a remote storage. On a cluster: `make soak`.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import filelock
import pytest
from optuna.trial import TrialState
from support.commands import holdout_here, kill_when, plain, stored, summary, write_search
from support.mlflow_database import write_migrated
from support.mlflow_rows import assert_mlflow_equals_the_studies
from support.small_search import draw_folder, small_search
from support.stores import ftp_store

from search.trials import epochs_of

LOSSES = ("pnp",)
EPOCHS = 8
TRIALS = 2


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a storage, and its folder."""
    folder = tmp_path_factory.mktemp("store") / "files"
    with ftp_store(folder) as url:
        yield f"{url}/models", folder / "models"


@pytest.fixture(scope="module")
def runs(store: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a search that was killed and resumed."""
    path = tmp_path_factory.mktemp("resume")
    runs = path / "runs"
    content = small_search(
        draw_folder(path / "images"),
        losses=list(LOSSES),
        search={"trials": TRIALS, "pruner": "none", "max_concurrent": 1},
        selection={"finalists": 1, "seeds": 1},
        final={"seeds": 1},
        resources={"engine": "local"},
    )
    content["training"]["epochs"] = EPOCHS
    content["checkpoints"] = {"storage_path": store[0]}
    file = write_search(path / "small.yaml", content)
    arguments = ("run", file, "--runs", runs)

    def half_way() -> bool:
        trials = [trial for loss in LOSSES for trial in stored(runs, "small", f"{loss}@confirm")]
        return any(
            trial.state == TrialState.RUNNING and 1 < len(trial.intermediate_values) < EPOCHS // 2 for trial in trials
        )

    write_migrated(runs / "mlflow.db")
    kill_when(half_way, *arguments)
    (path / "killed").write_text(str(time.time()))
    assert not (runs / "small" / "selection.json").exists()
    holdout_here(*arguments)
    return runs


def test_exactly_the_asked_number_of_trials_is_finished(runs: Path) -> None:
    for loss in LOSSES:
        assert summary(runs, "small")["losses"][loss]["trials"] == {"complete": TRIALS, "pruned": 0, "failed": 0}
        for study in (loss, f"{loss}@confirm", f"{loss}@final"):
            trials = stored(runs, "small", study)
            assert {trial.state for trial in trials} == {TrialState.COMPLETE}
            for trial in trials:
                assert sorted(trial.intermediate_values) == list(range(1, EPOCHS + 1))
                assert [entry["epoch"] for entry in epochs_of(trial)] == list(range(1, EPOCHS + 1))
        confirmed = [
            (t.user_attrs["source_trial"], t.user_attrs["seed"], t.user_attrs["half"])
            for t in stored(runs, "small", f"{loss}@confirm")
        ]
        assert len(set(confirmed)) == len(confirmed)


def test_a_killed_trial_went_on_from_its_checkpoint(runs: Path, store: tuple[str, Path]) -> None:
    """The second attempt did not start over: the epochs of the first are recorded with their original times."""
    killed = float((runs.parent / "killed").read_text())
    went_on = False
    for attempt in (store[1] / "small" / "trials").glob("*/*/attempt-2"):
        loss, number = attempt.parts[-3], int(attempt.parts[-2])
        records = epochs_of(stored(runs, "small", loss)[number])
        starts = [entry["start"] for entry in records]
        assert starts == sorted(starts)
        # A trial that was killed within its first epoch had nothing to go on from, one after its last had ended.
        went_on = went_on or starts[0] < killed < starts[-1]
    assert went_on, "no trial was taken up again"
    assert not (runs / "small" / "trials").exists()


def test_the_test_was_opened_once(runs: Path) -> None:
    line, read, scored = map(json.loads, (runs / "test_openings.jsonl").read_text().splitlines())
    (opening,) = json.loads((runs / "small" / "test.json").read_text())["openings"]
    assert line["id"] == read["read"] == scored["scored"] == opening["id"]
    assert summary(runs, "small")["test_opened"] == 1


def test_no_mlflow_run_is_left_running(runs: Path) -> None:
    assert_mlflow_equals_the_studies(runs, "small", LOSSES)


def test_a_second_driver_is_refused(runs: Path) -> None:
    """The error names the process that holds the search."""
    folder = runs / "small"
    with filelock.FileLock(folder / ".driver.lock"):
        (folder / ".driver").write_text("process 1 on another-host\n")
        said = plain(
            holdout_here("test", "small", "--again", "no", "--runs", runs, "--trust", "127.0.0.1", code=2).stderr
        )
    assert "is being run by process 1 on another-host" in said
