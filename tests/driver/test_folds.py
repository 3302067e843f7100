"""A search under cross-validation, without a cluster: trials' values, pruning and the test."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st
from optuna.trial import TrialState
from support.driving import Opened, only, record

from search.driver.choice import freeze
from search.driver.finish import write_summary
from search.driver.stages import confirm_stage, final_stage, search_stage
from search.records.writable import WritableRecords
from search.stages import Stage
from search.study.trial_queue import QueuedStage, RunningTrial, TrialQueue
from search.trials import best_epochs, epochs_of, running_value
from trainables.training.spec import EpochRecord, Epochs

FOLDED = {"split": {"folds": 4}, "training": {"epochs": 3, "batch_size": 20}, "losses": ["pnp"]}
OF_FOLDS = ((0.1, 0.5, 0.2), (0.3, 0.3, 0.1), (0.2, 0.4, 0.9), (0.7, 0.1, 0.1))
VALUES = {1: 0.1, 2: 0.5, 3: 0.5, 4: 0.5, 5: 0.5, 6: 0.4, 7: 0.4, 8: 0.4, 9: 1.7 / 3, 10: 1.7 / 3, 11: 1.7 / 3, 12: 0.6}
"""After each of the epochs: the best of the first fold so far, then the mean over the complete folds."""


def drive(
    search: WritableRecords, stage: QueuedStage, values: Callable[[RunningTrial], Any] = lambda job: OF_FOLDS
) -> list[RunningTrial]:
    queue = TrialQueue(only(stage))
    jobs = []
    while job := queue.next_trial():
        jobs.append(job)
        of_folds = enumerate(values(job), start=1)
        rows = [
            record(epoch, value, fold=fold) for fold, found in of_folds for epoch, value in enumerate(found, start=1)
        ]
        for row in rows:
            if not queue.on_trial_result(job, Epochs([row], finished=row is rows[-1])):
                break
    return jobs


folds_of_values = st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=1, max_size=6)


@given(values=folds_of_values)
def test_the_value_is_the_mean_of_the_complete_folds(values: list[list[float]]) -> None:
    records: list[EpochRecord] = []
    for fold, epochs in enumerate(values, start=1):
        for epoch, value in enumerate(epochs, start=1):
            records.append(record(epoch, value, fold=fold))
            complete = [max(one) for one in values[: fold - (epoch == 1)]] or [value]
            assert running_value(records, "map_at_r") == pytest.approx(sum(complete) / len(complete))
    assert best_epochs(records, "map_at_r") == [1 if first >= second else 2 for first, second in values]
    of_one = [record(epoch, value) for epoch, (value, _) in enumerate(values, start=1)]
    assert running_value(of_one, "map_at_r") == max(value for value, _ in values), "without folds the best so far"
    assert running_value([{**entry, "metrics": {}} for entry in of_one], "map_at_r") == -1.0


def test_a_trial_trains_every_fold_and_its_value_is_their_mean(opened: Opened) -> None:
    search = opened(**FOLDED, search={"trials": 2, "pruner": "none"})
    jobs = drive(search, search_stage(search))
    split = search.plan.split
    for job in jobs:
        assert job.spec.folds == split.folds
        assert set(job.spec.train_classes) == set(search.plan.images.class_names)
        assert job.spec.validation_classes == ()
    for trial in search.study("pnp", Stage.SEARCH).trials():
        assert trial.value == pytest.approx((0.5 + 0.3 + 0.9 + 0.7) / 4)
        assert trial.intermediate_values == pytest.approx(VALUES)
        assert [(entry["fold"], entry["epoch"]) for entry in epochs_of(trial)] == [
            (fold, epoch) for fold in (1, 2, 3, 4) for epoch in (1, 2, 3)
        ]
    assert write_summary(search).split.model_dump() | {"digest": ""} == {
        "digest": "", "train_classes": 8, "validation_classes": 0, "training_half": False,
        "test_classes": 8, "folds": 4, "halves": True, "merge": 1, "label_noise": 0.0, "marks": (),
    }  # fmt: skip


def test_trials_are_compared_from_within_the_first_fold(opened: Opened) -> None:
    search = opened(**FOLDED, search={"trials": 5})
    drive(search, search_stage(search), lambda job: [[1 - job.number / 10] * 3] * 4)
    trials = search.study("pnp", Stage.SEARCH).trials()
    assert trials[0].state == TrialState.COMPLETE
    assert {trial.state for trial in trials[1:]} == {TrialState.PRUNED}
    assert len(epochs_of(trials[4])) == max(trials[4].intermediate_values) == 2
    assert "pruned after epoch 2: its map_at_r 60.00 ranked" in trials[4].user_attrs["outcome"]


def test_a_later_rung_compares_the_mean_of_complete_folds(opened: Opened) -> None:
    """After epoch 4 the second fold has begun and does not count; after epoch 8 two folds of three epochs do."""
    search = opened(**FOLDED, search={"trials": 2})
    of_trials = [[[0.5] * 3, [0.6] * 3, [0.5] * 3, [0.5] * 3], [[0.9] * 3, [0.1] * 3, [0.9] * 3, [0.9] * 3]]
    drive(search, search_stage(search), lambda job: of_trials[job.number])
    last = search.study("pnp", Stage.SEARCH).trials()[1]
    assert last.intermediate_values == pytest.approx({**dict.fromkeys(range(1, 6), 0.9), 6: 0.5, 7: 0.5, 8: 0.5})
    assert "pruned after epoch 8: its map_at_r 50.00 ranked 2 of 2" in last.user_attrs["outcome"]


@pytest.mark.parametrize("train_on", ["train", "all"])
def test_from_the_confirmed_folds_to_the_final_trainings(opened: Opened, train_on: str) -> None:
    """Every fold's model is trained for the test; or one on all classes, for the folds' median best epoch."""
    selection_file = {"finalists": 1, "seeds": 2, "on": "split"}
    final = {"seeds": 2, "train_on": train_on}
    search = opened(**FOLDED, search={"trials": 1}, selection=selection_file, final=final)
    drive(search, search_stage(search))
    drive(search, confirm_stage(search))
    assert len(search.study("pnp", Stage.SELECT).trials()) == 2
    selection = freeze(search)
    assert selection.chosen["pnp"].best_epochs == (2, 1, 3, 1) * 2
    jobs = list(iter(TrialQueue(only(final_stage(search, selection))).next_trial, None))
    split = search.plan.split
    if train_on == "all":
        assert {job.spec.training.epochs for job in jobs} == {2}
    validating = [()] * 2 if train_on == "all" else [*split.folds, *split.folds]
    assert [job.spec.validation_classes for job in jobs] == validating
    assert all({*job.spec.train_classes} == {*split.train} - {*job.spec.validation_classes} for job in jobs)
    assert all(job.spec.folds == () for job in jobs)
    assert len({job.spec.seed for job in jobs}) == len({job.spec.directory for job in jobs}) == len(jobs)
    final_stage(search, selection)
    assert len(search.study("pnp", Stage.TEST).trials()) == len(jobs), "asked for again: nothing is doubled"
