"""What Tune makes of an actor that Ray ended because its machine ran out of memory."""

from typing import Any

from ray.air.execution._internal import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.execution import tune_controller


class ActorOutOfMemory(RayActorError):
    """Ray ended an actor before its machine ran out of memory."""


class ActorManager(RayActorManager):
    """Tune's, to which an actor that was ended so is one that died.

    To Tune's own it is "an unexpected exception", which ends the whole search.
    """

    def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = ActorOutOfMemory(error_msg=str(exception))
        super()._actor_task_failed(tracked_actor_task, exception)


def use_in_tune() -> None:
    """Have Tune use it; Tune has no setting for that."""
    tune_controller.RayActorManager = ActorManager
