"""Trials that workers train together, without Ray: whatever ends or dies, each is trained once to its end.

A worker here is what an actor is to the driver: the trials that it was told to train, and how far each attempt is.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, count, repeat
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from optuna.trial import FrozenTrial, TrialState
from support.driving import drive, only, record

from search.driver.stages import confirm_stage, search_stage
from search.plan.search import OpenedSearch
from search.stages import Stage
from search.study.queued import RunningTrial, TrialListener
from search.study.trial_queue import MAX_CRASHES, TrialQueue
from search.trials import epochs_of
from trainables.spec import EpochRecord, TrialSpec

EPOCHS = 4
SAME_KEY = {"proxies_per_class": 1}
TRAINING = {"epochs": EPOCHS, "batch_size": 20, "images_per_class": 5, "image_size": 16}


class Follower(TrialListener):
    """Counts what the studies were told."""

    def __init__(self) -> None:
        self.epochs: Counter[tuple[str, int]] = Counter()
        self.ends: Counter[str] = Counter()

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        self.epochs[running.spec.directory, record["epoch"]] += 1

    def on_end(self, running: RunningTrial, trial: FrozenTrial) -> None:
        self.ends[running.spec.directory] += 1


class Workers:
    """``workers`` of up to ``size`` trials each; trials whose numbers are in ``killers`` end their process in epoch 2.

    ``diverge`` do so in epoch 2, and with ``fit`` no more than that many fit in memory at once.
    """

    def __init__(
        self,
        stages: Any,
        *,
        workers: int,
        size: int,
        killers: Sequence[int] = (),
        diverge: Sequence[int] = (),
        fit: int | None = None,
    ) -> None:
        self.follower = Follower()
        self.queue = TrialQueue(stages, [self.follower])
        self.size, self.at_once = size, workers * size
        self.killers, self.diverge, self.fit = killers, diverge, fit
        self.kept: Counter[str] = Counter()  # epochs that an attempt at the trial in a directory finds
        self.attempts: list[dict[str, int]] = [{} for _ in range(workers)]  # what each has reported, by directory
        self.stacks = [self.queue.stack(size) for _ in range(workers)]

    def begin(self, worker: int) -> None:
        self.stacks[worker] = self.queue.stack(self.size)
        specs = self.fill(worker)
        self.attempts[worker] = {spec.directory: 0 for spec in specs}

    def numbers(self, worker: int) -> list[int]:
        return [member.number for member in self.stacks[worker].members]

    def step(self, worker: int, event: str = "epoch") -> None:
        stack, attempts = self.stacks[worker], self.attempts[worker]
        if not stack.members:
            self.begin(worker)
            return
        together = {member.spec.directory: member for member in stack.members}
        assert set(attempts) == set(together)
        kills = any(member.number in self.killers and self.next(worker, member) == 2 for member in stack.members)
        if kills or event == "machine dies" or (event == "process dies" and len(together) > 1):
            stack.on_error("ActorDiedError", own=kills or event == "process dies")
            assert not stack.members
            self.attempts[worker] = {}
            return
        news = [self.news(worker, member, len(together)) for member in stack.members]
        ended = stack.on_result(news)
        for directory in ended:
            del attempts[directory]
        if stack.members:
            attempts |= {spec.directory: 0 for spec in self.fill(worker)}

    def fill(self, worker: int) -> Sequence[TrialSpec]:
        return self.stacks[worker].fill(at_once=self.at_once, workers=len(self.stacks))

    def next(self, worker: int, member: RunningTrial) -> int:
        directory = member.spec.directory
        return max(self.attempts[worker][directory], self.kept[directory]) + 1

    def news(self, worker: int, member: RunningTrial, together: int) -> dict[str, Any]:
        directory, attempts = member.spec.directory, self.attempts[worker]
        if self.fit is not None and together > self.fit:
            return {"directory": directory, "failure": {"cause": "OUT_OF_MEMORY", "reason": "too much"}}
        last = self.next(worker, member)
        if member.number in self.diverge and last == 2:
            return {"directory": directory, "failure": {"cause": "DIVERGED", "reason": "nan"}}
        told = range(attempts[directory] + 1, max(last, self.kept[directory]) + 1)
        if attempts[directory] < self.kept[directory]:  # one that goes on first tells what it has
            told = range(attempts[directory] + 1, self.kept[directory] + 1)
        attempts[directory] = told[-1]
        # An attempt may die before its last checkpoint is written.
        self.kept[directory] = max(self.kept[directory], told[-1] - 1)
        value = ((member.number * 7) % 10 + told[-1]) / 100
        records = [record(epoch, value) for epoch in told]
        return {"directory": directory, "records": records, "finished": told[-1] == member.spec.training.epochs}

    def finish(self, events: Sequence[tuple[int, str]] = ()) -> None:
        """Let each event come, and then train what is left; of nothing is too much run at once."""
        turns = chain(events, zip(count(), repeat("epoch")))
        for number, (worker, event) in enumerate(turns):
            if self.queue.done and not any(stack.members for stack in self.stacks):
                return
            self.step(worker % len(self.stacks), event)
            where = Counter(directory for attempts in self.attempts for directory in attempts)
            assert not where or max(where.values()) == 1, "two workers train one trial"
            assert where.total() <= self.at_once
            for stack in self.stacks:
                assert len(stack.members) <= self.size
                assert len({member.stack_key for member in stack.members}) <= 1
            assert number < 2000, "it never ends"


def searched(opened: Callable[..., OpenedSearch], trials: int = 8, **changes: Any) -> OpenedSearch:
    given = {"losses": ["mpa"], "training": TRAINING, "search": {"trials": trials, "sampler": "random"}, **changes}
    return opened(**given)


def assert_each_once(search: OpenedSearch, workers: Workers, trials: int, losses: Sequence[str] = ("mpa",)) -> None:
    """All trials are there and ended once, each of their epochs was told once, and those that complete have all."""
    assert set(workers.follower.epochs.values()) == {1}
    assert set(workers.follower.ends.values()) == {1}
    assert workers.follower.ends.total() == trials * len(losses)
    for loss in losses:
        found = search.trials(loss, Stage.SEARCH)
        assert len(found) == trials
        for trial in found:
            assert trial.state.is_finished()
            epochs = [entry["epoch"] for entry in epochs_of(trial)]
            assert epochs == list(range(1, len(epochs) + 1))
            assert trial.state != TrialState.COMPLETE or len(epochs) == EPOCHS


EVENTS = st.tuples(st.integers(0, 2), st.sampled_from(["epoch", "epoch", "process dies", "machine dies"]))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(EVENTS, max_size=40),
    workers=st.integers(1, 3),
    size=st.integers(2, 4),
    killers=st.sets(st.integers(1, 7), max_size=2),
    diverge=st.sets(st.integers(1, 7), max_size=2),
    fit=st.sampled_from([None, 1, 2]),
    mixed=st.booleans(),
    name=st.integers(0, 10**9),
)
def test_each_trial_is_trained_once_whatever_dies(
    search_made: Callable[..., OpenedSearch],
    tmp_path_factory: pytest.TempPathFactory,
    events: list[tuple[int, str]],
    workers: int,
    size: int,
    killers: set[int],
    diverge: set[int],
    fit: int | None,
    mixed: bool,
    name: int,
) -> None:
    """Who kills processes is found, also where nobody else was to blame; the others are not blamed for it."""
    search = searched(
        lambda **changes: search_made(tmp_path_factory.mktemp("runs"), **changes),
        space={"mpa": {"proxies_per_class": [1, 2] if mixed else 1}},
    )
    driven = Workers(
        only(search_stage(search)), workers=workers, size=size, killers=[*killers], diverge=[*diverge], fit=fit
    )
    driven.finish(events)
    assert_each_once(search, driven, 8)
    for trial in search.trials("mpa", Stage.SEARCH):
        cause = trial.user_attrs.get("failure", {}).get("cause")
        if trial.number in killers:
            assert cause == "LOST"
            assert f"its process died {MAX_CRASHES} times" in trial.user_attrs["outcome"]
        else:
            assert cause == ("DIVERGED" if trial.number in diverge else None)


def test_the_sampler_counts_members_of_a_stack(opened: Callable[..., OpenedSearch]) -> None:
    """A trial that is proposed and has another key waits for a worker; never more than the slots are proposed."""
    search = searched(
        opened,
        12,
        space={"mpa": {"proxies_per_class": [1, 2]}},
        search={"trials": 12, "sampler": "random", "pruner": "none"},
    )
    workers = Workers(only(search_stage(search)), workers=2, size=3)
    most = 0
    for turn in range(400):
        workers.step(turn % 2)
        most = max(most, search.study("mpa", Stage.SEARCH).tally.running)
        if workers.queue.done:
            break
    assert most == 6
    assert_each_once(search, workers, 12)


def test_the_place_of_a_pruned_trial_is_filled(opened: Callable[..., OpenedSearch]) -> None:
    search = searched(opened, 6, space={"mpa": SAME_KEY}, search={"trials": 6, "sampler": "random"})
    workers = Workers(only(search_stage(search)), workers=1, size=3, diverge=[1])
    workers.step(0)
    assert workers.numbers(0) == [0, 1, 2]
    workers.step(0)
    workers.step(0)
    assert workers.numbers(0) == [0, 2, 3]
    workers.finish()
    assert_each_once(search, workers, 6)


def test_each_loss_has_its_own_stacks(opened: Callable[..., OpenedSearch]) -> None:
    search = searched(
        opened, 3, losses=["mpa", "pnp", "proxy_anchor"], space={"mpa": SAME_KEY, "pnp": {"variant": "O"}}
    )
    workers = Workers(only(search_stage(search)), workers=2, size=2)
    for worker in (0, 1):
        workers.begin(worker)
    assert [{member.loss for member in stack.members} for stack in workers.stacks] == [{"mpa"}, {"pnp"}]
    assert [len(stack.members) for stack in workers.stacks] == [2, 2]
    workers.finish()
    assert_each_once(search, workers, 3, search.config.loss_names)


@pytest.mark.parametrize(
    ("trials", "sizes"), [(2, [1, 1, 0]), (3, [1, 1, 1]), (5, [2, 2, 1]), (10, [4, 4, 2]), (16, [4, 4, 4])]
)
def test_few_trials_are_spread_over_the_workers(
    opened: Callable[..., OpenedSearch], trials: int, sizes: list[int]
) -> None:
    search = searched(opened, trials, space={"mpa": SAME_KEY})
    workers = Workers(only(search_stage(search)), workers=3, size=4)
    for worker in range(3):
        workers.begin(worker)
    assert [len(stack.members) for stack in workers.stacks] == sizes
    workers.finish()
    assert_each_once(search, workers, trials)


def test_the_seeds_of_one_configuration_are_one_stack(opened: Callable[..., OpenedSearch]) -> None:
    search = searched(
        opened, 3, search={"trials": 3, "pruner": "none"}, selection={"finalists": 2, "seeds": 4},
        space={"mpa": {"proxies_per_class": [1, 2, 4]}},
    )  # fmt: skip
    drive(search, lambda job, epoch: job.number / 10)
    workers = Workers(iter([confirm_stage(search)]), workers=1, size=3)
    trained: list[list[tuple[int, int]]] = []
    while not workers.queue.done:
        workers.step(0)
        members = [search.study("mpa", Stage.SELECT).trial(number).user_attrs for number in workers.numbers(0)]
        seeds = [(entry["source_trial"], entry["seed"]) for entry in members]
        if seeds and seeds not in trained:
            trained.append(seeds)
    configurations = [[configuration for configuration, _ in seeds] for seeds in trained]
    assert configurations == [[2, 0], [1], [2, 2, 2], [2], [1, 1, 1], [1]]  # first one confirmation each
    assert all(trial.state == TrialState.COMPLETE for trial in search.trials("mpa", Stage.SELECT))


def test_members_of_a_dead_stack_train_alone_first(
    opened: Callable[..., OpenedSearch], caplog: pytest.LogCaptureFixture
) -> None:
    search = searched(opened, 3, space={"mpa": SAME_KEY}, search={"trials": 3, "pruner": "none"})
    workers = Workers(only(search_stage(search)), workers=1, size=3)
    workers.step(0)
    workers.step(0)
    workers.step(0, "process dies")
    assert caplog.text.count("was lost (ActorDiedError); retrying it alone.") == 3
    trained = []
    while len(workers.numbers(0)) != 3:
        workers.step(0)
        trained.append(workers.numbers(0))
    begun = [numbers for before, numbers in zip([[], *trained], trained) if numbers and numbers != before]
    assert begun == [[0], [1], [2], [0, 1, 2]]
    assert [member.crashes for member in workers.stacks[0].members] == [0, 0, 0]
    workers.finish()
    assert_each_once(search, workers, 3)


def test_a_stack_too_large_for_memory_shrinks(
    opened: Callable[..., OpenedSearch], caplog: pytest.LogCaptureFixture
) -> None:
    search = searched(opened, 6, space={"mpa": SAME_KEY}, search={"trials": 6, "pruner": "none"})
    workers = Workers(only(search_stage(search)), workers=1, size=4, fit=2)
    workers.finish()
    assert_each_once(search, workers, 6)
    assert {trial.state for trial in search.trials("mpa", Stage.SEARCH)} == {TrialState.COMPLETE}
    (said,) = caplog.messages
    assert said == (
        "4 trials like small/mpa trial 0 do not fit in memory together (too much); retrying at most 2 at once. "
        "Set resources.stack to 2 to avoid this in another search."
    )


def test_trials_that_a_worker_never_received_are_retried(opened: Callable[..., OpenedSearch]) -> None:
    """The failed call is not reported: the worker never mentions the trial."""
    search = searched(opened, 4, space={"mpa": SAME_KEY}, search={"trials": 4, "pruner": "none"})
    queue = TrialQueue(only(search_stage(search)))
    stack = queue.stack(2)
    first, second = stack.fill(at_once=2, workers=1)
    told = {"directory": first.directory, "records": [record(1, 0.1)], "finished": False}
    assert stack.on_result([told]) == (second.directory,)
    (member,) = stack.members
    assert member.spec is first
    assert not member.alone
    again = queue.stack(2)
    assert again.fill(at_once=2, workers=1) == (second,), "by itself, and before anything that is new"


def test_stacks_of_one_change_no_proposals(opened: Callable[..., OpenedSearch]) -> None:
    """With one trial per worker, the proposals are those of the queue."""
    search = searched(opened, 5)
    workers = Workers(only(search_stage(search)), workers=2, size=1)
    workers.finish()
    other = searched(opened, 5, name="other")
    queue = TrialQueue(only(search_stage(other)))
    asked = [running.number for _ in range(2) if (running := queue.next_trial())]
    assert asked == [0, 1]
    first = [trial.params for trial in search.trials("mpa", Stage.SEARCH)[:2]]
    assert first == [trial.params for trial in other.trials("mpa", Stage.SEARCH)]
