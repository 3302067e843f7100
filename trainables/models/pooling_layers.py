"""From a feature map to a feature vector: [B, F, h, w] → [B, F]."""

import torch
from torch import Tensor, nn

SMALLEST = 1e-6  # of an activation, so that a power of it has a gradient


class Average(nn.Module):
    """The mean over positions."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3))


class Maximum(nn.Module):
    """The largest over positions."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.amax(dim=(2, 3))


class AverageAndMaximum(nn.Module):
    """Their sum, as in Proxy-Anchor's code (Kim et al., CVPR 2020)."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))


class GeneralizedMean(nn.Module):
    """GeM (Radenović et al., TPAMI 2019, eq. 2): (mean over positions of x^p)^(1/p), of x ≥ 1e-6.

    ``p`` begins at 3, and either learns or stays ("cubic", as Multi Proxy Anchor pools). Powers are taken in float32
    and relative to the map's largest value, so that none of them overflows or vanishes.
    """

    def __init__(self, *, learned: bool) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(3.0), requires_grad=learned)

    def forward(self, maps: Tensor) -> Tensor:
        values = maps.to(torch.promote_types(maps.dtype, torch.float32)).clamp(min=SMALLEST)
        largest = values.detach().amax(dim=(2, 3), keepdim=True)  # cancels, and so does its gradient
        means = (values / largest).pow(self.p).mean(dim=(2, 3))
        return means.pow(1 / self.p) * largest[:, :, 0, 0]


def fixed_gem() -> GeneralizedMean:
    """GeM whose exponent stays."""
    return GeneralizedMean(learned=False)


def learned_gem() -> GeneralizedMean:
    """GeM whose exponent learns."""
    return GeneralizedMean(learned=True)
