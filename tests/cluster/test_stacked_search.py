"""A search whose worker trains four trials at once, on a real Ray, and whose worker is killed in the middle."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.commands import command, holdout_here, plain, stored, without_ended_workers
from support.stacked_search import STACK, TRIALS, assert_same_studies, sizes, stackable_search
from support.trained_here import trained_here

pytestmark = pytest.mark.cluster

PATIENCE_S = 500


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The runs folder, and what the driver said."""
    folder = tmp_path_factory.mktemp("stacked")
    runs, said = folder / "runs", folder / "said.txt"
    file = stackable_search(folder / "small.yaml", stack=STACK)
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with said.open("wb") as output:
        driver = subprocess.Popen(command("run", file, "--runs", runs), stdout=output, stderr=output, env=environment)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while len(sizes(runs, "proxy_anchor")) <= STACK:
                assert driver.poll() is None, said.read_text()
                assert time.monotonic() < deadline, said.read_text()
                time.sleep(0.05)
            os.kill(worker_of(runs), signal.SIGKILL)
            assert driver.wait(PATIENCE_S) == 0, said.read_text()
        finally:
            driver.kill()
            driver.wait()
    return runs, said.read_text()


def worker_of(runs: Path) -> int:
    """The process that trains, as the trials' logs are called: ``<start>-<host>-<process>.log``."""
    (process,) = {int(path.stem.rpartition("-")[2]) for path in (runs / "small").glob("trials/*/*/logs/*.log")}
    return process


def test_it_loses_nothing_and_comes_to_what_it_would_have_come_to(
    killed: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is what the same search comes to that trains one trial after the other."""
    trained_here(monkeypatch)
    holdout_here("run", stackable_search(tmp_path / "small.yaml"), "--runs", tmp_path / "runs")
    assert_same_studies(tmp_path / "runs", killed[0])


def test_each_was_trained_by_itself_for_an_epoch_and_then_together_again(killed: tuple[Path, str]) -> None:
    runs, said = killed
    assert plain(said).count("is tried again by itself") == STACK
    assert "Traceback" not in without_ended_workers(said)
    assert {1, STACK} <= set(sizes(runs, "proxy_anchor"))
    for number in range(TRIALS):
        logs = (runs / "small" / "trials" / "proxy_anchor" / f"{number:04d}" / "logs").iterdir()
        told = "\n".join(path.read_text() for path in logs)
        assert told.count("Training is done.") == 1
    assert set(sizes(runs, "proxy_anchor@final")) == {STACK}
    assert len(stored(runs, "small", "proxy_anchor")) == TRIALS
