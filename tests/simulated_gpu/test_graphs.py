"""Steps that are captured as CUDA graphs compute what plain ones do, and are given up where that is impossible."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.gpu_training import CPU, GPU, spec_of
from support.simulated_gpu import SEEN
from support.simulated_gpu.fixtures import CHOICES, trained
from support.simulated_gpu.streams import WAITS

from trainables.data.sets.features import FeatureFile
from trainables.data.store.store_spec import StoreSpec
from trainables.losses import LOSSES
from trainables.losses.mining import most_pairs
from trainables.losses.pairs import Contrastive
from trainables.models import ModelConfig
from trainables.training import steps
from trainables.training.train import Training
from trainables.training.training_config import Schedule

pytestmark = pytest.mark.simulated_gpu

SETTINGS = {
    "epochs": 3, "warmup_epochs": 1, "batch_size": 9, "image_size": 16, "sampler": "random", "compile": "auto",
    "schedule": Schedule(decay="cosine"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def every_step_is_small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Capture whatever the CPU behind the simulation takes for a step."""
    monkeypatch.setattr(steps, "SMALL_STEP_S", 1e6)
    monkeypatch.setattr(steps, "FEWEST_REPLAYS", 1)
    steps.KNOWN.clear()
    yield
    steps.KNOWN.clear()


FAST = ("mpa", "contrastive")


@pytest.mark.parametrize(
    "loss", [loss if loss in FAST else pytest.param(loss, marks=pytest.mark.slow) for loss in LOSSES]
)
def test_graphs_learn_as_plain_steps(images: StoreSpec, tmp_path: Path, loss: str) -> None:
    """With a warm-up that freezes the backbone, a schedule of every step, and pairs that are counted."""
    spec = spec_of(images, tmp_path / "graph", loss=loss, training=SETTINGS)
    graphs, plain = trained(spec, GPU), trained(spec, CPU)
    assert graphs.steps.mode == "graph"
    assert plain.steps.mode == "plain"
    same_draws = loss != "margin"  # its noise has the shape of the pairs, whose number a graph rounds up
    for record, other in zip(graphs.records, plain.records, strict=True):
        assert record.get("used") == other.get("used")
        assert record["loss"] == pytest.approx(other["loss"], rel=1e-2 if same_draws else 1, abs=1e-3)


def test_a_graph_is_resumed_and_saves_what_plain_steps_save(images: StoreSpec, tmp_path: Path) -> None:
    spec = spec_of(images, tmp_path, training=SETTINGS)
    whole = trained(spec, CPU)
    begun = Training(spec, GPU)
    begun.run_epoch()
    begun.run_epoch()
    assert begun.steps.mode == "graph"
    begun.wait_for_checkpoints()
    state = begun.optimizer.state_dict()
    assert {type(group["lr"]) for group in state["param_groups"]} == {float}
    assert {group["capturable"] for group in state["param_groups"]} == {False}
    resumed = Training(spec, GPU)
    while not resumed.finished:
        resumed.run_epoch()
    assert resumed.records[2]["loss"] == pytest.approx(whole.records[2]["loss"], rel=1e-2)
    counts = [int(state["step"]) for state in resumed.optimizer.state.values()]
    assert max(counts) == sum(record["batches"] for record in resumed.records)


def test_heads_on_features_learn_by_graphs_too(tmp_path: Path) -> None:
    """The indices of their batches are on the device."""
    labels, random = np.arange(60) % 6, np.random.default_rng(0)
    embeddings = random.normal(size=(60, 8)).astype("f4") + 2 * np.eye(6, 8, dtype="f4")[labels]
    np.savez(tmp_path / "x.npz", embeddings=embeddings, labels=labels)
    dataset, cache = FeatureFile(file=tmp_path / "x.npz"), str(tmp_path / "cache")
    images = StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=32, cache=cache)
    model = ModelConfig(backbone="features:8", embedding_dim=8)
    spec = spec_of(images, tmp_path / "spec", model=model, training=SETTINGS | {"epochs": 2, "warmup_epochs": 0})
    graphs, plain = trained(spec, GPU), trained(spec, CPU)
    assert graphs.steps.mode == "graph"
    for record, other in zip(graphs.records, plain.records, strict=True):
        assert record["loss"] == pytest.approx(other["loss"], rel=1e-2)


def test_a_deterministic_training_is_not_captured(images: StoreSpec, tmp_path: Path) -> None:
    spec = spec_of(images, tmp_path, training=SETTINGS | {"deterministic": True, "epochs": 2})
    assert trained(spec, GPU).steps.mode == "plain"


class Waits(Contrastive):
    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        assert torch.isfinite(embeddings_BD).all()
        return super().compute(embeddings_BD, labels_B)


def test_a_step_that_waits_is_given_up_once(
    images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOSSES._loaded, "contrastive", Waits)
    with caplog.at_level(logging.WARNING):
        for name in "ab":
            spec = spec_of(images, tmp_path / name, loss="contrastive", training=SETTINGS | {"epochs": 2})
            training = trained(spec, GPU)
            assert training.steps.mode == "plain"
    (sentence,) = [record.getMessage() for record in caplog.records if record.name == steps.__name__]
    assert "Steps by graph fail for the loss contrastive" in sentence
    assert "the host waits for" in sentence


@pytest.mark.parametrize(("loss", "options"), [*((loss, {}) for loss in LOSSES), *CHOICES])
def test_no_loss_makes_the_host_wait(loss: str, options: dict[str, Any]) -> None:
    """That a whole step does not either is in ``tests/gpu``."""
    labels_B = torch.tensor([0, 1, 2, 2, 2, 2, 3, 3, 4])
    made = LOSSES[loss](num_classes=5, embedding_dim=8, **options).to(GPU)
    made.most_pairs = most_pairs([labels_B])
    embeddings_BD, labels_B = torch.randn(9, 8, device=GPU, requires_grad=True), labels_B.to(GPU)
    before = SEEN.copy()
    made(embeddings_BD, labels_B).backward()
    assert not [seen for seen in SEEN - before if seen[0] in WAITS]
