"""Learning from failures, compared with an Optuna study that is told the same by hand."""

from collections.abc import Callable

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from support.driving import only, record, train

from search.driver.stages import search_stage
from search.plan.search import OpenedSearch
from search.stages import Stage
from search.study import open_studies
from search.study.trial_queue import TrialQueue
from trainables.spec import derived_seed

Opened = Callable[..., OpenedSearch]
TRIALS = 10


def is_lost(number: int) -> bool:
    return number in (1, 3, 4)


def value_of(number: int) -> float:
    return derived_seed("value", number) / 2**31


def searched(opened: Opened, sampler: str, cause: str, *, dies: bool = False) -> list[FrozenTrial]:
    """Run a search with trials that fail with ``cause`` after a good epoch; the driver may die after each trial."""
    search = opened(
        name=f"{sampler}-{'died' if dies else 'lived'}",
        search={"trials": TRIALS, "sampler": sampler, "pruner": "none"},
        losses=["proxy_anchor"],
        training={"epochs": 2, "batch_size": 20},
    )
    queue = TrialQueue(only(search_stage(search)))
    while job := queue.next_trial():
        if is_lost(job.number):
            assert queue.on_trial_result(job, {"records": [record(1, 0.99)], "finished": False})
            queue.on_trial_result(job, {"failure": {"cause": cause, "reason": "x"}})
        else:
            train(queue, job, lambda running, epoch: value_of(running.number))
        if dies:
            search = OpenedSearch(plan=search.plan, storage=open_studies(search.plan.folder.journal))
            queue = TrialQueue(only(search_stage(search)))
    return search.study("proxy_anchor", Stage.SEARCH).trials()


def proposed_by_hand(search: OpenedSearch, trials: list[FrozenTrial], state: TrialState) -> list[object]:
    """Return the sampler's proposals where lost trials have ``state``, or if complete the worst value so far."""
    sampler = search.plan.budget("proxy_anchor").sampler
    assert sampler is not None
    found: list[object] = []
    for number in range(1, len(trials)):
        worst = min(value_of(trial.number) for trial in trials[:number] if not is_lost(trial.number))
        study = optuna.create_study(direction="maximize")
        for trial in trials[:number]:
            lost = is_lost(trial.number)
            value = (worst if state == TrialState.COMPLETE else None) if lost else value_of(trial.number)
            study.add_trial(
                create_trial(
                    state=state if lost else TrialState.COMPLETE,
                    value=value,
                    params=trial.params,
                    distributions=trial.distributions,
                )
            )
        study.sampler = sampler.build(number, trials[:number])
        found.append(dict(sampler.space.suggest(study.ask())))
    return found


@pytest.mark.parametrize(
    ("sampler", "cause", "told"),
    [
        ("tpe", "DIVERGED", TrialState.PRUNED),
        ("tpe", "OUT_OF_MEMORY", TrialState.PRUNED),
        ("tpe", "CODE_ERROR", TrialState.FAIL),
        ("gp", "DIVERGED", TrialState.COMPLETE),
    ],
)
def test_what_cannot_be_trained_is_learnt_as_bad(opened: Opened, sampler: str, cause: str, told: TrialState) -> None:
    trials = searched(opened, sampler, cause)
    search = opened(search={"trials": TRIALS, "sampler": sampler, "pruner": "none"}, losses=["proxy_anchor"])
    found = [trial.params for trial in trials[1:]]
    other = TrialState.PRUNED if told == TrialState.FAIL else TrialState.FAIL
    assert proposed_by_hand(search, trials, other) != found
    assert proposed_by_hand(search, trials, told) == found


def test_the_study_still_says_what_they_were(opened: Opened) -> None:
    for trial in searched(opened, "tpe", "DIVERGED"):
        assert trial.state == (TrialState.FAIL if is_lost(trial.number) else TrialState.COMPLETE)
        assert trial.intermediate_values
        assert (trial.value is None) == is_lost(trial.number)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "cmaes"])
def test_what_is_learnt_survives_the_driver(opened: Opened, sampler: str) -> None:
    lived, died = (searched(opened, sampler, "DIVERGED", dies=dies) for dies in (False, True))
    assert [trial.params for trial in lived] == [trial.params for trial in died]
