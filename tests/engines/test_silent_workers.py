"""Workers that live and say nothing any more, one stopped and one in an endless loop: found, ended and replaced."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from optuna.trial import TrialState
from support.driving import only
from support.services import needs_ray
from support.sleeping_engine import FLOOR, LOOPS, STOPS
from support.sleeping_search import SleepingSearch

from benchmarks.slots import SECONDS
from search.config.sections import ResourcesSection
from search.driver.stages import search_stage
from search.plan.search import OpenedSearch
from search.study.trial_queue import TrialQueue
from trainables.errors import Failure
from trainables.limits import Limits

pytestmark = [pytest.mark.cluster, needs_ray]


def test_silent_workers_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {SECONDS: "0.1", STOPS: "/0000", LOOPS: "/0001", FLOOR: "30"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    search = SleepingSearch(tmp_path, trials=3, epochs=3)
    driver = search.start()
    try:
        search.finish(driver)
    finally:
        driver.kill()
        driver.wait()
    hung = [int(path.read_text()) for path in (search.runs / "sleeps" / "trials" / "mpa").glob("*-hung")]
    assert len(hung) == 2
    assert not [process for process in hung if alive(process)]
    assert [trial.state for trial in search.trials()] == [TrialState.COMPLETE] * 3
    assert [sorted(trial.intermediate_values) for trial in search.trials()] == [[1, 2, 3]] * 3
    said = " ".join(search.said().split())
    for number in (0, 1):  # after half a minute, or ten times an epoch that took more than three seconds
        silence = r"no report from its worker for (\d\.\d) minutes, treated as dead;"
        found = re.search(rf"sleeps/mpa trial {number} was lost \({silence}", said)
        assert found
        assert float(found[1]) >= 0.5
    assert said.count("treated as dead") == 2


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"


def test_a_trial_for_which_no_machine_comes_ends_the_search(
    opened: Callable[..., OpenedSearch], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No machine has a GPU, and none had when the search began: what refuses that is passed by."""
    from search.engines.ray_engine import RayEngine

    class Impatient(RayEngine):
        limits = Limits(machine_said_s=2.0, machine_s=8.0)

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    queue = TrialQueue(only(search_stage(opened(search={"trials": 2}, losses=["mpa"]))))
    engine = Impatient(ResourcesSection(gpus_per_trial=1))
    with (
        engine.session(),
        pytest.raises(Failure, match=r"each requests 1 CPUs and 1 GPUs, the cluster has 1 .* none can be added"),
    ):
        engine.run(queue, concurrent=2)
    assert "Without one the search ends soon" in caplog.text
