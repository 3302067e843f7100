"""Writes into MLflow in the background: training never waits for it, and an outage costs a search nothing."""

import logging
import textwrap
import threading
import time
from collections.abc import Callable, Mapping

from optuna.trial import FrozenTrial

from search.secrets import without_password
from search.stages import search_of
from search.study import LossStudy, RunningTrial, TrialListener
from search.tracking.projection import Projection
from trainables.spec import EpochRecord

logger = logging.getLogger(__name__)

RETRY_S = 5.0
SAY_S = 5.0
SHARE = 0.25
"""Of the time, while trials run."""


class Tracker(TrialListener):
    """Projects marked trials in the background. Training never waits for MLflow, and an outage costs it nothing.

    ``projections`` are those of the searches, by name. Of each trial only its last state waits to be written, as it
    was stored when the event came: MLflow never shows what a study does not hold, and may skip steps to catch up.
    """

    def __init__(self, projections: Mapping[str, Projection]) -> None:
        self._projections = projections
        self._waiting: dict[tuple[str, int], tuple[LossStudy, FrozenTrial]] = {}
        self._changed = threading.Condition()
        self._begun = False
        self._closing = threading.Event()
        self._outage = False
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    @property
    def behind(self) -> int:
        """How many trials MLflow does not show as they are."""
        return len(self._waiting)

    def on_start(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Mark the trial."""
        self._mark(running, trial)

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        """Mark the trial. Nothing is written before the first epoch: MLflow's start would take the workers' cores."""
        self._begun = True
        self._mark(running, trial)

    def on_end(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Mark the trial."""
        self._begun = True
        self._mark(running, trial)

    def _mark(self, running: RunningTrial, trial: FrozenTrial) -> None:
        with self._changed:
            self._waiting[running.study.name, running.number] = (running.study, trial)
            self._changed.notify()

    def _work(self) -> None:
        while (key := self._next()) is not None:
            study, trial = self._waiting[key]
            start = time.monotonic()
            try:
                self._projections[search_of(study.name)].project(study, trial)
            except Exception as error:  # whatever MLflow meets, training goes on
                self._say_outage(error)
                if self._closing.is_set():
                    return
                self._closing.wait(RETRY_S)
                continue
            self._outage = False
            with self._changed:
                if self._waiting[key][1] is trial:  # else it has changed meanwhile
                    del self._waiting[key]
            # What MLflow's library computes, the driver's reports wait for: it has the rest of the time when all ended.
            # Its import, which takes seconds, comes once: an outage is to be seen soon after it.
            self._closing.wait(min((time.monotonic() - start) * (1 / SHARE - 1), RETRY_S))

    def _next(self) -> tuple[str, int] | None:
        """The trial that has waited longest; None when all is written and no more will come."""
        with self._changed:
            while not (self._waiting and (self._begun or self._closing.is_set())):
                if self._closing.is_set():
                    return None
                self._changed.wait()
            return next(iter(self._waiting))

    def _say_outage(self, error: Exception) -> None:
        if not self._outage:
            cause = getattr(error.__cause__, "orig", None) or error  # of a database, before SQL and MLflow say it again
            reason = textwrap.shorten(f"{type(cause).__name__}: {without_password(str(cause))}", 160)
            logger.warning("MLflow cannot be written (%s). Training goes on; what is missing is written later.", reason)
        self._outage = True

    def close(self, say: Callable[[str], None] = lambda text: None) -> bool:
        """Write what is left; whether MLflow now equals the studies. ``say`` hears now and then how much that is."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        self._thread.join(SAY_S)
        while self._thread.is_alive():
            say(f"MLflow is {self.behind:,} trials behind and catches up …")
            self._thread.join(SAY_S)
        return not self._waiting
