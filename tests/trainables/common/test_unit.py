"""Unit vectors at every scale, in training and evaluation.

Shapes: N vectors, D dimensions.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from trainables.common.vectors import unit, without_order
from trainables.metrics.evaluation import evaluate

TYPES = st.sampled_from([(torch.float32, 36), (torch.float64, 306)])


@settings(max_examples=60, deadline=None)
@given(of=TYPES, share=st.floats(-1, 1), dimensions=st.integers(1, 600), seed=st.integers(0, 10**6))
def test_directions_are_exact_at_every_scale(
    of: tuple[torch.dtype, int], share: float, dimensions: int, seed: int
) -> None:
    dtype, most = of
    direction_D = np.random.default_rng(seed).uniform(-1, 1, dimensions).clip(1e-2 - 1)
    vectors_ND = (torch.from_numpy(direction_D) * 10.0 ** (share * most)).to(dtype)[None].requires_grad_()
    found_ND = unit(vectors_ND)
    exact_D = vectors_ND[0].detach().double() / vectors_ND[0].detach().double().abs().max()
    torch.testing.assert_close(found_ND[0].double(), exact_D / exact_D.norm(), atol=1e-6, rtol=1e-6)
    (gradient_ND,) = torch.autograd.grad(found_ND.sum(), vectors_ND)
    assert gradient_ND.isfinite().all()
    if abs(share * most) < 5:
        assert torch.equal(found_ND, torch.nn.functional.normalize(vectors_ND))


@settings(max_examples=12, deadline=None)
@given(
    of=TYPES, scale=st.floats(-1, 1), spread=st.booleans(),
    images=st.integers(2, 60), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_no_scale_changes_a_metric(
    of: tuple[torch.dtype, int], scale: float, spread: bool, images: int, seed: int
) -> None:
    """Scale by powers of two, which are exact, all vectors alike or each by its own."""
    generator = np.random.default_rng(seed)
    dtype, most = of
    embeddings_ND = torch.from_numpy(generator.integers(-9, 10, size=(images, 5)) + 0.5).to(dtype)
    labels_N = torch.from_numpy(generator.integers(4, size=images))
    powers_N = generator.uniform(-1, 1, size=images) if spread else np.full(images, scale)
    factors_N = torch.from_numpy(2.0 ** (powers_N * most * 3).round()).to(dtype)
    expected = evaluate(embeddings_ND, labels_N, "all")
    found = evaluate(embeddings_ND * factors_N[:, None], labels_N, "all")
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_a_zero_vector_stays_zero_and_gets_no_gradient() -> None:
    vectors_ND = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    unit_ND = unit(vectors_ND)
    torch.testing.assert_close(unit_ND.detach(), torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
    (unit_ND @ unit_ND.T).sum().backward()
    assert vectors_ND.grad is not None
    assert vectors_ND.grad.isfinite().all()
    assert not vectors_ND.grad[0].any()


@pytest.mark.parametrize(
    ("apart", "is_found"), [(0.0, True), (3e-7, True), (1e-5, False), (8e-3, False)]
)  # rounding of a deep network, and near collapse
@pytest.mark.parametrize("count", [2, 3000])
def test_vectors_of_one_direction_have_no_order(count: int, apart: float, is_found: bool) -> None:
    lengths_N = torch.linspace(1e-3, 1e3, count)
    vectors_ND = torch.tensor([[3.0, 4.0, 0.0]]).repeat(count, 1)
    vectors_ND[-1, 2] = 5 * apart
    found = without_order(vectors_ND * lengths_N[:, None])
    assert found == (f"all {count:,} embeddings have the same direction" if is_found else "")
    assert without_order(vectors_ND[:1]) == "", "one item is not a collapse"
