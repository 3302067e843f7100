"""Cross-validation trains the folds one after the other, with any interruptions."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from support.small_training import run, small_spec

from trainables.data.store.store_spec import StoreSpec
from trainables.inference.model_files import read_tensors
from trainables.training.checkpoints import forget_last
from trainables.training.cross_validation import CrossValidation, begin
from trainables.training.spec import EpochRecord, TrialSpec
from trainables.training.train import Training, train

CPU = torch.device("cpu")
EPOCHS = 2


@pytest.fixture
def spec(images: StoreSpec, tmp_path: Path) -> TrialSpec:
    return make_spec(images, tmp_path)


def make_spec(images: StoreSpec, directory: Path) -> TrialSpec:
    names = images.class_names
    return small_spec(images, directory, epochs=EPOCHS, folds=(names[:2], (names[2], names[5])))


def lasting(records: list[EpochRecord]) -> list[Any]:
    """Return the parts of records that do not depend on time and attempt."""
    return [(record.get("fold"), record["epoch"], record["loss"], record["metrics"]) for record in records]


@pytest.fixture(scope="module")
def expected(images: StoreSpec, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Train each fold separately."""
    spec = make_spec(images, tmp_path_factory.mktemp("alone"))
    records = [{**record, "fold": fold} for fold in (1, 2) for record in train(spec.of_fold(fold))]
    return lasting(records)


def test_a_fold_validates_while_the_others_train(spec: TrialSpec) -> None:
    folds = [spec.of_fold(fold) for fold in (1, 2)]
    for fold, validation in zip(folds, spec.folds, strict=True):
        assert fold.validation_classes == validation
        assert fold.train_classes == tuple(name for name in spec.train_classes if name not in validation)
        assert fold.folds == ()
    assert len({fold.seed for fold in folds}) == len({fold.directory for fold in folds}) == 2
    assert spec.epochs == 2 * EPOCHS
    assert isinstance(begin(folds[0], CPU), Training)


def test_a_cross_validation_that_dies_after_each_epoch_is_its_folds(spec: TrialSpec, expected: list[Any]) -> None:
    """Later attempts have the records of the earlier ones."""
    attempts: list[list[EpochRecord]] = []
    while not attempts or len(attempts[-1]) < 2 * EPOCHS:
        assert begin(spec, CPU).records == (attempts[-1] if attempts else [])
        attempt = run(spec, 1)
        assert isinstance(attempt, CrossValidation)
        attempts.append(attempt.records)
    assert attempt.finished
    assert len(attempts) == 2 * EPOCHS
    assert lasting(attempt.records) == expected
    assert begin(spec, CPU).records == attempt.records


def test_a_death_between_the_last_epoch_and_closing_loses_nothing(spec: TrialSpec, expected: list[Any]) -> None:
    run(spec.of_fold(1))
    assert lasting(begin(spec, CPU).records) == expected[:EPOCHS]
    assert lasting(run(spec).records) == expected


def test_every_fold_keeps_its_best_model_and_a_done_one_nothing_to_go_on_from(spec: TrialSpec) -> None:
    running = run(spec, EPOCHS + 1)
    directory = Path(spec.directory)
    assert [path.parts[-3] for path in directory.rglob("last.pt")] == ["fold-2"]
    for fold, record in {record["fold"]: record for record in running.records if record["checkpoint"]}.items():
        assert record["checkpoint"] == f"fold-{fold}/attempt-1/best.safetensors"
        origin = read_tensors(directory / record["checkpoint"])[1]["origin"]
        assert (origin["epoch"], origin["seed"]) == (record["epoch"], spec.of_fold(fold).seed)
    assert begin(replace(spec, seed=8), CPU).records == []
    assert all(before["end"] <= after["start"] for before, after in pairwise(running.records))
    forget_last(spec.directory)
    assert {path.name for path in directory.rglob("*.*")} == {"best.safetensors", "trial.json"}


def test_what_a_killed_attempt_at_a_fold_was_writing_goes_with_the_end(spec: TrialSpec) -> None:
    """The last attempt's writer may still be running (found by `make soak`)."""
    drafts = [Path(spec.directory) / f"fold-2/attempt-{attempt}" / ".last.pt.1-ab.draft" for attempt in (1, 2)]
    for draft in drafts:
        draft.parent.mkdir(parents=True)
        draft.write_bytes(b"half")
    forget_last(spec.directory)
    assert [draft.exists() for draft in drafts] == [False, True]
