"""``holdout init``: its file, its output and its errors."""

import json
from pathlib import Path

import pytest
from support.commands import holdout_here, plain

from search.config.recipes import read_search
from search.config.search_config import parse_config
from search.plan.make_plan import make_plan


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of the commands."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_folder_gets_a_file_that_run_takes(image_folder: Path, here: Path, tmp_path: Path) -> None:
    said = plain(holdout_here("init", image_folder, "--output", "birds.yaml").stdout)
    assert "160 images, of 16 classes" in said
    assert said.endswith("holdout run birds.yaml")
    assert [path.name for path in here.iterdir()] == ["birds.yaml"]
    plan = make_plan(parse_config(read_search(Path("birds.yaml"))), tmp_path / "runs")
    assert len(plan.split.train) == 6


def test_a_manifest_gets_a_file_that_run_takes(image_folder: Path, here: Path, tmp_path: Path) -> None:
    rows = [f"{path.relative_to(image_folder)},{path.parent.name}" for path in sorted(image_folder.rglob("*.png"))]
    (here / "birds.csv").write_text("\n".join(["path,class", *rows]))
    assert "160 of the 160 images are missing" in plain(holdout_here("init", "birds.csv", code=2).stderr)
    assert "there is no CSV file" in plain(holdout_here("init", image_folder, "--root", here, code=2).stderr)
    assert [path.name for path in here.iterdir()] == ["birds.csv"]
    holdout_here("init", "birds.csv", "--root", image_folder)
    plan = make_plan(parse_config(read_search(Path("birds.yaml"))), tmp_path / "runs")
    assert len(plan.split.train) == 6
    assert plan.config.dataset.name == "manifest"


def test_without_a_folder_it_is_for_drawn_images(here: Path) -> None:
    record = json.loads(holdout_here("init", "--json").stdout)
    assert record["file"] == "glyphs.yaml"
    assert record["found"]["classes"] == 96
    assert "name: glyphs" in (here / "glyphs.yaml").read_text()


def test_mistakes_are_sentences_and_nothing_is_written(image_folder: Path, here: Path) -> None:
    (here / "mine.yaml").write_text("mine")
    said = plain(holdout_here("init", image_folder, "--output", "mine.yaml", code=2).stderr)
    assert said.endswith("mine.yaml already exists and is not overwritten; name another with --output, or remove it.")
    (here / "one" / "class").mkdir(parents=True)
    assert "without images: class" in plain(holdout_here("init", "one", code=2).stderr)
    assert "nowhere', which does not exist" in plain(holdout_here("init", "nowhere", code=2).stderr)
    assert {path.name for path in here.iterdir()} == {"mine.yaml", "one"}
    assert (here / "mine.yaml").read_text() == "mine"
