"""Moving averages of the weights equal torch's, and are what is validated, kept and resumed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exact_training import CPU, assert_resumed, exact_spec, trained_apart
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from trainables.data.store.spec import StoreSpec
from trainables.inference.model_files import read_network, read_tensors
from trainables.models import EmbeddingModel
from trainables.models.embedding import embed
from trainables.spec import TrialSpec
from trainables.training.checkpoints import load_checkpoint
from trainables.training.train import Training

pytestmark = pytest.mark.usefixtures("exact")

DECAY = 0.3


def averaged(images: StoreSpec, path: Path, ema: float = DECAY) -> TrialSpec:
    return exact_spec(images, path, training={"ema": ema, "batch_size": 10})


def torch_s(mean: Tensor, value: Tensor, updates: Any) -> Tensor:
    kept = min(DECAY, int(updates) / (int(updates) + 9))
    return kept * mean + (1 - kept) * value


class Watched(Training):
    """A training whose averages torch computes too."""

    def __init__(self, spec: TrialSpec) -> None:
        super().__init__(spec, CPU)
        self.theirs = AveragedModel(torch.nn.ModuleList([self.model, self.loss]), avg_fn=torch_s, use_buffers=True)

    def step(self, images: Tensor, labels_B: Tensor) -> Tensor:
        loss = super().step(images, labels_B)
        self.theirs.update_parameters(torch.nn.ModuleList([self.model, self.loss]))
        return loss


def test_they_are_torch_s_and_what_is_validated_and_kept(images: StoreSpec, tmp_path: Path) -> None:
    spec = averaged(images, tmp_path)
    training = Watched(spec)
    records = [training.run_epoch() for _ in range(2)]
    assert training.averages is not None
    network, loss = training.theirs.module
    expected = {**network.state_dict(), **{f"loss.{name}": value for name, value in loss.state_dict().items()}}
    assert training.averages.tensors.keys() == expected.keys()
    assert training.averages.updates == 2 * records[0]["batches"] > 6
    for name, mean in training.averages.tensors.items():
        if mean.is_floating_point():
            torch.testing.assert_close(mean, expected[name], rtol=1e-9, atol=1e-12)
        else:
            assert torch.equal(mean, dict(training.model.named_buffers())[name])
    assert not torch.equal(expected["head.0.weight"], training.model.head[0].weight), "nothing was averaged"
    (view,) = training._validation.views
    settings: dict[str, Any] = {"batch_size": spec.training.embedding_batch, "device": CPU, "precision": "float32"}
    theirs_ND = embed(network, view, spec.training.frame, **settings)
    torch.testing.assert_close(training._embed(view), theirs_ND)
    training.wait_for_checkpoints()
    last = tmp_path / "trial/attempt-1/last.pt"
    for name, mean in load_checkpoint(last)["averages"].items():
        assert torch.equal(mean, training.averages.tensors[name])


def test_the_model_s_file_holds_the_averages(images: StoreSpec, tmp_path: Path) -> None:
    spec = replace(averaged(images, tmp_path), validation_classes=())  # every epoch is the best
    training = Training(spec, CPU)
    record = training.run_epoch()
    training.wait_for_checkpoints()
    assert training.averages is not None
    path = Path(spec.directory) / str(record["checkpoint"])
    for name, kept in read_tensors(path)[0].items():
        assert torch.equal(kept, training.averages.tensors[name]), name
    network = EmbeddingModel(spec.model)
    network.load_state_dict(read_network(path)[0])
    settings: dict[str, Any] = {"batch_size": spec.training.embedding_batch, "device": CPU, "precision": "float32"}
    found_ND = embed(network, training.train_view, spec.training.frame, **settings)
    assert torch.equal(found_ND, training._embed(training.train_view))


def test_the_training_itself_is_unchanged(images: StoreSpec, tmp_path: Path) -> None:
    with_averages, without = averaged(images, tmp_path), averaged(images, tmp_path / "without", ema=0.0)
    states = [trained_apart(spec, 2).model.state_dict() for spec in (with_averages, without)]
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


def test_a_resumed_training_has_the_same_averages(images: StoreSpec, tmp_path: Path) -> None:
    spec = averaged(images, tmp_path, ema=0.999)
    for _ in range(3):
        training = Training(spec, CPU)
        training.run_epoch()
        training.wait_for_checkpoints()
    reference = trained_apart(spec, 3)
    assert_resumed(training, reference)
