"""Trials that wait for a machine: said after a while, and ended where none can come."""

import logging
import time
from collections.abc import Callable, Sequence

from search.cluster.capacity import Node, trials_on, wanted
from search.config.sections.resources import ResourcesSection
from trainables.mistakes import Failure

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
