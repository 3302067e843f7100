"""Trainings on a GPU that are reproducible, and ``verify --retrain`` of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import holdout_here, write_search
from support.simulated_gpu import SEEN
from support.simulated_gpu.fixtures import GPU, spec_of, trained
from support.small_search import small_search
from support.without_ray import only_records

from trainables.data.store.spec import StoreSpec
from trainables.losses import LOSSES
from trainables.models import ModelConfig

pytestmark = pytest.mark.simulated_gpu

ONE_EPOCH = {"epochs": 1, "warmup_epochs": 0}


def unordered() -> int:
    return sum(count for (kind, _, line), count in SEEN.items() if kind == "unordered" and "metrics" not in line)


@pytest.mark.parametrize(
    "loss", [loss if loss == "triplet" else pytest.param(loss, marks=pytest.mark.slow) for loss in LOSSES]
)
def test_every_loss_has_deterministic_operations_only(images: StoreSpec, tmp_path: Path, loss: str) -> None:
    before = unordered()
    pooled = ModelConfig(embedding_dim=8)  # sums in no fixed order unless it is told to
    spec = spec_of(images, tmp_path, loss=loss, model=pooled, training=ONE_EPOCH | {"deterministic": True})
    records = [trained(replace(spec, directory=str(tmp_path / str(number))), GPU).records[0] for number in range(2)]
    assert unordered() == before
    assert records[0]["loss"] == records[1]["loss"]
    assert not torch.are_deterministic_algorithms_enabled(), "the setting is global, and only of the steps"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs a search on the GPU, in this process, and verifies a trial of it again."""
    only_records(monkeypatch)

    def run_and_verify(*, deterministic: bool, code: int) -> str:
        content = small_search(
            tmp_path,
            dataset={"name": "glyphs", "num_classes": 16, "images_per_class": 8},
            losses=["proxy_anchor"],
            training={"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
            resources={"engine": "in_process", "gpus_per_trial": 1},
        )
        file = write_search(tmp_path / "search.yaml", content)
        settings = ["--set", "search.trials=1", "--set", f"training.deterministic={str(deterministic).lower()}"]
        holdout_here("run", file, "--runs", tmp_path / "runs", *settings, "--set", "stages=[search]")
        done = holdout_here("verify", "small", "--runs", tmp_path / "runs", "--retrain", "proxy_anchor:0", code=code)
        return " ".join((done.stdout + done.stderr).split())

    return run_and_verify


def test_a_deterministic_trial_of_a_gpu_is_retrained(run: Any) -> None:
    assert "1 epochs retrained, bit for bit the same" in run(deterministic=True, code=0)


@pytest.mark.slow
def test_another_trial_of_a_gpu_is_not(run: Any) -> None:
    assert "not reproducible bit for bit without training.deterministic: true" in run(deterministic=False, code=2)
