"""Workers that wait for a machine, share a cluster, or have stopped reporting."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from search.config.sections import ResourcesSection
from search.engines.capacity import Node, trials_on, wanted
from search.engines.ray_session import NAMESPACE
from trainables.mistakes import Failure

# Trials that wait for a machine: said after a while, and ended where none can come.

logger = logging.getLogger(__name__)

SAY_S = 300.0
"""When it is said for the first time; then again after twice as long, and so on."""

END_S = 2400.0
"""When it is said for the fourth time. A machine that starts anew is back by then."""

RAY_DIED = (
    "Ray has died on this machine (its raylet, which may have been killed for memory), and nothing is computed without "
    "it; the same command goes on, on a cluster once Ray runs here again (`ray start`)."
)


class Placement:
    """What waits for a machine of the cluster, whose machines ``nodes`` gives, and which ``may_come`` beside them.

    ``is_here`` says whether Ray still runs on the machine of this process, through which it starts all workers.
    """

    def __init__(
        self,
        resources: ResourcesSection,
        nodes: Callable[[], Sequence[Node]],
        may_come: Sequence[Node],
        is_here: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wanted = wanted(resources)
        self._nodes = nodes
        self._may_come = may_come
        self._is_here = is_here
        self._now = now
        self._since: float | None = None
        self._say_after = SAY_S

    def look(self, *, placed: int, waiting: int) -> None:
        """Take note of how many trials have a machine, and how many wait for one; to be called often.

        Raises:
            Failure: Ray has died on this machine; or none has had one for :data:`END_S`, no machine of the cluster fits
                one, and none that does comes.
        """
        if placed or not waiting:
            self._since, self._say_after = None, SAY_S
            return
        if not self._is_here():
            raise Failure(RAY_DIED)
        if self._since is None:
            self._since = self._now()
        waited = self._now() - self._since
        if waited < self._say_after:
            return
        self._say_after *= 2
        nodes = self._nodes()
        fits, may_fit = (any(trials_on(node, self._wanted) for node in group) for group in (nodes, self._may_come))
        sentence = f"No trial has a machine for {waited / 60:.0f} minutes: {self._asked}, {_there(nodes)}"
        if waited >= END_S and not (fits or may_fit):
            raise Failure(
                f"{sentence}, and no other can come. Add one (`ray start`), or ask for less (resources); the same "
                "command goes on."
            )
        if fits:
            logger.warning("%s, so others use it: the search waits until they end.", sentence)
        elif may_fit:
            logger.warning("%s; the search waits for the cluster to grow (see `ray status`).", sentence)
        else:
            logger.warning("%s; add a machine (`ray start`). Without one the search ends soon.", sentence)

    @property
    def _asked(self) -> str:
        return f"one asks for {self._wanted['CPU']:g} CPUs and {self._wanted['GPU']:g} GPUs"


def _there(nodes: Sequence[Node]) -> str:
    if not nodes:
        return "the cluster has no machine"
    machines = [f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes]
    counted = [f"{machines.count(kind)} with {kind}" for kind in dict.fromkeys(machines)]
    return f"the cluster has {len(nodes)} ({', '.join(counted)})"


# Searches side by side on one cluster: each may use an equal share of the workers, and more when another one ends.

SHARE_LOOK_S = 2.0


class Share:
    """How many of ``workers`` this driver may use; ``drivers`` counts those on the cluster, this one among them.

    What runs is trained to its end: a share that shrinks is reached as trials end.
    """

    def __init__(self, workers: int, drivers: Callable[[], int]) -> None:
        self._workers = workers
        self._drivers = drivers
        self._known = 1
        self._looked = float("-inf")

    @property
    def workers(self) -> int:
        """This driver's share now, at least one; asks the cluster now and then."""
        if time.monotonic() - self._looked > SHARE_LOOK_S:
            self._looked = time.monotonic()
            self._note(max(1, self._drivers()))
        return max(1, self._workers // self._known)

    @property
    def is_shared(self) -> bool:
        """Whether another search uses the cluster."""
        return self._known > 1

    def _note(self, drivers: int) -> None:
        if drivers != self._known:
            self._known = drivers
            if drivers == 1:
                logger.warning("No other search uses this cluster any more: all %d workers are free.", self._workers)
            else:
                share = max(1, self._workers // drivers)
                logger.warning("%d searches share this cluster: %d of %d workers each.", drivers, share, self._workers)


def drivers_on_cluster() -> int:
    """How many drivers of searches the cluster has that this process is connected to."""
    from ray._private.state import state  # Ray's public table of jobs needs its dashboard
    from ray.core.generated.gcs_pb2 import JobTableData

    table = state._connect_and_get_accessor().get_job_table(
        skip_submission_job_info_field=True, skip_is_running_tasks_field=True
    )
    jobs = map(JobTableData.FromString, table)
    return sum(not job.is_dead and job.config.ray_namespace == NAMESPACE for job in jobs)


# How long a worker may say nothing before it is taken as dead: a multiple of its own epochs.

FLOOR_S = 600.0
"""However short epochs are: a file system of the network may be away for minutes, and a checkpoint take as long."""

SILENCE_LOOK_S = 1.0
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
        return self._now() - self._looked >= SILENCE_LOOK_S

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
