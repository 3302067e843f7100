"""A budget in epochs: what counts, when a loss starts no further trial, and what is said of it."""

from collections.abc import Callable

import pytest
from driving import drive, only, record, train

from search.agenda import Agenda, Job
from search.plan import SEARCH
from search.progress import Progress
from search.search import Search, open_search
from search.status import status_of

Opened = Callable[..., Search]


def falling(job: Job, epoch: int) -> float:
    """Every trial is worse than the one before it, so that most are pruned at the first rung."""
    return 1.0 - job.number / 100


@pytest.mark.parametrize("slots", [1, 3])
def test_a_loss_trains_its_budget_and_less_than_one_training_more(opened: Opened, slots: int) -> None:
    search = opened(
        losses=["pnp"],
        training={"epochs": 4, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        search={"trials": 40, "epochs": 21},
    )
    agenda = Agenda(only(search.plan.search_stage(search.storage)))
    live: list[Job] = []
    while not agenda.done:
        while len(live) < slots and (job := agenda.next_job()):
            live.append(job)
        if live:
            train(agenda, live.pop(0), falling)
    trials = search.study("pnp", SEARCH).trials()
    assert 21 <= sum(len(trial.intermediate_values) for trial in trials) < 21 + 4
    assert len(trials) > 21 / 4, "what pruning left over was not spent"
    assert search.is_done(SEARCH)


def test_running_trials_count_whole_until_they_end(opened: Opened) -> None:
    search = opened(losses=["pnp"], search={"trials": 9, "epochs": 6})  # two trainings of three epochs
    agenda = Agenda(only(search.plan.search_stage(search.storage)))
    first, second = agenda.next_job(), agenda.next_job()
    assert first is not None
    assert second is not None
    assert agenda.next_job() is None
    assert agenda.has_to_wait
    agenda.take_result(second, {"records": [record(1, 0.1)], "finished": False})
    assert agenda.next_job() is None
    agenda.take_result(second, {"failure": {"cause": "DIVERGED", "reason": "x"}})  # two of its three epochs are free
    third = agenda.next_job()
    assert third is not None
    assert agenda.next_job() is None
    train(agenda, third, falling)
    train(agenda, first, falling)
    assert agenda.next_job() is None
    assert agenda.done


def test_a_budget_outlives_the_driver_and_is_told(opened: Opened) -> None:
    search = opened(losses=["pnp"], search={"trials": 9, "epochs": 6, "pruner": "none"})
    agenda = Agenda(only(search.plan.search_stage(search.storage)))
    job = agenda.next_job()
    assert job is not None
    train(agenda, job, falling)
    assert not search.is_done(SEARCH)
    (row,) = status_of(search.plan.folder)["courses"]
    assert (row["epochs"], row["budget"], row["target"], row["ended_early"]) == (3, 6, 9, None)
    again = open_search(search.plan, search.console)
    assert [job.number for job in drive(again, falling)] == [1]
    assert again.is_done(SEARCH)
    assert drive(again, falling) == []
    reason = "6 epochs are trained, and its budget is 6"
    assert again.summary()["losses"]["pnp"]["ended_early"] == reason
    (row,) = status_of(search.plan.folder)["courses"]
    assert (row["epochs"], row["target"], row["ended_early"]) == (6, 2, reason)


def test_the_time_left_knows_the_budget(opened: Opened) -> None:
    """Three epochs of a budget of six are left, at a second each, whatever the number of trials."""
    search = opened(losses=["pnp"], search={"trials": 1000, "epochs": 6, "pruner": "none"})
    progress = Progress(search.console)
    agenda = Agenda(only(search.plan.search_stage(search.storage)), listeners=[progress])
    job = agenda.next_job()
    assert job is not None
    train(agenda, job, falling)
    assert progress._time_left() == "00:00:03"
