"""What stays of trials that ended: the best models, the better ones up to the limit, whenever they are written."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from optuna.trial import TrialState, create_trial

from search.config.sections.storage import CheckpointsSection
from search.stages.checkpoint_cleanup import CheckpointCleanup
from search.study.names import Stage
from search.study.trial_queue import RunningTrial
from trainables.files import as_path

SIZE = 1000


@pytest.fixture(params=["folder", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:/{tmp_path}" if request.param == "memory" else str(tmp_path)


def write_best(storage: str, name: str) -> None:
    file = as_path(f"{storage}/{name}/attempt-1/best.safetensors")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(SIZE))


def end(
    cleanup: CheckpointCleanup,
    storage: str,
    name: str,
    value: float,
    *,
    early: bool = False,
    stage: Stage = Stage.SEARCH,
) -> None:
    running: Any = SimpleNamespace(stage=stage, spec=SimpleNamespace(directory=f"{storage}/{name}"))
    state = TrialState.PRUNED if early else TrialState.COMPLETE
    cleanup.on_end(cast(RunningTrial, running), create_trial(value=value, state=state))


def kept(storage: str) -> set[str]:
    return {path.parts[-3] for path in as_path(storage).rglob("attempt-*/best.safetensors")}


def test_the_better_models_are_kept_up_to_the_limit(storage: str) -> None:
    cleanup = CheckpointCleanup(CheckpointsSection(max_gb=2 * SIZE / 1e9))
    for name, value in {"good": 0.8, "worst": 0.1, "better": 0.9, "worse": 0.2}.items():
        write_best(storage, name)
        end(cleanup, storage, name, value)
    assert kept(storage) == {"good", "better"}


def test_a_model_that_is_written_after_its_trial_ended_counts(storage: str) -> None:
    """Also a second time, and where the trial's first model was counted and removed."""
    cleanup = CheckpointCleanup(CheckpointsSection(max_gb=1 * SIZE / 1e9))
    end(cleanup, storage, "pruned", 0.1, early=True)
    write_best(storage, "pruned")
    for name, value in {"good": 0.8, "better": 0.9}.items():
        write_best(storage, name)
        end(cleanup, storage, name, value)
        assert kept(storage) == {name}
        write_best(storage, "pruned")
    end(cleanup, storage, "confirmed", 0.9, stage=Stage.SELECT)
    assert kept(storage) == {"better"}


def test_models_of_later_stages_do_not_count(storage: str) -> None:
    cleanup = CheckpointCleanup(CheckpointsSection(max_gb=1 * SIZE / 1e9))
    for name, stage in {"searched": Stage.SEARCH, "confirmed": Stage.SELECT, "final": Stage.TEST}.items():
        write_best(storage, name)
        end(cleanup, storage, name, 0.5, stage=stage)
    assert kept(storage) == {"searched", "confirmed", "final"}


def test_without_a_limit_all_models_stay_and_nothing_to_go_on_from(storage: str) -> None:
    cleanup = CheckpointCleanup(CheckpointsSection())
    for name in ("first", "second"):
        write_best(storage, name)
        as_path(f"{storage}/{name}/attempt-1/last.pt").write_bytes(b"state")
        end(cleanup, storage, name, 0.5)
    assert {path.name for path in as_path(storage).rglob("attempt-*/*")} == {"best.safetensors"}
    assert kept(storage) == {"first", "second"}
