"""A disk that fills during a search: an error, no partial files, and the same command resumes the search."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.commands import holdout_here, plain, stored, write_search
from support.small_disk import SmallDisk
from support.small_search import small_search
from support.without_ray import without_mlflow

from search.engines.in_process import InProcess
from search.selection.ledger import Ledger
from search.study import JournalReader
from trainables.data.store.spec import opened_store
from trainables.inference.model_files import read_tensors
from trainables.training.checkpoints import parsed_state

NAME = "birds"
LOSS = "proxy_anchor"
STUDIES = (LOSS, f"{LOSS}@confirm", f"{LOSS}@final")
LEFT = (0, 20_000, 130_000, 600_000, 2_000_000, 8_000_000, 64_000_000)
"""Free bytes at the start of each attempt: some make the studies fail, others a checkpoint."""


FAILURES = {"runs": 3, "checkpoints": 3, "images": 2}
"""The least number of these attempts that must fail."""


class FillsDisk(InProcess):
    """Trains in this process; the disk is filled when the engine is made, before the images are decoded."""

    fill: ClassVar[Callable[[], None]]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        FillsDisk.fill()


def search(root: Path, **changes: Any) -> dict[str, Any]:
    losses = {"losses": [LOSS], "search": {"trials": 2, "pruner": "none"}}
    resources = {"engine": f"{__name__}:FillsDisk"}
    return small_search(root, name=NAME, training=TRAINING, resources=resources, **losses, **changes)


TRAINING = {"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 16}


def results(runs: Path) -> dict[str, Any]:
    """Return the results of a search, without times and random names."""
    folder = runs / NAME
    (opening,) = json.loads((folder / "test.json").read_text())["openings"]
    files, keys = opening["files"], ("metrics", "seed", "source_trial")
    scores = [{"sha256": files[score["per_image"]], **{key: score[key] for key in keys}} for score in opening["scores"]]
    return {
        "trials": {
            study: [
                (trial.number, trial.state, trial.params, trial.values, trial.intermediate_values)
                for trial in stored(runs, NAME, study)
            ]
            for study in STUDIES
        },
        "chosen": json.loads((folder / "selection.json").read_text())["chosen"],
        "scores": scores,
    }


def check_whole(*folders: Path) -> None:
    """Check that every file can be read, and that no draft is left."""
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        assert not path.name.startswith(".") or path.name in (".driver.lock", ".driver", ".id"), path
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".jsonl":
            assert all(json.loads(line) for line in path.read_text().splitlines())
        elif path.suffix == ".safetensors":
            read_tensors(path)
        elif path.suffix == ".pt":
            parsed_state(path.read_bytes())
        elif path.suffix == ".journal":
            JournalReader(path).read()
        else:
            assert path.suffix in OTHERS
    assert not [path for folder in folders for path in folder.rglob("*.draft")]


OTHERS = ("", ".yaml", ".log", ".lock", ".used", ".npz", ".html", ".md", ".bin")


@pytest.fixture(scope="module")
def undisturbed(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    runs = tmp_path_factory.mktemp("undisturbed")
    file = write_search(runs / "search.yaml", search(image_folder))
    with pytest.MonkeyPatch.context() as patch:
        without_mlflow(patch)
        FillsDisk.fill = staticmethod(lambda: None)
        holdout_here("run", file, "--runs", runs / "runs")
    return results(runs / "runs")


@pytest.mark.parametrize("full", ["runs", pytest.param("checkpoints", marks=pytest.mark.slow), "images"])
def test_a_search_resumes_once_there_is_space(
    full: str,
    disk: SmallDisk,
    image_folder: Path,
    undisturbed: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = (disk.path if full == "runs" else tmp_path) / "runs"
    changes: dict[str, dict[str, Any]] = {
        "runs": {},
        "checkpoints": {"checkpoints": {"storage_path": str(disk.path / "models")}},
        "images": {"dataset": {"name": "folder", "root": str(image_folder), "cache": str(disk.path / "cache")}},
    }
    file = write_search(tmp_path / "search.yaml", search(image_folder, **changes[full]))
    without_mlflow(monkeypatch)
    said = []
    for left in LEFT:
        opened_store.cache_clear()
        disk.clear()
        FillsDisk.fill = staticmethod(partial(disk.leave, left))
        done = holdout_here("run", file, "--runs", runs, code=(0, 1))
        if done.returncode == 0:
            break
        said.append(plain(done.stderr))
        assert "There is no space left for " in said[-1], said[-1]
        assert f"{disk.path}" in said[-1]
        assert said[-1].endswith("then run the same command again; finished work is kept."), said[-1]
        check_whole(runs, disk.path / "models", disk.path / "cache")
        assert len(Ledger(runs / "test_openings.jsonl").openings()) <= 1
    assert len(said) >= FAILURES[full], said
    assert results(runs) == undisturbed
    assert len(Ledger(runs / "test_openings.jsonl").openings()) == 1
