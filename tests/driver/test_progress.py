"""The live display on real studies and queues: it agrees with the stored trials and fits the terminal."""

import copy
import io
import random
import re
import time
from collections.abc import Iterator
from itertools import chain, count

import pytest
from optuna.trial import create_trial
from rich.console import Console
from support.driving import Opened, begun, record, train

from search.driver.choice import freeze
from search.driver.listeners import Progress
from search.driver.progress_view import time_left, view
from search.driver.stages import confirm_stage, final_stage, search_stage, unchanged_selection
from search.records.records import Records
from search.records.status import status_of
from search.records.writable import WritableRecords, open_search
from search.stages import Stage
from search.study.pruners import Hyperband, Median, Pruner
from search.study.trial_queue import QueuedStage, RunningTrial, TrialQueue
from search.text_table import NOTHING, sparkline
from trainables.training.spec import Epochs

KNOWN_LATER = "time left known after the first trial"


def terminal(width: int = 100, height: int = 40) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)


def shown(progress: Progress, width: int = 100, height: int = 40) -> list[str]:
    return lines_of(progress.rendered(), width, height)


def lines_of(rendered: object, width: int, height: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, height=height).print(rendered)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def progress_of(
    search: WritableRecords, stages: list[Stage], console: Console | None = None, concurrent: int = 1
) -> Progress:
    return Progress(console or terminal(), [search], stages, concurrent=concurrent, started=time.time())


def printing(search: WritableRecords, stages: list[Stage]) -> tuple[Progress, io.StringIO]:
    """Return the display of a search without a terminal, and what it prints."""
    out = io.StringIO()
    return progress_of(search, stages, Console(file=out, width=200)), out


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


@pytest.mark.parametrize(
    "comparison", [Hyperband(steps=16, study="made"), Median(steps=6)], ids=["hyperband", "median"]
)
def test_exactly_the_trials_that_reach_the_bar_continue(comparison: Pruner) -> None:
    """Compare with the decision of a copy of the pruner, for values around the bar."""
    generator, asked, steps = random.Random(0), 0, comparison.steps
    for number in range(1, 60):
        values: dict[int, float] = {}
        for step in range(1, steps + 1):
            found = comparison.next_rung(number, step - 1)
            if found and found[0] == step and found[1] is not None:
                asked += 1
                for value in (found[1] - 1e-6, found[1], found[1] + 1e-6):
                    reason = copy.deepcopy(comparison).reason(number, step, value)
                    assert (reason is None) == (value >= found[1])
            value = generator.random()
            values[step] = value
            if comparison.reason(number, step, value):
                break
        else:
            comparison.end(create_trial(value=value, intermediate_values=values))
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


def test_after_a_resume_it_counts_what_status_counts(opened: Opened) -> None:
    search = opened(search={"trials": 5})
    queue = TrialQueue(iter([search_stage(search)]))
    for _ in range(6):
        train(queue, begun(queue), by_number)
    search.close()
    again = open_search(search.plan)
    progress = progress_of(again, [Stage.SEARCH])
    assert shown(progress)[0].startswith("Starting workers")
    assert (progress.seconds_left() or 0) > 0
    assert TrialQueue(iter([search_stage(again)]), listeners=[progress]).next_trial()
    again.close()
    status = {row.study: row for row in status_of(Records(search.folder)).studies}
    found = {line.split()[0]: line.split()[1:] for line in shown(progress)[3:5]}
    assert found == {
        name: [
            f"{row.complete + row.pruned + row.failed}/{row.planned}",
            *map(str, (row.interrupted, row.pruned, row.failed)),  # no driver holds the search
            f"{100 * row.best:.2f}",
        ]
        for name, row in status.items()
    }


def test_while_the_test_is_to_come_something_is_left() -> None:
    assert time_left(None, tests=True) == KNOWN_LATER
    assert time_left(61, tests=True) == time_left(61) == "about 00:01:01 left in all"
    assert time_left(0.4, tests=True) == "the scoring of the test is left"
    assert time_left(0) == "nothing left"


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


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [([], 4, ""), ([0.5], 4, "▁"), ([0.0, 1.0], 4, "▁█"), ([9.0, 0.0, 0.5, 1.0], 3, "▁▄█"), ([0.3] * 9, 4, "▁▁▁▁")],
)
def test_a_sparkline_goes_from_the_least_to_the_greatest(values: list[float], width: int, expected: str) -> None:
    assert sparkline(values, width) == expected


def test_a_confirmation_shows_its_half_and_classes_and_no_best_value(opened: Opened) -> None:
    search = opened(losses=["pnp"], search={"trials": 4, "pruner": "none"}, selection={"finalists": 2, "seeds": 2})
    progress, out = printing(search, [Stage.SEARCH, Stage.SELECT])
    queue = TrialQueue(stages_of(search), listeners=[progress])
    slots, last = [], [""]
    while job := queue.next_trial():
        slots.append(shown(progress)[-1].split()[:4])
        train(queue, job, by_number)
        last = shown(progress)
        if job.stage is Stage.SELECT:
            assert last[0].startswith("Confirming the finalists")
            assert "best" not in last[2]
            assert int(last[3].split()[1].split("/")[0]) == len(slots) - 4
    confirmed, split = search.trials("pnp", Stage.SELECT), search.plan.split
    assert last[3].split()[1] == f"{len(confirmed)}/{len(confirmed)}"
    assert progress.seconds_left() == 0
    lines = [line for line in out.getvalue().splitlines() if line.startswith("confirming ")]
    assert len(lines) == len(confirmed) > 0
    for line, trial, slot in zip(lines, confirmed, slots[-len(confirmed) :], strict=True):
        source, of = trial.user_attrs["source_trial"], trial.user_attrs["half"]
        classes = len(split.half(of)[1])
        same = ", those of the search" * ({*split.half(of)[1]} == {*split.validation})
        seed = trial.user_attrs["seed"]
        value = f"{100 * trial.value:.2f} ({classes} classes{same}) ["
        assert line.startswith(f"confirming small/pnp trial {source}, half {of}, seed {seed}: {value}")
        assert "best" not in line
        assert slot[:3] == ["pnp", f"{source},", "half"]
    assert out.getvalue().count("values may be lower than in the search") == 1


def test_a_final_training_on_all_classes_shows_its_training_loss(opened: Opened) -> None:
    search = opened(
        losses=["pnp"], search={"trials": 2, "pruner": "none"}, selection={"finalists": 1, "seeds": 1},
        final={"seeds": 1, "train_on": "all"},
    )  # fmt: skip

    def stages() -> Iterator[QueuedStage]:
        yield from stages_of(search)
        freeze(search)
        yield final_stage(search, unchanged_selection(search))

    progress, out = printing(search, list(Stage))
    queue = TrialQueue(stages(), listeners=[progress])
    while job := queue.next_trial():
        if job.stage is Stage.TEST:
            losses = [2.5 - epoch / 4 for epoch in range(1, job.spec.epochs + 1)]
            records = [{**record(at, 0), "loss": loss, "metrics": {}} for at, loss in enumerate(losses, 1)]
            queue.on_trial_result(job, Epochs(records, finished=True))
        else:
            train(queue, job, by_number)
    (line, *_) = [line for line in out.getvalue().splitlines() if line.startswith("training for the test: ")]
    assert f": training loss {min(losses):.4f} [" in line


@pytest.mark.parametrize("folds", [None, 4])
def test_without_a_terminal_a_long_training_is_heard_of(
    folds: int | None, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = opened(losses=["pnp"], search={"trials": 1}, split={"folds": folds})
    minutes = count(int(time.monotonic()) + 60, 60)
    progress, out = printing(search, [Stage.SEARCH])
    queue = TrialQueue(iter([search_stage(search)]), listeners=[progress])
    job = begun(queue)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(minutes)))
    each, most = search.config.training.epochs, search.config.training.epochs * (folds or 1)
    for step in range(1, most):
        fold, epoch = divmod(step - 1, each)
        found = record(epoch + 1, 0.5, fold=fold + 1) if folds else record(step, 0.5)
        queue.on_trial_result(job, Epochs([found], finished=False))
    lines = [f"small/pnp trial 0: epoch {step} of {most}" for step in range(1, most)]
    assert out.getvalue().splitlines()[-len(lines) :] == lines


def test_without_a_terminal_it_prints_lines_and_pruned_trials_as_a_number(opened: Opened) -> None:
    training = {"epochs": 8, "batch_size": 20, "images_per_class": 5, "image_size": 16}
    search = opened(losses=["pnp"], search={"trials": 8}, training=training)
    progress, out = printing(search, [Stage.SEARCH])
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
    assert lines[-1].endswith("nothing left]")
