"""Networks of torchvision and timm against those libraries' own outputs and names, and the pooling of tokens."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from support.tiny_transformer import transformer
from torch import Tensor, nn

from trainables.common.errors import InvalidInput
from trainables.models import BACKBONES, POOLING, ModelConfig, library_networks
from trainables.models.backbones import backbone
from trainables.models.embedding import EmbeddingModel, smoke_test
from trainables.models.library_networks import network
from trainables.models.weights import load_weights, weights_path


def random_images(side: int = 32) -> Tensor:
    return torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))


def entering(part: str, whole: nn.Module, images: Tensor) -> Tensor:
    """Return the input of ``part`` in the library's whole network."""
    seen: list[Tensor] = []
    whole.get_submodule(part).register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    whole(images)
    return seen[0]


# One network for each way to end: the side of an image, and its last maps by torchvision's own modules.
FAMILIES: dict[str, tuple[int, Callable[[Any, Tensor], Tensor]]] = {
    "densenet121": (64, lambda whole, images: whole.features(images).relu()),
    "mobilenet_v3_small": (64, lambda whole, images: whole.features(images)),
    "resnet18": (64, partial(entering, "avgpool")),
    "regnet_y_400mf": (64, lambda whole, images: whole.trunk_output(whole.stem(images))),
    "shufflenet_v2_x0_5": (64, partial(entering, "fc")),
    "squeezenet1_1": (64, lambda whole, images: whole.features(images)),
    "swin_t": (64, lambda whole, images: whole.norm(whole.features(images)).permute(0, 3, 1, 2)),
    "vit_b_32": (224, partial(entering, "heads")),
}
SMALLER: dict[str, Callable[[], nn.Module]] = {
    "densenet121": lambda: torchvision.models.DenseNet(4, (2, 2), 8),
    "swin_t": lambda: torchvision.models.SwinTransformer([4, 4], 16, [2, 2], [1, 2], [7, 7]),
    "vit_b_32": lambda: torchvision.models.VisionTransformer(224, 32, 2, 2, 16, 32),
}


@pytest.fixture
def not_cached() -> Iterator[None]:
    """Forget what is known of networks, and of the smaller ones in their place afterwards."""

    def forget() -> None:
        backbone.cache_clear()
        library_networks.BEFORE_THE_HEAD.clear()

    forget()
    yield
    forget()


@pytest.mark.usefixtures("not_cached")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_of_torchvision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    side, expected = FAMILIES[name]
    whole = SMALLER.get(name, lambda: network(name))().eval()
    # Random weights take seconds: they are drawn once, and the network is taken apart in copies.
    monkeypatch.setattr(library_networks, "network", lambda name: deepcopy(whole))
    row = backbone(f"torchvision:{name}")
    assert row.imagenet is not None
    assert row.imagenet.address == torchvision.models.get_model_weights(name).DEFAULT.url
    model = EmbeddingModel(ModelConfig(backbone=f"torchvision:{name}", embedding_dim=8)).eval()
    with torch.no_grad():
        maps = model.backbone(random_images(side))
        assert (maps.ndim, maps.shape[1]) == (4, row.features)
        assert model(random_images(side)).shape == (2, 8)
        wanted = expected(whole, random_images(side))
        torch.testing.assert_close(maps.mean(dim=(2, 3)) if wanted.ndim == 2 else maps, wanted)
    model.train()
    assert model.backbone.training


def test_inceptions_scale_their_input_as_torchvision_does() -> None:
    """torchvision's GoogLeNet takes images with ImageNet's mean and scale and converts them itself."""
    model = EmbeddingModel(ModelConfig(backbone="googlenet")).eval()
    theirs = torchvision.models.googlenet(weights=None, aux_logits=False, init_weights=False, transform_input=True)
    theirs.load_state_dict(model.backbone.state_dict(), strict=False)
    images = random_images(64)
    normalise = torchvision.models.GoogLeNet_Weights.DEFAULT.transforms()
    fed = torchvision.transforms.functional.normalize(images, normalise.mean, normalise.std)
    theirs.fc = nn.Identity()
    with torch.no_grad():
        features = model.pooling(model.backbone((images - 0.5) / 0.5))
        torch.testing.assert_close(features, theirs.eval()(fed), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model(images), model.head(features))


@pytest.mark.usefixtures("not_cached")
def test_to_ask_for_a_network_leaves_the_random_numbers_alone() -> None:
    before = torch.get_rng_state()
    assert backbone("torchvision:regnet_y_400mf").features == 440  # whose constructor computes widths
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet51", r"convnet, .*, timm:NAME or .*; it is 'resnet51' \(did you mean resnet50\?\)"),
        ("torchvision:resnet51", r"which torchvision does not have \(did you mean resnet50\?\)"),
        ("torchvision:fcn_resnet50", "which is not a classification network and has no single last map"),
        ("torchvisoin:vgg11", "no module torchvisoin is found"),
        ("timm:resnet19", r"which timm does not have \(did you mean resnet"),
    ],
)
def test_names_that_are_none(name: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        backbone(name)


def test_sizes_that_a_network_cannot_take_are_found_before_training() -> None:
    smoke_test(ModelConfig(), 32)
    for name, side, words in (
        ("convnet", 8, r"training\.image_size is 8, and convnet does not accept such images"),
        ("timm:mixer_s32_224", 64, r"images \(Input height .*\); set it to 224, the next larger size that"),
        ("timm:test_vit", 70, r"set it to 80, the next larger size that it accepts\."),
    ):
        with pytest.raises(InvalidInput, match=words):
            smoke_test(ModelConfig(backbone=name), side)


def test_a_transformer_interpolates_its_position_embeddings() -> None:
    import timm

    plain = timm.create_model("test_vit", num_classes=0).eval()
    other_size = timm.create_model("test_vit", num_classes=0, img_size=64).eval()
    state = plain.state_dict()
    state["pos_embed"] = timm.layers.resample_abs_pos_embed(state["pos_embed"], [4, 4])
    other_size.load_state_dict(state)
    ours = backbone("timm:test_vit").build().eval()
    ours.load_state_dict(plain.state_dict())
    for peer, side in ((plain, 160), (other_size, 64)):
        images = torch.randn(2, 3, side, side)
        torch.testing.assert_close(ours(images)[:, :, 0, 0], peer(images))


def test_imagenet_weights_of_any_network_are_never_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for name in [*(name for name, row in BACKBONES.items() if row.imagenet), "torchvision:squeezenet1_1"]:
        imagenet = backbone(name).imagenet
        assert imagenet is not None
        with pytest.raises(InvalidInput) as mistake:
            EmbeddingModel(ModelConfig(backbone=name, weights="imagenet"))
        assert f"save {imagenet.address} as {weights_path(imagenet)}." in str(mistake.value)
        assert weights_path(imagenet).is_relative_to(tmp_path)


def test_published_names_of_a_densenet(tmp_path: Path) -> None:
    network = torchvision.models.DenseNet(4, (2, 2), 8, num_classes=2)
    state = {name: torch.rand_like(tensor) for name, tensor in network.state_dict().items() if "num_" not in name}
    of_layer = partial(re.sub, r"(denselayer.*)\b(norm|conv)([12])\.", r"\1\2.\3.")
    published = {of_layer(name): tensor for name, tensor in state.items()}
    assert published.keys() != state.keys()
    torch.save(published, tmp_path / "weights.pth")
    load_weights(network, tmp_path / "weights.pth")
    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize(
    ("name", "side", "sides"),
    [
        ("test_resnet.r160_in1k", 64, 2),
        ("mobilenetv3_small_050", 64, 2),
        ("test_mambaout", 160, 5),
        ("test_vit", 160, 1),
    ],
)
def test_networks_of_timm(name: str, side: int, sides: int) -> None:
    import timm

    row = backbone(f"timm:{name}")
    if name != "test_mambaout":  # whose weights nobody published
        assert row.imagenet is not None
        assert name.split(".")[0] in row.imagenet.file
    model = EmbeddingModel(ModelConfig(backbone=f"timm:{name}", embedding_dim=8)).eval()
    theirs = timm.create_model(name, num_classes=0).eval()
    theirs.load_state_dict(model.backbone.state_dict())
    with torch.no_grad():
        maps = model.backbone(random_images(side))
        assert maps.shape == (2, row.features, sides, sides)
        assert model(random_images(side)).shape == (2, 8)
        if name in ("test_resnet.r160_in1k", "test_vit"):  # others convolve or normalise after pooling, and ours before
            torch.testing.assert_close(maps.mean(dim=(2, 3)), theirs(random_images(side)), rtol=1e-4, atol=1e-4)


# Tokens of transformers.

TINY = "support.tiny_transformer:TinyTransformer"
OF_TOKENS = [name for name, row in POOLING.rows.items() if row.tokens]


def naive(name: str, tokens_BTF: Tensor) -> Tensor:
    """Pool tokens, the class token first, by loops in float64."""
    rows = []
    for first, *patches in tokens_BTF.double().tolist():
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
    state, features = transformer().state_dict(), []
    for pooling, prefix in (("avg", "network."), ("cls", "")):
        torch.save({f"{prefix}{name}": tensor for name, tensor in state.items()}, tmp_path / f"{pooling}.pth")
        config = ModelConfig(backbone=TINY, weights=str(tmp_path / f"{pooling}.pth"), pooling=pooling)
        features.append(EmbeddingModel(config).eval().features(random_images()))
    assert torch.equal(*features)


@pytest.mark.parametrize(
    ("name", "pooling", "words"),
    [
        ("convnet", "cls", "is cls, which needs tokens with a class token, and convnet does not give them; use"),
        ("features:4", "cls_mean", "and features:4 does not give them; use one of avg"),
        (TINY, "gem", "is gem, which needs maps, and .* use one of cls, mean, cls_mean, or avg for the network's"),
        ("torchvision:squeezenet1_1", "mean", "squeezenet1_1 does not give them; use one of avg, max"),
    ],
)
def test_poolings_that_do_not_fit(name: str, pooling: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as mistake:
        EmbeddingModel(ModelConfig(backbone=name, pooling=pooling))
    assert len(mistake.value.sentences) == 1


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
    for without in ("test_resnet", "test_vit3", "test_vit4"):
        assert backbone(f"timm:{without}").tokens is None
