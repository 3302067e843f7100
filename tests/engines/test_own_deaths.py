"""Which of Ray's errors are held against a trial."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray.air.execution._internal import RayActorManager
from ray.exceptions import ActorDiedError, ActorUnavailableError, OutOfMemoryError, RayActorError

from search.engines.ray_tune import ActorManager, ActorOutOfMemory, _is_own, error_of

DIED = ActorDiedError()
UNAVAILABLE = ActorUnavailableError("Socket closed", None)
NOT_MADE = RayActorError("0" * 32, "raised in its creation task", True, False)


@pytest.mark.parametrize(
    ("error", "node", "own"),
    [
        (DIED, "lives", True),
        (DIED, "gone", False),
        (DIED, "unknown", False),
        (DIED, "draining", False),  # a preempted machine ends its processes before it goes
        (DIED, None, False),  # it never came to run
        (UNAVAILABLE, "lives", False),  # its machine died a moment ago, and nobody has noticed
        (UNAVAILABLE, "gone", False),
        (NOT_MADE, None, True),
        (ActorOutOfMemory(error_msg="low on memory"), "lives", True),
        (None, "lives", True),
    ],
)
def test_a_death_counts_on_a_living_machine_only(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, node: str | None, own: bool
) -> None:
    nodes = [{"NodeID": name, "Alive": name != "gone"} for name in ("lives", "gone", "draining")]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray._private.state.state, "get_draining_nodes", lambda: ["draining"])
    assert _is_own(error, node) is own


def test_the_error_is_the_one_that_tune_met(tmp_path: Path) -> None:
    file = tmp_path / "error.pkl"
    file.write_bytes(ray.cloudpickle.dumps(UNAVAILABLE))
    assert isinstance(error_of(SimpleNamespace(pickled_error_file=str(file))), ActorUnavailableError)
    assert error_of(SimpleNamespace(pickled_error_file=None)) is None


def test_an_actor_killed_for_its_memory_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """To Tune's own manager it is the end of everything."""
    met: list[Exception] = []
    monkeypatch.setattr(RayActorManager, "_actor_task_failed", lambda self, task, exception: met.append(exception))
    manager = ActorManager.__new__(ActorManager)
    for error in (OutOfMemoryError("low on memory"), DIED):
        manager._actor_task_failed(None, error)
    assert isinstance(met[0], ActorOutOfMemory)
    assert str(met[0]) == "low on memory"
    assert met[1] is DIED
