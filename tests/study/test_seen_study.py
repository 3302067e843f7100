"""Learning from failures, compared with an Optuna study that is told the same by hand."""

from collections.abc import Callable

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from support.driving import only, record, train

from search.driver.stages import search_stage
from search.plan.search import OpenedSearch
from search.stages import Stage
from search.study.storage.driver import DriverStorage
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
            search = OpenedSearch(plan=search.plan, storage=DriverStorage(search.storage.database))
            queue = TrialQueue(only(search_stage(search)))
    return search.study("proxy_anchor", Stage.SEARCH).trials()


def proposed_by_hand(
    search: OpenedSearch, trials: list[FrozenTrial], state: TrialState, value: float | None
) -> list[object]:
    """Return the sampler's proposals if failed trials are told with ``state`` and ``value``."""
    sampler = search.plan.budget("proxy_anchor").sampler
    assert sampler is not None
    found: list[object] = []
    study = optuna.create_study(direction="maximize")
    for trial in trials:
        if trial.number:
            study.sampler = sampler.build(trial.number, trials[: trial.number])
            asked = optuna.Trial(study, study._storage.create_new_trial(study._study_id))
            found.append(dict(sampler.space.suggest(asked)))
            told = study.trials[-1]
            study = copied(study, told.number)
        lost = is_lost(trial.number)
        study.add_trial(
            create_trial(
                state=state if lost else TrialState.COMPLETE,
                value=value if lost else value_of(trial.number),
                params=trial.params,
                distributions=trial.distributions,
            )
        )
    return found


def copied(study: optuna.Study, count: int) -> optuna.Study:
    """Return a study of the first ``count`` trials."""
    result = optuna.create_study(direction="maximize")
    result.add_trials(study.trials[:count])
    return result


@pytest.mark.parametrize("cause", ["DIVERGED", "OUT_OF_MEMORY", "CODE_ERROR"])
def test_tpe_sees_what_cannot_be_trained_as_pruned_without_a_value(opened: Opened, cause: str) -> None:
    trials = searched(opened, "tpe", cause)
    search = opened(search={"trials": TRIALS, "pruner": "none"}, losses=["proxy_anchor"])
    as_bad, as_unknown = (
        proposed_by_hand(search, trials, state, None) for state in (TrialState.PRUNED, TrialState.FAIL)
    )
    assert as_bad != as_unknown
    found = [trial.params for trial in trials[1:]]
    assert found == (as_unknown if cause == "CODE_ERROR" else as_bad)


def test_the_study_still_says_what_they_were(opened: Opened) -> None:
    for trial in searched(opened, "tpe", "DIVERGED"):
        assert trial.state == (TrialState.FAIL if is_lost(trial.number) else TrialState.COMPLETE)
        assert trial.intermediate_values
        assert (trial.value is None) == is_lost(trial.number)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "cmaes"])
def test_what_is_learnt_survives_the_driver(opened: Opened, sampler: str) -> None:
    lived, died = (searched(opened, sampler, "DIVERGED", dies=dies) for dies in (False, True))
    assert [trial.params for trial in lived] == [trial.params for trial in died]


@pytest.mark.parametrize("sampler", ["gp", "cmaes"])
def test_models_of_complete_trials_see_the_worst_value(opened: Opened, sampler: str) -> None:
    search = opened(search={"trials": 1, "sampler": sampler, "pruner": "none"}, losses=["proxy_anchor"])
    queue = TrialQueue(only(search_stage(search)))
    while job := queue.next_trial():
        train(queue, job, lambda running, epoch: 0.4)
    study = search.study("proxy_anchor", Stage.SEARCH)
    (default,) = study.trials()
    study.add(
        [
            create_trial(
                state=TrialState.COMPLETE, value=value, params=default.params, distributions=default.distributions
            )
            for value in (0.7, 0.2)
        ]
        + [
            create_trial(
                state=TrialState.FAIL,
                params=default.params,
                distributions=default.distributions,
                user_attrs={"failure": {"cause": "DIVERGED", "reason": "x"}},
            )
        ]
    )
    assert [trial.value for trial in study._seen.get_trials()] == [0.4, 0.7, 0.2, 0.2]
    assert [trial.value for trial in study.trials()] == [0.4, 0.7, 0.2, None]
