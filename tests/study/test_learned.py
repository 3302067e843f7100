"""The trials that a sampler learns from, compared with an Optuna study of the same ones, and the proposals before."""

from collections.abc import Callable, Sequence
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from support.driving import Opened, drive, only, record, train, train_side_by_side

from search.driver.finish import write_summary
from search.driver.notices import first_proposals, without_model
from search.driver.stages import search_stage
from search.records.writable import WritableRecords
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


# Notices before a search: trials without a model, compared with what Optuna's samplers do; a nearly perfect score.


@pytest.mark.parametrize(
    ("sampler", "attribute", "trials", "slots"),
    [
        ("tpe", "tpe:relative_params:0", 9, 4),
        ("tpe", "tpe:relative_params:0", 3, 1),
        ("gp", "gp:relative_params:0", 5, 1),
    ],
)
def test_as_many_trials_are_without_model_as_is_said(
    opened: Opened, sampler: str, attribute: str, trials: int, slots: int
) -> None:
    """Optuna stores a model's proposal in the trial, and nothing for a random one."""
    search = opened(
        search={"trials": trials, "sampler": sampler, "pruner": "none"},
        losses=["proxy_anchor"],
        training={"epochs": 1, "batch_size": 20},
    )
    train_side_by_side(TrialQueue(only(search_stage(search))), slots, lambda running, epoch: 1 / (1 + running.number))
    drawn = sum(attribute not in trial.system_attrs for trial in search.study("proxy_anchor", Stage.SEARCH).trials())
    row = search.plan.budget("proxy_anchor").sampler
    assert row is not None
    assert row.trials_before_model(slots) == drawn
    told = without_model(sampler, row, slots)
    assert told
    assert (f"the first {drawn} of {trials} trials" if drawn < trials else f"all {trials} trials") in told


def test_it_is_said_before_the_start_and_not_of_a_search_that_goes_on(opened: Opened) -> None:
    search = opened(search={"trials": 5, "pruner": "none"}, training={"epochs": 1, "batch_size": 20})
    (notice,) = set(first_proposals([search], slots=4))  # two for each of its two losses
    assert notice.startswith("Sampling (tpe): all 5 trials are drawn at random")
    assert "set search.max_concurrent to 2 at most" in notice
    drive(search)
    assert not list(first_proposals([search], slots=4))


def test_a_space_of_one_configuration_is_told_and_its_best_seed_is_not_tuned(opened: Opened) -> None:
    pinned = {"proxy_anchor": {"margin": 0.1, "scale": 32}}
    search = opened(losses=["proxy_anchor"], space=pinned, search={"trials": 3, "pruner": "none"}, stages=["search"])
    (notice,) = first_proposals([search], slots=1)
    assert notice == (
        "the space of proxy_anchor is one configuration, so its 3 trials differ in their seeds only; set search.trials "
        "to 1, or search a parameter."
    )
    drive(search, lambda job, epoch: job.number / 10)
    entry = write_summary(search).losses["proxy_anchor"]
    assert entry.tuned.name == "default leads so far"
    assert (entry.tuned.search_value, entry.default.search_value) == (0, 0)
    one = opened(name="one", losses=["proxy_anchor"], space=pinned, search={"trials": 1})
    assert not [*first_proposals([one], slots=1)]
