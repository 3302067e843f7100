"""The schedule depends on the seed alone."""

from collections import Counter

import pytest

from soak.faults import FAULTS
from soak.scenarios import SCENARIOS
from soak.schedule import schedule


def test_the_same_seed_plans_the_same_faults_and_another_seed_others() -> None:
    kinds = SCENARIOS["alone"].faults
    assert schedule(1, "alone", kinds, 40) == schedule(1, "alone", kinds, 40)
    assert schedule(1, "alone", kinds, 40) != schedule(2, "alone", kinds, 40)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_kind_of_a_scenario_comes_as_often_as_every_other(name: str) -> None:
    kinds = SCENARIOS[name].faults
    planned = schedule(0, name, kinds, 3 * len(kinds))
    assert Counter(entry.fault for entry in planned) == dict.fromkeys(kinds, 3)
    for entry in planned:
        low, high = FAULTS[entry.fault].lasts_s
        assert low <= entry.lasts_s <= high


def test_no_choice_is_beyond_the_last_of_those_that_can_be_hit() -> None:
    choices = [entry.choice for entry in schedule(0, "alone", SCENARIOS["alone"].faults, 20_000)]
    assert min(choices) == 0
    assert max(choices) == 0.999  # rounded, one in 2000 would be 1


def test_every_fault_comes_in_some_scenario() -> None:
    assert {kind for scenario in SCENARIOS.values() for kind in scenario.faults} == set(FAULTS)
