"""The estimate of a search's disk needs, against the bytes that small searches wrote; its warnings and errors."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here, plain, write_search
from support.finished_search import run_here
from support.small_disk import SmallDisk
from support.small_search import draw_folder, small_search

from search.config.search_config import parse_config
from search.disk.needs import CHECKPOINTS, IMAGES, check_space, disk_needs
from search.plan.make_plan import make_plan, reopened
from search.plan.plan import Plan
from trainables.models import BACKBONES
from trainables.training.checkpoints import BEST

TRAINING = {"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 32}
ABOUT = 2.0
"""The largest ratio of the estimate to the bytes written; the smallest is 0.9."""


def search(root: Path, cache: Path, **changes: Any) -> dict[str, Any]:
    dataset = {"name": "folder", "root": str(root), "cache": str(cache)}
    content = small_search(root, dataset=dataset, training=TRAINING, losses=["proxy_anchor"])
    return {**content, "search": {"trials": 4, "pruner": "none"}, "final": {"seeds": 2}, **changes}


def plan_of(content: dict[str, Any], runs: Path) -> Plan:
    return make_plan(parse_config(content), runs)


def by_kind(plan: Plan) -> dict[str, int]:
    return {what: size for (what, _), size in disk_needs([plan]).items()}


def bytes_in(folder: Path, pattern: str = "*") -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern) if path.is_file())


@pytest.mark.parametrize("changes", [{}, {"losses": ["mpa"], "split": {"folds": 2}}], ids=["epochs", "folds"])
def test_what_a_search_writes_is_known_before(changes: dict[str, Any], tmp_path: Path) -> None:
    few: dict[str, Any] = {"search": {"trials": 2}, "selection": {"finalists": 1, "seeds": 1}, "final": {"seeds": 1}}
    runs, cache = tmp_path / "runs", tmp_path / "cache"
    content = search(draw_folder(tmp_path / "images", images=8, size=40), cache, name="birds", **few, **changes)
    needs = by_kind(plan_of(content, runs))
    run_here(runs, [content])[0].close()
    trials = runs / "birds" / "trials"
    (model, *_) = trials.rglob(BEST)
    written = {
        IMAGES: bytes_in(cache),
        CHECKPOINTS: bytes_in(trials) + 2 * 2 * 3 * model.stat().st_size,  # two at once and their drafts
    }
    for what, size in written.items():
        assert 0.9 * size <= needs[what] <= ABOUT * size, what
    left = by_kind(reopened(runs, "birds"))
    assert IMAGES not in left
    assert left[CHECKPOINTS] < needs[CHECKPOINTS] - 0.9 * bytes_in(trials)


def test_the_limit_of_the_checkpoints_is_counted(tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images")
    runs = tmp_path / "runs"
    whole = by_kind(plan_of(search(root, tmp_path / "cache", stages=["search"]), runs))[CHECKPOINTS]
    limited = search(root, tmp_path / "cache", stages=["search"], checkpoints={"max_gb": 1e-6})
    need = by_kind(plan_of(limited, runs))[CHECKPOINTS]
    assert whole - need == pytest.approx(4 * 450_000, rel=0.1)  # a model of the built-in network


@pytest.mark.parametrize("name", BACKBONES)
def test_the_numbers_of_a_network_are_those_that_it_holds(name: str) -> None:
    import torch

    with torch.device("meta"):
        built = BACKBONES[name].build()
    assert BACKBONES[name].numbers == sum(tensor.numel() for tensor in built.state_dict().values())


def test_what_cannot_fit_is_refused_and_nothing_is_created(disk: SmallDisk, tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images", classes=16, images=10, size=40)
    disk.leave(100_000)
    cache = disk.path / "cache"
    content = search(root, cache, checkpoints={"storage_path": str(disk.path / "models")})
    file = write_search(tmp_path / "search.yaml", content)
    done = holdout_here("run", file, "--runs", tmp_path / "runs", code=2)
    said = plain(done.stderr)
    size = r"[\d.]+ [kM]B"
    assert re.search(
        rf"The disk is too small: about {size} for images in {cache}, {size} for checkpoints in {disk.path}/models "
        rf"\({size} free\); make room, or set dataset\.cache to another disk",
        said,
    )
    assert not (tmp_path / "runs").exists()
    assert [path.name for path in disk.path.iterdir()] == ["filler"]


def test_what_is_free_is_said_and_what_is_tight(disk: SmallDisk, tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images")
    content = search(root, tmp_path / "cache", checkpoints={"storage_path": str(disk.path)})
    plan = plan_of(content, tmp_path / "runs")
    need = by_kind(plan)[CHECKPOINTS]
    told = " ".join(check_space([plan]))
    assert f" for images in {tmp_path / 'cache'}" in told
    assert f" for checkpoints in {disk.path} (64.0 MB free)." in told
    disk.leave(round(0.75 * need))
    assert "if the disk fills up, the search ends, and the same command resumes it" in " ".join(check_space([plan]))
