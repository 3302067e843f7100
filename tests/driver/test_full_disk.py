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

from search.engines.base import InProcess
from search.records.ledger import Ledger
from search.study import JournalReader
from trainables.inference.model_files import read_tensors
from trainables.training.checkpoints import parsed_state
from trainables.training.inputs import opened_images

NAME = "birds"
LOSS = "proxy_anchor"
STUDIES = (LOSS, f"{LOSS}@confirm", f"{LOSS}@final")
LEFT = (0, 20_000, 130_000, 600_000, 2_000_000, 64_000_000)
"""Free bytes at the start of each attempt: some make the images fail, some the studies, others a checkpoint."""


class FillsDisk(InProcess):
    """Trains in this process; the disk is filled when the engine is made, before the images are decoded."""

    fill: ClassVar[Callable[[], None]]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        FillsDisk.fill()


def search(root: Path, cache: Path) -> dict[str, Any]:
    return small_search(
        root,
        name=NAME,
        dataset={"name": "folder", "root": str(root), "cache": str(cache)},
        training={"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        losses=[LOSS],
        search={"trials": 2, "pruner": "none"},
        selection={"finalists": 1, "seeds": 1},
        final={"seeds": 1},
        resources={"engine": f"{__name__}:FillsDisk"},
    )


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
    assert not [path for folder in folders for path in folder.rglob("*.draft")]


def test_a_search_resumes_once_there_is_space(
    disk: SmallDisk, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk holds the runs, with the checkpoints, and the decoded images."""
    without_mlflow(monkeypatch)
    FillsDisk.fill = staticmethod(lambda: None)
    file = write_search(tmp_path / "undisturbed.yaml", search(image_folder, tmp_path / "cache"))
    holdout_here("run", file, "--runs", tmp_path / "runs")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # that opening is not counted
    file = write_search(tmp_path / "search.yaml", search(image_folder, disk.path / "cache"))
    runs, said = disk.path / "runs", []
    for left in LEFT:
        opened_images.cache_clear()
        disk.clear()
        FillsDisk.fill = staticmethod(partial(disk.leave, left))
        done = holdout_here("run", file, "--runs", runs, code=(0, 1))
        if done.returncode == 0:
            break
        said.append(plain(done.stderr))
        assert "There is no space left for " in said[-1], said[-1]
        assert f"{disk.path}" in said[-1]
        assert said[-1].endswith("then run the same command again; finished work is kept."), said[-1]
        check_whole(runs, disk.path / "cache")
        assert len(Ledger(runs / "test_openings.jsonl").openings()) <= 1
    assert any("/cache" in sentence for sentence in said), said
    assert len(said) >= 3, said
    assert results(runs) == results(tmp_path / "runs")
    assert len(Ledger(runs / "test_openings.jsonl").openings()) == 1
