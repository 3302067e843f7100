"""Disk usage, against plain sums over files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.small_search import draw_folder, small_search
from support.stores import ftp_store

from search.config.search_config import parse_config
from search.disk.usage import Usage, measure_disk
from search.plan.make_plan import make_plan
from search.plan.search import OpenedSearch, open_search
from search.trust import allow

Make = Callable[..., OpenedSearch]
TRAINING = {"epochs": 1, "batch_size": 20, "images_per_class": 5}
SIDES = {"small": 16, "large": 17, "also-large": 17}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that makes searches in ``tmp_path/runs``, with their own images and cache."""
    root = draw_folder(tmp_path / "images")

    def make_search(name: str, **changes: Any) -> OpenedSearch:
        dataset = {"name": "folder", "root": str(root), "cache": str(tmp_path / "stores")}
        content = small_search(root, name=name, dataset=dataset, **changes)
        return open_search(make_plan(parse_config(content), tmp_path / "runs"))

    return make_search


def _bytes(folder: Path) -> int:
    return sum(len(path.read_bytes()) for path in folder.rglob("*") if path.is_file())


def _entries(runs: Path) -> dict[str, Usage]:
    """What is in the runs folder, without the caches."""
    return {entry.name: entry for entry in measure_disk(runs) if entry.kind != "decoded images"}


def test_every_byte_of_the_runs_folder_is_counted_once_and_the_largest_comes_first(make: Make, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name, size in (("small-one", 10), ("large", 5_000_000)):
        trial = make(name).plan.folder.path / "trials" / "pnp" / "0000"
        trial.mkdir(parents=True)
        (trial / "best.safetensors").write_bytes(bytes(size))
    (runs / "study").mkdir()
    (runs / "study" / "campaign.yaml").write_text("name: study")
    (runs / "mlflow.db").write_bytes(bytes(999))
    for name, text in (("older", "name: older\n"), ("broken", "a: [")):  # which this version cannot read
        (runs / name).mkdir()
        (runs / name / "search.yaml").write_text(text)
    entries = _entries(runs)
    sizes = [entry.size for entry in entries.values()]
    assert sum(sizes) == _bytes(runs)
    assert sizes == sorted(sizes, reverse=True)
    kinds = {name: entry.kind for name, entry in entries.items()}
    searches = dict.fromkeys(("large", "small-one", "older", "broken"), "search")
    assert kinds == {**searches, "study": "campaign", "mlflow.db": "other"}


def test_what_a_link_leads_to_is_not_counted(make: Make, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "large").write_bytes(bytes(10_000_000))
    folder = make("birds").plan.folder
    (folder.path / "trials").symlink_to(outside)
    (tmp_path / "runs" / "linked").symlink_to(outside)
    assert all(entry.size < 1_000_000 for entry in _entries(tmp_path / "runs").values())


def test_a_cache_is_measured_with_what_is_in_use(make: Make, tmp_path: Path) -> None:
    searches = [make(name, training={**TRAINING, "image_size": side}) for name, side in SIDES.items()]
    store = searches[0].plan.images.open()
    searches[1].plan.images.open()
    cache = next(usage for usage in measure_disk(tmp_path / "runs") if usage.name == str(tmp_path / "stores"))
    folders = {path.name: _bytes(path) for path in (tmp_path / "stores").iterdir() if path.is_dir()}
    assert len(folders) == 2
    assert cache.size == sum(folders.values())
    assert 0 < cache.removable < cache.size, store
    assert "in use, limit " in cache.note


def test_checkpoints_elsewhere_are_counted_where_they_can_be_reached(make: Make, tmp_path: Path) -> None:
    with ftp_store(tmp_path / "store") as address:
        for name, url in (("far", address), ("near", str(tmp_path / "shared"))):
            make(name, checkpoints={"storage_path": url})
            for folder in (tmp_path / "store", tmp_path / "shared"):
                trial = folder / name / "trials" / "pnp" / "0000"
                trial.mkdir(parents=True)
                (trial / "best.safetensors").write_bytes(bytes(700))
        allow(["127.0.0.1"])
        for name, entry in _entries(tmp_path / "runs").items():
            assert entry.size == _bytes(tmp_path / "runs" / name) + 700
            assert entry.note.startswith("checkpoints in ")
    assert _entries(tmp_path / "runs")["far"].note.startswith("checkpoints elsewhere not counted: ")
