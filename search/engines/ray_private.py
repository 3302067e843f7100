"""The private parts of Ray and Ray Tune that the Ray engine uses, each behind one function.

:mod:`search.private_parts` lists them with the versions that have them.

Tune has no public way to end the worker of a trial, or to survive an actor that Ray ended for memory.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray.air.execution._internal import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.execution import tune_controller
from ray.tune.experiment import Trial


class ActorOutOfMemory(RayActorError):
    """The end of an actor by Ray's memory monitor."""


class ActorManager(RayActorManager):
    """Tune's actor manager, to which an actor that was ended for memory is an actor that died.

    Tune's own takes it for "an unexpected exception", which ends the whole search.
    """

    def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = ActorOutOfMemory(error_msg=str(exception))
        super()._actor_task_failed(tracked_actor_task, exception)


def use_actor_manager() -> None:
    """Make Tune use :class:`ActorManager`; there is no setting for it."""
    tune_controller.RayActorManager = ActorManager


def tracked_actors(controller: Any) -> Iterator[tuple[Trial, Any | None]]:
    """Yield Tune's trials with their actors, None for a trial whose actor has no machine yet."""
    live = controller._actor_manager._live_actors_to_ray_actors_resources
    for trial, tracked in controller._trial_to_actor.items():
        yield trial, live[tracked][0] if tracked in live else None


def end_cached_actors(controller: Any) -> None:
    """End the actors that wait for reuse: Tune keeps one, whose slot belongs to another search."""
    controller._cleanup_cached_actors(force_all=True)


def actor_of(trial: Trial) -> Any:
    """Return the actor that runs a trial."""
    return trial.temporary_state.ray_actor


def node_of(actor: Any) -> str:
    """Return the id of the node where an actor runs."""
    node: str = ray._private.state.actors(actor._actor_id.hex())["Address"]["NodeID"]
    return node


def error_of(trial: Trial) -> Exception | None:
    """Return the exception that ended a trial; the public ``get_error`` returns a text, from a file never copied."""
    if trial.pickled_error_file is None:
        return None
    error: Exception = ray.cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
    return error


def is_draining(node: str | None) -> bool:
    """Return True if a node is about to be taken, for example because it is preempted."""
    return node in ray._private.state.state.get_draining_nodes()


def live_jobs(namespace: str) -> int:
    """Return the number of live drivers with ``namespace``; the public table of jobs needs Ray's dashboard."""
    from ray.core.generated.gcs_pb2 import JobTableData

    table = ray._private.state.state._connect_and_get_accessor().get_job_table(
        skip_submission_job_info_field=True, skip_is_running_tasks_field=True
    )
    jobs = map(JobTableData.FromString, table)
    return sum(not job.is_dead and job.config.ray_namespace == namespace for job in jobs)
