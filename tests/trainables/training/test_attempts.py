"""Attempts on one worker follow one another, report their epochs, and resume."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.small_training import drawn_images, small_spec, worker_of

from trainables.models import ModelConfig
from trainables.spec import TrialSpec


@pytest.fixture
def spec(tmp_path: Path) -> TrialSpec:
    return small_spec(drawn_images(tmp_path), tmp_path, epochs=3)


def test_attempts_replace_one_another(spec: TrialSpec) -> None:
    broken = replace(spec, directory=f"{spec.directory}-broken", model=ModelConfig(weights="nowhere.pth"))
    other = replace(spec, directory=f"{spec.directory}-other", seed=8)
    worker = worker_of(broken)
    assert worker.step()["failure"]["cause"] == "CODE_ERROR"
    worker.assign(spec)
    (record,) = worker.step()["records"]
    assert record["epoch"] == 1
    worker.assign(other)  # as after pruning
    news = [worker.step() for _ in range(3)]
    assert [[record["epoch"] for record in entry["records"]] for entry in news] == [[1], [2], [3]]
    assert [entry["finished"] for entry in news] == [False, False, True]
    worker.end()


def test_a_resumed_attempt_first_reports_its_epochs(spec: TrialSpec) -> None:
    first = worker_of(spec)
    first.step()
    first.step()
    first.end()
    again = worker_of(spec)
    news = [again.step() for _ in range(2)]
    assert [[record["epoch"] for record in entry["records"]] for entry in news] == [[1, 2], [3]]
    assert [entry["finished"] for entry in news] == [False, True]
    again.end()
