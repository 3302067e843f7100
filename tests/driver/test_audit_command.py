"""``holdout audit``: pruned trials of a finished search, retrained without pruning; the trainings are simulated."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from optuna.trial import TrialState
from support.commands import holdout_here, plain, stored, write_search
from support.small_search import small_search
from support.without_ray import MADE_UP, MadeUp, only_records

from search.study.pruners import to_audit
from search.study.queued import RunningTrial

CHANGES: dict[str, Any] = {
    "training": {"epochs": 6, "batch_size": 20, "images_per_class": 5, "image_size": 16},
    "losses": ["pnp"],
    "search": {"trials": 12, "sampler": "random"},
    "metrics": {"test": ["recall_at_1"]},
    "resources": MADE_UP,
}


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    only_records(monkeypatch)


@pytest.fixture
def search(image_folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that runs a search file and returns its runs folder."""

    def made(**changes: Any) -> Path:
        runs = tmp_path / "runs"
        file = write_search(tmp_path / "small.yaml", small_search(image_folder, **{**CHANGES, **changes}))
        holdout_here("run", file, "--runs", runs)
        return runs

    return made


def audited(runs: Path) -> list[int]:
    """Return the numbers of the audited trials."""
    trials = stored(runs, "small", "pnp@audit")
    return [trial.user_attrs["source_trial"] for trial in trials if trial.state == TrialState.COMPLETE]


def test_a_finished_search_is_audited_and_its_choice_stays(search: Callable[..., Path]) -> None:
    runs = search()
    kept = {name: (runs / "small" / name).read_bytes() for name in ("selection.json", "test.json")}
    trials = stored(runs, "small", "pnp")
    pruned = [trial for trial in trials if trial.state == TrialState.PRUNED]
    assert len(pruned) > 4
    said = " ".join(plain(holdout_here("audit", "small", "--trials", "2", "--runs", runs).stdout).split())
    expected = [trial.number for trial in to_audit(trials, 4, seed=0, loss="pnp")]
    assert sorted(audited(runs)) == sorted(expected[:2])
    assert f"of {len(pruned)} trials; of 2 trained to the end" in said
    assert {name: (runs / "small" / name).read_bytes() for name in kept} == kept
    found = json.loads(holdout_here("audit", "small", "--runs", runs, "--json").stdout)
    assert found["losses"]["pnp"]["audit"]["audited"] == 4
    assert sorted(audited(runs)) == sorted(expected), "the first two are among them"
    holdout_here("audit", "small", "--trials", "1", "--runs", runs)
    assert len(audited(runs)) == 4, "a smaller audit removes nothing"
    verified = holdout_here(
        "verify", "small", "--runs", runs, code=1
    )  # fails at the simulated models, which are checked last
    assert "ok  small/pnp@audit: 4 trials, as they follow from the stage before" in verified.stdout


class InterruptedOnce(MadeUp):
    """An engine that is interrupted in the second audited trial, once."""

    interrupted: ClassVar[bool] = False

    def before_trial(self, job: RunningTrial) -> None:
        if job.study.name.endswith("@audit") and job.number == 1 and not self.interrupted:
            InterruptedOnce.interrupted = True
            raise KeyboardInterrupt


def test_a_killed_audit_is_resumed(search: Callable[..., Path]) -> None:
    InterruptedOnce.interrupted = False
    runs = search(stages=["search"], resources={"engine": f"{__name__}:InterruptedOnce"})
    holdout_here("audit", "small", "--runs", runs, code=130)
    assert len(audited(runs)) == 1
    holdout_here("audit", "small", "--runs", runs)
    assert len(audited(runs)) == 4
    assert not (runs / "small" / "selection.json").exists(), "no further stage"


def test_a_campaign_is_audited_as_a_whole(image_folder: Path, tmp_path: Path) -> None:
    runs, base = tmp_path / "runs", small_search(image_folder, **CHANGES, stages=["search"])
    del base["name"]
    content = {"name": "lot", "study": "two seeds", "base": base, "vary": {"seed": {}}, "table": {"rows": ["seed"]}}
    content["vary"]["seed"] = {str(seed): {"search.seed": seed} for seed in range(2)}
    file = write_search(tmp_path / "lot.yaml", content)
    holdout_here("campaign", file, "--runs", runs)
    refusal = " ".join(plain(holdout_here("audit", "lot-0", "--runs", runs, code=2).stderr).split())
    assert "lot-0 is a search of the campaign lot; audit all of its searches with `holdout campaign`" in refusal
    assert "`--set base.search.audit=4`" in refusal
    holdout_here("campaign", file, "--runs", runs, "--set", "base.search.audit=4")
    assert [len(stored(runs, name, "pnp@audit")) for name in ("lot-0", "lot-1")] == [4, 4]


def test_a_search_without_prunings_cannot_be_audited(search: Callable[..., Path]) -> None:
    def refused(name: str, runs: Path) -> str:
        return " ".join(plain(holdout_here("audit", name, "--runs", runs, code=2).stderr).split())

    runs = search(search={"trials": 2, "pruner": "none"}, stages=["search"])
    assert "No trial of small was pruned (search.pruner is none)" in refused("small", runs)
    file = runs / "small" / "search.yaml"
    file.write_text(file.read_text().replace("trials: 2", "trials: 3"))
    assert "The search small has trials left; `holdout run` its file first." in refused("small", runs)
    assert "There is no search 'smal'" in refused("smal", runs)
