"""Writes into MLflow in the background: training never waits for it, and an outage costs a search nothing."""

import logging
import queue
import textwrap
import threading
from collections.abc import Mapping

from optuna.trial import FrozenTrial

from search.config.secrets import without_password
from search.study.names import search_of
from search.study.study import LossStudy
from search.study.trial_queue import RunningTrial, TrialListener
from search.tracking.projection import Projection
from trainables.training.epoch_record import EpochRecord

logger = logging.getLogger(__name__)

RETRY_S = 5.0


class Tracker(TrialListener):
    """Projects marked trials in the background. Training never waits for MLflow, and an outage costs it nothing.

    ``projections`` are those of the searches, by name.
    """

    def __init__(self, projections: Mapping[str, Projection]) -> None:
        self._projections = projections
        self._marks: queue.SimpleQueue[tuple[LossStudy, int] | None] = queue.SimpleQueue()
        self._missing: dict[tuple[str, int], tuple[LossStudy, int]] = {}
        self._changed: dict[tuple[str, int], tuple[LossStudy, int]] = {}
        self._begun = False
        self._closing = threading.Event()
        self._outage = False
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def on_start(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Mark the trial."""
        self._mark(running)

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        """Mark the trial. Nothing is written before the first epoch: MLflow's start would take the workers' cores."""
        self._begun = True
        self._mark(running)

    def on_end(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Mark the trial."""
        self._begun = True
        self._mark(running)

    def _mark(self, running: RunningTrial) -> None:
        self._changed[running.study.name, running.number] = (running.study, running.number)
        if self._begun:
            for change in self._changed.values():
                self._marks.put(change)
            self._changed.clear()

    def _work(self) -> None:
        while True:
            self._collect()
            for key, (study, number) in list(self._missing.items()):
                try:
                    self._projections[search_of(study.name)].project(study, study.trial(number))
                except Exception as error:  # whatever MLflow meets, training goes on
                    self._say_outage(error)
                    break
                del self._missing[key]
                self._outage = False
            if self._closing.is_set() and (self._outage or (not self._missing and self._marks.empty())):
                return
            if self._outage:
                self._closing.wait(RETRY_S)

    def _collect(self) -> None:
        """Take all marks; wait for one only when nothing is left to write."""
        idle = not self._missing
        while idle or not self._marks.empty():
            mark = self._marks.get()
            if mark is None:
                return
            study, number = mark
            self._missing[study.name, number] = (study, number)
            idle = False

    def _say_outage(self, error: Exception) -> None:
        if not self._outage:
            reason = textwrap.shorten(f"{type(error).__name__}: {without_password(str(error))}", 160)
            logger.warning("MLflow cannot be written (%s). Training goes on; what is missing is written later.", reason)
        self._outage = True

    def close(self) -> bool:
        """Write what is left; whether MLflow now equals the studies."""
        self._closing.set()
        self._marks.put(None)
        self._thread.join()
        return not self._missing
