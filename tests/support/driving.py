"""A trial queue driven without a cluster, by trainings whose values are made up."""

from collections.abc import Callable, Iterator, Mapping

from optuna.trial import FrozenTrial, create_trial

from search.driver.stages import search_stage
from search.records.writable import WritableRecords
from search.study.trial_queue import QueuedStage, RunningTrial, TrialQueue
from spaces.search_space import SearchSpace
from spaces.space import Value
from trainables.training.spec import EpochRecord, Epochs

TrialValue = Callable[[RunningTrial, int], float]
Opened = Callable[..., WritableRecords]
"""A function that opens a search with changes of its file."""


def made_trial(space: SearchSpace, params: Mapping[str, Value]) -> FrozenTrial:
    """Return a trial of ``space`` with ``params`` and seed 0."""
    distributions = {name: space.parameters[name].distribution for name in params}
    return create_trial(value=0.0, params=dict(params), distributions=distributions, user_attrs={"seed": 0})


def record(epoch: int, value: float, **fold: int) -> EpochRecord:
    return EpochRecord(
        epoch=epoch,
        loss=1.0,
        batches=5,
        metrics={"map_at_r": value, "recall_at_1": value},
        start=epoch,
        end=epoch + 1,
        checkpoint=None,
        **fold,
    )


def begun(queue: TrialQueue) -> RunningTrial:
    """Return the next trial of a queue that has one."""
    running = queue.next_trial()
    assert running is not None
    return running


def train(queue: TrialQueue, job: RunningTrial, trial_value: TrialValue) -> None:
    """Report the epochs of a trial until it ends."""
    epochs = job.spec.training.epochs
    for epoch in range(1, epochs + 1):
        news = Epochs([record(epoch, trial_value(job, epoch))], finished=epoch == epochs)
        if not queue.on_trial_result(job, news):
            return


def train_side_by_side(queue: TrialQueue, slots: int, trial_value: TrialValue) -> None:
    """Train a whole queue with ``slots`` trials at once; the oldest ends first."""
    live: list[RunningTrial] = []
    while not queue.done:
        while len(live) < slots and (job := queue.next_trial()):
            live.append(job)
        if live:
            train(queue, live.pop(0), trial_value)


def only(stage: QueuedStage) -> Iterator[QueuedStage]:
    yield stage


def drive(search: WritableRecords, trial_value: TrialValue = lambda job, epoch: epoch / 10) -> list[RunningTrial]:
    """Train a whole search stage, one trial after the other."""
    queue = TrialQueue(only(search_stage(search)))
    jobs = []
    while job := queue.next_trial():
        jobs.append(job)
        train(queue, job, trial_value)
    assert queue.done
    return jobs
