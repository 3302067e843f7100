"""A complete search in stacks of four trials, in this process: real trainings, scores and files, without Ray."""

from pathlib import Path

import pytest
from support.commands import holdout_here, plain, stored
from support.stacked_search import EPOCHS, STACK, STUDIES, assert_same_studies, sizes, stackable_search
from support.without_ray import only_records


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Run one search trial by trial and in stacks; return both runs folders."""
    folder = tmp_path_factory.mktemp("stacked")
    with pytest.MonkeyPatch.context() as patch:
        only_records(patch)
        for name, resources in {"alone": {}, "stacked": {"stack": STACK}}.items():
            file = stackable_search(folder / f"{name}.yaml", "in_process", **resources)
            holdout_here("run", file, "--runs", folder / name)
    return folder / "alone", folder / "stacked"


def test_stacks_give_the_same_studies_as_single_trials(both: tuple[Path, Path]) -> None:
    assert_same_studies(*both)


def test_stacks_are_as_large_as_possible(both: tuple[Path, Path]) -> None:
    """The fifth trial trains alone; the seeds of a configuration form one stack."""
    alone, stacked = both
    assert {size for study in STUDIES for size in sizes(alone, study)} == {1}
    assert [sizes(stacked, "proxy_anchor").count(size) for size in (STACK, 1)] == [STACK * EPOCHS, EPOCHS]
    assert set(sizes(stacked, "proxy_anchor@final")) == {STACK}


def test_each_trial_has_a_separate_log(both: tuple[Path, Path]) -> None:
    _, stacked = both
    for trial in stored(stacked, "small", "proxy_anchor@final"):
        directory = stacked / "small" / "trials" / "proxy_anchor@final" / f"{trial.number:04d}"
        (log,) = (directory / "logs").iterdir()
        said = log.read_text()
        assert f"seed {trial.user_attrs['seed']}, {EPOCHS} epochs" in said
        assert [said.count(text) for text in ("Training begins", "epoch 1: loss", "Training is done.")] == [1, 1, 1]


def test_stacked_trials_are_verified_but_not_retrained(both: tuple[Path, Path]) -> None:
    _, stacked = both
    holdout_here("verify", "small", "--runs", stacked)
    refused = holdout_here("verify", "small", "--runs", stacked, "--retrain", "proxy_anchor:0", code=2)
    assert "small/proxy_anchor trial 0 was trained in a stack (resources.stack)" in plain(refused.stderr)
