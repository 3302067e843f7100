"""Searches side by side on one cluster: each may use an equal share of the workers, and more when another one ends."""

import logging
import time
from collections.abc import Callable

from search.cluster.session import NAMESPACE

logger = logging.getLogger(__name__)

LOOK_S = 2.0


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
        if time.monotonic() - self._looked > LOOK_S:
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
