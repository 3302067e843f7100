"""Networks and layers: ConvNet, BN-Inception, and pooling from maps to vectors.

Shapes: B images, F channels, h and w height and width of a map, T patches of a transformer.
"""

from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (32, 32, 64, 128)


def _block(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


class ConvNet(nn.Module):
    """A small network for small images, which trains in seconds on a CPU: [B, 3, H, W] → [B, 128, H/16, W/16].

    Four blocks of convolution, batch normalisation and ReLU each halve the sides, the first by its stride. Weights, and
    therefore activations, are channels-last, for which convolutions are fastest on a CPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*_block(3, WIDTHS[0], kernel=5, stride=2))
        for inputs, outputs in pairwise(WIDTHS):
            self.blocks.extend([*_block(inputs, outputs), nn.MaxPool2d(2)])
        self.blocks.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(images)


BLOCKS = {
    "3a": (64, 64, 64, 64, 96, 32),
    "3b": (64, 64, 96, 64, 96, 64),
    "3c": (0, 128, 160, 64, 96, 0),
    "4a": (224, 64, 96, 96, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128),
    "4c": (160, 128, 160, 128, 160, 128),
    "4d": (96, 128, 192, 160, 192, 128),
    "4e": (0, 128, 192, 192, 256, 0),
    "5a": (352, 192, 320, 160, 224, 128),
    "5b": (352, 192, 320, 192, 224, 128),
}
"""Channels of a block: 1×1; 3×3 reduced, 3×3; double 3×3 reduced, both double 3×3; pool projection. 0 for no layer."""
MAX_POOLED = "5b"  # the other blocks that keep the sides use average pooling


class BNInception(nn.Module):
    """BN-Inception (Ioffe & Szegedy, ICML 2015): [B, 3, H, W] → [B, 1024, H/32, W/32], sides rounded up.

    This is the Caffe variant with 1024 features that is common in metric learning. Layers have their Caffe names, under
    which the usual ImageNet weights are published. The blocks 3c and 4e halve the sides, without a projection.
    """

    def __init__(self) -> None:
        super().__init__()
        self._layer("conv1_7x7_s2", 3, 64, kernel=7, stride=2)
        self._layer("conv2_3x3_reduce", 64, 64)
        self._layer("conv2_3x3", 64, 192, kernel=3)
        inputs = 192
        for name, widths in BLOCKS.items():
            inputs = self._block(f"inception_{name}", inputs, widths)
        self.halve = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.average = nn.AvgPool2d(3, stride=1, padding=1)
        self.maximum = nn.MaxPool2d(3, stride=1, padding=1)

    def _layer(self, name: str, inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(outputs))

    def _block(self, name: str, inputs: int, widths: tuple[int, ...]) -> int:
        """Add a block's layers and return its number of output channels."""
        single, reduced, triple, double_reduced, double, projected = widths
        stride = 1 if single else 2
        if single:
            self._layer(f"{name}_1x1", inputs, single)
        self._layer(f"{name}_3x3_reduce", inputs, reduced)
        self._layer(f"{name}_3x3", reduced, triple, kernel=3, stride=stride)
        self._layer(f"{name}_double_3x3_reduce", inputs, double_reduced)
        self._layer(f"{name}_double_3x3_1", double_reduced, double, kernel=3)
        self._layer(f"{name}_double_3x3_2", double, double, kernel=3, stride=stride)
        if projected:
            self._layer(f"{name}_pool_proj", inputs, projected)
        return single + triple + double + (projected or inputs)

    def _run(self, maps_BFhw: Tensor, *names: str) -> Tensor:
        for name in names:
            maps_BFhw = getattr(self, f"{name}_bn")(getattr(self, name)(maps_BFhw)).relu_()
        return maps_BFhw

    def _inception(self, name: str, maps_BFhw: Tensor) -> Tensor:
        block = f"inception_{name}"
        branches = [
            self._run(maps_BFhw, f"{block}_3x3_reduce", f"{block}_3x3"),
            self._run(maps_BFhw, *(f"{block}_double_3x3_{part}" for part in ("reduce", "1", "2"))),
        ]
        if BLOCKS[name][0]:
            pooled = (self.maximum if name == MAX_POOLED else self.average)(maps_BFhw)
            branches = [self._run(maps_BFhw, f"{block}_1x1"), *branches, self._run(pooled, f"{block}_pool_proj")]
        else:
            odd_height, odd_width = (side % 2 for side in maps_BFhw.shape[2:])
            # pad to even sides, so that pooling rounds as the strided convolutions do
            even = functional.pad(maps_BFhw, (0, odd_width, 0, odd_height), mode="replicate")
            branches.append(self.halve(even))
        return torch.cat(branches, dim=1)

    def forward(self, images: Tensor) -> Tensor:
        maps_BFhw = self.halve(self._run(images, "conv1_7x7_s2"))
        maps_BFhw = self.halve(self._run(maps_BFhw, "conv2_3x3_reduce", "conv2_3x3"))
        for name in BLOCKS:
            maps_BFhw = self._inception(name, maps_BFhw)
        return maps_BFhw


# Pooling: [B, F, h, w] → [B, F].

SMALLEST = 1e-6  # lower bound of activations, so that their powers have a gradient


class Average(nn.Module):
    """Mean over positions."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3))


class Maximum(nn.Module):
    """Maximum over positions."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.amax(dim=(2, 3))


class AverageAndMaximum(nn.Module):
    """Mean plus maximum over positions, as in Proxy-Anchor's code (Kim et al., CVPR 2020)."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))


class GeneralizedMean(nn.Module):
    """GeM (Radenović et al., TPAMI 2019, eq. 2): (mean over positions of x^p)^(1/p), with x clamped to 1e-6 or more.

    ``p`` is 3 initially, and either learned or fixed ("cubic", as in Multi Proxy Anchor). Powers are computed in
    float32 and relative to the map's maximum, so that none overflows or underflows.
    """

    def __init__(self, *, learned: bool) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(3.0), requires_grad=learned)

    def forward(self, maps: Tensor) -> Tensor:
        values = maps.to(torch.promote_types(maps.dtype, torch.float32)).clamp(min=SMALLEST)
        largest = values.detach().amax(dim=(2, 3), keepdim=True)  # cancels out, in the gradient too
        means = (values / largest).pow(self.p).mean(dim=(2, 3))
        return means.pow(1 / self.p) * largest[:, :, 0, 0]


fixed_gem = partial(GeneralizedMean, learned=False)
learned_gem = partial(GeneralizedMean, learned=True)


class ClassToken(nn.Module):
    """The class token (Dosovitskiy et al., ICLR 2021, eq. 4), the first one: [B, 1 + T, F] → [B, F]."""

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens[:, 0]


class PatchMean(nn.Module):
    """Mean over the tokens of the patches: [B, 1 + T, F] → [B, F]."""

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens[:, 1:].mean(dim=1)


class ClassTokenAndPatchMean(nn.Module):
    """The class token, then the mean over those of the patches, [B, 2F], as in DINOv2 (Oquab et al., TMLR 2024)."""

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.cat((tokens[:, 0], tokens[:, 1:].mean(dim=1)), dim=1)
