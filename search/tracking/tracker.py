"""Writing to MLflow in the background."""

import logging
import textwrap
import threading
import time
from collections.abc import Callable, Mapping

from optuna.trial import FrozenTrial

from search.stages import search_of
from search.tracking.client import is_outage
from search.tracking.projection import Projection
from trainables.common.errors import counted, without_password

logger = logging.getLogger(__name__)

RETRY_S = 5.0
SAY_S = 5.0
SHARE = 0.25
"""The maximum share of the time spent on MLflow while trials run."""


class Tracker:
    """Background writer that projects changed trials to MLflow in the background; training never waits for MLflow.

    ``projections`` are those of the searches, by name. Only the latest stored state of each trial is queued, so MLflow
    never shows anything that is not in a study, and skips states to catch up after an outage.
    """

    def __init__(self, projections: Mapping[str, Projection]) -> None:
        self._projections = projections
        self._waiting: dict[tuple[str, int], FrozenTrial] = {}
        self._changed = threading.Condition()
        self._begun = False
        self._closing = threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    @property
    def behind(self) -> int:
        """The number of trials that are not up to date in MLflow."""
        return len(self._waiting)

    def mark(self, study: str, trial: FrozenTrial, *, begin: bool = True) -> None:
        """Queue a changed trial of the study with this name.

        Calls with ``begin=False`` do not start the writing, because importing MLflow would delay the workers.
        """
        with self._changed:
            self._begun |= begin
            self._waiting[study, trial.number] = trial
            self._changed.notify()

    def _work(self) -> None:
        while (key := self._next()) is not None:
            study, trial = key[0], self._waiting[key]
            start = time.monotonic()
            try:
                self._projections[search_of(study)].project(study, trial)
            except Exception as error:  # training continues after any error of MLflow
                self._tell(error)
                if is_outage(error):
                    if self._closing.is_set():
                        return
                    self._closing.wait(RETRY_S)
                    continue
            else:
                self._told = False
            with self._changed:
                if self._waiting[key] is trial:  # otherwise it changed meanwhile
                    del self._waiting[key]
            # MLflow's library competes with the driver for the interpreter, so it pauses while trials run. The pause is
            # limited, so that an outage is noticed soon after the first write, which includes the import.
            self._closing.wait(min((time.monotonic() - start) * (1 / SHARE - 1), RETRY_S))

    def _next(self) -> tuple[str, int] | None:
        """Wait for a queued trial and return the oldest; None if everything is written and the tracker is closing."""
        with self._changed:
            while not (self._waiting and (self._begun or self._closing.is_set())):
                if self._closing.is_set():
                    return None
                self._changed.wait()
            return next(iter(self._waiting))

    def _tell(self, error: Exception) -> None:
        if not self._told:
            # The database's own error, without the repetitions of SQLAlchemy and MLflow.
            cause = getattr(error.__cause__, "orig", None) or error
            reason = textwrap.shorten(f"{type(cause).__name__}: {without_password(str(cause))}", 160)
            logger.warning("MLflow cannot be written (%s). Training continues; the rest is written later.", reason)
        self._told = True

    def close(self, say: Callable[[str], None]) -> None:
        """Write the rest, reporting progress to ``say``, or give up in an outage; :attr:`behind` is what is missing."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        self._thread.join(SAY_S)
        while self._thread.is_alive():
            say(f"MLflow is {counted(self.behind, 'trial')} behind and catching up …")
            self._thread.join(SAY_S)
