"""Searches under a clock that jumps by years: openings, resuming, results and checks do not depend on it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.commands import command, plain, stored, write_search
from support.small_search import draw_folder, small_search

TURNED = Path(__file__).parents[1] / "support" / "turned_clock"
SMALL: dict[str, Any] = {
    "training": {"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 16},
    "losses": ["proxy_anchor"],
    "search": {"trials": 3, "max_concurrent": 1},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 1},
    "resources": {"engine": "local"},
}


def holdout(*words: str | Path, turned: bool = True) -> str:
    """Run a command, by default under a clock that jumps, and return its output."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    if turned:
        environment["PYTHONPATH"] = os.pathsep.join([str(TURNED), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command(*words), env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return plain(done.stdout + done.stderr)


def results(runs: Path, name: str) -> list[Any]:
    return [
        (trial.number, trial.state, trial.params, trial.intermediate_values, trial.values)
        for study in ("proxy_anchor", "proxy_anchor@confirm", "proxy_anchor@final")
        for trial in stored(runs, name, study)
    ]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_folder(tmp_path_factory.mktemp("images"), images=5)


@pytest.mark.slow
def test_a_search_under_a_turned_clock_is_the_same(images: Path, tmp_path: Path) -> None:
    file = write_search(tmp_path / "small.yaml", small_search(images, **SMALL))
    holdout("run", file, "--runs", tmp_path / "undisturbed", turned=False)
    runs = tmp_path / "runs"
    holdout("run", file, "--runs", runs, "--set", "stages=[search]")  # resumed below
    assert "search" in holdout("status", "small", "--runs", runs)
    said = holdout("run", file, "--runs", runs)
    assert results(runs, "small") == results(tmp_path / "undisturbed", "small") != []
    for turned in (True, False):
        assert "small" in holdout("status", "small", "--runs", runs, turned=turned)
        holdout("verify", "small", "--runs", runs, turned=turned)
    assert "2 openings by 2 searches" in said, "the undisturbed search opened the same images before"
    again = write_search(tmp_path / "again.yaml", small_search(images, **SMALL, name="again"))
    assert "3 openings by 3 searches" in holdout("run", again, "--runs", runs)
    holdout("verify", "again", "--runs", runs)
    lines = [json.loads(line) for line in (runs / "test_openings.jsonl").read_text().splitlines()]
    assert [line["search"] for line in lines if "search" in line] == ["small", "small", "again"]
    assert len({line["time"][:4] for line in lines if "time" in line}) > 1, "the clock was turned"
