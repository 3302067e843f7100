"""Values and gradients of the losses against golden.json, computed independently by plain loops in float64.

Shapes: B batch, D embedding, C classes, K proxies a class.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from trainables.losses import LOSSES
from trainables.losses.base import Loss, proxy_cosines
from trainables.losses.proxies import centre_regulariser

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text(encoding="utf-8"))
EMBEDDINGS_BD = torch.tensor(GOLDEN["inputs"]["A"]["x"], dtype=torch.float64)
LABELS_B = torch.tensor(GOLDEN["inputs"]["A"]["y"])
PERMUTATION_B = torch.tensor(GOLDEN["inputs"]["A"]["perm"])


def proxies_of(name: str) -> torch.Tensor:
    proxies = torch.tensor(GOLDEN["inputs"][name], dtype=torch.float64)
    return proxies if proxies.ndim == 3 else proxies[:, None]


def built(name: str, proxies: str | None = None, **params: Any) -> Loss:
    """Build a loss in float64 with the proxies of golden.json, some of classes that are not in the batch."""
    dimensions = EMBEDDINGS_BD.shape[1]
    if proxies is None:
        return LOSSES[name](num_classes=6, embedding_dim=dimensions, **params).double()
    proxies_CKD = proxies_of(proxies)
    if proxies_CKD.shape[1] > 1:
        params["proxies_per_class"] = proxies_CKD.shape[1]
    loss = LOSSES[name](num_classes=len(proxies_CKD), embedding_dim=dimensions, **params).double()
    loss.proxies.data = proxies_CKD
    return loss


def close(actual: torch.Tensor, expected: Any, relative: float = 1e-6) -> None:
    """Check equality up to a relative error; for a gradient, relative to its largest entry."""
    expected = torch.as_tensor(expected, dtype=torch.float64).reshape(actual.shape)
    assert (actual - expected).abs().max() <= relative * expected.abs().max().clamp(min=1e-12)


@pytest.mark.parametrize("case", GOLDEN["losses"], ids=lambda case: f"{case['loss']}-{case['case']}")
@pytest.mark.parametrize(("permuted", "length"), [(False, 1.0), (True, 3.0)], ids=["as given", "permuted, long"])
def test_value_and_gradients(case: dict[str, Any], permuted: bool, length: float) -> None:
    loss = built(case["loss"], case["proxies"], **case["hyperparameters"])
    order_B = PERMUTATION_B if permuted else torch.arange(len(LABELS_B))
    # only directions matter, so an embedding 3 times as long has a gradient 3 times as small
    embeddings_BD = (length * EMBEDDINGS_BD)[order_B].requires_grad_()
    value = loss(embeddings_BD, LABELS_B[order_B])
    value.backward()
    close(value.detach(), case["value"])
    close(embeddings_BD.grad * length, torch.tensor(case["grad_x_tangent"])[order_B])
    if case["proxies"]:
        close(loss.proxies.grad, case["grad_w_tangent"])


def test_centre_regulariser() -> None:
    proxies_CKD = proxies_of("W3").requires_grad_()
    _, among_CKK = proxy_cosines(torch.zeros(1, proxies_CKD.shape[2], dtype=torch.float64), proxies_CKD)
    value = centre_regulariser(among_CKK)
    value.backward()
    close(value.detach(), GOLDEN["centre_regulariser"]["value"])
    close(proxies_CKD.grad, GOLDEN["centre_regulariser"]["grad_w_tangent"])


def test_equal_centres_have_a_regulariser() -> None:
    proxies_CKD = torch.randn(5, 1, 512).repeat(1, 4, 1).requires_grad_()
    value = centre_regulariser(proxy_cosines(torch.zeros(1, 512), proxies_CKD)[1])
    value.backward()
    assert value.item() == pytest.approx(math.sqrt(1e-5) / 2, rel=1e-4)
    assert proxies_CKD.grad.isfinite().all()
