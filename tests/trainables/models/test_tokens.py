"""Pooling of a transformer's tokens."""

import importlib.util
from pathlib import Path

import pytest
import torch
from support.tiny_transformer import transformer
from torch import Tensor

from trainables.errors import InvalidInput
from trainables.models import POOLING, EmbeddingModel, ModelConfig
from trainables.models.backbones import backbone

needs_timm = pytest.mark.skipif(not importlib.util.find_spec("timm"), reason="timm is absent")

TINY = "support.tiny_transformer:TinyTransformer"
OF_TOKENS = [name for name, row in POOLING.rows.items() if row.tokens]


def random_images(side: int = 32) -> Tensor:
    return torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))


def naive(name: str, tokens_BTF: Tensor) -> Tensor:
    """Pool tokens, the class token first, by loops in float64."""
    rows = []
    for tokens in tokens_BTF.double().tolist():
        first, patches = tokens[0], tokens[1:]
        mean = [sum(values) / len(patches) for values in zip(*patches, strict=True)]
        rows.append({"cls": first, "mean": mean, "cls_mean": first + mean}[name])
    return torch.tensor(rows)


@pytest.mark.parametrize("name", OF_TOKENS)
def test_pooled_tokens_are_the_naive_ones(name: str, tmp_path: Path) -> None:
    whole = transformer().eval()
    torch.save(whole.state_dict(), tmp_path / "vit.pth")
    config = ModelConfig(backbone=TINY, weights=str(tmp_path / "vit.pth"), pooling=name, embedding_dim=None)
    model = EmbeddingModel(config).eval()
    with torch.no_grad():
        patches = whole._process_input(random_images())
        tokens_BTF = whole.encoder(torch.cat((whole.class_token.expand(2, -1, -1), patches), dim=1))
        found = model.features(random_images())
    torch.testing.assert_close(found, naive(name, tokens_BTF).float())
    assert found.shape == (2, config.features)
    assert config.dimensions == config.features == (16 if name == "cls_mean" else 8)
    model.train()(random_images()).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_transformers_own_pooling_is_kept(tmp_path: Path) -> None:
    torch.save(transformer().state_dict(), tmp_path / "vit.pth")
    features = []
    for pooling, prefix in (("avg", "network."), ("cls", "")):
        state = {f"{prefix}{name}": tensor for name, tensor in torch.load(tmp_path / "vit.pth").items()}
        torch.save(state, tmp_path / f"{pooling}.pth")
        config = ModelConfig(backbone=TINY, weights=str(tmp_path / f"{pooling}.pth"), pooling=pooling)
        features.append(EmbeddingModel(config).eval().features(random_images()))
    assert torch.equal(*features)


@pytest.mark.parametrize(
    ("name", "pooling", "words"),
    [
        (
            "convnet",
            "cls",
            "pooling is cls, which needs tokens with a class token, and convnet does not give them; use",
        ),
        ("features:4", "cls_mean", "and features:4 does not give them; use one of avg"),
        (
            TINY,
            "gem",
            "pooling is gem, which needs maps, and .* use one of cls, mean, cls_mean, or avg for the network's",
        ),
        ("torchvision:squeezenet1_1", "mean", "squeezenet1_1 does not give them; use one of avg, max"),
    ],
)
def test_poolings_that_do_not_fit(name: str, pooling: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as mistake:
        EmbeddingModel(ModelConfig(backbone=name, pooling=pooling))
    assert len(mistake.value.sentences) == 1


@needs_timm
@pytest.mark.parametrize(
    ("name", "side", "prefix"), [("test_vit", 160, 1), ("deit_tiny_distilled_patch16_224", 224, 2)]
)
def test_tokens_of_timm(name: str, side: int, prefix: int) -> None:
    import timm

    config = ModelConfig(backbone=f"timm:{name}", pooling="cls_mean", embedding_dim=8)
    model = EmbeddingModel(config).eval()
    theirs = timm.create_model(name, num_classes=0).eval()
    theirs.load_state_dict(model.backbone.state_dict())
    assert theirs.num_prefix_tokens == prefix
    with torch.no_grad():
        tokens = theirs.forward_features((random_images(side) - model.mean) / model.scale)
        tokens = torch.cat((tokens[:, :1], tokens[:, prefix:]), dim=1)
        torch.testing.assert_close(model.features(random_images(side)), naive("cls_mean", tokens).float())


@needs_timm
def test_networks_of_timm_without_a_class_token() -> None:
    for name in ("test_resnet", "test_vit3", "test_vit4"):
        assert backbone(f"timm:{name}").tokens is None
