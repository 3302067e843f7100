"""BN-Inception against a second formulation, and the weights that are published of it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from trainables.models import EmbeddingModel, ModelConfig
from trainables.models.networks import BNInception
from trainables.models.weights import load_weights

# What each block receives, and gives per branch: 1×1, 3×3, double 3×3, pooled.
BLOCKS = {
    "3a": (192, [64, 64, 96, 32]),
    "3b": (256, [64, 96, 96, 64]),
    "3c": (320, [0, 160, 96, 320]),
    "4a": (576, [224, 96, 128, 128]),
    "4b": (576, [192, 128, 128, 128]),
    "4c": (576, [160, 160, 160, 128]),
    "4d": (608, [96, 192, 192, 128]),
    "4e": (608, [0, 192, 256, 608]),
    "5a": (1056, [352, 320, 224, 128]),
    "5b": (1024, [352, 320, 224, 128]),
}


@pytest.fixture(scope="module")
def network() -> BNInception:
    """Random weights, and batch statistics as after some training."""
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
            if block == "5b":
                pooled = functional.max_pool2d(maps, 3, 1, 1)
            else:
                pooled = functional.conv2d(
                    maps, torch.full((inputs, 1, 3, 3), 1 / 9, dtype=torch.float64), padding=1, groups=inputs
                )
            branches = [layer(maps, f"{name}1x1"), triple, double, layer(pooled, f"{name}pool_proj")]
        assert [branch.shape[1] for branch in branches] == [width for width in outputs if width]
        maps = torch.cat(branches, dim=1)
    return maps


def test_it_computes_what_the_layers_say(network: BNInception) -> None:
    images = torch.randn(1, 3, 64, 96, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(network(images).double(), by_hand(network, images), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("size", "side"), [(224, 7), (227, 7), (48, 2), (17, 1)])
def test_sides(size: int, side: int) -> None:
    with torch.device("meta"):
        assert BNInception().eval()(torch.empty(1, 3, size, size)).shape == (1, 1024, side, side)


def test_it_sees_bgr_in_0_to_255_less_caffes_mean(network: BNInception) -> None:
    model = EmbeddingModel(ModelConfig(backbone="bninception")).eval()
    model.backbone.load_state_dict(network.state_dict())
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    red, green, blue = (255 * images).unbind(1)
    caffe = torch.stack([blue - 104, green - 117, red - 128], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(images), model.head(model.pooling(network(caffe))), rtol=1e-3, atol=1e-3)


def test_published_weights_hold_vectors_as_rows(network: BNInception, tmp_path: Path) -> None:
    published = {
        name: tensor[None] if "_bn." in name else tensor
        for name, tensor in network.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    published |= {"last_linear.weight": torch.zeros(1000, 1024), "last_linear.bias": torch.zeros(1000)}
    torch.save(published, tmp_path / "bn_inception.pth")
    other = BNInception()
    load_weights(other, tmp_path / "bn_inception.pth")
    for name, tensor in network.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
