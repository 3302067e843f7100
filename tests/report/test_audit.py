"""The audit of a search's pruning, from the trials that are drawn to the sentence about them."""

from collections.abc import Callable

import pytest
from optuna.trial import TrialState
from scipy.stats import beta
from support.driving import drive, only, train

from search.driver.stages import audit_stage
from search.plan.search import OpenedSearch
from search.report.summary import summarise
from search.stages import Stage
from search.study.pruners import to_audit
from search.study.queued import RunningTrial
from search.study.trial_queue import TrialQueue

Opened = Callable[..., OpenedSearch]


def quality(job: RunningTrial, epoch: int) -> float:
    """Later trials are worse, but trial 5 is a late bloomer."""
    number = job.study.trial(job.number).user_attrs.get("source_trial", job.number)
    return 0.95 if number == 5 and epoch == 6 else (1 - number / 20) * epoch / 6


@pytest.fixture
def search(opened: Opened) -> OpenedSearch:
    made = opened(
        search={"trials": 12, "audit": 4, "sampler": "random"},
        training={"epochs": 6, "batch_size": 8, "images_per_class": 2},
        losses=["mpa"],
        selection={"finalists": 2},
    )
    drive(made, quality)
    return made


def audit(search: OpenedSearch) -> list[RunningTrial]:
    queue = TrialQueue(only(audit_stage(search)))
    jobs = []
    while job := queue.next_trial():
        jobs.append(job)
        train(queue, job, quality)
    return jobs


def test_pruned_trials_are_trained_to_their_end_as_they_began(search: OpenedSearch) -> None:
    searched = search.study("mpa", Stage.SEARCH).trials()
    pruned = [trial.number for trial in searched if trial.state == TrialState.PRUNED]
    assert len(pruned) > 4
    assert not search.is_done(Stage.SEARCH)
    jobs = audit(search)
    assert search.is_done(Stage.SEARCH)
    assert not audit(search), "a second driver doubles nothing"
    trials = search.study("mpa", Stage.AUDIT).trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4
    for job, trial in zip(jobs, trials, strict=True):
        first = searched[trial.user_attrs["source_trial"]]
        assert first.number in pruned
        assert job.spec.seed == first.user_attrs["seed"]
        assert trial.params == first.params
        assert trial.intermediate_values.items() >= first.intermediate_values.items(), "the same training, and more"


def test_which_are_drawn_depends_on_nothing_but_seed_loss_and_number(search: OpenedSearch) -> None:
    trials = search.study("mpa", Stage.SEARCH).trials()
    drawn = [[trial.number for trial in to_audit(trials, count, seed=3, loss="mpa")] for count in (2, 4, 100)]
    assert drawn[0] == drawn[1][:2]
    assert sorted(drawn[2]) == [trial.number for trial in trials if trial.state == TrialState.PRUNED]
    assert drawn[2] != [trial.number for trial in to_audit(trials, 100, seed=4, loss="mpa")]


def test_what_pruning_was_worth(search: OpenedSearch) -> None:
    assert summarise(search).losses["mpa"].audit is None
    audit(search)
    found = summarise(search).losses["mpa"].audit
    assert found is not None
    searched = search.study("mpa", Stage.SEARCH).trials()
    values = [trial.value for trial in search.study("mpa", Stage.AUDIT).trials()]
    pruned = [trial for trial in searched if trial.state == TrialState.PRUNED]
    complete = sorted((trial.value for trial in searched if trial.state == TrialState.COMPLETE), reverse=True)
    assert found.bar == complete[:2][-1], "of two finalists the last that is complete"
    assert found.wrongly == sum(value >= found.bar for value in values if value is not None)
    assert found.epochs_saved == sum(6 - len(trial.intermediate_values) for trial in pruned)
    assert found.best == max(value for value in values if value is not None)
    low = beta.ppf(0.025, found.wrongly, 5 - found.wrongly) if found.wrongly else 0
    assert found.ci95 == pytest.approx((low, beta.ppf(0.975, found.wrongly + 1, 4 - found.wrongly)))
    assert f"of 4 trained to the end, {found.wrongly} reached" in found.sentence
