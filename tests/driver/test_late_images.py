"""Damaged test images: a warning when a search starts, refused by the test stage, which resumes after their repair."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here, plain, stored, write_search
from support.small_search import draw_folder, small_search
from support.without_ray import MADE_UP, only_records

from search.selection.retrieval_file import Scoring
from search.stages import Stage
from trainables.data.store.contents import read_contents

SMALL: dict[str, Any] = {
    "training": {"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
    "losses": ["pnp"],
    "search": {"trials": 2},
    "final": {"seeds": 2},
    "metrics": {"test": ["recall_at_1"]},
    "resources": MADE_UP,
}
CHOSEN = ("--set", f"stages=[{Stage.SEARCH}, {Stage.SELECT}]")


@pytest.fixture(autouse=True)
def scored(monkeypatch: pytest.MonkeyPatch) -> list[Scoring]:
    return only_records(monkeypatch)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Draw 16 classes: 00 to 07 train, 08 to 15 are held out."""
    return draw_folder(tmp_path / "images", images=5)


@pytest.fixture
def file(images: Path, tmp_path: Path) -> Path:
    return write_search(tmp_path / "small.yaml", small_search(images, **SMALL))


def cut_off(path: Path) -> bytes:
    """Truncate an image file and return its original content."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return content


def openings(runs: Path) -> list[dict[str, Any]]:
    path = runs / "test_openings.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [
        entry for entry in map(json.loads, lines) if "selections" in entry
    ]  # the other entries list the images that were read


def test_a_search_warns_of_broken_test_images_and_runs(images: Path, file: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert "damaged" not in plain(holdout_here("run", file, "--runs", tmp_path / "whole", *CHOSEN).stderr)
    cut_off(images / "class-09" / "03.png")
    (images / "class-15" / "00.png").write_bytes(b"garbage")
    said = plain(holdout_here("run", file, "--runs", runs, *CHOSEN).stderr)
    assert (
        "small: 2 of 40 images of test classes look damaged: class-09/03.png (the file is cut off); class-15/00.png "
        "(not an image of a known format). Repair them before the test"
    ) in said
    assert (runs / "small" / "selection.json").exists(), "the test images are not needed before the test"
    assert not openings(runs), "checking a file does not open the test set"


def test_the_same_command_resumes_after_repair(images: Path, file: Path, tmp_path: Path, scored: list[Scoring]) -> None:
    """One image is damaged after its header, where only decoding finds it; it is replaced by another image."""
    runs, path = tmp_path / "runs", images / "class-09" / "03.png"
    whole = path.read_bytes()
    path.write_bytes(whole[:300] + bytes(200) + whole[500:])
    refused = plain(holdout_here("run", file, "--runs", runs, code=2).stderr)
    assert "1 of 40 images cannot be read: class-09/03.png" in refused
    assert "The trainings are kept and this opening counts once; repair this and run the same command" in refused
    trained = [trial.user_attrs for trial in stored(runs, "small", "pnp@final")]
    assert trained
    assert len(openings(runs)) == 1
    assert not scored
    assert not list((tmp_path / "runs").rglob("test.json"))

    path.write_bytes((images / "class-09" / "02.png").read_bytes())
    done = plain(holdout_here("run", file, "--runs", runs).stdout)
    assert "this test set: 1 opening by 1 search" in done
    assert [trial.user_attrs for trial in stored(runs, "small", "pnp@final")] == trained, "nothing is trained again"
    assert len(openings(runs)) == 1
    assert len(scored) == len(trained)
    assert "class-09/03.png" in read_contents(scored[0].images.make()).image_keys
