"""Limits on waiting: for a machine, for a silent worker, for the answers of calls; and the workers that fit."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from search.engines.base import Resources
from search.engines.capacity import Node, too_little, trials_on, wanted
from trainables.common.errors import Failure
from trainables.common.storage import LIMITS, Limits

logger = logging.getLogger(__name__)

RAY_DIED = (
    "Ray has died on this machine (its raylet, which may have been killed for memory), so no training can continue; "
    "run the same command again to resume, on a cluster once Ray runs here again (`ray start`)."
)


@dataclass
class Placement:
    """The wait of trials for a machine of the cluster: regular warnings, an error where none can come.

    ``may_come`` are machines that an autoscaler may add; ``is_here`` returns True while Ray runs on this machine.
    """

    resources: Resources
    nodes: Callable[[], Sequence[Node]]
    may_come: Sequence[Node]
    is_here: Callable[[], bool]
    limits: Limits = LIMITS
    now: Callable[[], float] = time.monotonic
    _since: float | None = None
    _warned_s: float = 0.0

    def poll(self, *, placed: int, waiting: int) -> None:
        """Note the number of workers with a machine and of those waiting for one. Called often.

        Raises:
            Failure: Ray has died on this machine, or the wait was long and no machine that fits is there or may come.
        """
        if placed or not waiting:
            self._since, self._warned_s = None, 0.0
            return
        if not self.is_here():
            raise Failure(RAY_DIED)
        if self._since is None:
            self._since = self.now()
        waited = self.now() - self._since
        if waited - self._warned_s < self.limits.machine_said_s:
            return
        self._warned_s = waited
        nodes, asks = self.nodes(), wanted(self.resources)
        fits, may_fit = (any(trials_on(node, asks) for node in group) for group in (nodes, self.may_come))
        reason = too_little(self.resources, nodes)
        sentence = f"No trial could be scheduled for {waited / 60:.1f} minutes: {reason}"
        if waited >= self.limits.machine_s and not (fits or may_fit):
            raise Failure(
                f"{sentence}, and none can be added automatically. Add one (`ray start`), or lower resources; run the "
                "same command again to resume."
            )
        if fits:
            logger.warning("%s; all matching machines are busy, so the search waits.", sentence)
        elif may_fit:
            logger.warning("%s; the search waits for the cluster to grow (see `ray status`).", sentence)
        else:
            logger.warning("%s; add a machine (`ray start`). Without one the search ends soon.", sentence)


class Workers:
    """The number of ``workers`` that fit on the machines of a cluster now, at least one.

    ``room`` counts those that fit, and ``report`` is called with every new number, which is reached as trials end.
    """

    def __init__(self, workers: int, room: Callable[[], int], report: Callable[[int], None]) -> None:
        self.number = self._fit = self._all = workers
        self._room, self._report = room, report
        self.look()

    def look(self) -> None:
        """Count the machines again."""
        fit, before = min(self._all, self._room()), self.number
        self.number = max(1, fit)
        if fit != self._fit:
            logger.warning("The machines of the cluster have room for %d of %d workers now.", fit, self._all)
        if self.number != before:
            self._report(self.number)
        self._fit = fit


# Silent workers: the limit is a multiple of a worker's own slowest epoch.

SILENT_EPOCHS = 10
SILENCE_POLL_S = 1.0
AWAKE_S = 10.0
"""Most time between two looks that counts; the rest was the driver's (a slow disk, Ctrl-Z)."""


class _Listening:
    """A clock of the ``seconds`` in which the driver listened to its workers."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._looked = now()
        self.seconds = 0.0

    @property
    def since_look(self) -> float:
        return self._now() - self._looked

    def look(self) -> float:
        """Return ``seconds`` with the time since the last look, of which at most :data:`AWAKE_S` counts."""
        self.seconds += min(self.since_look, AWAKE_S)
        self._looked = self._now()
        return self.seconds


@dataclass(kw_only=True)
class _Worker:
    study: str | None
    since: float
    slowest: float = 0.0
    spoke: bool = False


class Silences:
    """The silence of each worker, by the name of its assignment.

    After its first epoch a worker may be silent for :data:`SILENT_EPOCHS` times its slowest epoch, checkpoint included,
    and for ``limits.silence_s`` at least. Before, it may for ``limits.first_epoch_s``, and for :data:`SILENT_EPOCHS`
    times the slowest epoch of any worker of the same study.
    """

    def __init__(self, *, limits: Limits = LIMITS, now: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._awake = _Listening(now)
        self._workers: dict[str, _Worker] = {}
        self._slowest: dict[str | None, float] = {}

    def watch(self, name: str, study: str | None) -> None:
        """Watch the worker with the assignment ``name`` unless it is watched; ``study`` is None if it has no trial."""
        self._workers.setdefault(name, _Worker(study=study, since=self._awake.seconds))

    def heard(self, name: str, epochs_s: Iterable[float]) -> None:
        """Note a report of epochs that took ``epochs_s``, possibly of none."""
        worker = self._workers.get(name)
        if worker is None:
            return
        worker.slowest = max(worker.slowest, self._awake.seconds - worker.since, *epochs_s)
        worker.since, worker.spoke = self._awake.seconds, True
        self._slowest[worker.study] = max(self._slowest.get(worker.study, 0.0), worker.slowest)

    def forget(self, name: str) -> None:
        self._workers.pop(name, None)

    @property
    def is_due(self) -> bool:
        """True if the last look was :data:`SILENCE_POLL_S` ago."""
        return self._awake.since_look >= SILENCE_POLL_S

    def too_long(self) -> dict[str, str]:
        """Return a sentence for each worker that was silent for too long. Called often."""
        awake = self._awake.look()
        silent = ((name, worker, awake - worker.since) for name, worker in self._workers.items())
        return {
            name: f"no report from its worker for {seconds / 60:.1f} minutes, treated as dead"
            + (f"; its slowest epoch took {worker.slowest:.1f} s" if worker.spoke else ", before its first epoch ended")
            for name, worker, seconds in silent
            if seconds > self._allowed(worker)
        }

    def _allowed(self, worker: _Worker) -> float:
        if worker.spoke:
            return max(self._limits.silence_s, SILENT_EPOCHS * worker.slowest)
        return max(self._limits.first_epoch_s, SILENT_EPOCHS * self._slowest.get(worker.study, 0.0))


CALLS_SAY_S = 600.0
"""Time between two warnings that no call has returned."""


class Patience:
    """The wait for ``calls`` calls on workers: warnings, and an error after ``minutes`` without any return."""

    def __init__(
        self, calls: int, minutes: float = Limits.first_epoch_s / 60, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._calls = calls
        self._minutes = minutes
        self._awake = _Listening(now)
        self.answered()

    def answered(self) -> None:
        self._since, self._say_after = self._awake.look(), CALLS_SAY_S

    def poll(self, left: int) -> None:
        """Warn if no call has returned for long, raise if none has for ``minutes``; ``left`` calls are left."""
        waited = self._awake.look() - self._since
        if waited >= self._say_after:
            logger.warning("%d of %d workers have not answered for %.0f minutes.", left, self._calls, waited / 60)
            self._say_after += CALLS_SAY_S
        if waited >= 60 * self._minutes:
            raise Failure(
                f"{left} of {self._calls} workers did not answer within {self._minutes:g} minutes. Check that their "
                "machines and storage (data, checkpoints) respond; run the same command again to resume."
            )
