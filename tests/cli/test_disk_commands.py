"""``holdout disk`` and ``remove``: output, confirmation and errors."""

import io
import json
import sys
from pathlib import Path

import pytest
import yaml
from support.commands import holdout_here, plain
from support.image_stores import build_store
from support.small_search import small_search

from search.config.search_config import parse_config
from search.plan.make_plan import make_plan
from search.plan.search import open_search
from search.trust import remember
from trainables.data.sets.glyphs import Glyphs
from trainables.data.store.cache import InUse


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


def test_disk_shows_sizes_and_what_is_free(runs: Path) -> None:
    shown = plain(holdout_here("disk", "--runs", runs).stdout)
    assert "birds search 2." in shown
    assert f"free in {runs}" in shown
    record = json.loads(holdout_here("disk", "--runs", runs, "--json").stdout)
    (entry,) = [entry for entry in record["entries"] if entry["kind"] == "search"]
    assert entry["name"] == "birds"
    assert entry["size"] > 2_000_000
    assert record["total"] == sum(entry["size"] for entry in record["entries"])


@pytest.mark.parametrize(("answer", "code"), [("", 1), ("y", 0)])
def test_it_asks_and_names_the_sizes(answer: str, code: int, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(f"{answer}\n"))
    done = holdout_here("remove", "birds", "--runs", runs, code=code)
    said = plain(done.stderr)
    assert "birds takes 2." in said
    assert "The ledger of test openings and MLflow's runs are kept" in said
    assert (runs / "birds").exists() == (answer != "y")
    assert ("Nothing was removed." in said) == (answer != "y")
    assert ("birds was removed" in plain(done.stdout)) == (answer == "y")


def test_yes_removes_at_once_and_is_needed_without_a_terminal(runs: Path) -> None:
    said = plain(holdout_here("remove", "birds", "--runs", runs, code=2).stderr)
    assert said == "`holdout remove birds` asks for confirmation, but there is no terminal; add --yes."
    assert (runs / "birds" / "search.yaml").exists()
    record = json.loads(holdout_here("remove", "birds", "--yes", "--runs", runs, "--json").stdout)
    assert record["searches"] == ["birds"]
    assert record["size"] > 2_000_000
    assert not (runs / "birds").exists()
    said = plain(holdout_here("remove", "birds", "--yes", "--runs", runs, code=2).stderr)
    assert said == f"There is no search or campaign 'birds' in {runs}; it has: none yet."


def test_trim_removes_decoded_images_that_nobody_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    glyphs = Glyphs(num_classes=2, images_per_class=4)
    store = build_store(glyphs, list(glyphs.classes()), short_side=20, cache=tmp_path / "holdout")
    trim = ("disk", "--trim", "--to", "0", "--runs", tmp_path / "runs")
    in_use = InUse(store)
    shown = json.loads(holdout_here(*trim, "--json").stdout)
    assert shown["trimmed"] == [{"cache": str(tmp_path / "holdout"), "removed": [], "freed": 0}]
    assert shown["total"] > 9000
    in_use.close()
    assert "1 image store removed" in plain(holdout_here(*trim).stderr)
    assert not store.exists()


def test_trim_removes_nothing_that_a_stranger_s_search_names(runs: Path, tmp_path: Path) -> None:
    layer = tmp_path / "victim" / ("0" * 64)
    layer.mkdir(parents=True)
    (layer / "precious").touch()
    content = yaml.safe_load((runs / "birds" / "search.yaml").read_text())
    content["dataset"]["cache"] = str(layer.parent)
    (runs / "birds" / "search.yaml").write_text(yaml.safe_dump(content))
    trim = ("disk", "--trim", "--to", "0", "--runs", runs)
    assert "victim" not in holdout_here(*trim).stderr
    assert (layer / "precious").exists()
    remember(runs / "birds", {})  # once the user starts the search with this cache, it is one
    assert "victim" in holdout_here(*trim).stderr
    assert "add --trim" in plain(holdout_here("disk", "--to", "0", "--runs", runs, code=2).stderr)
