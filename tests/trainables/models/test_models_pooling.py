"""GeM pooling: against loops in float64, and where powers overflow or vanish."""

import pytest
import torch
from torch import Tensor

from trainables.models.config import POOLING
from trainables.models.networks import GeneralizedMean


def gem_by_loops(maps: Tensor, p: float) -> Tensor:
    pooled = torch.empty(maps.shape[:2], dtype=torch.float64)
    for image, channels in enumerate(maps.double().tolist()):
        for channel, rows in enumerate(channels):
            values = [max(value, 1e-6) for row in rows for value in row]
            pooled[image, channel] = (sum(value**p for value in values) / len(values)) ** (1 / p)
    return pooled


@pytest.mark.parametrize("p", [1.0, 3.0, 6.5])
def test_gem_is_the_formula(p: float) -> None:
    maps = torch.randn(3, 5, 4, 6, generator=torch.Generator().manual_seed(0))
    pool = GeneralizedMean(learned=True)
    with torch.no_grad():
        pool.p.fill_(p)
    torch.testing.assert_close(pool(maps).double(), gem_by_loops(maps, p), rtol=1e-5, atol=1e-7)


def test_gem_starts_cubic_and_only_one_of_the_two_learns() -> None:
    fixed, learned = POOLING["gem"](), POOLING["gem_learned"]()
    assert isinstance(fixed, GeneralizedMean)
    assert isinstance(learned, GeneralizedMean)
    assert fixed.p.item() == learned.p.item() == 3
    assert (fixed.p.requires_grad, learned.p.requires_grad) == (False, True)


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-6, 1e4])
@pytest.mark.parametrize("p", [0.5, 3.0, 60.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gem_is_finite(value: float, p: float, dtype: torch.dtype) -> None:
    maps = torch.full((2, 3, 4, 4), value, dtype=dtype)
    maps[0, 0, 0, 0] = 1.0
    maps.requires_grad_()
    pool = GeneralizedMean(learned=True)
    with torch.no_grad():
        pool.p.fill_(p)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        pooled = pool(maps)
    pooled.sum().backward()
    assert pooled.dtype == torch.float32
    for tensor in (pooled, maps.grad, pool.p.grad):
        assert tensor is not None
        assert tensor.isfinite().all()
