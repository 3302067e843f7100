"""A search whose trainings only sleep, with drivers in subprocesses that can be killed, read by Optuna alone."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState
from support.commands import command, plain, stored, without_ended_workers, write_search
from support.journals import SET_VALUE, operations
from support.services import ROOT
from support.sleeping_engine import ENGINE

PATIENCE_S = 900


class SleepingSearch:
    """A search of sleeping trainings and its drivers, observed from outside."""

    def __init__(self, path: Path, *, trials: int, epochs: int, pruner: str = "asha") -> None:
        self.runs = path / "runs"
        self._said = path / "said.txt"
        content = {
            "name": "sleeps",
            "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 4},
            "training": {"epochs": epochs, "batch_size": 8, "images_per_class": 2},
            "losses": ["mpa"],
            "search": {"trials": trials, "pruner": pruner},
            "stages": ["search"],
            "resources": {"engine": ENGINE},
        }
        self.file = write_search(path / "sleeps.yaml", content)

    def start(self) -> subprocess.Popen[bytes]:
        """Start ``holdout run``."""
        with self._said.open("ab") as said:
            return subprocess.Popen(self._command, stdout=said, stderr=said, env=self._environment)

    def refusal(self) -> str:
        """Return what another ``holdout run`` says, which must exit with 2."""
        done = subprocess.run(self._command, capture_output=True, text=True, env=self._environment, check=False)
        assert done.returncode == 2, done.stdout + done.stderr
        return plain(done.stderr)

    @property
    def _command(self) -> list[str]:
        return command("run", self.file, "--runs", self.runs)

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}

    def said(self) -> str:
        """Return the output of its drivers."""
        return self._said.read_text()

    def reports(self) -> list[tuple[int, int, float]]:
        """Return the trial, epoch and value of every report, in the order of storage."""
        found = operations(self.runs / "sleeps" / "study.journal")
        values = [entry for entry in found if entry["op_code"] == SET_VALUE]
        return [(entry["trial_id"], entry["step"], entry["intermediate_value"]) for entry in values]

    def running(self) -> set[int]:
        """Return the running trials."""
        return {trial.number for trial in self.trials() if trial.state == TrialState.RUNNING}

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

    def progresses(self, by: int, driver: subprocess.Popen[bytes]) -> None:
        """Wait until ``by`` more epochs are stored."""
        wanted = len(self.reports()) + by
        self.until(lambda: len(self.reports()) >= wanted, driver)

    def finish(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait for the successful end of ``driver``."""
        assert driver.wait(PATIENCE_S) == 0, self.said()
        assert "Traceback" not in without_ended_workers(self.said()), self.said()
