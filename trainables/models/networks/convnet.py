"""A small network for small images: seconds on a CPU."""

from itertools import pairwise

import torch
from torch import Tensor, nn

WIDTHS = (32, 32, 64, 128)


def _block(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


class ConvNet(nn.Module):
    """Four blocks of convolution, batch normalisation and ReLU, each halving the sides: [B, 128, H/16, W/16].

    The first block strides and the others pool, so that nothing is computed at full resolution. Weights lie
    channels-last, and so then do the activations, where a CPU's convolutions are fastest.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*_block(3, WIDTHS[0], kernel=5, stride=2))
        for inputs, outputs in pairwise(WIDTHS):
            self.blocks.extend([*_block(inputs, outputs), nn.MaxPool2d(2)])
        self.blocks.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.blocks(images)
        return maps
