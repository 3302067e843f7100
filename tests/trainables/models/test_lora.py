"""LoRA: the adapted network against loops over its matrices; its training, resumed and averaged."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exact_training import CPU, assert_resumed, exact_spec, float64, trained_apart
from support.small_training import drawn_images
from torch import Tensor, nn

from trainables.data.store.spec import StoreSpec
from trainables.inference.model_files import EmbedderSpec, read_network
from trainables.mistakes import Mistakes
from trainables.models import EmbeddingModel, ModelConfig
from trainables.models.lora import adapt, merged
from trainables.training.cross_validation import begin
from trainables.training.train import Training


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    return drawn_images(tmp_path_factory.mktemp("lora"))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("weights") / "convnet.pth"
    torch.save(EmbeddingModel(ModelConfig()).backbone.state_dict(), path)
    return str(path)


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    with float64():
        yield


def config(weights: str | None, **changes: Any) -> ModelConfig:
    return ModelConfig(**{"embedding_dim": 8, "weights": weights, "lora_rank": 3, "lora_alpha": 6.0, **changes})


def drawn(network: nn.Module) -> nn.Module:
    """Replace the zeros, with which the added products begin."""
    for name, parameter in network.named_parameters():
        if name.endswith(".up"):
            nn.init.normal_(parameter)
    return network


def by_loops(weight: Tensor, up: Tensor, down: Tensor, factor: float) -> Tensor:
    flat, up, down = weight.flatten(1), up.detach(), down.detach()
    rows = [
        [
            float(flat[o, i]) + factor * sum(float(up[o, r]) * float(down[r, i]) for r in range(len(down)))
            for i in range(flat.shape[1])
        ]
        for o in range(len(flat))
    ]
    return torch.tensor(rows).view(weight.shape)


def test_an_adapted_layer_adds_a_product_of_low_rank() -> None:
    layers = nn.Sequential(nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(6, 7))
    plain = {name: tensor.clone() for name, tensor in layers.state_dict().items()}
    images = torch.randn(5, 4, 3, 3)
    before = layers(images)
    adapt(layers, ModelConfig(backbone="own:net", lora_rank=2, lora_alpha=5.0))
    assert torch.equal(layers(images), before), "the first step begins at the given weights"
    drawn(layers)
    convolution, linear = (
        by_loops(plain[f"{i}.weight"], low_rank.up, low_rank.down, 2.5)
        for i, low_rank in ((i, layers[i].parametrizations.weight[0]) for i in (0, 2))
    )
    expected = nn.functional.linear(
        nn.functional.conv2d(images, convolution, plain["0.bias"]).flatten(1), linear, plain["2.bias"]
    )
    torch.testing.assert_close(layers(images), expected)
    assert not torch.allclose(expected, before)


def test_attention_is_adapted_and_merged() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    original = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    adapt(layer, ModelConfig(backbone="own:net", lora_rank=2))
    drawn(layer)
    tensors = merged(layer.state_dict())
    assert tensors.keys() == original.keys()
    changed = {name for name in original if not torch.equal(tensors[name], original[name])}
    assert changed == {"self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight"}
    other = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    other.load_state_dict(tensors)
    tokens = torch.randn(3, 5, 8)
    torch.testing.assert_close(layer.eval()(tokens), other.eval()(tokens))


def test_targets_and_ranks_choose_the_weights() -> None:
    layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3), nn.LayerNorm(3))
    adapt(layers, ModelConfig(backbone="own:net", lora_rank=2))
    learning = {name for name, parameter in layers.named_parameters() if parameter.requires_grad}
    assert learning == {f"0.parametrizations.weight.0.{part}" for part in ("up", "down")}
    layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    adapt(layers, ModelConfig(backbone="own:net", lora_rank=2, lora_targets=("1.*",)))
    assert not hasattr(layers[0], "parametrizations")


@pytest.mark.parametrize("ema", [0.0, 0.3])
def test_a_training_keeps_the_given_weights_and_its_file_is_a_plain_network(
    images: StoreSpec, weights: str, tmp_path: Path, ema: float
) -> None:
    spec = exact_spec(images, tmp_path, model=config(weights), validation_classes=(), training={"ema": ema})
    training = Training(spec, CPU)
    given = torch.load(weights)
    for _ in range(2):
        record = training.run_epoch()
    training.wait_for_checkpoints()
    for name, tensor in training.model.backbone.state_dict().items():
        if name in given:
            assert torch.equal(tensor, given[name]), name  # the running statistics, too
    tensors, description = read_network(Path(spec.directory) / str(record["checkpoint"]))
    model = EmbedderSpec.from_json(description, "model.json").model
    assert model.lora_rank == 0
    network = EmbeddingModel(model)
    network.load_state_dict(tensors)
    assert not torch.equal(network.backbone.state_dict()["blocks.3.weight"], given["blocks.3.weight"])
    trained = training.model if training.averages is None else training.averages.network
    batch = torch.rand(4, 3, 16, 16)
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if training.averages is None else {"rtol": 1e-6, "atol": 1e-6}
    torch.testing.assert_close(network.eval()(batch), trained.eval()(batch), **tolerance)


def test_a_resumed_training_is_the_same(images: StoreSpec, weights: str, tmp_path: Path) -> None:
    spec = exact_spec(images, tmp_path, model=config(weights), training={"batch_size": 10})
    for _ in range(3):
        training = begin(spec, CPU)
        assert isinstance(training, Training)
        training.run_epoch()
        training.wait_for_checkpoints()
    reference = trained_apart(spec, 3)
    assert_resumed(training, reference)


def test_mistakes(weights: str) -> None:
    with pytest.raises(Mistakes, match="matches no weight of convnet; its weights are named blocks"):
        EmbeddingModel(config(weights, lora_targets=("attention*",)))
    with pytest.raises(Mistakes, match="the weights that lora_targets match allow 64;"):
        EmbeddingModel(config(weights, lora_rank=1000))
    for changes, sentence in (
        ({"lora_rank": -1}, "at least 0"),
        ({"lora_alpha": 0.0}, "positive"),
        ({"lora_targets": ()}, "empty list"),
        ({"freeze": "backbone"}, "model.freeze is given too"),
        ({"weights": None}, "model.weights null"),
        ({"backbone": "features:5", "weights": None, "pooling": "avg"}, "a data set of embeddings has none"),
    ):
        with pytest.raises(Mistakes, match=sentence):
            config(**{"weights": weights, **changes})
