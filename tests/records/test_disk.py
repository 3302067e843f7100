"""The space and the time that a search needs; disk usage against sums over files; commands."""

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.commands import holdout_here, json_of, plain, printed, refusal, write_search
from support.image_stores import build_store
from support.small_disk import SmallDisk
from support.small_search import SearchFile, draw_folder, small_search

from search.config.search_config import parse_config
from search.driver.doctor import START_S, expected_seconds, expected_works, images_of, measured_trainings
from search.driver.make_plan import make_plan
from search.records.disk import LEAST_FREE, check_space
from search.records.plan import Plan
from search.records.writable import open_search
from search.stages import Stage
from search.trust import remember
from trainables.common.storage import DiskFull
from trainables.data.sets.glyphs import Glyphs
from trainables.data.store.cache import InUse
from trainables.training.train import Cost

TRAINING = {"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 32}


@pytest.mark.parametrize("place", ["runs", "cache", "checkpoints"])
def test_a_search_without_any_space_is_refused(place: str, disk: SmallDisk, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("runs", "cache", "checkpoints")} | {place: disk.path / place}
    dataset = {"name": "folder", "root": str(draw_folder(tmp_path / "images")), "cache": str(places["cache"])}
    content = small_search(tmp_path, dataset=dataset, checkpoints={"storage_path": str(places["checkpoints"])})
    free = check_space([make_plan(parse_config(content), places["runs"])])
    assert [*free] == [places["runs"], places["checkpoints"], places["cache"]]
    assert free[disk.path / place] == disk.free
    disk.leave(LEAST_FREE - 100_000)
    file = write_search(tmp_path / "search.yaml", content)
    said = refusal("run", file, "--runs", places["runs"], code=1)
    assert f"There is no space left for {disk.path}/{place}, where 9.9 MB are free. Free some space there" in said
    assert not any(folder.exists() for folder in places.values())


def test_decoded_images_need_no_space_and_unused_ones_are_space(disk: SmallDisk, tmp_path: Path) -> None:
    dataset = {"name": "folder", "root": str(draw_folder(tmp_path / "images")), "cache": str(disk.path)}
    contents = [small_search(tmp_path, dataset=dataset, training={**TRAINING, "image_size": side}) for side in (16, 17)]
    decoded, new = (make_plan(parse_config(content), tmp_path / "runs") for content in contents)
    store = decoded.images.make()
    disk.leave(0)
    assert disk.path not in check_space([decoded])
    with pytest.raises(DiskFull, match="There is no space left"):
        check_space([decoded, new])
    disk.clear()
    (store / "large").write_bytes(bytes(LEAST_FREE))
    disk.leave(0)
    assert check_space([new])[disk.path] > LEAST_FREE


# ``holdout disk`` and ``remove``: output, confirmation and errors.


@pytest.fixture
def runs(tmp_path: Path, image_folder: Path) -> Path:
    """A runs folder with one search that has begun."""
    open_search(make_plan(parse_config(small_search(image_folder, name="birds")), tmp_path / "runs"))
    checkpoints = tmp_path / "runs" / "birds" / "trials" / "pnp" / "0000"
    checkpoints.mkdir(parents=True)
    (checkpoints / "best.safetensors").write_bytes(bytes(2_000_000))
    return tmp_path / "runs"


class _Terminal(io.StringIO):
    """A terminal on which a user types an answer."""

    def isatty(self) -> bool:
        return True


def _bytes(folder: Path) -> int:
    return sum(len(path.read_bytes()) for path in folder.rglob("*") if path.is_file())


def test_every_byte_of_the_runs_folder_is_counted_once_and_the_largest_comes_first(runs: Path, tmp_path: Path) -> None:
    for name, text in (("older", "name: older\n"), ("broken", "a: [")):  # which this version cannot read
        (runs / name).mkdir()
        (runs / name / "search.yaml").write_text(text)
    (runs / "study").mkdir()
    (runs / "study" / "campaign.yaml").write_text("name: study")
    (runs / "mlflow.db").write_bytes(bytes(999))
    whole = _bytes(runs)
    (outside := tmp_path / "outside").write_bytes(bytes(3_000_000))
    (runs / "older" / "linked").symlink_to(outside)
    record = json_of("disk", "--runs", runs)
    entries = [entry for entry in record["entries"] if entry["kind"] != "decoded images"]
    sizes = [entry["size"] for entry in entries]
    assert sum(sizes) == pytest.approx(whole, abs=200), "what a link leads to is not counted"
    assert sizes == sorted(sizes, reverse=True)
    searches = dict.fromkeys(("birds", "older", "broken"), "search")
    assert {entry["name"]: entry["kind"] for entry in entries} == {
        **searches,
        "study": "campaign",
        "mlflow.db": "other",
    }
    assert record["total"] == sum(entry["size"] for entry in record["entries"])
    shown = printed("disk", "--runs", runs)
    assert "birds search 2." in shown
    assert f"free in {runs}" in shown


def test_a_removal_is_confirmed_at_a_terminal_or_by_yes(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal("remove", "birds", "--runs", runs)
    assert said == "`holdout remove birds` asks for confirmation, but there is no terminal; add --yes."
    shutil.copytree(runs, other := runs.with_name("other"))
    for answer, code in (("", 1), ("y", 0)):
        monkeypatch.setattr(sys, "stdin", _Terminal(f"{answer}\n"))
        assert (runs / "birds" / "search.yaml").exists()
        said = plain(holdout_here("remove", "birds", "--runs", runs, code=code).stderr)
        assert "birds takes 2." in said
        assert "The ledger of test openings and MLflow's runs are kept" in said
        assert ("Nothing was removed." in said) == (code == 1)
    assert not (runs / "birds").exists()
    record = json_of("remove", "birds", "--yes", "--runs", other)
    assert (record["searches"], record["size"] > 2_000_000, (other / "birds").exists()) == (["birds"], True, False)


def test_trim_removes_decoded_images_that_nobody_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOLDOUT_CACHE_GB", "0")
    glyphs = Glyphs(num_classes=2, images_per_class=4)
    store = build_store(glyphs, list(glyphs.classes()), short_side=20, cache=tmp_path / "holdout")
    trim = ("disk", "--trim", "--runs", tmp_path / "runs")
    in_use = InUse(store)
    shown = json_of(*trim)
    assert shown["trimmed"] == [{"cache": str(tmp_path / "holdout"), "removed": [], "freed": 0}]
    (cache,) = shown["entries"]
    assert cache["size"] == shown["total"] == _bytes(store)
    assert cache["removable"] == 0
    assert "in use, limit " in cache["note"]
    in_use.close()
    assert json_of("disk", "--runs", tmp_path / "runs")["entries"][0]["removable"] == cache["size"]
    assert "1 image store removed" in plain(holdout_here(*trim).stderr)
    assert not store.exists()


def test_trim_removes_nothing_that_a_stranger_s_search_names(runs: Path, tmp_path: Path) -> None:
    layer = tmp_path / "victim" / ("0" * 64)
    layer.mkdir(parents=True)
    (layer / "precious").touch()
    content = yaml.safe_load((runs / "birds" / "search.yaml").read_text())
    content["dataset"]["cache"] = str(layer.parent)
    (runs / "birds" / "search.yaml").write_text(yaml.safe_dump(content))
    trim = ("disk", "--trim", "--runs", runs)
    assert "victim" not in holdout_here(*trim).stderr
    assert (layer / "precious").exists()
    remember(runs / "birds", ())  # once the user starts the search with this cache, it is one
    assert "victim" in holdout_here(*trim).stderr


# The estimated duration of a search, against sums by hand.


@pytest.fixture
def planned(search_file: SearchFile, tmp_path: Path) -> Callable[..., Plan]:
    return lambda **changes: make_plan(parse_config(search_file(**changes)), tmp_path / "runs")


def cost(epoch: float) -> Cost:
    return Cost(step=(epoch - 0.5) / 3, steps=3, validation=0.5, memory=10**9, device_memory=None)


def test_all_stages_are_shared_out_to_the_slots(planned: Callable[..., Plan]) -> None:
    """A loss with 3 trials, 2 finalists with 2 seeds on halves, 2 configurations with 2 seeds, of 3 epochs each."""
    plan = planned(search={"trials": 3, "pruner": "none"})
    works = expected_works(plan)
    assert {(work.loss, work.stage): work.left() for work in works if work.budget.most} == {
        (loss, stage): epochs
        for loss in ("proxy_anchor", "pnp")
        for stage, epochs in {Stage.SEARCH: 9, Stage.SELECT: 12, Stage.TEST: 12}.items()
    }
    costs = {"proxy_anchor": cost(2.0), "pnp": cost(4.0)}
    by_hand = ((9 * 2 + 9 * 4) + (12 * 2 + 12 * 4) + (12 * 2 + 12 * 4)) / 2
    assert expected_seconds(plan, works, costs, 2) == pytest.approx(START_S + by_hand)
    # with a slot for each trial a stage takes as long as its longest training, of half of the classes in one of them
    assert expected_seconds(plan, works, costs, 100) == pytest.approx(START_S + (3 + 1.5 + 3) * 4)


def test_pruning_and_folds_count(planned: Callable[..., Plan]) -> None:
    search = {"trials": 40, "pruner": "asha"}
    (searched, *_) = expected_works(planned(training={"epochs": 8, "batch_size": 20, "image_size": 16}, search=search))
    assert 40 * 8 * 0.4 < searched.left() < 40 * 8 * 0.6
    folds = planned(search={"trials": 3, "pruner": "none"}, split={"folds": 4})
    of_folds = {work.stage: work.left() for work in expected_works(folds) if work.loss == "pnp" and work.budget.most}
    assert of_folds == {Stage.SEARCH: 3 * 4 * 3, Stage.SELECT: 4 * 2 * 3 / 2, Stage.TEST: 4 * 4 * 3}
    confirmed = planned(search={"trials": 3}, split={"folds": 4}, selection={"finalists": 1, "on": "split"})
    (work,) = (work for work in expected_works(confirmed) if (work.loss, work.stage) == ("pnp", Stage.SELECT))
    assert work.left() == 4 * 4 * 3
    assert (images_of(folds).train, images_of(folds).validation) == ((10,) * 6, (10,) * 2)


def test_the_trainings_that_are_measured_are_those_of_the_search(planned: Callable[..., Plan], tmp_path: Path) -> None:
    plan = planned(metrics={"gallery": "training_half"})
    assert (images_of(plan).train, images_of(plan).validation, images_of(plan).gallery) == ((10,) * 6, (10,) * 2, 30)
    plan.images.make()
    trainings = measured_trainings(plan, str(tmp_path))
    assert list(trainings) == ["proxy_anchor", "pnp"]
    for spec in trainings.values():
        assert (spec.images, spec.train_classes) == (plan.images, plan.split.train), "which are decoded"
        assert spec.training == plan.config.training
        assert not spec.validation_classes
