"""Budgets in epochs and hours: the counting, the end of a study, and the messages."""

from collections.abc import Callable

import pytest
from rich.console import Console
from support.driving import begun, drive, only, record, train, train_side_by_side

from search.driver.progress import Progress
from search.driver.stages import search_stage
from search.plan.search import OpenedSearch, open_search
from search.plan.stored import StoredSearch, status_of
from search.report.summary import write_summary
from search.stages import Stage
from search.study.trial_queue import RunningTrial, TrialQueue

Opened = Callable[..., OpenedSearch]


def falling(job: RunningTrial, epoch: int) -> float:
    """Each trial is worse than the previous one, so most are pruned at the first rung."""
    return 1.0 - job.number / 100


def budget(kind: str, epochs: int) -> dict[str, float]:
    """Return a budget of as many epochs, which take a second each."""
    return {"epochs": epochs} if kind == "epochs" else {"hours": epochs / 3600}


each_kind = pytest.mark.parametrize("kind", ["epochs", "hours"])


@each_kind
@pytest.mark.parametrize("slots", [1, 3])
def test_a_loss_trains_its_budget_and_less_than_one_training_more(opened: Opened, slots: int, kind: str) -> None:
    search = opened(
        losses=["pnp"],
        training={"epochs": 4, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        search={"trials": 40, **budget(kind, 21)},
    )
    train_side_by_side(TrialQueue(only(search_stage(search))), slots, falling)
    trials = search.study("pnp", Stage.SEARCH).trials()
    # The time of trials that start before the first epoch ends is not predicted.
    more = 4 * slots if kind == "hours" else 4
    assert 21 <= sum(len(trial.intermediate_values) for trial in trials) < 21 + more
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
    third = begun(queue)
    assert queue.next_trial() is None
    train(queue, third, falling)
    train(queue, first, falling)
    assert queue.next_trial() is None
    assert queue.done


@each_kind
def test_a_budget_outlives_the_driver_and_is_known(opened: Opened, kind: str) -> None:
    """Three of six epochs are left, one second each, for any number of trials."""
    search = opened(losses=["pnp"], search={"trials": 9, "pruner": "none", **budget(kind, 6)})
    progress = Progress(Console(quiet=True), [search], [Stage.SEARCH], concurrent=1, started=0)
    queue = TrialQueue(only(search_stage(search)), listeners=[progress])
    job = begun(queue)
    train(queue, job, falling)
    assert progress.seconds_left() == pytest.approx(3)
    assert not search.is_done(Stage.SEARCH)
    (row,) = status_of(StoredSearch(search.plan.folder)).studies
    assert (row.epochs, row.planned, row.ended_early) == (3, 9, None)
    assert row.epoch_budget == (6 if kind == "epochs" else None)
    again = open_search(search.plan)
    assert [job.number for job in drive(again, falling)] == [1]
    assert again.is_done(Stage.SEARCH)
    assert drive(again, falling) == []
    assert Progress(Console(quiet=True), [again], [Stage.SEARCH], concurrent=1, started=0).seconds_left() == 0
    reason = write_summary(again).losses["pnp"].ended_early
    assert reason
    assert reason.endswith(f"are trained, and its budget is {6 if kind == 'epochs' else '0.00166667'}")
    (row,) = status_of(StoredSearch(search.plan.folder)).studies
    assert (row.epochs, row.planned, row.ended_early) == (6, 2, reason)


def test_losses_share_a_budget_equally(opened: Opened) -> None:
    search = opened(search={"trials": 9, "epochs": 14, "hours": 4.0, "pruner": "none", "budget": "together"})
    losses = search.config.loss_names
    assert len(losses) == 2
    assert {(search.plan.budget(loss).epochs, search.plan.budget(loss).hours) for loss in losses} == {(7, 2.0)}
    drive(search, falling)
    assert [len(search.trials(loss, Stage.SEARCH)) for loss in losses] == [3, 3], "3 × 3 epochs reach 7"
