"""Trials whose files cannot be stored: retried after pauses, and not FAIL while all trials are affected."""

from collections.abc import Callable
from typing import Any

import pytest
from optuna.trial import TrialState
from support.driving import begun, only, record

from search.driver.stages import search_stage
from search.plan.search import OpenedSearch
from search.stages import Stage
from search.study.trial_queue import MAX_STORAGE_FAILURES, PAUSES_S, TrialQueue
from trainables.errors import Failure

AWAY = {"failure": {"cause": "LOST", "reason": "/models/0000/attempt-1/last.pt failed (OSError: [Errno 28] No space)"}}


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def epochs(*numbers: int, finished: bool = False) -> dict[str, Any]:
    return {"records": [record(number, 0.1) for number in numbers], "finished": finished}


def test_nothing_is_started_while_a_storage_is_away(
    opened: Callable[..., OpenedSearch], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    search = opened(search={"trials": 5, "pruner": "none"}, losses=["mpa"])
    queue = TrialQueue(only(search_stage(search)))
    first, second = begun(queue), begun(queue)
    for pause in PAUSES_S:
        assert not queue.on_trial_result(first, AWAY)
        assert queue.next_trial() is None
        assert queue.has_to_wait  # workers stay, and no new trial meets the same outage
        assert not queue.on_trial_result(second, AWAY)
        clock.sleep(pause - 0.1)
        assert queue.next_trial() is None
        clock.sleep(0.2)
        assert not queue.has_to_wait
        assert begun(queue) is first
        assert begun(queue) is second
    assert "retrying in 1800 s; nothing else starts before" in caplog.text
    assert search.study("mpa", Stage.SEARCH).tally.started == 2
    with pytest.raises(Failure, match=r"no trial could store its files for 51 minutes.*No space.*the same command res"):
        queue.on_trial_result(first, AWAY)
    states = [trial.state for trial in search.study("mpa", Stage.SEARCH).trials()]
    assert states == [TrialState.RUNNING] * 2  # the next driver resumes them


def test_when_it_is_back_the_search_goes_on(opened: Callable[..., OpenedSearch], clock: Clock) -> None:
    search = opened(search={"trials": 2, "pruner": "none"}, losses=["mpa"], training={"epochs": 3, "batch_size": 20})
    queue = TrialQueue(only(search_stage(search)))
    for _ in range(2):
        running = begun(queue)
        queue.on_trial_result(running, AWAY)
        clock.sleep(PAUSES_S[0])
        assert begun(queue) is running
        # An epoch is reported before its checkpoint is written, so only the next one proves that it was.
        assert queue.on_trial_result(running, epochs(1))
        queue.on_trial_result(running, AWAY)
        clock.sleep(PAUSES_S[1])
        running = begun(queue)
        queue.on_trial_result(running, epochs(1, 2, 3, finished=True))
    trials = search.study("mpa", Stage.SEARCH).trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 2


def test_a_full_disk_is_an_outage_although_first_epochs_are_told(
    opened: Callable[..., OpenedSearch], clock: Clock
) -> None:
    """Every trial reports its first epoch, but no checkpoint is ever written."""
    search = opened(search={"trials": 40, "pruner": "none"}, losses=["mpa"])
    queue = TrialQueue(only(search_stage(search)))

    def drive() -> None:
        for _ in range(1000):
            while (running := queue.next_trial()) is None:
                clock.sleep(1)
            assert queue.on_trial_result(running, epochs(1))
            queue.on_trial_result(running, AWAY)

    with pytest.raises(Failure, match="for 51 minutes"):
        drive()
    assert {trial.state for trial in search.study("mpa", Stage.SEARCH).trials()} == {TrialState.RUNNING}


def test_a_trial_that_alone_cannot_keep_its_files_is_lost(opened: Callable[..., OpenedSearch], clock: Clock) -> None:
    search = opened(search={"trials": 2, "pruner": "none"}, losses=["mpa"], training={"epochs": 40, "batch_size": 20})
    queue = TrialQueue(only(search_stage(search)))
    bad, good = begun(queue), begun(queue)
    assert queue.on_trial_result(good, epochs(1))
    for failed in range(1, MAX_STORAGE_FAILURES + 1):
        queue.on_trial_result(bad, AWAY)
        assert queue.on_trial_result(good, epochs(failed + 1))  # which ends the pause
        if failed < MAX_STORAGE_FAILURES:
            assert begun(queue) is bad
    trials = search.study("mpa", Stage.SEARCH).trials()
    assert [trial.state for trial in trials] == [TrialState.FAIL, TrialState.RUNNING]
    failure = trials[0].user_attrs["failure"]
    assert failure["cause"] == "LOST"
    assert failure["reason"].startswith("its files could not be stored 6 times, while those of other trials were; the")
    assert "/models/0000/attempt-1/last.pt failed" in failure["reason"]
