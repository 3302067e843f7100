"""A training on two GPUs equals that on one, and ends when either process dies.

It needs only torch and trainables/: ``pytest --confcutdir tests/gpu tests/gpu``.
"""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trainables.data.sets.glyphs import Glyphs
from trainables.data.store.spec import StoreSpec
from trainables.models import ModelConfig
from trainables.spec import TrialSpec
from trainables.training.config import TrainingConfig
from trainables.training.cross_validation import begin
from trainables.training.distributed import RankLost
from trainables.training.distributed.training import FirstRank

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="it needs two GPUs")

ONE, TWO = (torch.device("cuda", 0),), (torch.device("cuda", 0), torch.device("cuda", 1))


@pytest.fixture
def spec(tmp_path: Path) -> TrialSpec:
    """Return a spec with odd batches of 55 images."""
    glyphs = Glyphs(num_classes=12, images_per_class=10)
    names = tuple(glyphs.classes())
    return TrialSpec(
        loss="mpa",
        hyperparameters={},
        model=ModelConfig(embedding_dim=16),
        training=TrainingConfig(
            epochs=3, batch_size=55, images_per_class=5, image_size=32, warmup_epochs=1, precision="float32"
        ),
        images=StoreSpec(dataset=glyphs, class_names=names, short_side=36, cache=str(tmp_path / "cache")),
        train_classes=names[:11],
        validation_classes=names[9:],
        metrics=("dists_intra",),
        objective="dists_intra",
        seed=7,
        directory=str(tmp_path / "trial"),
    )


@pytest.mark.parametrize(("loss", "freeze_bn"), [("mpa", False), ("multi_similarity", True), ("pnp", False)])
def test_two_gpus_train_as_one(spec: TrialSpec, loss: str, freeze_bn: bool) -> None:
    """Two GPUs sum in another order than one, and Adam's first steps amplify the rounding."""
    spec = replace(spec, loss=loss, model=replace(spec.model, freeze_bn=freeze_bn))
    losses = {}
    for devices in (ONE, TWO):
        training = begin(replace(spec, directory=f"{spec.directory}-{len(devices)}"), *devices)
        while not training.finished:
            training.run_epoch()
        losses[len(devices)] = [record["loss"] for record in training.records]
    assert losses[2][0] == pytest.approx(losses[1][0], rel=1e-3)
    assert losses[2] == pytest.approx(losses[1], rel=2e-2)


def test_bfloat16_trains(spec: TrialSpec) -> None:
    training = begin(replace(spec, training=replace(spec.training, precision="bfloat16")), *TWO)
    while not training.finished:
        training.run_epoch()
    assert training.records[-1]["loss"] < training.records[0]["loss"]


def test_a_killed_rank_ends_the_training_long_before_the_patience(spec: TrialSpec) -> None:
    training = FirstRank(spec, TWO)
    training.run_epoch()
    assert training._others is not None
    (other,) = training._others._processes
    training.loss.register_forward_hook(lambda *_: os.kill(other.pid, signal.SIGKILL))
    start = time.monotonic()
    with pytest.raises(RankLost):
        training.run_epoch()
    assert time.monotonic() - start < 60
    assert other.poll() is not None
