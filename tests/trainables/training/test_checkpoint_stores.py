"""Checkpoints behave the same in a local folder and in remote stores."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.stores import PLACES, ftp_store, place

from search.config.search_config import parse_config
from search.driver.make_plan import make_plan
from search.engines.ray_engine import probe_file
from trainables.common.errors import InvalidInput
from trainables.common.files import as_path, write_json, write_whole
from trainables.inference.model_files import read_tensors
from trainables.training.checkpoints import Checkpoints, finished_records, forget_last


@pytest.fixture(params=PLACES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with place(request.param, tmp_path) as url:
        yield f"{url}/models/loss@final/0001"


def saved(checkpoints: Checkpoints, last: dict[str, Any], best: dict[str, Any] | None = None) -> None:
    checkpoints.save(last, best)
    checkpoints.wait()


def test_an_attempt_goes_on_from_the_last_one(address: str) -> None:
    first = Checkpoints(address, "digest")
    assert first.load_last() is None
    second = Checkpoints(address, "digest")  # the first one has written nothing, and keeps its number
    first.save({"epoch": 1})
    saved(first, {"epoch": 2}, {"weights": torch.arange(3)})
    assert first.best == "attempt-1/best.safetensors"
    state = second.load_last()
    assert state is not None
    assert state["epoch"] == 2
    assert second.best == "attempt-2/best.safetensors"
    saved(first, {"epoch": 9})  # believed dead but still writing
    saved(second, {"epoch": 3}, {"weights": torch.arange(4)})
    third = Checkpoints(address, "digest").load_last()
    assert third is not None
    assert third["epoch"] == 3
    assert Checkpoints(address, "another").load_last() is None
    for attempt, count in ((1, 3), (2, 4)):
        best, _ = read_tensors(as_path(f"{address}/attempt-{attempt}/best.safetensors"))
        assert torch.equal(best["weights"], torch.arange(count))


def test_what_only_an_unfinished_training_needs_goes(address: str) -> None:
    for fold in (1, 2):
        checkpoints = Checkpoints(f"{address}/fold-{fold}", "digest")
        saved(checkpoints, {}, {})
    checkpoints.close([{"epoch": 1}])
    assert finished_records(f"{address}/fold-1", "digest") is None
    assert finished_records(f"{address}/fold-2", "digest") == [{"epoch": 1}]
    forget_last(address)
    assert {path.name for path in as_path(address).rglob("attempt-*/*")} == {"best.safetensors"}


def test_what_a_worker_still_writes_after_that_does_not_stay(address: str) -> None:
    checkpoints = Checkpoints(address, "digest")
    forget_last(address)
    saved(checkpoints, {}, {"weights": torch.arange(3)})
    assert {path.name for path in as_path(address).rglob("attempt-*/*")} == {"best.safetensors"}
    checkpoints.close([{"epoch": 1}])
    assert {path.name for path in as_path(address).rglob("attempt-*/*")} == {"best.safetensors"}


def test_a_file_is_written_whole_or_not_at_all(address: str) -> None:
    with probe_file(address) as probe:
        assert as_path(probe).exists()
    assert not as_path(probe).exists()
    file = as_path(f"{address}/value.json")
    write_json(file, {"value": 1})

    def fail(opened: Any) -> None:
        opened.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(file, fail)
    assert file.read_text() == '{\n  "value": 1\n}\n'
    assert [path.name for path in file.parent.glob("*")] == ["value.json"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(InvalidInput, match=r"Checkpoints cannot be written to .*file \("),
        probe_file(f"{tmp_path}/file"),
    ):
        pass


def test_a_store_that_does_not_answer_is_refused(search_file: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    with ftp_store(tmp_path / "ftp") as url:
        pass
    with pytest.raises(InvalidInput, match=f"checkpoints.storage_path: {url}/models cannot be accessed"):
        make_plan(parse_config(search_file(checkpoints={"storage_path": f"{url}/models"})), tmp_path / "runs")
