"""A place that fails is told apart from mistakes in the code: what each costs a training."""

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.small_training import drawn_images, small_spec
from support.stores import ftp_store, silent_server

from trainables import storage
from trainables.data.sets.folders import Folder
from trainables.data.store.spec import StoreSpec
from trainables.files import as_path, given_path, write_whole
from trainables.mistakes import Mistakes
from trainables.spec import TrialSpec
from trainables.storage import DiskFull, StorageFailure, storage_errors
from trainables.training.checkpoints import Checkpoints
from trainables.training.train import Training, failure_of

CPU = torch.device("cpu")


@pytest.fixture
def spec(tmp_path: Path) -> TrialSpec:
    return small_spec(drawn_images(tmp_path), tmp_path, epochs=3)


def failure(spec: TrialSpec) -> dict[str, Any]:
    """What a training fails of."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  whatever it is, its name is what counts
        train_all(Training(spec, CPU))
    return failure_of(raised.value)


def train_all(training: Training) -> None:
    while not training.finished:
        training.run_epoch()


def test_a_full_disk_is_told_apart(tmp_path: Path) -> None:
    """A device that is always full is where the file goes; PyTorch tells of it in words of its own."""
    full = tmp_path / "last.pt"
    refused = pytest.raises(DiskFull, match=f"There is no space left for {full}")
    with refused, storage.storage_errors(full), open("/dev/full", "wb") as file:
        torch.save({"weight": torch.zeros(100_000)}, file)


def test_a_store_that_goes_away_is_no_fault_of_the_code(spec: TrialSpec, tmp_path: Path) -> None:
    with ftp_store(tmp_path / "ftp") as url:
        elsewhere = replace(spec, directory=f"{url}/trial")
        training = Training(elsewhere, CPU)
        training.run_epoch()
        training.wait_for_checkpoints()
    with pytest.raises(StorageFailure) as raised:
        train_all(training)
    found = failure_of(raised.value)
    assert found["cause"] == "LOST"
    assert found["reason"].startswith("ftp://127.0.0.1/trial/attempt-1/")
    assert failure(elsewhere)["cause"] == "LOST"  # one that would begin now
    with ftp_store(tmp_path / "ftp", int(url.rpartition(":")[2])):
        again = Training(elsewhere, CPU)  # in the same process, whose connection was cut
        assert len(again.records) == 1
        train_all(again)


def test_a_folder_that_cannot_be_made_is_no_fault_of_the_code(spec: TrialSpec) -> None:
    Path(spec.directory).touch()
    found = failure(spec)
    assert found["cause"] == "LOST"
    assert "FileExistsError" in found["reason"] or "NotADirectoryError" in found["reason"]


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "my_weights.pt"),
        ConnectionError("my server"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
)
def test_what_code_of_one_s_own_meets_is_its_own(error: Exception) -> None:
    assert failure_of(error)["cause"] == "CODE_ERROR"


@pytest.mark.parametrize("store", ["folder", "memory"])
def test_a_state_that_cannot_be_written_anywhere_is_the_code_s(tmp_path: Path, store: str) -> None:
    root = f"{tmp_path}/trial" if store == "folder" else f"memory:/{tmp_path}/trial"
    checkpoints = Checkpoints(root, "digest")
    checkpoints.save({"of one's own": open})
    checkpoints.wait()  # it has a name, so it can be written
    checkpoints.save({"of one's own": lambda: None})
    with pytest.raises((AttributeError, pickle.PicklingError)) as raised:
        checkpoints.wait()
    assert failure_of(raised.value)["cause"] == "CODE_ERROR"


@dataclass(frozen=True, kw_only=True)
class Away(Folder):
    """Images of which one gives an error when it is read."""

    number: int

    def read(self, key: str) -> np.ndarray:
        if key.endswith("3.png"):
            raise OSError(self.number, os.strerror(self.number), key)
        return super().read(key)


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (errno.ESTALE, "LOST"),
        (errno.ETIMEDOUT, "LOST"),
        (errno.EIO, "LOST"),
        (errno.ENOENT, "CODE_ERROR"),
        (errno.EACCES, "CODE_ERROR"),
    ],
)
def test_images_that_are_away_are_not_images_that_are_missing(
    spec: TrialSpec, tmp_path: Path, number: int, cause: str
) -> None:
    dataset = Away(root=str(tmp_path / "images"), number=number)
    images = replace(spec.images, dataset=dataset, cache=str(tmp_path / "other"))
    found = failure(replace(spec, images=images))
    assert found["cause"] == cause, found
    assert os.strerror(number) in found["reason"]
    with pytest.raises(Mistakes, match=os.strerror(number)):
        images.make()  # what the driver says at the start


def test_a_cache_that_cannot_be_written_is_no_fault_of_the_code(spec: TrialSpec, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    images: StoreSpec = replace(spec.images, cache=str(tmp_path / "file" / "cache"))
    found = failure(replace(spec, images=images))
    assert found["cause"] == "LOST"
    assert "Not a directory" in found["reason"]


def test_a_failure_crosses_process_borders_whole(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailure) as raised:
        write_whole(tmp_path / "file" / "folder" / "value", lambda file: file.write(b""))
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.strerror, again.errno) == (str(raised.value), "Not a directory", errno.ENOTDIR)


def test_what_is_no_failure_of_the_place_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), storage_errors(tmp_path):
        raise ZeroDivisionError
    with (
        pytest.raises(StorageFailure, match=r"memory:.* failed \(ZeroDivisionError"),
        storage_errors(as_path("memory://a")),
    ):
        raise ZeroDivisionError  # a store's library may raise anything


def test_a_store_that_never_answers_is_given_up(
    spec: TrialSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It lets everybody connect, and says nothing: not even FTP's own bound of 30 seconds is waited for."""
    monkeypatch.setattr(storage, "ANSWER_S", 0.5)
    with silent_server() as port:
        address = f"ftp://127.0.0.1:{port}/trial"
        found = failure(replace(spec, directory=address))
        assert found["cause"] == "LOST"
        assert found["reason"] == "ftp://127.0.0.1/trial failed (TimeoutError: no answer within 0.5 s)"
        with pytest.raises(Mistakes, match="cannot be accessed"):
            given_path(address)


def test_a_large_file_has_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "ANSWER_S", 0.1)
    monkeypatch.setattr(storage, "BYTES_A_SECOND", 1000)
    store = as_path("memory://large")
    assert storage.ask(store, lambda: time.sleep(0.5) or "done", size=60_000) == "done"  # type: ignore[func-returns-value]
    with pytest.raises(StorageFailure, match=r"no answer within 0\.2 s"):
        storage.ask(store, threading.Event().wait, size=100)


TWO_LOSSES = """
import json, pickle, shutil, sys
import torch
from trainables.training.attempt import Attempt, train_together

first, second = pickle.loads(bytes.fromhex(sys.argv[1]))
package = sys.argv[2]
attempt = Attempt(first, [torch.device("cpu")])
(news,) = train_together([attempt])
assert len(news["records"]) == 1, news
shutil.move(package, f"{package}-away")
(news,) = train_together([Attempt(second, [torch.device("cpu")])])
shutil.move(f"{package}-away", package)
(again,) = train_together([Attempt(second, [torch.device("cpu")])])
(on,) = train_together([attempt])
print(json.dumps([news["failure"], len(again["records"]), len(on["records"])]))
"""


def test_code_that_goes_away_under_a_worker_is_no_fault_of_a_trial(spec: TrialSpec, tmp_path: Path) -> None:
    """As Ray writes it anew where a second node starts on a machine; a loss is imported when it is first trained."""
    package = tmp_path / "code" / "trainables"
    shutil.copytree(files("trainables"), package, ignore=shutil.ignore_patterns("__pycache__"))
    other = replace(spec, loss="pnp", hyperparameters={}, directory=str(tmp_path / "other"))
    done = subprocess.run(
        [sys.executable, "-c", TWO_LOSSES, pickle.dumps([spec, other]).hex(), str(package)],
        cwd=package.parent,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, again, on = json.loads(done.stdout.splitlines()[-1])
    assert found["cause"] == "LOST"
    assert found["reason"].startswith("the module trainables.losses.ranking is gone from its folder")
    assert (again, on) == (1, 1)
