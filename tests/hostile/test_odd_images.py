"""A search over images with the longest names, in deep folders, and alone in their class."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import holdout_here, plain
from support.finished_search import finish
from support.refusals import levels_below
from support.small_search import draw_folder, small_search

from search.config.search_config import parse_config
from search.plan.make_plan import make_plan

SMALL: dict[str, Any] = {
    "training": {"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
    "losses": ["proxy_anchor"],
    "search": {"trials": 2},
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


def alone(root: Path) -> None:
    """Leave one image in a training, a validation and a test class."""
    split = make_plan(parse_config(small_search(root)), root.parent / "none").split
    for name in (split.train[0], split.validation[0], split.test[0]):
        for image in sorted((root / name).iterdir())[1:]:
            image.unlink()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return draw_folder(tmp_path / "images", images=5)


def _passes(root: Path, runs: Path) -> str:
    finish(runs, small_search(root, **SMALL))
    for words in (["report", "small"], ["verify", "small"], ["export", "small", "--to", runs.parent / "model"]):
        holdout_here(*words, "--runs", runs)
    assert "small" in (runs / "small" / "report.html").read_text()
    return plain(holdout_here("compare", "small", "--runs", runs).stdout)


@pytest.mark.parametrize("change", [long_names, alone])
def test_it_is_trained_scored_and_verified(change: Callable[[Path], None], root: Path, tmp_path: Path) -> None:
    change(root)
    assert "proxy_anchor" in _passes(root, tmp_path / "runs")


def test_images_below_500_folders(root: Path, tmp_path: Path) -> None:
    with levels_below(root / "class-00", 500) as trained, levels_below(root / "class-12", 500) as tested:
        for name, folder in (("class-00", trained), ("class-12", tested)):
            (root / name / "00.png").rename(folder / "deep.png")
        _passes(root, tmp_path / "runs")
    openings = json.loads((tmp_path / "runs" / "small" / "test.json").read_text())["openings"]
    folder = tmp_path / "runs" / "small" / "test" / openings[0]["id"]
    with np.load(folder / openings[0]["scores"][0]["per_image"]) as file:
        assert f"class-12/{'d/' * 500}deep.png" in file["keys"].tolist()


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_a_file_of_255_bytes_is_written(suffix: str, root: Path, tmp_path: Path) -> None:
    finish(tmp_path / "runs", small_search(root, **SMALL))
    model = tmp_path / "runs" / "small" / "models" / "proxy_anchor"
    file = tmp_path / f"{LONG}a{suffix}"
    if suffix == ".npz":
        holdout_here("embed", model, root, "--to", file)
    else:
        holdout_here("compare", "small", "--runs", tmp_path / "runs", "--output", file)
    assert file.stat().st_size > 100
    assert not list(tmp_path.glob(".*draft"))
    too_long = tmp_path / f"{LONG}abc{suffix}"
    done = holdout_here("compare", "small", "--runs", tmp_path / "runs", "--output", f"{too_long}.csv", code=2)
    assert len(plain(done.stderr).strip().splitlines()) == 1
