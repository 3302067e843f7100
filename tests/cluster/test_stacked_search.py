"""A whole search whose worker trains four trials at once, on a real Ray, and whose worker is killed in the middle.

It comes to the studies of the same search that trains each trial by itself, but for rounding.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import small_search
from optuna.trial import FrozenTrial, TrialState
from support.commands import command, holdout_here, plain, stored, without_ended_workers, write_search
from support.trained_here import trained_here

from search.study.records import epochs_of

pytestmark = pytest.mark.cluster

STACK = 4
EPOCHS = 6
STUDIES = {"proxy_anchor": 5, "proxy_anchor@confirm": 4, "proxy_anchor@final": 6}
PATIENCE_S = 500


def search_file(path: Path, images: Path, **resources: Any) -> Path:
    content = small_search(
        images,
        losses=["proxy_anchor"],
        search={"trials": 5, "sampler": "random", "pruner": "none", "max_concurrent": STACK},
        selection={"finalists": 1, "seeds": 2},
        final={"seeds": 3},
        resources=resources,
    )
    content["training"]["epochs"] = EPOCHS
    return write_search(path, content)


@pytest.fixture(scope="module")
def by_itself(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of the search that trains one trial after the other, in this process."""
    folder = tmp_path_factory.mktemp("by-itself")
    with pytest.MonkeyPatch.context() as patch:
        trained_here(patch)
        holdout_here("run", search_file(folder / "small.yaml", image_folder), "--runs", folder / "runs")
    return folder / "runs"


@pytest.fixture(scope="module")
def killed(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The runs folder of the search that trains four at once, whose worker was killed once, and what was said."""
    folder = tmp_path_factory.mktemp("stacked")
    runs, said = folder / "runs", folder / "said.txt"
    file = search_file(folder / "small.yaml", image_folder, stack=STACK)
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with said.open("wb") as output:
        driver = subprocess.Popen(command("run", file, "--runs", runs), stdout=output, stderr=output, env=environment)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not epochs(stored(runs, "small", "proxy_anchor")) > STACK:
                assert driver.poll() is None, said.read_text()
                assert time.monotonic() < deadline, said.read_text()
                time.sleep(0.05)
            os.kill(worker_of(runs), signal.SIGKILL)
            assert driver.wait(PATIENCE_S) == 0, said.read_text()
        finally:
            driver.kill()
            driver.wait()
    return runs, said.read_text()


def epochs(trials: Sequence[FrozenTrial]) -> int:
    return sum(len(epochs_of(trial)) for trial in trials)


def worker_of(runs: Path) -> int:
    """The process that trains, as the trials' logs are called: ``<start>-<host>-<process>.log``."""
    (process,) = {int(path.stem.rpartition("-")[2]) for path in (runs / "small").glob("trials/*/*/logs/*.log")}
    return process


def test_it_comes_to_the_studies_of_trials_by_themselves(by_itself: Path, killed: tuple[Path, str]) -> None:
    runs, _ = killed
    for study, count in STUDIES.items():
        alone, together = stored(by_itself, "small", study), stored(runs, "small", study)
        assert len(alone) == len(together) == count
        for one, other in zip(alone, together, strict=True):
            assert other.state == TrialState.COMPLETE
            assert other.params == one.params
            assert other.user_attrs["seed"] == one.user_attrs["seed"]
            assert [entry["epoch"] for entry in epochs_of(other)] == list(range(1, EPOCHS + 1))
            for mine, theirs in zip(epochs_of(one), epochs_of(other), strict=True):
                assert theirs["loss"] == pytest.approx(mine["loss"], rel=1e-4)
                assert theirs["metrics"] == pytest.approx(mine["metrics"], abs=1e-4)
                assert theirs["batches"] == mine["batches"]


def test_the_seeds_of_a_configuration_were_one_stack(killed: tuple[Path, str]) -> None:
    runs, _ = killed
    together = [
        entry.get("together", 1) for trial in stored(runs, "small", "proxy_anchor@final") for entry in epochs_of(trial)
    ]
    assert together.count(STACK) >= STACK * EPOCHS


def test_a_worker_that_is_killed_loses_nothing_and_nobody_is_blamed(killed: tuple[Path, str]) -> None:
    runs, said = killed
    assert plain(said).count("is tried again by itself") == STACK
    assert "Traceback" not in without_ended_workers(said)
    searched = stored(runs, "small", "proxy_anchor")
    sizes = {entry.get("together", 1) for trial in searched for entry in epochs_of(trial)}
    assert sizes >= {1, STACK}, "an epoch by itself, and then together again"
    for trial in searched:
        logs = sorted((runs / "small" / "trials" / "proxy_anchor" / f"{trial.number:04d}" / "logs").iterdir())
        told = "\n".join(path.read_text() for path in logs)
        assert told.count("Training is done.") == 1
        for other in set(range(5)) - {trial.number}:
            assert f"/{other:04d}" not in told
