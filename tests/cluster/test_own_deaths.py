"""Which of Ray's errors are held against a trial."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError

from search.cluster import tuner

DIED = ActorDiedError()
UNAVAILABLE = ActorUnavailableError("Socket closed", None)
NOT_MADE = RayActorError("0" * 32, "raised in its creation task", True, False)


@pytest.mark.parametrize(
    ("error", "node", "own"),
    [
        (DIED, "lives", True),
        (DIED, "gone", False),
        (DIED, "unknown", False),
        (DIED, None, False),  # it never came to run
        (UNAVAILABLE, "lives", False),  # its machine died a moment ago, and nobody has noticed
        (UNAVAILABLE, "gone", False),
        (NOT_MADE, None, True),
        (None, "lives", True),
    ],
)
def test_a_death_is_a_trial_s_own_where_its_machine_says_so(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, node: str | None, own: bool
) -> None:
    nodes = [{"NodeID": "lives", "Alive": True}, {"NodeID": "gone", "Alive": False}]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert tuner._is_own(error, node) is own


def test_the_error_is_the_one_that_tune_met(tmp_path: Path) -> None:
    file = tmp_path / "error.pkl"
    file.write_bytes(ray.cloudpickle.dumps(UNAVAILABLE))
    assert isinstance(tuner._error_of(SimpleNamespace(pickled_error_file=str(file))), ActorUnavailableError)
    assert tuner._error_of(SimpleNamespace(pickled_error_file=None)) is None
