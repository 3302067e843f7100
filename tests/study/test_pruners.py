"""Pruners, compared with their plans in words and with Optuna's pruners."""

import math
from collections.abc import Callable

import optuna
import pytest
from hypothesis import Phase, given, settings, strategies as st
from optuna.pruners import BasePruner
from optuna.samplers import RandomSampler
from optuna.trial import TrialState

from search.driver.doctor import expected_steps
from search.study.pruners import SuccessiveHalving
from search.tables import PRUNERS

EPOCHS = 16


def first_rung(steps: int) -> int:
    return max(2, math.ceil(steps / 8))


OPTUNAS: dict[str, Callable[[int], BasePruner]] = {
    "asha": lambda steps: optuna.pruners.SuccessiveHalvingPruner(min_resource=first_rung(steps), reduction_factor=2),
    "hyperband": lambda steps: optuna.pruners.HyperbandPruner(
        min_resource=first_rung(steps), max_resource=steps, reduction_factor=2
    ),
    "none": lambda steps: optuna.pruners.NopPruner(),
}


@pytest.mark.parametrize("name", PRUNERS)
@settings(deadline=None, max_examples=5, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data(), steps=st.integers(3, 20), slots=st.integers(1, 8))
def test_a_pruner_decides_as_optuna_s_whatever_the_order(
    name: str, data: st.DataObject, steps: int, slots: int
) -> None:
    """Concurrent trials, equal values and restarts: every decision is that of Optuna's pruner."""
    ours = PRUNERS[name](steps=steps)
    rule = OPTUNAS[name](steps)
    study = optuna.create_study(direction="maximize", study_name="compared", sampler=RandomSampler(seed=0))
    comparison = ours.rule("compared")
    running: list[optuna.Trial] = []
    for _ in range(60):
        if len(running) < slots:
            running.append(study.ask())
        if data.draw(st.integers(0, 19)) == 0:  # a new driver reads the stored trials
            comparison = ours.rule("compared")
            for known in study.get_trials(deepcopy=False):
                comparison.add(known)
        trial = data.draw(st.sampled_from(running))
        before = dict(study.get_trials(deepcopy=False)[trial.number].intermediate_values)
        step = len(before) + 1
        value = float(data.draw(st.integers(0, 6)))
        trial.report(value, step)
        reason = comparison.reason(trial.number, step, value)
        if step == steps:
            study.tell(trial, value)
        elif rule.prune(study, study.get_trials(deepcopy=False)[trial.number]):
            assert reason is not None
            study.tell(trial, state=TrialState.PRUNED)
        else:
            assert reason is None
            continue
        running.remove(trial)


@pytest.mark.parametrize("name", PRUNERS)
def test_short_trainings_are_not_pruned(name: str) -> None:
    for epochs in (1, 2):
        pruner = PRUNERS[name](steps=epochs)
        assert "no trial is pruned" in pruner.plan
        comparison = pruner.rule("short")
        assert all(comparison.reason(number, 1, -number) is None for number in range(10))
    assert expected_steps(PRUNERS[name](steps=2), 30) == 2


def test_how_many_epochs_a_trial_trains_is_foreseen() -> None:
    """Of many trials of random values half end at each rung; the first ones are compared with fewer."""
    halved = 2 / 2 + 4 / 4 + 8 / 8 + 16 / 8
    assert expected_steps(PRUNERS["asha"](steps=16), 10_000) == pytest.approx(halved, rel=0.05)
    assert expected_steps(PRUNERS["asha"](steps=16), 0) == expected_steps(PRUNERS["none"](steps=16), 60) == 16


def test_plans_are_told_in_words_and_rungs_double_from_an_eighth_of_the_epochs() -> None:
    assert SuccessiveHalving(steps=60).rungs == (8, 16, 32)
    plans = {name: pruner(steps=8).plan for name, pruner in PRUNERS.items()}
    assert plans == {
        "asha": "after epochs 2, 4 the top half continues",
        "hyperband": "40% of the trials are compared after epochs 2, 4, 30% of the trials are compared after epoch 4, "
        "30% are never pruned; each time the top half of a bracket continues",
        "none": "no trial is pruned",
    }
