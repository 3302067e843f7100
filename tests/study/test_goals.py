"""Proposals with several objectives and constraints, compared with those in an Optuna study of the same trials."""

from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, create_trial
from support.driving import only, record

from search.driver.stages import search_stage
from search.plan.search import OpenedSearch
from search.stages import Stage
from search.study.trial_queue import TrialQueue
from trainables.spec import derived_seed

Opened = Callable[..., OpenedSearch]
TRIALS = 9
OBJECTIVES: dict[str, Any] = {"objectives": ["map_at_r", "-size_mb"]}
CONSTRAINTS: dict[str, Any] = {"constraints": {"size_mb": "< 0.5"}}


def value_of(number: int) -> float:
    return derived_seed("value", number) / 2**31


def size_of(number: int) -> float:
    return derived_seed("size", number) / 2**31


def searched(opened: Opened, sampler: str, goal: dict[str, Any]) -> tuple[OpenedSearch, list[FrozenTrial]]:
    """Run a search whose trials have made-up values, the best ones at their first epoch."""
    search = opened(
        name=f"{sampler}-{'-'.join(goal)}",
        search={"trials": TRIALS, "sampler": sampler, "pruner": "none", **goal},
        losses=["proxy_anchor"],
        training={"epochs": 2, "batch_size": 20},
    )
    queue = TrialQueue(only(search_stage(search)))
    while job := queue.next_trial():
        best, last = record(1, value_of(job.number)), record(2, value_of(job.number) / 2)
        best["metrics"]["size_mb"], last["metrics"]["size_mb"] = size_of(job.number), 7.0
        queue.on_trial_result(job, {"records": [best, last], "finished": True})
    return search, search.study("proxy_anchor", Stage.SEARCH).trials()


def proposed_by_optuna(search: OpenedSearch, trials: list[FrozenTrial], goal: dict[str, Any]) -> list[object]:
    """Return what the same sampler proposes in a study of Optuna's with all objectives and constraints."""
    sampler = search.plan.budget("proxy_anchor").sampler
    assert sampler is not None
    several = "objectives" in goal
    found: list[object] = []
    for count in range(1, len(trials)):
        study = optuna.create_study(directions=["maximize", "minimize"] if several else ["maximize"])
        study.add_trials(
            create_trial(
                values=[value_of(trial.number), size_of(trial.number)][: len(study.directions)],
                params=trial.params,
                distributions=trial.distributions,
                constraints={"size": size_of(trial.number) - 0.5} if "constraints" in goal else {},
            )
            for trial in trials[:count]
        )
        study.sampler = sampler.build(count, trials[:count])
        found.append(dict(sampler.space.suggest(study.ask())))
    return found


@pytest.mark.parametrize(
    ("sampler", "goal"),
    [("tpe", OBJECTIVES), ("tpe", CONSTRAINTS), ("tpe", OBJECTIVES | CONSTRAINTS), ("gp", OBJECTIVES | CONSTRAINTS)],
    ids=["several", "bound", "both", "both by gp"],
)
def test_the_sampler_learns_from_all_of_it(opened: Opened, sampler: str, goal: dict[str, Any]) -> None:
    search, trials = searched(opened, sampler, goal)
    assert [trial.params for trial in trials[1:]] == proposed_by_optuna(search, trials, goal)


def test_the_study_has_the_first_objective_and_the_constraints_of_the_best_epoch(opened: Opened) -> None:
    _, trials = searched(opened, "random", OBJECTIVES | CONSTRAINTS)
    for trial in trials:
        assert trial.value == value_of(trial.number)
        assert trial.constraints == {"size_mb < 0.5": pytest.approx(size_of(trial.number) - 0.5)}
