"""One real search, from the command line to the sealed test, on images in a folder.

The test images are corrupt while the search runs. The search must not notice: nothing may read them before the choice
is frozen. The test stage then refuses with an error, and succeeds once the images are restored. The driver is killed
while it confirms, and resumed by the same command; on a cluster: `make soak`.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.trial import TrialState
from support.commands import json_of, kill_when, refusal, stored, summary, write_search
from support.mlflow_database import write_migrated
from support.mlflow_rows import assert_mlflow_equals_the_studies, studies_of
from support.small_search import draw_folder, small_search, unreadable
from support.stores import ftp_store

from search.trials import epochs_of

LOSS = "pnp"
EPOCHS = 5
TEST = ("test", "small", "--trust-code")


class FinishedSearch:
    """The folders of one search whose checkpoints are in a storage elsewhere."""

    def __init__(self, path: Path, store: str) -> None:
        self.runs, self.trials = path / "runs", path / "store" / "models" / "small" / "trials"
        self.images = draw_folder(path / "images", images=6)
        self.killed = 0.0
        content = small_search(
            self.images,
            losses=[LOSS],
            training={"epochs": EPOCHS, "batch_size": 20, "images_per_class": 5, "image_size": 16},
            search={"trials": 2, "pruner": "none", "max_concurrent": 1},
            selection={"finalists": 1, "seeds": 1},
            resources={"engine": "in_process"},
            checkpoints={"storage_path": f"{store}/models"},
        )
        self.file = write_search(path / "small.yaml", content)

    def is_being_confirmed(self) -> bool:
        trials = stored(self.runs, "small", f"{LOSS}@confirm")
        running = [trial for trial in trials if trial.state == TrialState.RUNNING]
        return any(1 < len(trial.intermediate_values) < EPOCHS - 1 for trial in running)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FinishedSearch]:
    """A search that was killed, and resumed until the test refused the corrupt images, which are restored now."""
    path = tmp_path_factory.mktemp("end-to-end")
    with ftp_store(path / "store") as url:
        finished = FinishedSearch(path, url)
        write_migrated(finished.runs / "mlflow.db")
        command = ("run", finished.file, "--runs", finished.runs)
        with unreadable(*sorted(finished.images.iterdir())[8:]):
            kill_when(finished.is_being_confirmed, *command)
            finished.killed = time.time()
            assert not (finished.runs / "small" / "selection.json").exists()
            said = refusal(*command)
        assert (finished.runs / "small" / "selection.json").exists()
        kept = r"kept: 2 trials, (1 confirmation, )?1 unfinished training; "
        left = r"left: the choice, the test(, about [\d:]+ at the pace so far)?\."
        assert re.search(f"Resuming small; {kept}{left}", said), said
        assert "48 of 48 images cannot be read: class-08/00.png" in said, said
        assert not (finished.runs / "small" / "test.json").exists()
        yield finished


def test_the_test_stage_succeeds_with_restored_images(finished: FinishedSearch) -> None:
    result = json_of(*TEST, "--runs", finished.runs)
    assert result == summary(finished.runs, "small")
    assert result["test_opened"] == 1, "the attempt that was refused is the same opening"
    _, line, read, scored = map(json.loads, (finished.runs / "test_openings.jsonl").read_text().splitlines())
    (opening,) = json.loads((finished.runs / "small" / "test.json").read_text())["openings"]
    assert line["id"] == read["read"] == scored["scored"] == opening["id"]
    entry, times = result["losses"][LOSS], result["time"]
    assert entry["trials"] == {"complete": 2, "pruned": 0, "failed": 0}
    for tested in (entry["tuned"]["test"], entry["default"]["test"]):
        assert len(tested["recall_at_1"]["values"]) == 2
        assert {"map", "nmi", "f1", "dists_intra", "ndcg_at_8"} <= tested.keys()
    assert 0 < times["trial_work_s"] <= times["search_wall_s"] * times["slots"]
    assert_mlflow_equals_the_studies(finished.runs, "small", (LOSS,))


def test_a_kill_loses_and_doubles_nothing(finished: FinishedSearch) -> None:
    for study in studies_of(LOSS):
        trials = stored(finished.runs, "small", study)
        assert {trial.state for trial in trials} == {TrialState.COMPLETE}
        for trial in trials:
            assert sorted(trial.intermediate_values) == list(range(1, EPOCHS + 1))
            assert [entry["epoch"] for entry in epochs_of(trial)] == list(range(1, EPOCHS + 1))
    confirmed = [
        [trial.user_attrs[key] for key in ("source_trial", "seed", "half")]
        for trial in stored(finished.runs, "small", f"{LOSS}@confirm")
    ]
    assert all(confirmed.count(entry) == 1 for entry in confirmed)


def test_a_killed_trial_goes_on_from_its_checkpoint(finished: FinishedSearch) -> None:
    """The second attempt does not start over: the epochs of the first are recorded with their original times."""
    starts = []
    for attempt in finished.trials.glob("*/*/attempt-2"):
        study, number = attempt.parts[-3:-1]
        starts.append([entry["start"] for entry in epochs_of(stored(finished.runs, "small", study)[int(number)])])
        assert starts[-1] == sorted(starts[-1])
    # A trial that was killed within its first epoch had nothing to go on from, one after its last had ended.
    assert any(first < finished.killed < last for first, *_, last in starts), "no trial was taken up again"
    assert not [*finished.trials.rglob("last.pt"), *finished.trials.rglob(".*")], "only what is worth keeping stays"
    assert not (finished.runs / "small" / "trials").exists()
