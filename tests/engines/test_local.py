"""Local worker processes: deaths, silence, slots, and what is left of them."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import scipy.stats  # noqa: F401  the sampler's, whose import may take as long as these workers may be silent
from optuna.trial import FrozenTrial, TrialState
from support.driving import Opened, only
from support.forks import alive, forked
from support.odd_workers import MadeUpLocal, dies, dies_always, fails

from search.config.sections import ResourcesSection
from search.driver.stages import search_stage
from search.engines.local import Local, _environment
from search.records.writable import WritableRecords
from search.stages import Stage
from search.study.trial_queue import TrialQueue
from trainables.common.errors import Failure

LOSS = "pnp"
HALF = ResourcesSection(cpus_per_trial=0.5)
"""Two trials at once, even on a machine with one CPU."""

ODD_NAMES = ("a:b", "a;b", "a b", "it's", 'a"b', "a\nb", "a\\b", "%41")
Run = Callable[[], list[FrozenTrial]]


@pytest.fixture
def search(opened: Opened) -> WritableRecords:
    search = opened(losses=[LOSS], search={"trials": 3, "pruner": "none"})
    search.plan.images.make()
    return search


@pytest.fixture
def folder(search: WritableRecords) -> Path:
    """The search's folder, which workers see."""
    return search.folder.path


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """An engine with two made-up workers, which all tests share: their start takes as long as a test.

    They find the modules ``in_folder_0``, …, each in a folder of an odd name.
    """
    above = tmp_path_factory.mktemp("folders")
    engine = MadeUpLocal(HALF, max_concurrent=2)
    with pytest.MonkeyPatch.context() as patch:
        for number, name in enumerate(ODD_NAMES):
            (above / name).mkdir()
            (above / name / f"in_folder_{number}.py").write_text("def double(x):\n    return 2 * x\n")
            patch.syspath_prepend(above / name)
        with engine.session():
            yield engine


@pytest.fixture
def run(search: WritableRecords, made_up: Local) -> Run:
    """Train the search with two workers."""

    def run() -> list[FrozenTrial]:
        made_up.run(TrialQueue(only(search_stage(search))), made_up.slots())
        assert made_up.map(abs, [-2, -1]) == [2, 1], "the workers are free"
        return list(search.trials(LOSS, Stage.SEARCH))

    return run


def epochs(folder: Path) -> list[tuple[str, int, int]]:
    """Trial, process and epoch of all that was trained, in order."""
    lines = [line.split() for line in (folder / "epochs").read_text().splitlines()]
    return [(trial, int(process), int(epoch)) for trial, process, epoch in lines]


def assert_complete(trials: list[FrozenTrial]) -> None:
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 3
    assert [sorted(trial.intermediate_values) for trial in trials] == [[1, 2, 3]] * 3


def test_two_slots_train_two_trials_at_once_and_are_reused(run: Run, made_up: Local, folder: Path) -> None:
    assert made_up.slots() == 2
    (folder / "meet").touch()
    assert_complete(run())
    trained = epochs(folder)
    assert len({process for _, process, _ in trained}) == 2
    first = [trained.index(entry) for entry in trained if entry[2] == 1][:2]
    assert max(first) < min(trained.index(entry) for entry in trained if entry[2] == 3)


@pytest.mark.parametrize(
    ("fault", "said"), [("dies", "its process was ended by SIGKILL"), ("hangs", "no report from its worker for ")]
)
def test_a_trial_whose_worker_ends_is_retried(
    fault: str, said: str, run: Run, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / fault).touch()
    assert_complete(run())
    assert not (folder / fault).exists()
    assert [epoch for _, _, epoch in epochs(folder)].count(1) == 4, "one of three trials is trained again"
    (message,) = [message for message in caplog.messages if "was lost" in message]
    assert said in message
    assert message.endswith("retrying.")


def test_calls_are_tried_again_when_their_worker_dies(made_up: Local, tmp_path: Path) -> None:
    assert made_up.map(dies, [str(tmp_path / name) for name in "ab"]) == ["a", "b"]
    with pytest.raises(Failure, match=r"died 3 times at the same task \(its process was ended by SIGKILL\)"):
        made_up.map(dies_always, [0])
    with pytest.raises(Failure, match="It could not be done"):
        made_up.map(fails, [0])
    assert made_up.map(abs, [-1]) == [1]


def test_modules_are_found_in_folders_of_any_name(made_up: Local) -> None:
    doubles = [import_module(f"in_folder_{number}").double for number in range(len(ODD_NAMES))]
    assert [made_up.map(double, [3]) for double in doubles] == [[6]] * len(ODD_NAMES)


def test_a_worker_that_cannot_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (python := tmp_path / "python").write_text("#!/bin/sh\necho 'OSError: no room' >&2\nexit 1\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    engine = Local(HALF, max_concurrent=1)
    with engine.session(), pytest.raises(Failure, match=r"ended with code 1, OSError: no room\)"):
        engine.map(abs, [-1])


def drive(connection: Connection, pipe: Path) -> None:
    """Send the process of a worker, and let it read from a pipe."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
    engine = MadeUpLocal(ResourcesSection(), 1)
    with engine.session():
        connection.send(engine._processes[0]._process.pid)
        engine.map(Path.read_text, [pipe])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_its_driver(number: int, tmp_path: Path) -> None:
    """A worker that is in the middle of a call."""
    os.mkfifo(pipe := tmp_path / "pipe")
    driver, connection = forked(drive, pipe)
    worker = connection.recv()
    with pipe.open("w"):  # once the worker reads
        assert alive(worker)
        os.kill(driver.pid, number)
        driver.join(60)
        deadline = time.monotonic() + 60
        while alive(worker):
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize(("gpus_per_trial", "seen"), [(0.5, ["0", "0", "1", "1"]), (1, ["0", "1", "2", "3"])])
def test_workers_see_their_own_gpus(gpus_per_trial: float, seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    resources = ResourcesSection(gpus_per_trial=gpus_per_trial)
    assert [_environment(number, resources)["CUDA_VISIBLE_DEVICES"] for number in range(len(seen))] == seen
