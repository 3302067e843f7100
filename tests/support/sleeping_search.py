"""A search whose trainings only sleep, with drivers in subprocesses that can be killed, read by Optuna alone."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from optuna.trial import FrozenTrial
from support.commands import command, stored, without_ended_workers, write_search
from support.journals import SET_VALUE, operations
from support.services import ROOT
from support.sleeping_engine import ENGINE

PATIENCE_S = 900


class SleepingSearch:
    """A search of sleeping trainings and its drivers, observed from outside."""

    def __init__(self, path: Path, *, trials: int, epochs: int) -> None:
        self.runs = path / "runs"
        self._said = path / "said.txt"
        content = {
            "name": "sleeps",
            "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 4},
            "training": {"epochs": epochs, "batch_size": 8, "images_per_class": 2},
            "losses": ["mpa"],
            "search": {"trials": trials, "pruner": "none"},
            "stages": ["search"],
            "resources": {"engine": ENGINE},
        }
        self.file = write_search(path / "sleeps.yaml", content)

    def start(self) -> subprocess.Popen[bytes]:
        """Start ``holdout run``."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
        with self._said.open("ab") as said:
            words = command("run", self.file, "--runs", self.runs)
            return subprocess.Popen(words, stdout=said, stderr=said, env=environment)

    def said(self) -> str:
        """Return the output of its drivers."""
        return self._said.read_text()

    def reports(self) -> list[tuple[int, int, float]]:
        """Return the trial, epoch and value of every report, in the order of storage."""
        found = operations(self.runs / "sleeps" / "study.journal")
        values = [entry for entry in found if entry["op_code"] == SET_VALUE]
        return [(entry["trial_id"], entry["step"], entry["intermediate_value"]) for entry in values]

    def trials(self) -> list[FrozenTrial]:
        """Return the trials, read by Optuna."""
        return stored(self.runs, "sleeps", "mpa")

    def until(self, condition: Callable[[], bool], driver: subprocess.Popen[bytes]) -> None:
        """Wait until ``condition`` holds while ``driver`` runs."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert driver.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def finish(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait for the successful end of ``driver``."""
        assert driver.wait(PATIENCE_S) == 0, self.said()
        assert "Traceback" not in without_ended_workers(self.said()), self.said()
