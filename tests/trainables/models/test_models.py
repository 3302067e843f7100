"""Backbones, pooling, heads, the embedding network, its initial weights and its frozen parameters."""

import math
from pathlib import Path

import pytest
import torch
import torchvision
from scipy import stats
from support.refusals import sentences_of
from torch import Tensor, nn
from torch.nn import functional

from trainables.common.errors import InvalidInput
from trainables.models import BACKBONES, POOLING, ModelConfig
from trainables.models.config import HEADS
from trainables.models.embedding import EmbeddingModel, make_head
from trainables.models.networks import BNInception, GeneralizedMean


@pytest.fixture
def images_B3HW() -> Tensor:
    return torch.rand(4, 3, 48, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "config",
    [
        *(ModelConfig(backbone=name, embedding_dim=16) for name in BACKBONES),
        *(ModelConfig(pooling=name, layer_norm=True) for name, row in POOLING.rows.items() if not row.tokens),
    ],
    ids=lambda config: f"{config.backbone} {config.pooling}",
)
def test_every_backbone_and_pooling(config: ModelConfig, images_B3HW: Tensor) -> None:
    """Raw embeddings, a gradient for every parameter, and every parameter in one of the two parts."""
    row, model = BACKBONES[config.backbone], EmbeddingModel(config)
    assert row.summary
    assert row.imagenet is None or row.imagenet.address.endswith(f"/{row.imagenet.file}")
    features: list[int] = []
    model.backbone.register_forward_hook(lambda module, images, maps: features.append(maps.shape[1]))
    embeddings = model(images_B3HW[:2, :, :32, :40])
    assert features == [row.features]
    assert sum(tensor.numel() for tensor in model.backbone.state_dict().values()) == row.numbers
    assert embeddings.shape == (2, config.embedding_dim)
    assert (embeddings.norm(dim=1) - 1).abs().max() > 1e-3
    embeddings.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
    parts = [*model.backbone.parameters(), *model.head_parameters()]
    assert {id(parameter) for parameter in parts} == {id(parameter) for parameter in model.parameters()}


def test_poolings_by_hand() -> None:
    maps = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]], [[-1.0, -1.0], [-1.0, -5.0]]]])
    expected = {"avg": [3.0, -2.0], "max": [6.0, -1.0], "avg_max": [9.0, -3.0]}
    assert {name: POOLING[name]()(maps)[0].tolist() for name in expected} == expected


def test_input_is_normalised_by_the_backbones_own_mean_and_scale(images_B3HW: Tensor) -> None:
    model = EmbeddingModel(ModelConfig(backbone="resnet18")).eval()
    normalised = torchvision.transforms.functional.normalize(images_B3HW, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    with torch.no_grad():
        torch.testing.assert_close(model(images_B3HW), model.head(model.pooling(model.backbone(normalised))))


def test_the_head_pools_normalises_and_projects(images_B3HW: Tensor) -> None:
    model = EmbeddingModel(ModelConfig(layer_norm=True)).eval()
    with torch.no_grad():
        pooled = model.backbone((images_B3HW - 0.5) / 0.5).mean(dim=(2, 3))
        standard = (pooled - pooled.mean(dim=1, keepdim=True)) / (
            pooled.var(dim=1, correction=0, keepdim=True) + 1e-5
        ).sqrt()
        torch.testing.assert_close(model(images_B3HW), standard @ model.head[-1].weight.T + model.head[-1].bias)


@pytest.mark.parametrize(
    ("name", "freeze"), [("convnet", False), ("convnet", True), ("convnet", "statistics"), ("resnet18", True)]
)
def test_batch_normalisation_stands_still_as_far_as_it_is_frozen(
    name: str, freeze: bool | str, images_B3HW: Tensor
) -> None:
    model = EmbeddingModel(ModelConfig(backbone=name, freeze_bn=freeze))
    model.eval()
    model.train()
    layers = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    before = [[tensor.clone() for tensor in layer.state_dict().values()] for layer in layers]
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)
    model(images_B3HW[:, :, :32, :32]).square().sum().backward()
    optimizer.step()
    for layer, (weight, bias, mean, *_) in zip(layers, before, strict=True):
        assert torch.equal(layer.running_mean, mean) == bool(freeze)
        assert (torch.equal(layer.weight, weight) and torch.equal(layer.bias, bias)) == (freeze is True)
        assert layer.training == (not freeze)
    assert model.training


def test_the_embedding_layer_is_drawn_as_its_source_draws_it() -> None:
    """Check the deviation and bound of weights to D = 512 from F = 512, and the bound of the biases."""
    for name, deviation, most, bias in (
        ("kaiming_normal", (2 / 512) ** 0.5, math.inf, 0.0),
        ("linear", (1 / 3 / 512) ** 0.5, 512**-0.5, 512**-0.5),
        ("truncated_normal", float(stats.truncnorm(-2, 2, scale=1e-3).std()), 2e-3, 512**-0.5),
    ):
        torch.manual_seed(0)
        layer = EmbeddingModel(ModelConfig(backbone="features:512", embedding_dim=512, head_init=name)).head[-1]
        weights, biases = layer.weight.detach().double(), layer.bias.detach()
        assert weights.std().item() == pytest.approx(deviation, rel=0.01)
        assert abs(weights.mean().item()) < 0.01 * deviation
        assert weights.abs().max() <= most
        assert 0.9 * bias <= biases.abs().max() <= bias


def gem_by_loops(maps: Tensor, p: float) -> Tensor:
    pooled = torch.empty(maps.shape[:2], dtype=torch.float64)
    for image, channels in enumerate(maps.double().tolist()):
        for channel, rows in enumerate(channels):
            values = [max(value, 1e-6) for row in rows for value in row]
            pooled[image, channel] = (sum(value**p for value in values) / len(values)) ** (1 / p)
    return pooled


def gem(p: float) -> GeneralizedMean:
    pool = GeneralizedMean(learned=True)
    nn.init.constant_(pool.p, p)
    return pool


def test_gem_is_the_formula_and_starts_cubic() -> None:
    maps = torch.randn(3, 5, 4, 6, generator=torch.Generator().manual_seed(0))
    for p in (1.0, 3.0, 6.5):
        torch.testing.assert_close(gem(p)(maps).double(), gem_by_loops(maps, p), rtol=1e-5, atol=1e-7)
    fixed, learned = POOLING["gem"](), POOLING["gem_learned"]()
    assert fixed.p.item() == learned.p.item() == 3
    assert (fixed.p.requires_grad, learned.p.requires_grad) == (False, True)


@pytest.mark.parametrize("value", [-1.0, 0.0, 1e4])
@pytest.mark.parametrize("p", [0.5, 60.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gem_is_finite(value: float, p: float, dtype: torch.dtype) -> None:
    maps = torch.full((2, 3, 4, 4), value, dtype=dtype)
    maps[0, 0, 0, 0] = 1.0
    maps.requires_grad_()
    pool = gem(p)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        pooled = pool(maps)
    pooled.sum().backward()
    assert pooled.dtype == torch.float32
    for tensor in (pooled, maps.grad, pool.p.grad):
        assert tensor is not None
        assert tensor.isfinite().all()


FEATURES, DIMENSIONS = 6, 4
FEATURES_BF = torch.randn(5, FEATURES, generator=torch.Generator().manual_seed(0))


def head(**settings: object) -> nn.Sequential:
    torch.manual_seed(0)
    given: dict[str, object] = {"embedding_dim": DIMENSIONS, "head_widths": (7, 3), **settings}
    return make_head(ModelConfig(**given), FEATURES)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("dimensions", [None, DIMENSIONS])
def test_the_size_of_embeddings(name: str, dimensions: int | None) -> None:
    if name == "none" and dimensions:
        with pytest.raises(InvalidInput, match=r"head is none, which keeps the features, and embedding_dim is 4"):
            head(head=name, embedding_dim=dimensions)
        return
    embeddings = head(head=name, embedding_dim=dimensions)(FEATURES_BF)
    assert embeddings.shape == (5, dimensions or FEATURES)
    assert name != "none" or embeddings.equal(FEATURES_BF)


def test_an_mlp_by_hand() -> None:
    network = head(head="mlp").double()
    first, second, last = (layer for layer in network if isinstance(layer, nn.Linear))
    found = FEATURES_BF.double()
    for layer in (first, second):
        found = found @ layer.weight.T + layer.bias
        found = (found - found.mean(1, keepdim=True)) / (found.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        found = found.clamp(min=0)
    torch.testing.assert_close(network(FEATURES_BF.double()), found @ last.weight.T + last.bias)


def test_a_network_on_features() -> None:
    torch.manual_seed(0)
    network = EmbeddingModel(ModelConfig(backbone=f"features:{FEATURES}", embedding_dim=DIMENSIONS))
    assert {name.partition(".")[0] for name in network.state_dict()} == {"head"}
    layer = network.head[0]
    torch.testing.assert_close(network(FEATURES_BF), functional.linear(FEATURES_BF, layer.weight, layer.bias))
    with pytest.raises(InvalidInput, match="'features:many'; after the colon give the number of features"):
        EmbeddingModel(ModelConfig(backbone="features:many"))


def test_patterns_freeze_parameters_and_their_statistics() -> None:
    model = EmbeddingModel(ModelConfig(freeze=("blocks.0.*", "blocks.[1-4].*")))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model.train()
    model(torch.rand(4, 3, 32, 32)).square().sum().backward()
    optimizer.step()
    changed = {name for name, tensor in model.state_dict().items() if not tensor.equal(before[name])}
    frozen = tuple(f"backbone.blocks.{number}." for number in range(5))
    assert changed == {name for name in before if not name.startswith(frozen)}


def test_wrong_ways_to_freeze(weights: Path) -> None:
    given = ModelConfig(backbone="resnet18", weights=str(weights), freeze=("stage9.*", "fc.*"))
    with pytest.raises(InvalidInput, match=r"freeze has 'stage9\.\*', 'fc\.\*', which match no parameter of .* conv1"):
        EmbeddingModel(given)
    frozen: dict[str, object] = {"freeze": "backbone", "weights": str(weights)}
    refusals: tuple[tuple[dict[str, object], str], ...] = (
        ({"freeze": "all_but_0"}, "freeze must be backbone, all_but_N with a number N, a list, or null"),
        ({"freeze": ()}, "freeze is an empty list"),
        ({"freeze": "backbone"}, "weights null: the features of a random network"),
        ({**frozen, "head": "none", "embedding_dim": None}, "so nothing of the network"),
        ({**frozen, "pooling": "gem_learned"}, "whose exponent learns"),
        ({"head": "deep"}, "head must be one of linear, mlp, none; it is 'deep'"),
    )
    for settings, sentence in refusals:
        assert sentence in sentences_of(ModelConfig, **{"backbone": "resnet18", **settings})[0]


# BN-Inception against a second formulation.

# What each block receives, and gives per branch: 1×1, 3×3, double 3×3, pooled.
BLOCKS = {
    "3a": (192, [64, 64, 96, 32]), "3b": (256, [64, 96, 96, 64]), "3c": (320, [0, 160, 96, 320]),
    "4a": (576, [224, 96, 128, 128]), "4b": (576, [192, 128, 128, 128]), "4c": (576, [160, 160, 160, 128]),
    "4d": (608, [96, 192, 192, 128]), "4e": (608, [0, 192, 256, 608]),
    "5a": (1056, [352, 320, 224, 128]), "5b": (1024, [352, 320, 224, 128]),
}  # fmt: skip


@pytest.fixture(scope="module")
def network() -> BNInception:
    torch.manual_seed(0)
    network = BNInception()
    for name, tensor in network.state_dict().items():
        if "_bn." in name and tensor.is_floating_point():
            tensor.uniform_(0.5, 1.5)
    return network.eval()


def by_hand(network: BNInception, images: Tensor) -> Tensor:
    """The network in float64 with batch normalisation folded into the convolutions."""
    state = {name: tensor.double() for name, tensor in network.state_dict().items()}

    def layer(maps: Tensor, name: str, stride: int = 1) -> Tensor:
        gain = state[f"{name}_bn.weight"] / (state[f"{name}_bn.running_var"] + 1e-5).sqrt()
        weight = state[f"{name}.weight"] * gain[:, None, None, None]
        bias = (state[f"{name}.bias"] - state[f"{name}_bn.running_mean"]) * gain + state[f"{name}_bn.bias"]
        return functional.conv2d(maps, weight, bias, stride, padding=weight.shape[2] // 2).clamp(min=0)

    def halved(maps: Tensor) -> Tensor:
        return functional.max_pool2d(maps, 3, 2, ceil_mode=True)

    maps = halved(layer(images.double(), "conv1_7x7_s2", 2))
    maps = halved(layer(layer(maps, "conv2_3x3_reduce"), "conv2_3x3"))
    for block, (inputs, outputs) in BLOCKS.items():
        assert maps.shape[1] == inputs
        name = f"inception_{block}_"
        stride = 2 if block in ("3c", "4e") else 1
        triple = layer(layer(maps, f"{name}3x3_reduce"), f"{name}3x3", stride)
        double = layer(layer(maps, f"{name}double_3x3_reduce"), f"{name}double_3x3_1")
        double = layer(double, f"{name}double_3x3_2", stride)
        if stride == 2:
            branches = [triple, double, halved(maps)]
        else:
            ninths = torch.full((inputs, 1, 3, 3), 1 / 9, dtype=torch.float64)
            average = functional.conv2d(maps, ninths, padding=1, groups=inputs)
            pooled = functional.max_pool2d(maps, 3, 1, 1) if block == "5b" else average
            branches = [layer(maps, f"{name}1x1"), triple, double, layer(pooled, f"{name}pool_proj")]
        assert [branch.shape[1] for branch in branches] == [width for width in outputs if width]
        maps = torch.cat(branches, dim=1)
    return maps


def test_bn_inception_computes_what_its_layers_say(network: BNInception) -> None:
    images = torch.randn(1, 3, 64, 96, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(network(images).double(), by_hand(network, images), rtol=1e-3, atol=1e-4)
    with torch.device("meta"):
        for size, side in ((224, 7), (227, 7), (48, 2), (17, 1)):
            assert BNInception().eval()(torch.empty(1, 3, size, size)).shape == (1, 1024, side, side)


def test_bn_inception_sees_bgr_in_0_to_255_less_caffes_mean(network: BNInception) -> None:
    model = EmbeddingModel(ModelConfig(backbone="bninception")).eval()
    model.backbone.load_state_dict(network.state_dict())
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    red, green, blue = (255 * images).unbind(1)
    caffe = torch.stack([blue - 104, green - 117, red - 128], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(images), model.head(model.pooling(network(caffe))), rtol=1e-3, atol=1e-3)
