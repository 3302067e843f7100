"""A search over images with the longest names, in deep folders, and alone in their class."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import holdout_here, plain
from support.finished_search import finish
from support.refusals import levels_below
from support.small_search import draw_folder, small_search

from hostile.world import LOSSES, World
from search.config.search_config import parse_config
from search.plan.make_plan import make_plan

SMALL: dict[str, Any] = {
    "training": {"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
    "losses": ["proxy_anchor"],
    "search": {"trials": 1},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 1},
}
LONG = "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 125
"""250 bytes."""


def long_names(root: Path) -> None:
    """Give every class and every image a name of 255 bytes."""
    for folder in sorted(root.iterdir()):
        for image in folder.iterdir():
            image.rename(folder / f"{LONG[:-1]}-{image.stem}.png")
        folder.rename(root / f"{LONG}a-{folder.name[-2:]}x")


def alone(root: Path) -> tuple[str, str]:
    """Leave one image in a training, a validation and a test class; return another training and test class."""
    split = make_plan(parse_config(small_search(root)), root.parent / "none").split
    for name in (split.train[0], split.validation[0], split.test[0]):
        for image in sorted((root / name).iterdir())[1:]:
            image.unlink()
    return split.train[1], split.test[1]


def test_they_are_trained_scored_and_verified(tmp_path: Path) -> None:
    """Images with long names, alone in their class, and below 500 folders, or more than Python's recursions allow."""
    root, runs = draw_folder(tmp_path / "images", images=5), tmp_path / "runs"
    long_names(root)
    trains, tests = alone(root)
    with levels_below(root / trains, 1_100) as trained, levels_below(root / tests, 500) as tested:
        for name, folder in ((trains, trained), (tests, tested)):
            next((root / name).glob("*.png")).rename(folder / "deep.png")
        finish(runs, small_search(root, **SMALL))
        for command in ("report", "verify"):
            holdout_here(command, "small", "--runs", runs)
        assert "small" in (runs / "small" / "report.html").read_text()
        assert "proxy_anchor" in plain(holdout_here("compare", "small", "--runs", runs).stdout)
    (opening,) = json.loads((runs / "small" / "test.json").read_text())["openings"]
    with np.load(runs / "small" / "test" / opening["id"] / opening["scores"][0]["per_image"]) as file:
        assert f"{tests}/{'d/' * 500}deep.png" in file["keys"].tolist()


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_a_file_of_255_bytes_is_written(suffix: str, world: World, tmp_path: Path) -> None:
    runs, file = world.origin / "runs", tmp_path / f"{LONG}a{suffix}"
    if suffix == ".npz":
        holdout_here("embed", runs / "small" / "models" / LOSSES[0], world.origin / "images", "--to", file)
    else:
        holdout_here("compare", "small", "--runs", runs, "--output", file)
    assert file.stat().st_size > 100
    assert not list(tmp_path.glob(".*draft"))
    too_long = tmp_path / f"{LONG}abc{suffix}"
    done = holdout_here("compare", "small", "--runs", runs, "--output", f"{too_long}.csv", code=2)
    assert len(plain(done.stderr).strip().splitlines()) == 1
