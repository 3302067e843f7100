"""A user-defined network: two layers of strided convolution.

In a search file, with the repository's root on ``PYTHONPATH``:

    model: {backbone: "examples.tiny_network:TinyNetwork", embedding_dim: 32}

``holdout check examples.tiny_network:TinyNetwork`` runs the contract tests of every backbone on it.
"""

import torch
from torch import nn


class TinyNetwork(nn.Module):
    """Two strided convolutions: images [B, 3, H, W] → maps [B, 48, H/8, W/8]."""

    features = 48
    mean = (0.5, 0.5, 0.5)  # scales images from 0 … 1 to -1 … 1
    scale = (0.5, 0.5, 0.5)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 24, 5, stride=4, padding=2),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, self.features, 3, stride=2, padding=1),
            nn.ReLU(),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps: torch.Tensor = self.layers(images)
        return maps
