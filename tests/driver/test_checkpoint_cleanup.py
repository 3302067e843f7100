"""The checkpoints kept after trials end: the best models up to the limit, even if they are written late."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from optuna.trial import TrialState, create_trial
from support.driving import Opened, record
from support.stores import ftp_store

from search.driver.listeners import CheckpointCleanup
from search.records.plan import trial_directory
from search.records.writable import WritableRecords
from search.stages import Stage
from search.study.trial_queue import RunningTrial
from trainables.common.files import as_path

SIZE = 1000
LOSS = "pnp"
Session = Callable[..., tuple[WritableRecords, CheckpointCleanup]]


@pytest.fixture
def session(opened: Opened, tmp_path: Path) -> Iterator[Session]:
    """Return a function that starts or resumes a search, with room for ``models`` models, and its clean-up."""
    searches: list[WritableRecords] = []

    def begin(models: float | None, store: str = str(tmp_path / "models")) -> tuple[WritableRecords, CheckpointCleanup]:
        for search in searches:
            search.close()
        max_gb = None if models is None else models * SIZE / 1e9
        search = opened(losses=[LOSS], checkpoints={"storage_path": store, "max_gb": max_gb})
        search.begin_session(0.0, slots=2)
        searches.append(search)
        return search, CheckpointCleanup(search)

    yield begin
    searches[-1].close()


def directory(search: WritableRecords, number: int, stage: Stage = Stage.SEARCH) -> str:
    return trial_directory(search.plan, LOSS, stage, number)


def write_best(directory: str, *, attempt: str = "attempt-1") -> None:
    file = as_path(f"{directory}/{attempt}/best.safetensors")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(SIZE))


def add(search: WritableRecords, value: float, *, early: bool = False) -> int:
    """Add an ended trial to the search study, without files; return its number."""
    study = search.study(LOSS, Stage.SEARCH)
    number = study.ask(lambda number: number).number
    study.report(number, record(1, value))
    study.finish(number, TrialState.PRUNED if early else TrialState.COMPLETE, "")
    return number


def end(cleanup: CheckpointCleanup, search: WritableRecords, number: int, stage: Stage = Stage.SEARCH) -> None:
    """Report the end of a trial to the clean-up; a trial of a later stage is not in its study."""
    trial = search.study(LOSS, stage).trial(number) if stage is Stage.SEARCH else create_trial(value=0.5)
    study, spec = SimpleNamespace(name=f"{search.name}/{LOSS}"), SimpleNamespace()
    spec.directory = directory(search, number, stage)
    running: Any = SimpleNamespace(stage=stage, study=study, spec=spec, stored=trial)
    cleanup.on_end(cast(RunningTrial, running))


def train(cleanup: CheckpointCleanup, search: WritableRecords, value: float) -> int:
    """Add a search trial that writes its model and ends; return its number."""
    number = add(search, value)
    write_best(directory(search, number))
    end(cleanup, search, number)
    return number


def kept(search: WritableRecords, stage: Stage = Stage.SEARCH) -> set[int]:
    parent = as_path(directory(search, 0, stage)).parent
    return {int(path.parts[len(parent.parts)]) for path in parent.rglob("attempt-*/best.safetensors")}


def test_a_model_that_is_written_after_its_trial_ended_counts(session: Session) -> None:
    """It counts every time, even if an earlier model of the trial was counted and removed."""
    search, cleanup = session(1)
    pruned = add(search, 0.1, early=True)
    end(cleanup, search, pruned)
    write_best(directory(search, pruned))
    for value in (0.8, 0.9):
        better = train(cleanup, search, value)
        assert kept(search) == {better}
        write_best(directory(search, pruned))
    end(cleanup, search, 0, Stage.SELECT)
    assert kept(search) == {better}


def test_models_of_later_stages_are_kept_and_do_not_count(session: Session) -> None:
    search, cleanup = session(1)
    train(cleanup, search, 0.5)
    for stage in (Stage.SELECT, Stage.TEST):
        for number in (0, 1):
            write_best(directory(search, number, stage))
            end(cleanup, search, number, stage)
    again, cleanup = session(0.5)
    end(cleanup, again, 1, Stage.TEST)
    assert kept(again) == set()
    assert kept(again, Stage.SELECT) == kept(again, Stage.TEST) == {0, 1}


def test_without_a_limit_all_models_and_no_resume_checkpoints_stay(session: Session) -> None:
    search, cleanup = session(None)
    for number in (add(search, 0.5), add(search, 0.6)):
        write_best(directory(search, number))
        as_path(f"{directory(search, number)}/attempt-1/last.pt").write_bytes(b"state")
        end(cleanup, search, number)
    assert kept(search) == {0, 1}
    parent = as_path(directory(search, 0)).parent
    assert {path.name for path in parent.rglob("attempt-*/*")} == {"best.safetensors"}


def test_a_resumed_search_counts_what_earlier_sessions_left(session: Session) -> None:
    first, cleanup = session(3)
    for value in (0.1, 0.7, 0.8):
        train(cleanup, first, value)
    assert kept(first) == {0, 1, 2}

    second, cleanup = session(3)
    number = train(cleanup, second, 0.6)
    assert kept(second) == {1, 2, number}  # the worst one is from the first session


def test_a_resumed_search_counts_trials_that_no_cleanup_saw_end(session: Session) -> None:
    """The driver died between storing the trial and the clean-up, or before a worker finished writing."""
    first, _ = session(2)
    for value, early in ((0.4, False), (0.3, True)):
        write_best(directory(first, add(first, value, early=early)), attempt="fold-1/attempt-2")

    second, cleanup = session(2)
    assert train(cleanup, second, 0.9) == 2
    assert kept(second) == {0, 2}


def test_an_unreachable_storage_is_cleaned_up_later(
    session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ftp_store(tmp_path / "ftp") as url:
        search, cleanup = session(1.5, f"{url}/models")
        numbers = [add(search, value) for value in (0.5, 0.1, 0.9)]
        for number in numbers:
            write_best(directory(search, number))
            as_path(f"{directory(search, number)}/attempt-1/last.pt").write_bytes(b"state")
        end(cleanup, search, numbers[0])
    for number in numbers[1:]:
        end(cleanup, search, number)
    assert "Checkpoints of 1 trial are not cleaned up; retrying after the next trial: ftp://127.0.0.1/" in caplog.text
    assert "Checkpoints of 2 trials are not cleaned up" in caplog.text
    port = int(url.rpartition(":")[2])
    with ftp_store(tmp_path / "ftp", port):
        end(cleanup, search, add(search, 0.2))
        assert kept(search) == {numbers[2]}
        assert not [*(tmp_path / "ftp").rglob("last.pt")]
