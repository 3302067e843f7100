"""From a feature map to a feature vector: [B, F, H, W] → [B, F]."""

from collections.abc import Callable

from torch import Tensor, nn


class Average(nn.Module):
    """The mean over places."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3))


class Maximum(nn.Module):
    """The largest over places."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.amax(dim=(2, 3))


class AverageAndMaximum(nn.Module):
    """Their sum, as in Proxy-Anchor's code (Kim et al., CVPR 2020)."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))


POOLING: dict[str, Callable[[], nn.Module]] = {
    "avg": Average,
    "max": Maximum,
    "avg_max": AverageAndMaximum,
}
