"""A search under cross-validation, without a cluster: trials' values, pruning and the test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st
from mlflow import MlflowClient
from optuna.trial import TrialState
from support.driving import only, record
from support.mlflow_rows import assert_mlflow_equals_the_studies

from search.driver.stages import confirm_stage, final_stage, freeze, recorded_outcome, search_stage
from search.driver.synchronise import make_projection, synchronise
from search.plan.search import OpenedSearch
from search.report.summary import write_summary
from search.stages import Stage
from search.study.queued import QueuedStage, RunningTrial
from search.study.trial_queue import TrialQueue
from search.trials import ByEpoch, ByFold, best_epochs, epochs_of
from trainables.spec import EpochRecord

Opened = Callable[..., OpenedSearch]

FOLDED = {"split": {"folds": 4}, "training": {"epochs": 3, "batch_size": 20}, "losses": ["pnp"]}
OF_FOLDS = ((0.1, 0.5, 0.2), (0.3, 0.3, 0.1), (0.2, 0.4, 0.9), (0.7, 0.1, 0.1))


def told(job: RunningTrial, values: Any = OF_FOLDS) -> Iterator[dict[str, Any]]:
    """Yield a job's reports, one per epoch."""
    rows = [
        record(epoch, value, fold=fold)
        for fold, epochs in enumerate(values, start=1)
        for epoch, value in enumerate(epochs, start=1)
    ]
    for row in rows:
        yield {"records": [row], "finished": row is rows[-1]}


def drive(
    search: OpenedSearch, stage: QueuedStage, values: Callable[[RunningTrial], Any] = lambda job: OF_FOLDS
) -> list[RunningTrial]:
    queue = TrialQueue(only(stage))
    jobs = []
    while job := queue.next_trial():
        jobs.append(job)
        for news in told(job, values(job)):
            if not queue.on_trial_result(job, news):
                break
    return jobs


folds_of_values = st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=1, max_size=6)


@given(values=folds_of_values)
def test_the_worth_after_each_fold_is_the_mean_of_the_best(values: list[list[float]]) -> None:
    by_fold = ByFold(objective="map_at_r", epochs=2)
    records: list[EpochRecord] = []
    for fold, epochs in enumerate(values, start=1):
        for epoch, value in enumerate(epochs, start=1):
            records.append(record(epoch, value, fold=fold))
            if epoch == 1:
                assert by_fold(records) is None
        step, mean = by_fold(records) or (0, 0.0)
        assert step == fold
        assert mean == pytest.approx(sum(max(one) for one in values[:fold]) / fold)
    assert best_epochs(records, "map_at_r") == [1 if first >= second else 2 for first, second in values]


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_the_worth_after_each_epoch_is_the_best_so_far(values: list[float]) -> None:
    records = [record(epoch, value) for epoch, value in enumerate(values, start=1)]
    assert ByEpoch(objective="map_at_r")(records) == (len(values), max(values))
    assert ByEpoch(objective="map_at_r")([{**entry, "metrics": {}} for entry in records]) == (len(values), -1.0)


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
        assert trial.intermediate_values == pytest.approx({1: 0.5, 2: 0.4, 3: 1.7 / 3, 4: 0.6})
        assert [(entry["fold"], entry["epoch"]) for entry in epochs_of(trial)] == [
            (fold, epoch) for fold in (1, 2, 3, 4) for epoch in (1, 2, 3)
        ]
    assert write_summary(search).split.model_dump() | {"digest": ""} == {
        "digest": "", "train_classes": 8, "validation_classes": 0, "gallery": 2, "training_half": False,
        "test_classes": 8, "folds": 4, "halves": True, "merge": 1, "label_noise": 0.0, "marks": (),
    }  # fmt: skip


def test_pruning_is_over_folds(opened: Opened) -> None:
    search = opened(**FOLDED, search={"trials": 5})
    worse = {job: [[1 - job / 10] * 3] * 4 for job in range(5)}
    drive(search, search_stage(search), lambda job: worse[job.number])
    trials = search.study("pnp", Stage.SEARCH).trials()
    assert trials[0].state == TrialState.COMPLETE
    assert {trial.state for trial in trials[2:]} == {TrialState.PRUNED}
    assert max(trials[4].intermediate_values) == 2
    assert len(epochs_of(trials[4])) == 6
    assert "pruned after fold 2: its map_at_r 0.6000 ranked" in trials[4].user_attrs["outcome"]


@pytest.mark.parametrize("train_on", ["train", "all"])
def test_from_the_confirmed_folds_to_the_final_trainings(opened: Opened, train_on: str) -> None:
    """Every fold's model is trained for the test; or one on all classes, for the folds' median best epoch."""
    selection_file = {"finalists": 1, "seeds": 2, "on": "split"}
    final = {"seeds": 2, "train_on": train_on}
    search = opened(**FOLDED, search={"trials": 1}, selection=selection_file, final=final)
    drive(search, search_stage(search))
    for stage in [confirm_stage(search)]:
        drive(search, stage)
    assert len(search.study("pnp", Stage.SELECT).trials()) == 2
    selection = freeze(search)
    assert selection.chosen["pnp"].best_epochs == (2, 1, 3, 1) * 2
    jobs = list(iter(TrialQueue(only(final_stage(search, selection))).next_trial, None))
    split = search.plan.split
    seeds = {job.spec.seed for job in jobs}
    if train_on == "all":
        assert len(jobs) == 2
        assert {job.spec.training.epochs for job in jobs} == {2}
        assert all(job.spec.train_classes == split.train for job in jobs)
        assert all(job.spec.validation_classes == () == job.spec.folds for job in jobs)
    else:
        assert len(jobs) == 8
        assert [job.spec.validation_classes for job in jobs] == [*split.folds, *split.folds]
        assert all({*job.spec.train_classes} == {*split.train} - {*job.spec.validation_classes} for job in jobs)
        assert all(job.spec.folds == () for job in jobs)
    assert len(seeds) == len({job.spec.directory for job in jobs}) == len(jobs)
    final_stage(search, selection)
    assert len(search.study("pnp", Stage.TEST).trials()) == len(jobs), "asked for again: nothing is doubled"


def test_mlflow_shows_every_fold(opened: Opened) -> None:
    search = opened(**FOLDED, search={"trials": 1})
    drive(search, search_stage(search))
    runs = search.plan.folder.runs
    for _ in range(2):
        synchronise(recorded_outcome(search), make_projection(search.plan))
        assert_mlflow_equals_the_studies(runs, "small", ("pnp",))
    client = MlflowClient(f"sqlite:///{runs / 'mlflow.db'}")
    (experiment,) = [entry for entry in client.search_experiments() if entry.name == "small"]
    (run,) = client.search_runs([experiment.experiment_id], "tags.`holdout.trial` = 'small/pnp/0'")
    history = {
        name: [
            (row.step, pytest.approx(row.value))
            for row in sorted(client.get_metric_history(run.info.run_id, name), key=lambda row: row.step)
        ]
        for name in ("objective/value", "objective/fold_value", "train/loss")
    }
    assert history["objective/fold_value"] == [(1, 0.5), (2, 0.3), (3, 0.9), (4, 0.7)]
    assert history["objective/value"] == [(1, 0.5), (2, 0.4), (3, 1.7 / 3), (4, 0.6)]
    assert [step for step, _ in history["train/loss"]] == list(range(1, 13))
