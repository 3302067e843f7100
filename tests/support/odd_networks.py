"""Networks that train and embed, and that no other form can hold as they are."""

import torch
from torch import Tensor, nn


class Branching(nn.Module):
    """What it computes depends on the values that it sees."""

    features = 4

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Conv2d(3, 4, 3)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.maps(images)
        return maps if maps.mean() > 0 else -maps


class Noisy(Branching):
    """It adds noise, also when it is evaluated."""

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.maps(images)
        return maps + torch.rand_like(maps)
