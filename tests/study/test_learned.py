"""What a sampler learns from: constraints and failures, as in a study of Optuna's told the same."""

from collections.abc import Callable, Sequence
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from support.driving import Opened, only, record, train

from search.driver.stages import search_stage
from search.plan.search import WritableRecords
from search.stages import Stage
from search.study.trial_queue import TrialQueue
from trainables.training.spec import Epochs, Failed, derived_seed

TRIALS = {"tpe": 9, "random": 4, "gp": 5}
CONSTRAINTS: dict[str, Any] = {"constraints": {"size_mb": "< 0.5"}}


def value_of(number: int) -> float:
    return derived_seed("value", number) / 2**31


def size_of(number: int) -> float:
    return derived_seed("size", number) / 2**31


def made(opened: Opened, name: str, sampler: str, **goal: Any) -> WritableRecords:
    return opened(
        name=name,
        search={"trials": TRIALS[sampler], "sampler": sampler, "pruner": "none", **goal},
        losses=["proxy_anchor"],
        training={"epochs": 2, "batch_size": 20},
    )


def trials_of(search: WritableRecords) -> list[FrozenTrial]:
    return search.study("proxy_anchor", Stage.SEARCH).trials()


def proposed(
    search: WritableRecords,
    trials: list[FrozenTrial],
    told: Callable[[FrozenTrial, Sequence[FrozenTrial]], FrozenTrial],
) -> list[object]:
    """Return what the same sampler proposes in a study of Optuna's whose trials are as ``told`` makes them."""
    sampler = search.plan.budget("proxy_anchor").sampler
    assert sampler is not None
    found: list[object] = []
    for count in range(1, len(trials)):
        study = optuna.create_study(direction="maximize")
        study.add_trials(told(trial, trials[:count]) for trial in trials[:count])
        study.sampler = sampler.build(count, trials[:count])
        found.append(dict(sampler.space.suggest(study.ask())))
    return found


# Constraints.


def searched(opened: Opened, sampler: str) -> WritableRecords:
    """Run a search with constraints whose trials have made-up values, the best ones at their first epoch."""
    search = made(opened, f"{sampler}-bound", sampler, **CONSTRAINTS)
    queue = TrialQueue(only(search_stage(search)))
    while job := queue.next_trial():
        best, last = record(1, value_of(job.number)), record(2, value_of(job.number) / 2)
        best["metrics"]["size_mb"], last["metrics"]["size_mb"] = size_of(job.number), 7.0
        queue.on_trial_result(job, Epochs([best, last], finished=True))
    return search


def test_the_sampler_learns_from_constraints(opened: Opened) -> None:
    search = searched(opened, "tpe")

    def told(trial: FrozenTrial, seen: Sequence[FrozenTrial]) -> FrozenTrial:
        return create_trial(
            value=value_of(trial.number),
            params=trial.params,
            distributions=trial.distributions,
            constraints={"size": size_of(trial.number) - 0.5},
        )

    trials = trials_of(search)
    assert [trial.params for trial in trials[1:]] == proposed(search, trials, told)


def test_the_study_has_the_objective_and_the_constraints_of_the_best_epoch(opened: Opened) -> None:
    for trial in trials_of(searched(opened, "random")):
        assert trial.value == value_of(trial.number)
        assert trial.constraints == {"size_mb < 0.5": pytest.approx(size_of(trial.number) - 0.5)}


# Failures.


def is_lost(number: int) -> bool:
    return number in (1, 3, 4)


def failing(opened: Opened, sampler: str, cause: str) -> WritableRecords:
    """Run a search with trials that fail with ``cause`` after a good epoch."""
    search = made(opened, sampler, sampler)
    queue = TrialQueue(only(search_stage(search)))
    while job := queue.next_trial():
        if is_lost(job.number):
            assert queue.on_trial_result(job, Epochs([record(1, 0.99)], finished=False))
            queue.on_trial_result(job, Failed(cause=cause, reason="x"))
        else:
            train(queue, job, lambda running, epoch: value_of(running.number))
    return search


@pytest.mark.parametrize(
    ("sampler", "cause", "state"),
    [
        ("tpe", "OUT_OF_MEMORY", TrialState.PRUNED),
        ("tpe", "CODE_ERROR", TrialState.FAIL),
        ("gp", "DIVERGED", TrialState.COMPLETE),
    ],
)
def test_what_cannot_be_trained_is_learnt_as_bad(opened: Opened, sampler: str, cause: str, state: TrialState) -> None:
    """To the sampler a lost trial has ``state``, and if complete the worst value so far; the study has what it was."""
    search = failing(opened, sampler, cause)
    for trial in trials_of(search):
        assert trial.state == (TrialState.FAIL if is_lost(trial.number) else TrialState.COMPLETE)
        assert trial.intermediate_values
        assert (trial.value is None) == is_lost(trial.number)

    def as_state(state: TrialState) -> list[object]:
        def told(trial: FrozenTrial, seen: Sequence[FrozenTrial]) -> FrozenTrial:
            worst = min(value_of(other.number) for other in seen if not is_lost(other.number))
            lost = is_lost(trial.number)
            value = (worst if state == TrialState.COMPLETE else None) if lost else value_of(trial.number)
            return create_trial(
                state=state if lost else TrialState.COMPLETE,
                value=value,
                params=trial.params,
                distributions=trial.distributions,
            )

        return proposed(search, trials_of(search), told)

    found = [trial.params for trial in trials_of(search)[1:]]
    assert as_state(TrialState.PRUNED if state == TrialState.FAIL else TrialState.FAIL) != found
    assert as_state(state) == found
