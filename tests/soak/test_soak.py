"""A small sample of `make soak`: short searches, what breaks while they run, and the oracle's word."""

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from support.journals import epochs_in
from support.services import needs_ray

from soak.driving import Log, Search
from soak.faults import FAULTS, Planned
from soak.oracle import read_trials
from soak.scenarios import SCENARIOS
from soak.tools import RUN
from soak.world import services, world

EPOCHS = 8
TRIALS = 60
"""A minute, so that the search still runs when the last fault happens."""
PLANNED = {
    "alone": (
        Planned(fault="trainer killed", after_epochs=3, after_s=0.1, lasts_s=0, choice=0.9),
        Planned(fault="driver stopped", after_epochs=2, after_s=0.1, lasts_s=1, choice=0),
        Planned(fault="driver killed", after_epochs=2, after_s=0.1, lasts_s=0, choice=0),
        Planned(fault="trainer stopped", after_epochs=2, after_s=0, lasts_s=1, choice=0.1),
    ),
    "cluster": (
        Planned(fault="trainer killed", after_epochs=3, after_s=0.1, lasts_s=0, choice=0.9),
        Planned(fault="node killed", after_epochs=2, after_s=0.1, lasts_s=1, choice=0),
        Planned(fault="driver killed", after_epochs=2, after_s=0.1, lasts_s=0, choice=0),
    ),
    "services": (
        Planned(fault="PostgreSQL restarted", after_epochs=3, after_s=0.1, lasts_s=5, choice=0),
        Planned(fault="MLflow killed", after_epochs=2, after_s=0.1, lasts_s=5, choice=0),
        Planned(fault="driver killed", after_epochs=2, after_s=0.1, lasts_s=0, choice=0),
    ),
}
SAMPLES = [pytest.param(name, marks=pytest.mark.slow if name == "alone" else pytest.mark.cluster) for name in PLANNED]


@needs_ray
@pytest.mark.parametrize("name", SAMPLES)
def test_a_search_that_is_broken_again_and_again_is_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values of a sleeping training depend on its seed alone."""
    monkeypatch.setenv(RUN, uuid.uuid4().hex)
    scenario = replace(SCENARIOS[name], trials=TRIALS, epochs=EPOCHS)
    with (
        services(scenario, tmp_path / "services") as here,
        world(scenario, here, tmp_path / "broken", "broken") as broken,
    ):
        search = Search(broken, Log(tmp_path / "log.jsonl"))
        assert search.run(PLANNED[name]) == len(PLANNED[name]), broken.said()
        codes = [(fault.fault, (-9,) if fault.fault == "driver killed" else ()) for fault in PLANNED[name]]
        assert search.injected == codes
        assert search.differences(None) == []
        assert name == "services" or "was lost (ActorDiedError); retrying" in " ".join(broken.said().split())
        for trial in read_trials(broken.left.journal).values():
            told = [record["metrics"]["map_at_r"] for record in epochs_in(trial)]
            assert told == [
                trial.user_attrs["seed"] % 1000 / 1000 * (1 - 2.0**-epoch) for epoch in range(1, EPOCHS + 1)
            ]


def test_every_fault_comes_in_some_scenario() -> None:
    assert {kind for scenario in SCENARIOS.values() for kind in scenario.faults} == set(FAULTS)
