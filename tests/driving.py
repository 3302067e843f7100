"""Drives an agenda without a cluster: trainings whose values are made up."""

from collections.abc import Callable, Iterator

from search.agenda import Agenda, Job, Stage
from search.search import Search
from trainables.train import EpochRecord

Worth = Callable[[Job, int], float]


def record(epoch: int, value: float, **fold: int) -> EpochRecord:
    return EpochRecord(
        epoch=epoch,
        loss=1.0,
        metrics={"map_at_r": value, "recall_at_1": value},
        start=epoch,
        end=epoch + 1,
        checkpoint=None,
        **fold,
    )


def train(agenda: Agenda, job: Job, worth: Worth) -> None:
    """Give a job its epochs until it ends."""
    epochs = job.spec.training.epochs
    for epoch in range(1, epochs + 1):
        news = {"records": [record(epoch, worth(job, epoch))], "finished": epoch == epochs}
        if not agenda.take_result(job, news):
            return


def only(stage: Stage) -> Iterator[Stage]:
    yield stage


def drive(search: Search, worth: Worth = lambda job, epoch: epoch / 10) -> list[Job]:
    """Train a whole search stage, one job after another."""
    agenda = Agenda(only(search.plan.search_stage(search.storage)))
    jobs = []
    while job := agenda.next_job():
        jobs.append(job)
        train(agenda, job, worth)
    assert agenda.done
    return jobs
