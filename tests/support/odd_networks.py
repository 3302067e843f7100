"""Networks that train and embed, and that no other form can hold as they are."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.parametrizations import weight_norm


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
    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.maps(images)
        return maps + torch.rand_like(maps)


class Detached(Branching):
    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(images)


class WithoutLayers(nn.Module):
    features = 3

    def forward(self, images: Tensor) -> Tensor:
        return images


class Attentive(nn.Module):
    """PyTorch's attention between rows of pixels, which reads the weights of its last layer without calling it."""

    features = 4

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.attention = nn.Linear(3, 4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, images: Tensor) -> Tensor:
        rows = self.rows(images.mean(dim=3).mT)
        return self.attention(rows, rows, rows)[0].mT[..., None]


class BatchStatistics(Branching):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4, track_running_stats=False)

    def forward(self, images: Tensor) -> Tensor:
        normalised: Tensor = self.norm(self.maps(images))
        return normalised


class Counting(Branching):
    """The number of its steps, which is in no state, scales its maps."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, images: Tensor) -> Tensor:
        self.steps += self.training
        maps: Tensor = self.maps(images)
        return maps * (1 + self.steps)


class Patchwork(nn.Module):
    """Weights that are read, tied, normalised, grouped, detached or unused, and layers that are used twice."""

    features = 8

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.grouped = nn.Conv2d(3, 8, 8, 8), nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.tied = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.tied[1].weight = self.tied[0].weight
        self.read, self.twice = nn.Linear(8, 8), nn.Linear(8, 8)
        self.rows = nn.Sequential(nn.Conv1d(8, 8, 1), nn.Conv1d(8, 8, 1, groups=4))
        self.again = nn.Sequential(self.twice, nn.Tanh())
        self.normalised, self.detached, self.unused = weight_norm(nn.Linear(8, 8)), nn.Linear(8, 8), nn.Linear(8, 8)
        # in evaluation mode it reads the weights of layers that it calls in training
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.grouped(self.patches(images))
        tokens = self.rows(maps.flatten(2)).mT
        for layer in (*self.tied, self.twice, self.again, self.normalised):
            tokens = tokens + torch.tanh(layer(tokens))
        tokens = linear(tokens, self.read.weight, self.read.bias) + linear(tokens, self.detached.weight.detach())
        return self.encoder(tokens).mT.view_as(maps)
