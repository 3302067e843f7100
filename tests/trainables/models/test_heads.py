"""Heads, frozen parameters, and networks on features."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainables.errors import InvalidInput
from trainables.models import EmbeddingModel, ModelConfig
from trainables.models.config import HEADS
from trainables.models.embedding import make_head

FEATURES, DIMENSIONS = 6, 4


def features_BF(rows: int = 5) -> Tensor:
    return torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(0))


def head(**settings: object) -> nn.Sequential:
    torch.manual_seed(0)
    given: dict[str, object] = {"embedding_dim": DIMENSIONS, "head_widths": (7, 3), **settings}
    return make_head(ModelConfig(**given), FEATURES)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("dimensions", [None, DIMENSIONS])
def test_the_size_of_embeddings(name: str, dimensions: int | None) -> None:
    if name == "none" and dimensions:
        with pytest.raises(InvalidInput, match=r"head is none, which keeps the features, and model.embedding_dim is 4"):
            head(head=name, embedding_dim=dimensions)
        return
    embeddings = head(head=name, embedding_dim=dimensions)(features_BF())
    assert embeddings.shape == (5, dimensions or FEATURES)


def test_no_head_keeps_the_features() -> None:
    assert head(head="none", embedding_dim=None)(features_BF()).equal(features_BF())


def test_an_mlp_by_hand() -> None:
    network = head(head="mlp").double()
    first, second, last = (layer for layer in network if isinstance(layer, nn.Linear))
    found = features_BF().double()
    for layer in (first, second):
        found = found @ layer.weight.T + layer.bias
        found = (found - found.mean(1, keepdim=True)) / (found.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        found = found.clamp(min=0)
    torch.testing.assert_close(network(features_BF().double()), found @ last.weight.T + last.bias)


def test_a_residual_adapter_starts_at_the_features_and_learns() -> None:
    network = head(head="residual", embedding_dim=None)
    assert network(features_BF()).equal(features_BF())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(2):  # the weights before the last, which is zero, have a gradient after the first step
        optimizer.zero_grad()
        network(features_BF()).square().sum().backward()
        optimizer.step()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in network.parameters())


def test_a_network_on_features() -> None:
    torch.manual_seed(0)
    network = EmbeddingModel(ModelConfig(backbone=f"features:{FEATURES}", embedding_dim=DIMENSIONS))
    assert {name.partition(".")[0] for name in network.state_dict()} == {"head"}
    layer = network.head[0]
    torch.testing.assert_close(network(features_BF()), functional.linear(features_BF(), layer.weight, layer.bias))
    with pytest.raises(InvalidInput, match="'features:many'; after the colon give the number of features"):
        EmbeddingModel(ModelConfig(backbone="features:many"))


# Frozen parameters


def test_patterns_freeze_parameters_and_their_statistics(weights: Path) -> None:
    model = EmbeddingModel(
        ModelConfig(backbone="resnet18", weights=str(weights), freeze=("conv1*", "bn1*", "layer[12].*"))
    )
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model.train()
    model(torch.rand(4, 3, 32, 32)).square().sum().backward()
    optimizer.step()
    changed = {name for name, tensor in model.state_dict().items() if not tensor.equal(before[name])}
    frozen = ("backbone.conv1", "backbone.bn1", "backbone.layer1", "backbone.layer2")
    assert not [name for name in changed if name.startswith(frozen)]
    learned = {name for name in before if not name.startswith(frozen)}
    assert changed == learned


def test_wrong_ways_to_freeze(weights: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"model.freeze has 'stage9.*', which matches no parameter of resnet18; .* conv1"
    ):
        EmbeddingModel(ModelConfig(backbone="resnet18", weights=str(weights), freeze=("stage9.*",)))
    for settings, sentence in (
        ({"freeze": "head"}, "model.freeze must be one of backbone, a list, null"),
        ({"freeze": ()}, "model.freeze is an empty list"),
        ({"freeze": "backbone"}, "model.weights null: the features of a random network"),
        (
            {"freeze": "backbone", "weights": str(weights), "head": "none", "embedding_dim": None},
            "so nothing of the network",
        ),
        ({"freeze": "backbone", "weights": str(weights), "pooling": "gem_learned"}, "whose exponent learns"),
        ({"head": "deep"}, "model.head must be one of linear, mlp, residual, none; it is 'deep'"),
        ({"head_widths": ()}, "model.head_widths must have at least one entry"),
        ({"head_dropout": 1.0}, r"model.head_dropout must be at least 0, less than 1; it is 1"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            ModelConfig(**{"backbone": "resnet18", **settings})  # type: ignore[arg-type]
