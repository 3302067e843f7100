"""The live display on real studies and queues: it agrees with the stored trials and fits the terminal."""

import copy
import io
import random
import re
import time
from collections.abc import Iterator
from itertools import chain, count

import pytest
from rich.console import Console
from support.driving import Opened, begun, record, train

from search.driver.listeners import Progress
from search.driver.progress_view import time_left, view
from search.driver.stages import confirm_stage, search_stage
from search.records.writable import WritableRecords
from search.stages import Stage
from search.study.pruners import Hyperband
from search.study.trial_queue import QueuedStage, RunningTrial, TrialQueue
from search.text_table import NOTHING
from trainables.training.spec import Epochs

KNOWN_LATER = "time left known after the first trial"


def shown(progress: Progress) -> list[str]:
    return lines_of(progress.rendered(), 100, 40)


def lines_of(rendered: object, width: int, height: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, height=height).print(rendered)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def progress_of(
    search: WritableRecords, stages: list[Stage], out: io.StringIO | None = None, concurrent: int = 1
) -> Progress:
    """Return the display of a search on a terminal, or in lines that are written to ``out``."""
    console = Console(file=out or io.StringIO(), force_terminal=out is None, width=200 if out else 100, height=40)
    return Progress(console, [search], stages, concurrent=concurrent, started=time.time())


def stages_of(search: WritableRecords) -> Iterator[QueuedStage]:
    yield search_stage(search)
    yield confirm_stage(search)


def by_number(job: RunningTrial, epoch: int) -> float:
    """Return a value that depends on the seed and grows with the epoch."""
    return 0.3 + job.spec.seed % 7 / 50 + epoch / 100


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
    train(queue, begun(queue), by_number)
    assert progress.seconds_left() == 9 + 12 + 12
    two = progress_of(search, [Stage.SEARCH, Stage.SELECT, Stage.TEST], concurrent=2)
    assert two.seconds_left() == (9 + 12 + 12) / 2, "stored epochs give an estimate before the first new one"
    many = progress_of(search, [Stage.SEARCH, Stage.SELECT, Stage.TEST], concurrent=99)
    assert many.seconds_left() == 3 + 1.5 + 3, "no stage is faster than a training"
    assert shown(two)[1] == "about 00:00:16 left in all"
    two.on_workers(1)
    assert two.seconds_left() == 9 + 12 + 12
    assert shown(two)[1] == "about 00:00:33 left in all; 1 of 2 workers"


@pytest.mark.parametrize("width", [40, 200])
@pytest.mark.parametrize("height", [10, 24, 50])
@pytest.mark.parametrize(("studies", "slots"), [(1, 1), (3, 64), (30, 256)])
def test_it_fits_the_terminal_and_counts_what_is_not_shown(studies: int, slots: int, width: int, height: int) -> None:
    rows = [(f"mylab.losses:Loss{n}", "3/1000", "9", "1", "0", "0.1234") for n in range(studies)]
    shown = [(f"mylab.losses:Loss{n % 9} {n}", "3/80", "0.2345", "0.3456 at 4", "▁█▄") for n in range(slots)]
    rendered = view("Searching", 59, time_left(93784), rows, shown[:height], slots=slots, width=width, height=height)
    lines = lines_of(rendered, width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if "…" in line and not line.startswith("… and ")]
    left_out = [int(line.split()[2]) for line in lines if line.startswith("… and ")]
    cells = list(chain.from_iterable(line.split() for line in lines))
    assert sum(left_out) + sum(cell.startswith("mylab") for cell in cells) in (
        studies + slots,
        studies,  # a terminal of ten lines may have none left for the slots
    )
    assert "26:03:04" in lines[1]


def test_a_confirmation_shows_its_half_and_classes_and_no_best_value(opened: Opened) -> None:
    search = opened(losses=["pnp"], search={"trials": 4, "pruner": "none"}, selection={"finalists": 2, "seeds": 2})
    progress = progress_of(search, [Stage.SEARCH, Stage.SELECT], out := io.StringIO())
    queue = TrialQueue(stages_of(search), listeners=[progress])
    while job := queue.next_trial():
        train(queue, job, by_number)
    confirmed, split = search.trials("pnp", Stage.SELECT), search.plan.split
    assert shown(progress)[3].split()[1] == f"{len(confirmed)}/{len(confirmed)}"
    assert progress.seconds_left() == 0
    lines = [line for line in out.getvalue().splitlines() if line.startswith("confirming ")]
    for line, trial in zip(lines, confirmed, strict=True):
        source, half, seed = (trial.user_attrs[key] for key in ("source_trial", "half", "seed"))
        same = ", those of the search" * ({*split.half(half)[1]} == {*split.validation})
        value = f"{100 * trial.value:.2f} ({len(split.half(half)[1])} classes{same}) ["
        assert line.startswith(f"confirming small/pnp trial {source}, half {half}, seed {seed}: {value}")
        assert "best" not in line
    assert out.getvalue().count("values may be lower than in the search") == 1


def test_without_a_terminal_a_long_training_is_heard_of(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    search = opened(losses=["pnp"], search={"trials": 1}, split={"folds": 4})
    minutes = count(int(time.monotonic()) + 60, 60)
    progress = progress_of(search, [Stage.SEARCH], out := io.StringIO())
    queue = TrialQueue(iter([search_stage(search)]), listeners=[progress])
    job = begun(queue)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(minutes)))
    each, most = search.config.training.epochs, 4 * search.config.training.epochs
    for step in range(1, most):
        fold, epoch = divmod(step - 1, each)
        queue.on_trial_result(job, Epochs([record(epoch + 1, 0.5, fold=fold + 1)], finished=False))
    lines = [f"small/pnp trial 0: epoch {step} of {most}" for step in range(1, most)]
    assert out.getvalue().splitlines()[-len(lines) :] == lines


def test_without_a_terminal_it_prints_lines_and_pruned_trials_as_a_number(opened: Opened) -> None:
    training = {"epochs": 8, "batch_size": 20, "images_per_class": 5, "image_size": 16}
    search = opened(losses=["pnp"], search={"trials": 8}, training=training)
    progress = progress_of(search, [Stage.SEARCH], out := io.StringIO())
    queue = TrialQueue(iter([search_stage(search)]), listeners=[progress])
    with progress:
        while job := queue.next_trial():
            train(queue, job, lambda job, epoch: 0.5 - job.number / 100)
    first, *lines = out.getvalue().splitlines()
    assert first == "Searching …"
    told = r"small/pnp trial 0: 50\.00, all 8 epochs trained \[1/8; best 50\.00; about 00:00:\d\d left in all\]"
    assert re.fullmatch(told, lines[0])
    states = [trial.state.name for trial in search.trials("pnp", Stage.SEARCH)]
    assert states.count("PRUNED") > 0
    assert states[-1] == "PRUNED"
    assert len(lines) == states.count("COMPLETE") + 1, "the last trial ends the count, pruned or not"
    assert not any("pruned after" in line for line in lines[:-1])
    assert f"[8/8, {states.count('PRUNED')} pruned; best " in lines[-1]
    assert lines[-1].endswith("no training left]")
