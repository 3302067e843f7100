"""A finished search that lost some of its files: what is written again, and what is refused."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import holdout_here, plain
from support.kinds import Finished
from support.mlflow_rows import assert_mlflow_equals_the_studies
from support.tampered import Copied

from search.plan.runs import RunFolder


@pytest.fixture
def copied(kinds: Callable[[str], Finished], tmp_path: Path) -> Copied:
    """A finished search whose files may be removed."""
    return Copied(kinds("merged and wrong labels").runs, tmp_path / "runs")


def test_a_search_whose_studies_are_lost_is_not_run_again(copied: Copied) -> None:
    copied.journal.unlink()
    said = plain(holdout_here("run", copied.path / "search.yaml", "--runs", copied.runs, code=2).stderr)
    assert "small has selection.json and test.json, but the trials of small/pnp, " in said
    assert f"restore {copied.journal} from a copy, or search under a new name" in said
    assert not copied.journal.exists()
    copied.journal.touch()
    said = plain(holdout_here("run", copied.path / "search.yaml", "--runs", copied.runs, code=2).stderr)
    assert f"restore {copied.journal} from a copy" in said


def test_scores_without_their_choice_are_not_chosen_again(copied: Copied) -> None:
    (copied.path / "selection.json").unlink()
    said = plain(holdout_here("run", copied.path / "search.yaml", "--runs", copied.runs, code=2).stderr)
    assert "small has scores in" in said
    assert "selection.json is missing; restore it from a copy" in said


def test_what_a_killed_driver_left_out_is_written(copied: Copied) -> None:
    folder = RunFolder(copied.runs, "small")
    shutil.rmtree(folder.path / "models")
    folder.summary.unlink()
    (copied.path / ".driver").write_text("process 1 on another-host\n")
    dead, living = folder.path / ".selection.json.99999999-ab.draft", folder.path / ".report.html.1-ab.draft"
    for draft in (dead, living):
        draft.touch()
    holdout_here("run", folder.config, "--runs", copied.runs)
    assert folder.report.exists()
    assert folder.summary.exists()
    assert (folder.model("pnp") / "model.json").exists()
    assert not (copied.path / ".driver").exists()
    assert not dead.exists()
    assert living.exists()
    living.unlink()
    assert_mlflow_equals_the_studies(copied.runs, "small", ("pnp",))
    holdout_here("verify", "small", "--runs", copied.runs)
