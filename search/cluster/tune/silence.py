"""How long a worker may say nothing before it is taken as dead: a multiple of its own epochs."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

FLOOR_S = 600.0
"""However short epochs are: a file system of the network may be away for minutes, and a checkpoint take as long."""

LOOK_S = 1.0
AWAKE_S = 10.0
"""Time between two looks beyond this is the driver's own: a database that it waited for, a laptop that slept."""


@dataclass(kw_only=True)
class _Worker:
    study: str | None
    since: float
    slowest: float = 0.0
    spoke: bool = False


@dataclass(frozen=True, kw_only=True)
class Silence:
    """A worker that has said nothing for ``seconds``, and was ``allowed`` fewer; ``slowest`` is its slowest epoch.

    ``slowest`` is None before the first one has ended.
    """

    seconds: float
    allowed: float
    slowest: float | None

    def __str__(self) -> str:
        quiet = f"its worker said nothing for {self.seconds / 60:.1f} minutes and is taken as dead"
        if self.slowest is None:
            return f"{quiet}, before its first epoch ended (resources.first_epoch_minutes)"
        return f"{quiet}; its slowest epoch took {self.slowest:.1f} s (resources.silent_epochs)"


class Silences:
    """What each worker's silence is, by the name of what it works at.

    A worker may say nothing for ``epochs`` times the longest time that it has needed for an epoch, with its checkpoint,
    and for :data:`FLOOR_S`. Before its first epoch, of which imports, images and weights are a part, it may for
    ``first_epoch_s``, and for ``epochs`` times the longest that any worker of the same study has needed.
    """

    def __init__(self, *, epochs: float, first_epoch_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._epochs = epochs
        self._first_epoch_s = first_epoch_s
        self._floor_s = min(FLOOR_S, first_epoch_s)
        self._now = now
        self._looked = now()
        self._awake = 0.0  # seconds in which the driver listened
        self._workers: dict[str, _Worker] = {}
        self._slowest: dict[str | None, float] = {}

    def watch(self, name: str, study: str | None) -> None:
        """From now on a worker works at ``name``, of ``study``; None where it waits for work."""
        self._workers.setdefault(name, _Worker(study=study, since=self._awake))

    def heard(self, name: str, epochs_s: Iterable[float]) -> None:
        """A worker told of epochs that took so many seconds each, perhaps none."""
        worker = self._workers.get(name)
        if worker is None:
            return
        worker.slowest = max(worker.slowest, self._awake - worker.since, *epochs_s)
        worker.since, worker.spoke = self._awake, True
        self._slowest[worker.study] = max(self._slowest.get(worker.study, 0.0), worker.slowest)

    def forget(self, name: str) -> None:
        """Nobody works at ``name`` any more."""
        self._workers.pop(name, None)

    @property
    def is_due(self) -> bool:
        """Whether it is time to look."""
        return self._now() - self._looked >= LOOK_S

    def too_long(self) -> dict[str, Silence]:
        """Who has said nothing for too long, to be asked often."""
        now = self._now()
        self._awake += min(now - self._looked, AWAKE_S)
        self._looked = now
        found = {}
        for name, worker in self._workers.items():
            seconds = self._awake - worker.since
            if seconds > (allowed := self._allowed(worker)):
                slowest = worker.slowest if worker.spoke else None
                found[name] = Silence(seconds=seconds, allowed=allowed, slowest=slowest)
        return found

    def _allowed(self, worker: _Worker) -> float:
        if worker.spoke:
            return max(self._floor_s, self._epochs * worker.slowest)
        return max(self._first_epoch_s, self._epochs * self._slowest.get(worker.study, 0.0))
