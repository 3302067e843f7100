"""A small sample of `make soak`: a short search, its driver and trainers killed and stopped, and the oracle's word."""

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from support.journals import epochs_in
from support.services import needs_ray

from benchmarks.slots import SECONDS
from soak.driving import Log, Search
from soak.faults import FAULTS, Planned
from soak.scenarios import SCENARIOS, sleeping
from soak.tools.processes import RUN
from soak.verdict import differences, trials_of
from soak.world import Services, world

EPOCHS = 8
PLANNED = [
    Planned(fault="trainer killed", after_epochs=3, after_s=0.1, lasts_s=0, choice=0.9),
    Planned(fault="driver stopped", after_epochs=2, after_s=0.1, lasts_s=1, choice=0),
    Planned(fault="driver killed", after_epochs=2, after_s=0.1, lasts_s=0, choice=0),
    Planned(fault="trainer stopped", after_epochs=2, after_s=0, lasts_s=1, choice=0.1),
]


@needs_ray
@pytest.mark.slow
def test_a_search_that_is_broken_four_times_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver starts its own Ray; the values of a sleeping training depend on its seed alone."""
    monkeypatch.setenv(RUN, uuid.uuid4().hex)
    monkeypatch.setenv(SECONDS, "0.15")
    scenario = replace(SCENARIOS["alone"], content=sleeping(12, EPOCHS), trials=12, epochs=EPOCHS)
    with world(scenario, Services(tmp_path), tmp_path / "broken", "broken") as broken:
        search = Search(broken, Log(tmp_path / "log.jsonl"))
        assert search.run(PLANNED) == len(PLANNED), broken.said()
        assert search.trouble == []
        assert [(entry.fault, entry.codes) for entry in search.injected] == [
            ("trainer killed", ()),
            ("driver stopped", ()),
            ("driver killed", (-9,)),
            ("trainer stopped", ()),
        ]
        assert differences(broken, None) == []
        assert "was lost (ActorDiedError); retrying" in " ".join(broken.said().split())
        for trial in trials_of(broken).values():
            told = [record["metrics"]["map_at_r"] for record in epochs_in(trial)]
            assert told == [
                trial.user_attrs["seed"] % 1000 / 1000 * (1 - 2.0**-epoch) for epoch in range(1, EPOCHS + 1)
            ]


def test_every_fault_comes_in_some_scenario() -> None:
    assert {kind for scenario in SCENARIOS.values() for kind in scenario.faults} == set(FAULTS)
