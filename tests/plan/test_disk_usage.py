"""Disk usage, against plain sums over files."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.small_search import draw_folder, small_search
from support.stores import ftp_store

from search.config.search_config import parse_config
from search.plan import disk_usage
from search.plan.disk_usage import Kind, Usage, image_stores, measure_disk, measure_entry
from search.plan.make_plan import make_plan
from search.plan.runs import RunFolder, find_runs
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


def _by_name(runs: Path) -> dict[str, Usage]:
    return {entry.name: entry for entry in measure_disk(runs).entries}


def test_every_byte_of_the_runs_folder_is_counted_once_and_the_largest_comes_first(make: Make, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name, size in (("small-one", 10), ("large", 5_000_000)):
        trial = make(name).plan.folder.path / "trials" / "pnp" / "0000"
        trial.mkdir(parents=True)
        (trial / "best.safetensors").write_bytes(bytes(size))
    results = runs / "large" / "test" / "opening"
    results.mkdir(parents=True)
    (results / "pnp-0.npz").write_bytes(bytes(300))
    (runs / "large" / "test.json").write_bytes(bytes(20))
    (runs / "study").mkdir()
    (runs / "study" / "campaign.yaml").write_text("name: study")
    (runs / "mlflow.db").write_bytes(bytes(999))
    usage = measure_disk(runs)
    sizes = [entry.total for entry in usage.entries]
    assert sum(sizes) == _bytes(runs)
    assert sizes == sorted(sizes, reverse=True)
    assert usage.total == sum(sizes) + sum(store.size for store in usage.stores)
    entries = _by_name(runs)
    large = entries["large"]
    assert (large.checkpoints, large.tests) == (5_000_000, 320)
    assert large.studies == (runs / "large" / "study.db").stat().st_size
    kinds = {name: entry.kind for name, entry in entries.items()}
    search, campaign, other = Kind
    assert kinds == {"large": search, "small-one": search, "study": campaign, "mlflow.db": other}
    assert usage.free_runs > 0


def test_what_a_link_leads_to_is_not_counted(make: Make, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "large").write_bytes(bytes(10_000_000))
    folder = make("birds").plan.folder
    (folder.path / "trials").symlink_to(outside)
    (tmp_path / "runs" / "linked").symlink_to(outside)
    assert all(entry.size < 1_000_000 for entry in measure_disk(tmp_path / "runs").entries)


def test_no_runs_folder_is_no_error_and_none_is_made(tmp_path: Path) -> None:
    assert measure_disk(tmp_path / "nowhere").entries == ()
    assert not (tmp_path / "nowhere").exists()


def test_a_search_that_this_version_cannot_read_is_counted_all_the_same(tmp_path: Path) -> None:
    for name, text in (("older", "name: older\n"), ("edited", "- 1\n"), ("broken", "a: [")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "search.yaml").write_text(text)
    assert {entry.name: entry.size for entry in measure_disk(tmp_path).entries} == {
        "older": 12,
        "edited": 4,
        "broken": 4,
    }


def test_stores_say_what_they_hold(make: Make, tmp_path: Path) -> None:
    searches = {name: make(name, training={**TRAINING, "image_size": side}) for name, side in SIDES.items()}
    for search in searches.values():
        search.plan.images.open()
    (tmp_path / "stores" / "0123.draft").mkdir()
    stores = [store for store in image_stores(find_runs(tmp_path / "runs")) if store.path.startswith(str(tmp_path))]
    (unfinished,) = [store for store in stores if store.images is None]
    assert unfinished.path.endswith("0123.draft")
    whole = {store.short_side: store for store in stores if store.images is not None}
    assert whole.keys() == {18, 19}
    for store in whole.values():
        assert (store.dataset, store.classes, store.images) == ("folder", 8, 80)
        assert store.size == _bytes(Path(store.path))


def test_checkpoints_elsewhere_are_counted_where_they_can_be_reached(make: Make, tmp_path: Path) -> None:
    with ftp_store(tmp_path / "store") as address:
        for name, url in (("far", address), ("near", str(tmp_path / "shared"))):
            make(name, checkpoints={"storage_path": url})
            for folder in (tmp_path / "store", tmp_path / "shared"):
                trial = folder / name / "trials" / "pnp" / "0000"
                trial.mkdir(parents=True)
                (trial / "best.safetensors").write_bytes(bytes(700))
        allow(["127.0.0.1"])
        for entry in measure_disk(tmp_path / "runs").entries:
            assert entry.elsewhere is not None
            assert entry.elsewhere.size == 700
            assert entry.total == entry.size + 700
    folder = RunFolder(tmp_path / "runs", "far")
    unreachable = measure_entry(folder).elsewhere
    assert unreachable is not None
    assert unreachable.size is None
    assert unreachable.problem


def test_a_store_that_never_answers_is_not_waited_for() -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        disk_usage.within(0.1, threading.Event().wait)
