"""Initial proxies of each loss against the authors' calls, and proxies that stay distinct.

Shapes: C classes, K proxies a class, D embedding.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from trainables.losses import LOSSES
from trainables.losses.loss import SAME_PROXY, ProxyLoss, distinct_proxies

C, D = 50, 512

# the call in the authors' code; K is 1, and 10 for losses with several proxies
AUTHORS: dict[str, Callable[[], torch.Tensor]] = {
    "softmax": lambda: nn.Linear(D, C, bias=False).weight.detach(),
    "proxy_nca": lambda: torch.randn(C, D) / math.sqrt(D),  # torch.randn(C, 64) / 8
    "arcface": lambda: 0.01 * torch.randn(C, D),  # mx.init.Normal(0.01)
    "soft_triple": lambda: nn.init.kaiming_uniform_(torch.empty(D, C * 10), a=math.sqrt(5)),
    **dict.fromkeys(
        ("proxy_anchor", "mpa", "mpa_dw", "mpa_ap", "proxy_push"),
        lambda: nn.init.kaiming_normal_(torch.empty(C, D), mode="fan_out"),
    ),
}


@pytest.mark.parametrize("name", [name for name, row in LOSSES.rows.items() if row.proxy_lr is not None])
def test_proxies_begin_as_the_authors_draw_them(name: str) -> None:
    torch.manual_seed(0)
    loss = LOSSES[name](num_classes=C, embedding_dim=D)
    assert isinstance(loss, ProxyLoss)
    share = torch.linspace(0.05, 0.95, 19)
    ours, theirs = loss.proxies.detach().quantile(share), AUTHORS[name]().quantile(share)
    assert (ours - theirs).abs().max() < 0.03 * theirs.max()


def clusters(proxies_KD: list[list[float]]) -> int:
    """Count the groups of proxies that links of at most SAME_PROXY connect, by plain loops."""
    units = [[value / math.hypot(*proxy) for value in proxy] for proxy in proxies_KD]
    groups: list[list[list[float]]] = []
    for proxy in units:
        near = [group for group in groups if any(math.dist(proxy, other) <= SAME_PROXY for other in group)]
        groups = [group for group in groups if group not in near] + [[proxy, *(other for g in near for other in g)]]
    return len(groups)


@pytest.mark.parametrize("spread", [0.05, 0.1])
def test_distinct_proxies_are_clusters(spread: float) -> None:
    """Draw eight proxies around three centres, of any length; with 1,100 classes they are counted in parts."""
    generator = torch.Generator().manual_seed(0)
    centres_C3D = torch.randn(1100, 3, 4, generator=generator)
    noise_CKD = spread * torch.randn(1100, 8, 4, generator=generator)
    lengths_CK1 = 0.1 + torch.rand(1100, 8, 1, generator=generator)
    proxies_CKD = lengths_CK1 * (centres_C3D[:, [0, 0, 0, 0, 1, 1, 1, 2]] + noise_CKD)
    counts = [clusters(proxies_KD) for proxies_KD in proxies_CKD.tolist()]
    assert distinct_proxies(proxies_CKD) == sum(counts) / len(counts)
    assert len(set(counts)) > 1


def test_a_chain_of_proxies_is_one() -> None:
    angles = 0.09 * torch.arange(16)
    chain_1KD = torch.stack((angles.cos(), angles.sin()), -1)[None, torch.randperm(16)]
    assert distinct_proxies(chain_1KD) == 1
    assert distinct_proxies(chain_1KD[:, :1]) == 1
    apart_1KD = torch.stack(((1.2 * angles).cos(), (1.2 * angles).sin()), -1)[None]
    assert distinct_proxies(apart_1KD) == 16
