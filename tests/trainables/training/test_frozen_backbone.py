"""Trainings on the cached features of a frozen backbone."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.small_training import run, small_spec, with_training

from trainables.common.errors import InvalidInput
from trainables.data.loading import load
from trainables.data.store.store_spec import StoreSpec
from trainables.inference.model_files import FROZEN, read_network
from trainables.losses import LOSSES
from trainables.models import ModelConfig
from trainables.models.backbones import backbone
from trainables.models.embedding import EmbeddingModel, embed
from trainables.training import inputs
from trainables.training.inputs import Inputs, whole_network
from trainables.training.spec import TrialSpec
from trainables.training.train import Training, train

CPU = torch.device("cpu")


@pytest.fixture
def spec(images: StoreSpec, tmp_path: Path) -> TrialSpec:
    spec = small_spec(images, tmp_path, epochs=3, checked=True)
    weights = tmp_path / "weights.pth"
    torch.manual_seed(1)
    torch.save(backbone("convnet").build().state_dict(), weights)
    return replace(
        spec, loss="proxy_anchor", hyperparameters={}, metrics=("recall_at_1", "map_at_r"),
        model=ModelConfig(weights=str(weights), freeze="backbone", embedding_dim=8),
        training=replace(spec.training, precision="float32"), images=replace(images, cache=str(tmp_path / "cache")),
        train_classes=images.class_names[:4], validation_classes=images.class_names[4:],
    )  # fmt: skip


def whole(spec: TrialSpec) -> EmbeddingModel:
    """The network with its pretrained weights, from images to embeddings."""
    torch.manual_seed(spec.seed)
    return EmbeddingModel(spec.model)


def test_it_equals_a_training_on_images(spec: TrialSpec) -> None:
    """A plain loop that runs the frozen network on every batch of images."""
    training = Training(spec, CPU)
    model = whole(spec)
    model.head.load_state_dict(training.model.head.state_dict())
    torch.manual_seed(0)
    loss = LOSSES["proxy_anchor"](num_classes=4, embedding_dim=8)
    loss.load_state_dict(training.loss.state_dict())
    groups = [{"params": [*model.head.parameters()], "lr": spec.training.lr}, *loss.parameter_groups(1e-2)]
    groups[1:] = [{**group, "lr": ours["lr"]} for group, ours in zip(groups[1:], training.optimizer.param_groups[1:])]
    optimizer = torch.optim.AdamW(groups, weight_decay=spec.training.weight_decay)
    view = Inputs(spec.images, replace(spec.model, freeze=None), spec.training, CPU).view(spec.train_classes)
    losses = []
    model.train()
    for indices_B in training.sampler.batches(1):
        images = load(view, indices_B, "none", spec.training.frame, device=CPU)
        value = loss(model(images), view.labels_N[indices_B])
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_value_((*model.head.parameters(), *loss.parameters()), spec.training.clip_grad or 0)
        optimizer.step()
        losses.append(value.item())
    record = training.run_epoch()
    assert math.isclose(record["loss"], sum(losses) / len(losses), rel_tol=1e-4)
    torch.testing.assert_close(training.model.head[0].weight, model.head[0].weight, rtol=1e-3, atol=1e-4)


def test_a_checkpoint_and_its_backbone_are_the_whole_network(spec: TrialSpec) -> None:
    run(spec, 1)
    *_, record = train(spec)  # resumes it
    path = next(Path(spec.directory).rglob("best.safetensors"))
    head, description = read_network(path)
    assert {name.partition(".")[0] for name in head} == {"head"}
    assert path.stat().st_size < 100_000
    digest = description["origin"][FROZEN]
    network = EmbeddingModel(replace(spec.model, weights=None, freeze=None))
    network.load_state_dict(whole_network(head, spec.model, digest))
    on_features = Inputs(spec.images, spec.model, spec.training, CPU)
    behind = on_features.network()
    behind.load_state_dict(head)
    frame, names = spec.training.frame, spec.validation_classes
    cached = embed(behind, on_features.view(names), frame, batch_size=7, device=CPU, precision="float32")
    images = Inputs(spec.images, replace(spec.model, freeze=None), spec.training, CPU).view(names)
    direct = embed(network, images, frame, batch_size=7, device=CPU, precision="float32")
    torch.testing.assert_close(cached, direct, rtol=1e-4, atol=1e-5)
    assert record["epoch"] == 3
    with pytest.raises(InvalidInput, match="whose content is not that with which the model was trained"):
        whole_network(head, spec.model, "0" * 64)


def tables(spec: TrialSpec) -> list[Path]:
    return sorted(Path(spec.images.cache).rglob("features.bin"))


def test_features_are_computed_once_a_node(spec: TrialSpec, tmp_path: Path) -> None:
    spec = with_training(spec, epochs=1)
    list(train(spec))
    (table,) = tables(spec)
    written = table.stat().st_mtime_ns
    inputs.feature_table.cache_clear()  # as in another process
    list(train(replace(spec, seed=8, directory=str(tmp_path / "other"))))
    wider = replace(spec.model, embedding_dim=16, head="mlp")
    list(train(replace(spec, model=wider, directory=str(tmp_path / "wider"))))
    assert tables(spec) == [table], "the head does not matter"
    assert table.stat().st_mtime_ns == written
    list(train(replace(spec, model=replace(spec.model, pooling="max"), directory=str(tmp_path / "max"))))
    assert len(tables(spec)) == 2


def test_the_cache_is_locked_evicted_and_computed_again(spec: TrialSpec) -> None:
    from trainables.data.store.cache import make_room

    list(train(spec))
    cache = Path(spec.images.cache)
    (table,) = tables(spec)
    held = Inputs(spec.images, spec.model, spec.training, CPU)
    make_room(cache, limit=0)
    assert table.exists(), "it is in use"
    del held
    inputs.feature_table.cache_clear()
    make_room(cache, limit=0)
    assert not table.exists()
    list(train(replace(spec, seed=9, directory=f"{spec.directory}-9")))
    assert table.exists()
