"""Whole trainings on the simulated GPU equal those on the CPU, whose kernels compute both, and can be repeated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import holdout_here, plain, write_search
from support.gpu_training import CPU, GPU, spec_of
from support.simulated_gpu import SEEN
from support.simulated_gpu.fixtures import CHOICES, assert_as_on_cpu, trained
from support.small_search import small_search
from support.without_ray import only_records

from trainables.data.store.store_spec import StoreSpec
from trainables.losses import LOSSES
from trainables.models import ModelConfig
from trainables.models.config import POOLING
from trainables.training.train import Training

pytestmark = pytest.mark.simulated_gpu

FAST = ("mpa", "margin", "pnp")


@pytest.mark.parametrize(
    ("loss", "params"),
    [
        *((loss, {}) if loss in FAST else pytest.param(loss, {}, marks=pytest.mark.slow) for loss in LOSSES),
        *(pytest.param(*choice, marks=pytest.mark.slow) for choice in CHOICES),
    ],
)
def test_every_loss_learns_as_on_a_cpu(images: StoreSpec, tmp_path: Path, loss: str, params: dict[str, Any]) -> None:
    training = {"epochs": 1, "warmup_epochs": 0}
    assert_as_on_cpu(spec_of(images, tmp_path, loss=loss, hyperparameters=params, training=training))


@pytest.mark.slow
@pytest.mark.parametrize("pooling", [name for name, row in POOLING.rows.items() if not row.tokens])
def test_every_pooling_of_maps(images: StoreSpec, tmp_path: Path, pooling: str) -> None:
    """With deterministic operations, which fail for a pooling that has none."""
    model = ModelConfig(embedding_dim=8, pooling=pooling)
    assert_as_on_cpu(spec_of(images, tmp_path, model=model, training={"deterministic": True}))


@pytest.mark.parametrize(("first", "then"), [(GPU, CPU), pytest.param(CPU, GPU, marks=pytest.mark.slow)])
def test_a_training_resumes_on_the_other_device(
    images: StoreSpec, tmp_path: Path, first: torch.device, then: torch.device
) -> None:
    spec = spec_of(images, tmp_path, training={"warmup_epochs": 0})
    begun = Training(spec, first)
    begun.run_epoch()
    begun.wait_for_checkpoints()
    resumed = Training(spec, then)
    assert len(resumed.records) == 1
    resumed.run_epoch()
    assert resumed.records[1]["loss"] == pytest.approx(trained(spec, CPU).records[1]["loss"], rel=1e-3)


# Trainings that are reproducible, and ``verify --retrain`` of them.


ONE_EPOCH = {"epochs": 1, "warmup_epochs": 0}


def unordered() -> int:
    return sum(count for (kind, _, line), count in SEEN.items() if kind == "unordered" and "metrics" not in line)


@pytest.mark.parametrize(
    "loss", [loss if loss == "triplet" else pytest.param(loss, marks=pytest.mark.slow) for loss in LOSSES]
)
def test_every_loss_has_deterministic_operations_only(images: StoreSpec, tmp_path: Path, loss: str) -> None:
    before = unordered()
    pooled = ModelConfig(embedding_dim=8)  # its pooling adds in no fixed order without training.deterministic
    spec = spec_of(images, tmp_path, loss=loss, model=pooled, training=ONE_EPOCH | {"deterministic": True})
    records = [trained(replace(spec, directory=str(tmp_path / str(number))), GPU).records[0] for number in range(2)]
    assert unordered() == before
    assert records[0]["loss"] == records[1]["loss"]
    assert not torch.are_deterministic_algorithms_enabled(), "the setting is global, and only of the steps"


@pytest.mark.parametrize(
    ("deterministic", "says"),
    [
        (True, "1 epochs retrained, bit for bit the same"),
        pytest.param(False, "not reproducible bit for bit without training.deterministic", marks=pytest.mark.slow),
    ],
)
def test_only_a_deterministic_trial_of_a_gpu_is_retrained(
    deterministic: bool, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_records(monkeypatch)
    training = {"batch_size": 20, "images_per_class": 5, "image_size": 16, "deterministic": deterministic}
    content = small_search(
        tmp_path, dataset={"name": "glyphs", "num_classes": 16, "images_per_class": 8}, losses=["proxy_anchor"],
        training=ONE_EPOCH | training,
        search={"trials": 1}, stages=["search"], resources={"engine": "in_process", "gpus_per_trial": 1},
    )  # fmt: skip
    holdout_here("run", write_search(tmp_path / "search.yaml", content), "--runs", tmp_path / "runs")
    retrain = ("verify", "small", "--runs", tmp_path / "runs", "--retrain", "proxy_anchor:0")
    done = holdout_here(*retrain, code=0 if deterministic else 2)
    assert says in plain(done.stdout + done.stderr)
