"""Failing storage is distinguished from errors in the code: the cause that a training records for each."""

import errno
import os
import pickle
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.small_training import drawn_images, run, small_spec, worker_of
from support.stores import ftp_store, silent_server

from trainables import losses
from trainables.common.errors import InvalidInput
from trainables.common.files import as_path
from trainables.common.storage import DiskFull, Limits, StorageFailure, ask, storage_errors
from trainables.data.sets.folders import Folder
from trainables.training.spec import Failed, TrialSpec
from trainables.training.train import failure_of

CPU = torch.device("cpu")


@pytest.fixture
def spec(tmp_path: Path) -> TrialSpec:
    return small_spec(drawn_images(tmp_path), tmp_path, epochs=2)


def failure(spec: TrialSpec) -> Failed:
    with pytest.raises(Exception) as raised:  # noqa: PT011  any exception
        run(spec)
    return failure_of(raised.value)


def test_a_full_disk_is_told_apart(tmp_path: Path) -> None:
    """Write to a device that is always full; PyTorch wraps the error."""
    full = tmp_path / "last.pt"
    refused = pytest.raises(DiskFull, match=f"There is no space left for {full}")
    with refused, storage_errors(full), open("/dev/full", "wb") as file:
        torch.save({"weight": torch.zeros(100_000)}, file)


def test_an_unreachable_store_is_not_a_code_error(spec: TrialSpec, tmp_path: Path) -> None:
    with ftp_store(tmp_path / "ftp") as url:
        elsewhere = replace(spec, directory=f"{url}/trial")
        training = run(elsewhere, 1)
    with pytest.raises(StorageFailure) as raised:
        training.run_epoch()
    found = failure_of(raised.value)
    assert found.cause == "LOST"
    assert found.reason.startswith("ftp://127.0.0.1/trial/attempt-1/")
    assert failure(elsewhere).cause == "LOST"  # a training that starts now
    with ftp_store(tmp_path / "ftp", int(url.rpartition(":")[2])):
        assert len(run(elsewhere, 0).records) == 1  # in the same process, whose connection was cut
        run(elsewhere)


@dataclass(frozen=True, kw_only=True)
class Away(Folder):
    """Images that raise an error with a given number when some are read."""

    number: int

    def read(self, key: str) -> np.ndarray:
        if key.endswith("3.png"):
            raise OSError(self.number, os.strerror(self.number), key)
        return super().read(key)


@pytest.mark.parametrize(
    ("number", "cause"), [(errno.ESTALE, "LOST"), (errno.EIO, "LOST"), (errno.ENOENT, "CODE_ERROR")]
)
def test_unreachable_images_are_not_missing_images(spec: TrialSpec, tmp_path: Path, number: int, cause: str) -> None:
    dataset = Away(root=str(tmp_path / "images"), number=number)
    images = replace(spec.images, dataset=dataset, cache=str(tmp_path / "other"))
    found = failure(replace(spec, images=images))
    assert found.cause == cause, found
    assert os.strerror(number) in found.reason
    with pytest.raises(InvalidInput, match=os.strerror(number)):
        images.make()  # the driver's error at the start


@pytest.mark.parametrize("place", ["directory", "cache"])
def test_a_folder_that_cannot_be_made_is_not_a_code_error(spec: TrialSpec, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    within = str(tmp_path / "file" / "folder")
    changes: dict[str, Any] = (
        {"directory": within} if place == "directory" else {"images": replace(spec.images, cache=within)}
    )
    found = failure(replace(spec, **changes))
    assert found.cause == "LOST"
    assert "Not a directory" in found.reason


def test_a_failure_crosses_process_borders_whole(tmp_path: Path) -> None:
    failed = StorageFailure(tmp_path, OSError(errno.ENOTDIR, "Not a directory"))
    again = pickle.loads(pickle.dumps(failed))
    assert (str(again), again.strerror, again.errno) == (str(failed), "Not a directory", errno.ENOTDIR)


def test_other_errors_are_not_converted(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), storage_errors(tmp_path):
        raise ZeroDivisionError
    with (
        pytest.raises(StorageFailure, match=r"memory:.* failed \(ZeroDivisionError"),
        storage_errors(as_path("memory://a")),
    ):
        raise ZeroDivisionError  # a storage library may raise anything


def test_a_store_that_never_answers_is_given_up() -> None:
    """The server accepts connections and never answers; FTP's own limit of 30 seconds is not waited for."""
    with silent_server() as port:
        store = as_path(f"ftp://127.0.0.1:{port}/trial")
        with pytest.raises(StorageFailure, match=r"ftp://127.0.0.1/trial failed .TimeoutError: no answer within 0.2 s"):
            ask(store, store.exists, limits=Limits(store_s=0.2))


def test_a_large_file_has_longer() -> None:
    store, limits = as_path("memory://large"), Limits(store_s=0.1, bytes_a_second=1000)
    assert ask(store, lambda: time.sleep(0.2) or "done", 60_000, limits) == "done"  # type: ignore[func-returns-value]
    with pytest.raises(StorageFailure, match=r"no answer within 0\.2 s"):
        ask(store, threading.Event().wait, 100, limits)


def test_code_removed_under_a_worker_is_not_a_trial_error(
    spec: TrialSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray replaces the code when a second node starts on a machine, and a loss is imported when first trained."""
    running = worker_of(spec)
    assert len(running.step().records) == 1
    other = replace(spec, loss="pnp", hyperparameters={}, directory=str(tmp_path / "other"))
    with monkeypatch.context() as removed:
        removed.setattr(losses, "__path__", [str(tmp_path)])
        removed.setattr(losses.LOSSES, "_loaded", {})
        removed.delitem(sys.modules, "trainables.losses.pairs", raising=False)
        found = worker_of(other).step()
    assert found.cause == "LOST"
    assert found.reason.startswith("the module trainables.losses.pairs is missing from its folder")
    assert len(worker_of(other).step().records) == 1
    assert len(running.step().records) == 1
