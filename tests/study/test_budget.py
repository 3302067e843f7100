"""Budgets in epochs and hours: the counting, the end of a study, and the messages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.driving import drive, only, record, train, train_side_by_side

from search.driver.progress import Progress
from search.driver.stages import search_stage
from search.plan.make_plan import read_plan
from search.plan.search import OpenedSearch, open_search
from search.plan.stored import StoredSearch, status_of
from search.report.summary import write_summary
from search.stages import Stage
from search.study.queued import RunningTrial
from search.study.trial_queue import TrialQueue
from trainables.errors import InvalidInput

Opened = Callable[..., OpenedSearch]


def falling(job: RunningTrial, epoch: int) -> float:
    """Each trial is worse than the previous one, so most are pruned at the first rung."""
    return 1.0 - job.number / 100


@pytest.mark.parametrize("slots", [1, 3])
def test_a_loss_trains_its_budget_and_less_than_one_training_more(opened: Opened, slots: int) -> None:
    search = opened(
        losses=["pnp"],
        training={"epochs": 4, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        search={"trials": 40, "epochs": 21},
    )
    train_side_by_side(TrialQueue(only(search_stage(search))), slots, falling)
    trials = search.study("pnp", Stage.SEARCH).trials()
    assert 21 <= sum(len(trial.intermediate_values) for trial in trials) < 21 + 4
    assert len(trials) > 21 / 4, "what pruning left over was not spent"
    assert search.is_done(Stage.SEARCH)


def test_running_trials_count_whole_until_they_end(opened: Opened) -> None:
    search = opened(losses=["pnp"], search={"trials": 9, "epochs": 6})  # two trainings of three epochs
    queue = TrialQueue(only(search_stage(search)))
    first, second = queue.next_trial(), queue.next_trial()
    assert first is not None
    assert second is not None
    assert queue.next_trial() is None
    assert queue.has_to_wait
    queue.on_trial_result(second, {"records": [record(1, 0.1)], "finished": False})
    assert queue.next_trial() is None
    queue.on_trial_result(second, {"failure": {"cause": "DIVERGED", "reason": "x"}})  # two of its three epochs are free
    third = queue.next_trial()
    assert third is not None
    assert queue.next_trial() is None
    train(queue, third, falling)
    train(queue, first, falling)
    assert queue.next_trial() is None
    assert queue.done


def test_a_budget_outlives_the_driver_and_is_known(opened: Opened) -> None:
    search = opened(losses=["pnp"], search={"trials": 9, "epochs": 6, "pruner": "none"})
    queue = TrialQueue(only(search_stage(search)))
    job = queue.next_trial()
    assert job is not None
    train(queue, job, falling)
    assert not search.is_done(Stage.SEARCH)
    (row,) = status_of(StoredSearch(search.plan.folder)).studies
    assert (row.epochs, row.epoch_budget, row.planned, row.ended_early) == (3, 6, 9, None)
    again = open_search(search.plan)
    assert [job.number for job in drive(again, falling)] == [1]
    assert again.is_done(Stage.SEARCH)
    assert drive(again, falling) == []
    reason = "6 epochs are trained, and its budget is 6"
    assert write_summary(again).losses["pnp"].ended_early == reason
    (row,) = status_of(StoredSearch(search.plan.folder)).studies
    assert (row.epochs, row.planned, row.ended_early) == (6, 2, reason)


def test_the_time_left_knows_the_budget(opened: Opened) -> None:
    """Three of six epochs are left, one second each, for any number of trials."""
    search = opened(losses=["pnp"], search={"trials": 1000, "epochs": 6, "pruner": "none"})
    progress = Progress(Console(quiet=True), [search], [Stage.SEARCH], concurrent=1, started=0)
    queue = TrialQueue(only(search_stage(search)), listeners=[progress])
    job = queue.next_trial()
    assert job is not None
    train(queue, job, falling)
    assert progress.seconds_left() == 3


HOUR = 3600


@pytest.mark.parametrize("slots", [1, 3])
def test_a_loss_trains_its_hours_and_less_than_one_training_more(opened: Opened, slots: int) -> None:
    """Every epoch takes a second."""
    search = opened(
        losses=["pnp"],
        training={"epochs": 4, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        search={"trials": 40, "hours": 21 / HOUR},
    )
    train_side_by_side(TrialQueue(only(search_stage(search))), slots, falling)
    trials = search.study("pnp", Stage.SEARCH).trials()
    seconds = sum(
        record["end"] - record["start"]
        for trial in trials
        for key, record in trial.user_attrs.items()
        if key.startswith("epoch:")
    )
    assert 21 <= seconds < 21 + 4 * slots, "trials that start before the first epoch ends are not predicted"
    assert search.is_done(Stage.SEARCH)
    assert (write_summary(search).losses["pnp"].ended_early or "").endswith(
        "hours are trained, and its budget is 0.00583333"
    )


def test_hours_outlive_the_driver(opened: Opened) -> None:
    search = opened(losses=["pnp"], search={"trials": 9, "hours": 6 / HOUR, "pruner": "none"})
    queue = TrialQueue(only(search_stage(search)))
    job = queue.next_trial()
    assert job is not None
    train(queue, job, falling)
    assert not search.is_done(Stage.SEARCH)
    again = open_search(search.plan)
    assert [job.number for job in drive(again, falling)] == [1]
    assert again.is_done(Stage.SEARCH)
    assert drive(again, falling) == []
    progress = Progress(Console(quiet=True), [again], [Stage.SEARCH], concurrent=1, started=0)
    assert progress.seconds_left() == 0


def test_the_time_left_knows_the_hours(opened: Opened) -> None:
    """Three of six seconds are left, for any number of trials."""
    search = opened(losses=["pnp"], search={"trials": 40, "hours": 6 / HOUR, "pruner": "none"})
    queue = TrialQueue(only(search_stage(search)))
    job = queue.next_trial()
    assert job is not None
    train(queue, job, falling)
    progress = Progress(Console(quiet=True), [search], [Stage.SEARCH], concurrent=1, started=0)
    assert progress.seconds_left() == pytest.approx(3)


def test_losses_share_a_budget_equally(opened: Opened) -> None:
    search = opened(search={"trials": 9, "epochs": 14, "hours": 4.0, "pruner": "none", "budget": "together"})
    losses = search.config.loss_names
    assert len(losses) == 2
    assert {(search.plan.budget(loss).epochs, search.plan.budget(loss).hours) for loss in losses} == {(7, 2.0)}
    drive(search, falling)
    assert [len(search.trials(loss, Stage.SEARCH)) for loss in losses] == [3, 3], "3 × 3 epochs reach 7"


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({"budget": "together"}, "budget is together, but there is no budget to share"),
        ({"hours": 0}, "search.hours: must be more than 0"),
    ],
)
def test_budgets_that_contradict_the_rest_are_refused(
    search_file: Callable[..., dict[str, Any]],
    tmp_path: Path,
    search: dict[str, Any],
    said: str,
) -> None:
    with pytest.raises(InvalidInput) as error:
        read_plan(search_file(losses=["pnp"], search={"trials": 16, **search}), tmp_path)
    assert any(said in sentence for sentence in error.value.sentences), error.value.sentences
