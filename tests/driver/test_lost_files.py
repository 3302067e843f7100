"""A finished search that lost some of its files: what is written again, and what is refused."""

import shutil
from pathlib import Path

import pytest
from support.commands import holdout_here, plain
from support.finished_search import finish
from support.mlflow_rows import assert_mlflow_equals_the_studies
from support.small_search import draw_folder, small_search
from support.tampered import Copied

from search.plan.runs import RunFolder
from search.report.document import write_search_report


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a small finished search, with every kind of file; tests must not change it."""
    folder = tmp_path_factory.mktemp("mutations")
    content = small_search(
        draw_folder(folder / "images", classes=8, images=5),
        training={"epochs": 2, "batch_size": 10, "images_per_class": 5, "image_size": 16},
        losses=["pnp"],
        search={"trials": 2},
        selection={"finalists": 1, "seeds": 1},
        final={"seeds": 1},
    )
    finish(folder / "runs", content)
    write_search_report(folder / "runs", ["small"])
    return folder / "runs"


def test_a_search_whose_studies_are_lost_is_not_run_again(finished: Path, tmp_path: Path) -> None:
    copied = Copied(finished, tmp_path / "runs")
    copied.journal.unlink()
    said = plain(holdout_here("run", copied.path / "search.yaml", "--runs", copied.runs, code=2).stderr)
    assert "small has selection.json and test.json, but the trials of small/pnp, small/pnp@final are missing" in said
    assert f"restore {copied.journal} from a copy, or search under a new name" in said
    assert not copied.journal.exists()
    copied.journal.touch()
    said = plain(holdout_here("run", copied.path / "search.yaml", "--runs", copied.runs, code=2).stderr)
    assert f"restore {copied.journal} from a copy" in said


def test_scores_without_their_choice_are_not_chosen_again(finished: Path, tmp_path: Path) -> None:
    copied = Copied(finished, tmp_path / "runs")
    (copied.path / "selection.json").unlink()
    said = plain(holdout_here("run", copied.path / "search.yaml", "--runs", copied.runs, code=2).stderr)
    assert "small has scores in" in said
    assert "selection.json is missing; restore it from a copy" in said


def test_what_a_killed_driver_left_out_is_written(finished: Path, tmp_path: Path) -> None:
    copied = Copied(finished, tmp_path / "runs")
    folder = RunFolder(copied.runs, "small")
    shutil.rmtree(folder.path / "models")
    folder.report.unlink()
    folder.summary.unlink()
    dead, living = folder.path / ".selection.json.99999999-ab.draft", folder.path / ".report.html.1-ab.draft"
    for draft in (dead, living):
        draft.touch()
    holdout_here("run", folder.config, "--runs", copied.runs)
    assert folder.report.exists()
    assert folder.summary.exists()
    assert (folder.model("pnp") / "model.json").exists()
    assert not dead.exists()
    assert living.exists()
    living.unlink()
    holdout_here("verify", "small", "--runs", copied.runs)


def test_mlflow_lacks_nothing_after_a_driver_was_killed_at_its_end(finished: Path, tmp_path: Path) -> None:
    copied = Copied(finished, tmp_path / "runs")
    (copied.runs / "mlflow.db").unlink(missing_ok=True)
    (copied.path / ".driver").write_text("process 1 on another-host\n")
    holdout_here("run", copied.path / "search.yaml", "--runs", copied.runs)
    assert not (copied.path / ".driver").exists()
    assert_mlflow_equals_the_studies(copied.runs, "small", ("pnp",))
