"""Several attempts on one worker report under their own directories and end independently."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.small_training import drawn_images, small_spec, worker_of

from trainables.models import ModelConfig
from trainables.spec import TrialSpec
from trainables.training.attempt import Worker


@pytest.fixture
def specs(tmp_path: Path) -> list[TrialSpec]:
    """Return three specs that can share a stack."""
    images = drawn_images(tmp_path)
    return [replace(small_spec(images, tmp_path / str(seed), epochs=3), seed=seed) for seed in range(3)]


def told(trial: Worker) -> dict[str, dict[str, Any]]:
    return {entry.pop("directory"): entry for entry in trial.step()}


def test_members_come_go_and_fail_one_by_one(specs: list[TrialSpec]) -> None:
    first, second, third = specs
    broken = replace(first, directory=f"{first.directory}-broken", model=ModelConfig(weights="nowhere.pth"))
    trial = worker_of(first, broken)
    news = told(trial)
    assert news[broken.directory]["failure"]["cause"] == "CODE_ERROR"
    (record,) = news[first.directory]["records"]
    assert (record["epoch"], "together" in record) == (1, False)

    trial.assign((), [second])
    news = told(trial)
    assert set(news) == {first.directory, second.directory}
    (record,), (other,) = (news[spec.directory]["records"] for spec in (first, second))
    assert [(entry["epoch"], entry["together"]) for entry in (record, other)] == [(2, 2), (1, 2)]

    trial.assign([first.directory], [third])  # as after pruning
    assert set(told(trial)) == {second.directory, third.directory}
    news = told(trial)
    assert [news[spec.directory]["finished"] for spec in (second, third)] == [True, False]
    trial.end()
    assert told(trial) == {}, "it has nothing to train"

    again = worker_of(first)  # from its checkpoint, as where its worker was lost
    assert [entry["epoch"] for entry in told(again)[first.directory]["records"]] == [1, 2]
    news = told(again)[first.directory]
    assert ([entry["epoch"] for entry in news["records"]], news["finished"]) == ([3], True)
    again.end()
