"""Studies and the trial queue without a cluster: the order of trials, results, restarts, outages and budgets."""

import json
from typing import Any

import pytest
from optuna.trial import TrialState
from rich.console import Console
from support.driving import Opened, begun, drive, only, record, train, train_side_by_side

from search.driver.choice import FailedLosses, freeze, refuse_failed, to_retry, unchanged_selection
from search.driver.finish import write_summary
from search.driver.listeners import Progress
from search.driver.stages import confirm_stage, final_stage, search_stage
from search.records.records import Records
from search.records.status import status_of
from search.records.writable import WritableRecords, open_search
from search.stages import Stage
from search.study.trial_queue import (
    MAX_CRASHES,
    MAX_STORAGE_FAILURES,
    PAUSES_S,
    QueuedStage,
    RunningTrial,
    TrialListener,
    TrialQueue,
)
from search.trials import Tally, epochs_of
from trainables.common.errors import Failure
from trainables.training.spec import EpochRecord, Epochs, Failed


def queued(search: WritableRecords) -> tuple[WritableRecords, TrialQueue]:
    """Return the search with the queue of its first stage."""
    return search, TrialQueue(only(search_stage(search)))


def epochs(*numbers: int, finished: bool = False) -> Epochs:
    return Epochs([record(number, 0.1) for number in numbers], finished=finished)


def test_every_loss_gets_its_trials_in_turn_and_the_default_first(opened: Opened) -> None:
    search = opened(search={"trials": 4, "pruner": "none"})
    jobs = drive(search)
    assert [job.loss for job in jobs] == ["proxy_anchor", "pnp"] * 4
    for loss in search.config.loss_names:
        trials = search.study(loss, Stage.SEARCH).trials()
        assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4
        assert trials[0].params == search.plan.spaces[loss].default
        assert len({trial.user_attrs["seed"] for trial in trials}) == 4


def test_bad_trials_are_pruned_with_a_reason_and_never_the_default(opened: Opened) -> None:
    search = opened(search={"trials": 9}, losses=["mpa"], training={"epochs": 4, "batch_size": 20})
    # Every trial is better than the default and worse than the previous one.
    drive(search, lambda job, epoch: 0.0 if job.number == 0 else 1.0 - job.number / 100)
    trials = search.study("mpa", Stage.SEARCH).trials()
    assert trials[0].state == TrialState.COMPLETE
    assert trials[1].state == TrialState.COMPLETE
    assert {trial.state for trial in trials[2:]} == {TrialState.PRUNED}
    assert trials[5].intermediate_values == {1: 0.95, 2: 0.95}
    assert trials[5].user_attrs["outcome"] == (
        "pruned after epoch 2: its map_at_r 95.00 ranked 5 of 6 at this rung; the top half continues"
    )


def test_the_default_goes_on_where_better_rivals_were_there_before(opened: Opened) -> None:
    search, queue = queued(opened(search={"trials": 4}, losses=["mpa"], training={"epochs": 4, "batch_size": 20}))
    jobs = [job for _ in range(4) if (job := queue.next_trial())]
    for job in reversed(jobs):
        train(queue, job, lambda job, epoch: job.number / 10)
    states = [trial.state for trial in search.study("mpa", Stage.SEARCH).trials()]
    assert states == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.PRUNED, TrialState.COMPLETE]


def test_a_trial_that_kills_its_actors_fails(opened: Opened) -> None:
    search, queue = queued(opened(search={"trials": 1}, losses=["mpa"]))
    for death in range(MAX_CRASHES):
        job = begun(queue)
        # Known epochs are not progress.
        assert queue.on_trial_result(job, epochs(1)), death
        queue.on_trial_error(job, "ActorDiedError", own=True)
    assert queue.next_trial() is None
    assert queue.done
    trial = search.study("mpa", Stage.SEARCH).trial(0)
    assert trial.state == TrialState.FAIL
    reason = "its process died 3 times without a new epoch; the last time: ActorDiedError"
    assert trial.user_attrs["failure"] == {"cause": "LOST", "reason": reason}
    assert trial.user_attrs["outcome"] == f"LOST: {reason}"


@pytest.mark.parametrize(("own", "epochs_between"), [(False, False), (True, True)])
def test_a_trial_that_moves_many_times_is_not_lost(opened: Opened, own: bool, epochs_between: bool) -> None:
    """Lost nodes and failed starts do not count, and a crash is forgotten after a new epoch."""
    search, queue = queued(opened(search={"trials": 1}, losses=["mpa"], training={"epochs": 8, "batch_size": 20}))
    for epoch in range(1, 2 * MAX_CRASHES + 1):
        job = begun(queue)
        if epochs_between:
            assert queue.on_trial_result(job, epochs(epoch))
        queue.on_trial_error(job, "ActorDiedError", own=own)
        assert queue.has_to_wait is False
    assert not queue.on_trial_result(begun(queue), epochs(*range(1, 9), finished=True))
    assert search.study("mpa", Stage.SEARCH).trial(0).state == TrialState.COMPLETE


# A loss whose code fails at once.


def fail(queue: TrialQueue, job: RunningTrial, place: str = "mine.py, line 3", cause: str = "CODE_ERROR") -> None:
    reason = f"ValueError: {job.number} is too large"  # a text that differs from trial to trial
    assert not queue.on_trial_result(job, Failed(cause=cause, reason=reason, place=place))


def test_a_loss_stops_at_two_failures_in_one_line(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    search = opened(search={"trials": 6, "pruner": "none"})
    progress = Progress(Console(quiet=True), [search], [Stage.SEARCH], concurrent=1, started=0)
    queue = TrialQueue(only(search_stage(search)), listeners=[progress])
    jobs = [begun(queue) for _ in range(6)]
    failing = [job for job in jobs if job.loss == "pnp"]
    for job in failing:  # the third one was running
        assert "starts no more" not in caplog.text or job is failing[2]
        fail(queue, job)
    reason = "further ones would fail in the same way"
    assert caplog.text.count(f"small/pnp starts no more trials: {reason} (ValueError: 1 is too large).") == 1
    for job in jobs:
        if job.loss != "pnp":
            train(queue, job, falling)
    assert progress.seconds_left() == pytest.approx(3 * 3)
    rest = list(iter(queue.next_trial, None))
    assert [job.loss for job in rest] == ["proxy_anchor"] * 3
    for job in rest:
        train(queue, job, falling)
    assert queue.next_trial() is None
    assert queue.done
    assert search.is_done(Stage.SEARCH)
    assert write_summary(search).losses["pnp"].ended_early == reason
    (row,) = (row for row in status_of(Records(search.folder)).studies if row.study == "pnp")
    assert (row.failed, row.planned, row.ended_early) == (3, 3, reason)


@pytest.mark.parametrize("kind", ["places", "causes", "trained", "late"])
def test_other_failures_stop_no_loss(opened: Opened, kind: str) -> None:
    """They are in several lines, due to the parameters, or the training of other parameters works."""
    _, queue = queued(opened(search={"trials": 5, "pruner": "none"}, losses=["pnp"]))
    first, *jobs = [begun(queue) for _ in range(3)]
    if kind == "trained":
        train(queue, first, falling)
    for job in jobs:
        place = f"line {job.number}" if kind == "places" else "mine.py, line 3"
        fail(queue, job, place, "DIVERGED" if kind == "causes" else "CODE_ERROR")
    if kind == "late":  # its first epoch takes longer than two failures
        assert queue.next_trial() is None
        assert queue.has_to_wait
        assert not queue.done
        train(queue, first, falling)
    assert [begun(queue).number for _ in range(2)] == [3, 4]


def test_code_that_failed_at_once_is_trained_again(opened: Opened) -> None:
    """By the next driver, with the same parameters and seeds; other losses keep their trials."""
    search, queue = queued(opened(search={"trials": 3, "pruner": "none"}))
    search.begin_session(12.0, 2)
    search.study("proxy_anchor", Stage.SEARCH).enqueue([({"scale": 16.0}, {"enqueued": 1})])
    while job := queue.next_trial():
        if job.loss == "pnp":
            train(queue, job, falling)
        else:
            fail(queue, job)
    before = {loss: search.trials(loss, Stage.SEARCH) for loss in search.config.loss_names}
    assert [len(trials) for trials in before.values()] == [2, 3]
    assert to_retry(search, Stage.SEARCH) == {"proxy_anchor": 2}
    search.close()

    again = open_search(search.plan)
    jobs = drive(again)
    assert [(job.loss, job.number) for job in jobs] == [("proxy_anchor", number) for number in range(3)]
    trials = again.trials("proxy_anchor", Stage.SEARCH)
    assert trials[0].params == again.plan.spaces["proxy_anchor"].default
    assert trials[1].params["scale"] == 16.0
    for trial, failed in zip(trials, before["proxy_anchor"], strict=False):
        assert (trial.params, trial.user_attrs["seed"]) == (failed.params, failed.user_attrs["seed"])
    assert again.trials("pnp", Stage.SEARCH) == before["pnp"]
    assert again.sessions == [12.0]
    outcomes = [trial.user_attrs["outcome"] for trial in before["proxy_anchor"]]
    stored = Records(again.plan.folder)
    assert stored.attributes("proxy_anchor")["retried"] == outcomes
    assert stored.attributes("proxy_anchor").get("ended_early") is None
    for loss in again.config.loss_names:
        assert stored.tally(loss, Stage.SEARCH) == Tally.of(stored.trials(loss))
        assert stored.tally(loss, Stage.SEARCH).complete == 3
    assert drive(again) == []


def test_code_that_failed_after_an_epoch_is_trained_again_until_a_trial_has_a_value(opened: Opened) -> None:
    search, queue = queued(opened(search={"trials": 3, "pruner": "none"}, losses=["pnp"]))
    job, running = begun(queue), begun(queue)
    for each in (job, running):
        assert queue.on_trial_result(each, epochs(1))
    fail(queue, job)
    assert not to_retry(search, Stage.SEARCH), "the running trial is resumed"
    fail(queue, running)
    assert to_retry(search, Stage.SEARCH) == {"pnp": 2}
    search.close()

    again = open_search(search.plan)
    queue = TrialQueue(only(search_stage(again)))
    assert [trial.state for trial in again.trials("pnp", Stage.SEARCH)] == [TrialState.WAITING]
    train(queue, begun(queue), falling)
    fail(queue, begun(queue))
    assert not to_retry(again, Stage.SEARCH), "a trial is complete"


def test_it_is_tried_again_only_before_the_choice(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    search, queue = queued(opened(search={"trials": 2, "pruner": "none"}))
    while job := queue.next_trial():
        if job.loss == "pnp":
            fail(queue, job)
        else:
            train(queue, job, falling)
    for attempt in range(2):  # the confirmation fails at once, too
        queue = TrialQueue(iter([confirm_stage(search)]))
        while job := queue.next_trial():
            train(queue, job, falling) if attempt else fail(queue, job)
        if not attempt:
            with pytest.raises(FailedLosses, match=r"proxy_anchor@confirm failed .*\n.* run the same search again"):
                refuse_failed([search], Stage.SELECT)
    assert "Retrying 4 trials of small/proxy_anchor@confirm" in caplog.text
    assert to_retry(search, Stage.SEARCH) == {"pnp": 2}
    assert list(freeze(search).chosen) == ["proxy_anchor"]
    assert to_retry(search, Stage.SEARCH) == {}
    assert drive(search) == []
    unchanged_selection(search)  # raises if a study was changed


# The later stages.


def test_from_the_search_to_the_final_trainings(opened: Opened) -> None:
    """The chosen configuration and the default are trained again on all training classes."""
    search = opened(search={"trials": 3, "pruner": "none"}, final={"seeds": 2, "train_on": "all"}, losses=["pnp"])
    drive(search, lambda job, epoch: job.number / 10 if epoch == 2 else 0.0)
    queue = TrialQueue(iter([confirm_stage(search)]))
    while job := queue.next_trial():
        chosen = search.study("pnp", Stage.SELECT).trial(job.number).user_attrs["source_trial"]
        train(queue, job, lambda job, epoch, chosen=chosen: chosen / 10 if epoch == 2 else 0.0)
    assert not list(iter(TrialQueue(iter([confirm_stage(search)])).next_trial, None)), "a second driver doubles nothing"
    selection = freeze(search)
    assert selection.chosen["pnp"].number == 2
    assert selection.defaults["pnp"].number == 0
    assert selection.chosen["pnp"].best_epochs == (2, 2, 2, 2), "two seeds of two halves"

    (queued,) = final_stage(search, selection).studies
    jobs = list(iter(TrialQueue(only(QueuedStage(stage=Stage.TEST, studies=[queued]))).next_trial, None))
    assert len(jobs) == 4
    split = search.plan.split
    for job in jobs:
        assert job.spec.validation_classes == ()
        assert set(job.spec.train_classes) == {*split.train, *split.validation}
        assert job.spec.training.epochs == (2 if job.number < 2 else 1)  # the median best epoch
        assert job.spec.schedule_epochs == 3
        assert not {*split.test} & {*job.spec.train_classes, *job.spec.images.class_names}


def test_a_proposal_and_an_epoch_with_the_end_that_it_brings_are_one_transaction_each(opened: Opened) -> None:
    """No moment exists at which a driver could die between a trial's state and its params, or its last report."""
    drive(search := opened(search={"trials": 3, "pruner": "none"}, losses=["mpa"]))
    logs = [json.loads(line) for line in search.folder.journal.read_text().splitlines()]
    transactions: list[list[dict[str, Any]]] = [[]]
    for log in logs:
        transactions[-1].append(log)
        if log["left"] == 0:
            transactions.append([])
    for state, others in ((TrialState.RUNNING, "param_name"), (TrialState.COMPLETE, "epoch:000003")):
        found = [str(each) for each in transactions if any(log.get("state") == state for log in each)]
        assert len(found) == 3
        assert all(others in each for each in found)
    trials = open_search(search.plan).trials("mpa", Stage.SEARCH)
    assert [trial.intermediate_values for trial in trials] == [{1: 0.1, 2: 0.2, 3: 0.3}] * 3


def test_an_epoch_that_is_trained_again_brings_its_own_checkpoint(opened: Opened) -> None:
    """The previous attempt died before its model was written; values are equal and reported once."""
    search, queue = queued(opened(search={"trials": 1}, losses=["mpa"]))
    running = begun(queue)
    for attempt in ("attempt-1", "attempt-2"):
        news = {**record(1, 0.1), "checkpoint": f"{attempt}/best.safetensors"}
        assert queue.on_trial_result(running, Epochs([news], finished=False))
    (trial,) = open_search(search.plan).trials("mpa", Stage.SEARCH)
    assert [entry["checkpoint"] for entry in epochs_of(trial)] == ["attempt-2/best.safetensors"]
    assert trial.intermediate_values == {1: 0.1}


class Follower(TrialListener):
    def __init__(self, raises: Exception | None = None) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.raises = raises

    def on_start(self, running: RunningTrial) -> None:
        self.events.append(("start", running.number, running.stored.state.name))

    def on_epoch(self, running: RunningTrial, record: EpochRecord) -> None:
        assert epochs_of(running.stored)[-1] == record, "the study holds the epoch before anybody hears of it"
        self.events.append(("epoch", running.number, record["epoch"]))
        if self.raises:
            raise self.raises

    def on_end(self, running: RunningTrial) -> None:
        self.events.append(("end", running.number, running.stored.state.name))

    def on_lost(self, running: RunningTrial) -> None:
        self.events.append(("lost", running.number, running.crashes))


def test_listeners_follow_a_trial_through_a_crash_to_its_end(opened: Opened) -> None:
    search = opened(search={"trials": 1}, losses=["mpa"])
    follower = Follower()
    queue = TrialQueue(only(search_stage(search)), listeners=[follower])
    running = begun(queue)
    queue.on_trial_result(running, epochs(1))
    queue.on_trial_error(running, "ActorDiedError", own=True)
    assert queue.next_trial() is running
    # A resumed training first reports the epochs in its checkpoint, which are known: that changes nothing.
    queue.on_trial_result(running, Epochs([record(1, 0.9), record(2, 0.2)], finished=False))
    queue.on_trial_result(running, Epochs([record(3, 0.3)], finished=True))
    assert follower.events == [
        ("start", 0, "RUNNING"), ("epoch", 0, 1), ("lost", 0, 1), ("start", 0, "RUNNING"), ("epoch", 0, 2),
        ("epoch", 0, 3), ("end", 0, "COMPLETE"),
    ]  # fmt: skip
    assert search.study("mpa", Stage.SEARCH).trial(0).intermediate_values == {1: 0.1, 2: 0.2, 3: 0.3}


def test_what_a_listener_raises_ends_the_queue_and_loses_nothing(opened: Opened) -> None:
    search = opened(search={"trials": 1}, losses=["mpa"])
    queue = TrialQueue(only(search_stage(search)), listeners=[Follower(RuntimeError("enough"))])
    with pytest.raises(RuntimeError, match="enough"):
        queue.on_trial_result(begun(queue), epochs(1))
    (trial,) = search.trials("mpa", Stage.SEARCH)
    assert [entry["epoch"] for entry in epochs_of(trial)] == [1]
    assert [running.number for running in drive(open_search(search.plan))] == [0]


# Trials whose files cannot be stored: retried after pauses, and not FAIL while all trials are affected.


AWAY = Failed(cause="LOST", reason="/models/0000/attempt-1/last.pt failed (OSError: [Errno 28] No space)")


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_nothing_is_started_while_a_storage_is_away(
    opened: Opened, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    search, queue = queued(opened(search={"trials": 5, "pruner": "none"}, losses=["mpa"]))
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


def test_a_full_disk_is_an_outage_although_first_epochs_are_told(opened: Opened, clock: Clock) -> None:
    """Every trial reports its first epoch, but no checkpoint is ever written."""
    search, queue = queued(opened(search={"trials": 40, "pruner": "none"}, losses=["mpa"]))

    def drive() -> None:
        for _ in range(1000):
            while (running := queue.next_trial()) is None:
                clock.sleep(1)
            assert queue.on_trial_result(running, epochs(1))
            queue.on_trial_result(running, AWAY)

    with pytest.raises(Failure, match="for 51 minutes"):
        drive()
    assert {trial.state for trial in search.study("mpa", Stage.SEARCH).trials()} == {TrialState.RUNNING}


def test_a_trial_that_alone_cannot_keep_its_files_is_lost(opened: Opened, clock: Clock) -> None:
    changes = {"losses": ["mpa"], "training": {"epochs": 40, "batch_size": 20}}
    search, queue = queued(opened(search={"trials": 2, "pruner": "none"}, **changes))
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


# Budgets in epochs and hours: the counting, the end of a study, and the messages.


def falling(job: RunningTrial, epoch: int) -> float:
    """Each trial is worse than the previous one, so most are pruned at the first rung."""
    return 1.0 - job.number / 100


def budget(kind: str, epochs: int) -> dict[str, float]:
    """Return a budget of as many epochs, which take a second each."""
    return {"epochs": epochs} if kind == "epochs" else {"hours": epochs / 3600}


each_kind = pytest.mark.parametrize("kind", ["epochs", "hours"])


@each_kind
@pytest.mark.parametrize("slots", [1, 3])
def test_a_loss_trains_its_budget_and_less_than_one_training_more(opened: Opened, slots: int, kind: str) -> None:
    search = opened(
        losses=["pnp"],
        training={"epochs": 4, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        search={"trials": 40, **budget(kind, 21)},
    )
    train_side_by_side(TrialQueue(only(search_stage(search))), slots, falling)
    trials = search.study("pnp", Stage.SEARCH).trials()
    # The time of trials that start before the first epoch ends is not predicted.
    more = 4 * slots if kind == "hours" else 4
    assert 21 <= sum(len(trial.intermediate_values) for trial in trials) < 21 + more
    assert len(trials) > 21 / 4, "what pruning left over was not spent"
    assert search.is_done(Stage.SEARCH)


@each_kind
def test_a_budget_outlives_the_driver_and_is_known(opened: Opened, kind: str) -> None:
    """Three of six epochs are left, one second each, for any number of trials."""
    search = opened(losses=["pnp"], search={"trials": 9, "pruner": "none", **budget(kind, 6)})
    progress = Progress(Console(quiet=True), [search], [Stage.SEARCH], concurrent=1, started=0)
    queue = TrialQueue(only(search_stage(search)), listeners=[progress])
    job = begun(queue)
    train(queue, job, falling)
    assert progress.seconds_left() == pytest.approx(3)
    assert not search.is_done(Stage.SEARCH)
    (row,) = status_of(Records(search.folder)).studies
    assert (row.epochs, row.planned, row.ended_early) == (3, 9, None)
    assert row.epoch_budget == (6 if kind == "epochs" else None)
    again = open_search(search.plan)
    assert [job.number for job in drive(again, falling)] == [1]
    assert again.is_done(Stage.SEARCH)
    assert drive(again, falling) == []
    assert Progress(Console(quiet=True), [again], [Stage.SEARCH], concurrent=1, started=0).seconds_left() == 0
    reason = write_summary(again).losses["pnp"].ended_early
    assert reason
    assert reason.endswith(f"are trained, and its budget is {6 if kind == 'epochs' else '0.00166667'}")
    (row,) = status_of(Records(search.folder)).studies
    assert (row.epochs, row.planned, row.ended_early) == (6, 2, reason)
