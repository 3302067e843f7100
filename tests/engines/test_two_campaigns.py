"""Two campaigns of two people at the same time on one cluster, with one cache of images and one data set."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from support.commands import command, holdout_here, plain, stored, write_search
from support.services import ray_nodes
from support.small_search import draw_folder, small_search

from search.trials import epochs_of

pytestmark = pytest.mark.cluster

SLOTS = 2
PATIENCE_S = 500
EPOCHS = 2
STUDIES = ("proxy_anchor", "proxy_anchor@confirm", "proxy_anchor@final")


def campaign(folder: Path, images: Path, cache: Path, engine: str) -> Path:
    """Two searches that propose the same, however many of their trials run at once."""
    base: dict[str, Any] = small_search(
        images, losses=["proxy_anchor"], search={"trials": 3, "sampler": "random", "pruner": "none"}
    )
    del base["name"]
    base["resources"] = {"engine": engine}
    base["dataset"]["cache"] = str(cache)
    base["training"] |= {"epochs": EPOCHS, "lr": 1e-4}
    content = {
        "name": "lot",
        "study": "batches",
        "base": base,
        "vary": {"batch": {"ten": {"training.batch_size": 10}, "twenty": {"training.batch_size": 20}}},
        "table": {"rows": ["batch"], "metrics": ["validation"]},
    }
    return write_search(folder / "lot.yaml", content)


def test_two_campaigns_give_the_results_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, cache = draw_folder(tmp_path / "images"), tmp_path / "cache"
    people = [tmp_path / "one", tmp_path / "other"]
    for folder in people:
        folder.mkdir()
        campaign(folder, images, cache, "ray")
    with ray_nodes(tmp_path / "auth_token", cpus=SLOTS) as nodes, monkeypatch.context() as patch:
        patch.setenv("RAY_ADDRESS", nodes.gcs_address)
        drivers = [started(folder) for folder in people]
        try:
            codes = [driver.wait(PATIENCE_S) for driver in drivers]
        finally:
            for driver in drivers:
                driver.kill()
                driver.wait()
    said = [plain((folder / "said.txt").read_text()) for folder in people]
    assert codes == [0, 0], said
    assert len(list(cache.glob("*/pixels.bin"))) == 2, "the training half and the test's images, decoded once each"
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    alone = tmp_path / "alone"
    alone.mkdir()
    holdout_here("run", campaign(alone, images, cache, "in_process"), "--runs", alone / "runs")
    for folder in people:
        for search in ("lot-ten", "lot-twenty"):
            assert_same_studies(alone / "runs", folder / "runs", search)
            mine, theirs = scores_of(folder / "runs" / search), scores_of(alone / "runs" / search)
            assert mine == [pytest.approx(metrics, abs=0.03) for metrics in theirs], "but for an image"


def assert_same_studies(alone: Path, shared: Path, search: str) -> None:
    """Assert that two runs folders hold the same trials and epochs of ``search``, up to rounding."""
    for study in STUDIES:
        ones, others = stored(alone, search, study), stored(shared, search, study)
        assert len(ones) == len(others) > 0
        for one, other in zip(ones, others, strict=True):
            assert other.state == TrialState.COMPLETE
            assert other.params == one.params
            assert other.value == pytest.approx(one.value, abs=1e-6)
            assert other.user_attrs["seed"] == one.user_attrs["seed"]
            assert [entry["epoch"] for entry in epochs_of(other)] == list(range(1, EPOCHS + 1))
            for mine, theirs in zip(epochs_of(one), epochs_of(other), strict=True):
                assert theirs["loss"] == pytest.approx(mine["loss"], rel=1e-6)
                assert theirs["metrics"] == pytest.approx(mine["metrics"], abs=1e-6)
                assert theirs["batches"] == mine["batches"]


def started(folder: Path) -> "subprocess.Popen[bytes]":
    """A driver of a person's campaign."""
    with (folder / "said.txt").open("wb") as said:
        arguments = command("run", folder / "lot.yaml", "--runs", folder / "runs")
        return subprocess.Popen(arguments, stdout=said, stderr=subprocess.STDOUT)


def scores_of(search: Path) -> list[dict[str, float]]:
    """The test's scores of each model."""
    (opening,) = json.loads((search / "test.json").read_text())["openings"]
    return [entry["metrics"] for entry in opening["scores"]]
