"""The live display on real studies and queues: it agrees with the stored trials."""

import copy
import io
import random
import re
import time

from rich.console import Console
from support.driving import Opened, begun, record, train

from search.driver.listeners import Progress
from search.driver.stages import search_stage
from search.records.writable import WritableRecords
from search.stages import Stage
from search.study.pruners import Hyperband
from search.study.trial_queue import RunningTrial, TrialQueue
from search.text_table import NOTHING
from trainables.training.spec import Epochs

KNOWN_LATER = "time left known after the first trial"


def shown(progress: Progress) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=100, height=40).print(progress.rendered())
    return [line.rstrip() for line in out.getvalue().splitlines()]


def progress_of(search: WritableRecords, stages: list[Stage], concurrent: int = 1) -> Progress:
    """Return the display of a search on a terminal."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40)
    return Progress(console, [search], stages, concurrent=concurrent, started=time.time())


def report(queue: TrialQueue, job: RunningTrial, epoch: int, value: float) -> bool:
    return queue.on_trial_result(job, Epochs([record(epoch, value)], finished=epoch == job.spec.epochs))


def test_a_slot_shows_its_epochs_and_the_rung_that_it_must_pass(opened: Opened) -> None:
    search = opened(losses=["pnp"], training={"epochs": 8, "batch_size": 20, "images_per_class": 5, "image_size": 16})
    progress = progress_of(search, [Stage.SEARCH])
    queue = TrialQueue(iter([search_stage(search)]), listeners=[progress])
    jobs = [job for _ in range(3) if (job := queue.next_trial())]
    assert any(KNOWN_LATER in line for line in shown(progress))
    for job, values in zip(jobs, ([0.1, 0.2, 0.3], [0.15, 0.25], [0.1]), strict=True):
        for epoch, value in enumerate(values, 1):
            assert report(queue, job, epoch, value)
    lines = shown(progress)
    classes = len(search.plan.split.validation)
    assert re.fullmatch(rf"Searching, validated on {classes} classes, 00:00:\d\d so far", lines[0])
    assert lines[1] == KNOWN_LATER
    assert lines[3].split() == ["pnp", "0/3", "3", "0", "0"]
    # Rungs after 2 and 4 epochs. Of three trials at the first rung one passes, so it takes the better of 0.2 and 0.25.
    assert [line.split() for line in lines[5:8]] == [
        ["pnp", "0", "3/8", "30.00", NOTHING, "▁▄█"],
        ["pnp", "1", "2/8", "25.00", "at", "4", "▁█"],
        ["pnp", "2", "1/8", "10.00", "25.00", "at", "2", "▁"],
    ]
    assert not report(queue, jobs[2], 2, 0.24)
    assert shown(progress)[1] != KNOWN_LATER
    assert [line.split()[1] for line in shown(progress)[5:]] == ["0", "1"]


def test_exactly_the_trials_that_reach_the_bar_continue() -> None:
    """Compare with the decision of a copy of the pruner, for values around the bar."""
    comparison, generator, asked = Hyperband(steps=16, study="made"), random.Random(0), 0
    for number in range(1, 60):
        for step in range(1, 17):
            found = comparison.next_rung(number, step - 1)
            if found and found[0] == step and found[1] is not None:
                asked += 1
                for value in (found[1] - 1e-6, found[1], found[1] + 1e-6):
                    reason = copy.deepcopy(comparison).reason(number, step, value)
                    assert (reason is None) == (value >= found[1])
            if comparison.reason(number, step, generator.random()):
                break
    assert asked > 50


def test_the_time_left_is_that_of_all_stages(opened: Opened) -> None:
    """Epochs of a second: 4 trials of 3, 2 finalists with 2 seeds on halves, default and tuned with 2 seeds."""
    search = opened(losses=["pnp"], search={"trials": 4, "pruner": "none"})
    progress = progress_of(search, [Stage.SEARCH, Stage.SELECT, Stage.TEST])
    queue = TrialQueue(iter([search_stage(search)]), listeners=[progress])
    assert progress.seconds_left() is None
    train(queue, begun(queue), lambda job, epoch: epoch / 10)
    assert progress.seconds_left() == 9 + 12 + 12
    two = progress_of(search, [Stage.SEARCH, Stage.SELECT, Stage.TEST], concurrent=2)
    assert two.seconds_left() == (9 + 12 + 12) / 2, "stored epochs give an estimate before the first new one"
    many = progress_of(search, [Stage.SEARCH, Stage.SELECT, Stage.TEST], concurrent=99)
    assert many.seconds_left() == 3 + 1.5 + 3, "no stage is faster than a training"
    assert shown(two)[1] == "about 00:00:16 left in all"
    two.on_workers(1)
    assert two.seconds_left() == 9 + 12 + 12
    assert shown(two)[1] == "about 00:00:33 left in all; 1 of 2 workers"
