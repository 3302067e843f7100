"""Every kind of search ends with its test and is verified; killed again and again, or robbed of files, it resumes."""

import json
import shutil
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here, refusal, stored
from support.finished_search import run_here
from support.kinds import KINDS, Finished, FinishedCampaign, Kinds
from support.mlflow_rows import assert_mlflow_equals_the_studies
from support.tampered import Copied

from search.records.runs import RunFolder
from search.results.campaign import campaign_family
from search.stages import Stage
from search.trials import epochs_of

RESUMED = ("features", "frozen backbone", "own class", "own function", "folds", "constraints")
"""Kinds whose trainings or choices are resumed each in its own way; the campaign has images, the others other data."""
STEPS = (9, 17)
"""Numbers of epochs after which a driver dies, in turn: within trials and between the stages."""


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_with_its_test_and_is_verified(kinds: Kinds, kind: str) -> None:
    search = kinds(kind)
    losses = search.summary["losses"]
    assert all(row["default"]["test"] for row in losses.values())
    arguments = ("--runs", search.runs, "--retrain", f"{next(iter(losses))}@confirm:1", "--trust-code")
    *lines, verdict = holdout_here("verify", search.name, *arguments).stdout.splitlines()
    assert verdict.startswith("Verified")
    assert all(line.startswith(("ok  ", "–", "-", " ")) for line in lines), lines


@pytest.mark.parametrize("kind", RESUMED)
def test_after_dying_again_and_again_it_ends_as_undisturbed(kinds: Kinds, kind: str, tmp_path: Path) -> None:
    undisturbed = kinds(kind)
    for epochs in cycle(STEPS):
        (search,) = run_here(tmp_path, [undisturbed.content], epochs=epochs)
        search.close()
        if search.is_done(Stage.TEST):
            break
    assert len(search.sessions) > 1
    assert told(Finished(undisturbed.content, tmp_path)) == told(undisturbed)


def test_a_campaign_ends_as_undisturbed_as_well(lot: FinishedCampaign, tmp_path: Path) -> None:
    """Its searches are chosen and tested together."""
    files = [each.model_dump(mode="json", by_alias=True) for each in lot.campaign.searches]
    for epochs in cycle(STEPS):
        searches = run_here(tmp_path, files, opener="lot", family=campaign_family(lot.campaign), epochs=epochs)
        for search in searches:
            search.close()
        if all(search.is_done(Stage.TEST) for search in searches):
            break
    assert all(len(search.sessions) > 1 for search in searches)
    for file in files:
        assert told(Finished(file, tmp_path)) == told(Finished(file, lot.runs))


def told(search: Finished) -> tuple[dict[str, Any], dict[str, Any], dict[str, list[Any]]]:
    """Return the selection, the summary and all trials of a search, without times and identifiers."""
    selection, shown = json.loads((search.folder / "selection.json").read_text()), search.summary
    for key in ("id", "digest", "studies", "baselines"):
        selection.pop(key, None)
    for key in ("time", "digest"):
        del shown[key]
    for row in shown["losses"].values():
        del row["anytime"]  # it depends on which of two trials reports first
    studies = [f"{loss}{stage}" for loss in shown["losses"] for stage in ("", "@confirm", "@final")]
    trials = {
        study: [
            (trial.state, trial.params, [trial.user_attrs.get(key) for key in ("seed", "half", "fold")],
             [(record["metrics"], record.get("classes")) for record in epochs_of(trial)])
            for trial in stored(search.runs, search.name, study)
        ]
        for study in studies
    }  # fmt: skip
    return selection, shown, trials


# Searches that lost some of their files: what is written again, and what is refused.


@pytest.fixture
def copied(kinds: Kinds, tmp_path: Path) -> Copied:
    return Copied(kinds("merged and wrong labels").runs, tmp_path / "runs")


@pytest.mark.parametrize(
    ("lost", "empty", "sentence"),
    [
        ("study.journal", False, "has selection.json and test.json, but the trials of small/pnp, "),
        ("study.journal", True, "study.journal from a copy"),
        ("selection.json", False, "selection.json is missing; restore it from a copy"),
    ],
)
def test_a_search_that_lost_its_studies_or_choice_is_not_run_again(
    copied: Copied, lost: str, empty: bool, sentence: str
) -> None:
    (copied.path / lost).unlink()
    if empty:
        (copied.path / lost).touch()
    assert sentence in refusal("run", copied.path / "search.yaml", "--runs", copied.runs)
    assert (copied.path / lost).exists() == empty


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
