"""A search whose trainings only sleep, with drivers in subprocesses that can be killed, read by Optuna alone."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from support.commands import command, plain, without_ended_workers, write_search
from support.services import ROOT
from support.sleeping_engine import ENGINE

PATIENCE_S = 900
_REPORTS = sqlalchemy.text(
    "SELECT number, step, intermediate_value FROM trial_intermediate_values JOIN trials USING (trial_id)"
    " ORDER BY trial_intermediate_value_id"
)
_RUNNING = sqlalchemy.text("SELECT number FROM trials WHERE state = 'RUNNING'")


class SleepingSearch:
    """A search of sleeping trainings and its drivers, observed from outside."""

    def __init__(
        self, path: Path, storage: str | None = None, *, trials: int, epochs: int, pruner: str = "asha"
    ) -> None:
        self.runs = path / "runs"
        self.storage = storage or f"sqlite:///{self.runs}/sleeps/study.db"
        self._said = path / "said.txt"
        self._engine = sqlalchemy.create_engine(self.storage, pool_pre_ping=True)
        content = {
            "name": "sleeps",
            "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 4},
            "training": {"epochs": epochs, "batch_size": 8, "images_per_class": 2},
            "losses": ["mpa"],
            "search": {"trials": trials, "pruner": pruner, **({"storage": storage} if storage else {})},
            "stages": ["search"],
            "resources": {"engine": ENGINE},
        }
        self.file = write_search(path / "sleeps.yaml", content)

    def start(self) -> subprocess.Popen[bytes]:
        """Start ``holdout run``."""
        with self._said.open("ab") as said:
            return subprocess.Popen(self._command(self.runs), stdout=said, stderr=said, env=self._environment)

    def refusal(self, runs: Path) -> str:
        """Return what another ``holdout run`` with the runs folder ``runs`` says, which must exit with 2."""
        done = subprocess.run(self._command(runs), capture_output=True, text=True, env=self._environment, check=False)
        assert done.returncode == 2, done.stdout + done.stderr
        return plain(done.stderr)

    def _command(self, runs: Path) -> list[str]:
        return command("run", self.file, "--runs", runs)

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}

    def said(self) -> str:
        """Return the output of its drivers."""
        return self._said.read_text()

    def reports(self) -> list[tuple[int, int, float]]:
        """Return the trial, epoch and value of every report, in the order of storage."""
        return [(row[0], row[1], row[2]) for row in self._rows(_REPORTS)]

    def running(self) -> set[int]:
        """Return the running trials."""
        return {row[0] for row in self._rows(_RUNNING)}

    def _rows(self, statement: sqlalchemy.TextClause) -> Sequence[sqlalchemy.Row[Any]]:
        """Return the rows of a query; none before the tables exist."""
        if self._engine.url.get_backend_name() == "sqlite" and not Path(self._engine.url.database or "").exists():
            return []
        try:
            with self._engine.connect() as connection:
                return connection.execute(statement).all()
        except sqlalchemy.exc.DBAPIError:  # the driver is creating the tables
            return []

    def trials(self) -> list[FrozenTrial]:
        """Return the trials, read by Optuna."""
        storage = RDBStorage(self.storage)
        try:
            return optuna.load_study(study_name="sleeps/mpa", storage=storage).trials
        finally:
            storage.remove_session()
            storage.engine.dispose()

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

    def dispose(self) -> None:
        """Close the database."""
        self._engine.dispose()
