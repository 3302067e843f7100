"""Params, shapes, and initial proxies of every loss in the table.

Shapes: B batch, D embedding, C classes, K proxies a class.
"""

import inspect
import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from support.refusals import sentences_of
from torch import nn

from trainables.common.errors import InvalidInput
from trainables.losses import LOSSES
from trainables.losses.loss import ProxyLoss, distinct_proxies
from trainables.losses.mining import most_pairs

C, D = 12, 16


def test_the_boundary_keeps_its_own_learning_rate_and_does_not_decay() -> None:
    (group,) = LOSSES["margin"](num_classes=C, embedding_dim=D).parameter_groups(0.5)
    assert (group["lr"], group["weight_decay"]) == (5e-5, 0)


@pytest.mark.parametrize(("loss_name", "mining"), [("triplet", "uniform"), ("margin", "distance_weighted")])
def test_a_known_number_of_pairs_draws_the_same_negatives(loss_name: str, mining: str) -> None:
    """If it is the number of this batch."""
    labels_B, embeddings_BD = torch.arange(12) // 3, torch.randn(12, D)
    loss = LOSSES[loss_name](num_classes=C, embedding_dim=D, mining=mining)
    values = []
    for most in (None, most_pairs([labels_B])):
        torch.manual_seed(3)
        loss.most_pairs = most
        values.append(loss(embeddings_BD, labels_B).item())
    assert values[0] == values[1]


@pytest.mark.parametrize("name", LOSSES)
def test_a_wrong_param_is_a_sentence(name: str) -> None:
    arguments = [*inspect.signature(LOSSES[name].__init__).parameters][1:]
    for argument, wrong in product(arguments, (True, "two", None, math.nan, -math.inf, [1.0])):
        if (name, argument, wrong) == ("multi_similarity", "epsilon", None):
            continue
        given = {"num_classes": C, "embedding_dim": D, argument: wrong}
        (sentence,) = sentences_of(lambda given=given: LOSSES[name](**given))  # type: ignore[misc]
        assert sentence.startswith(f"{argument} must be ")
        assert repr(wrong).removesuffix(".0") in sentence


@pytest.mark.parametrize(
    ("embeddings", "labels"),
    [
        (torch.ones(6, 4), torch.zeros(5, dtype=torch.int64)),
        (torch.ones(6, 4), torch.zeros(6)),
        (torch.ones(4), torch.zeros(4, dtype=torch.int64)),
    ],
)
def test_other_shapes_have_no_loss(embeddings: torch.Tensor, labels: torch.Tensor) -> None:
    for name in LOSSES:
        with pytest.raises(InvalidInput, match=r"^A loss takes embeddings \[B, D\] and labels \[B\], whole numbers;"):
            LOSSES[name](num_classes=2, embedding_dim=4)(embeddings, labels)


# Initial proxies of each loss against the authors' calls, and proxies that stay distinct.

CLASSES, DIMENSIONS = 50, 512

# the call in the authors' code; K is 1, and 10 for losses with several proxies
AUTHORS: dict[str, Callable[[], torch.Tensor]] = {
    "softmax": lambda: nn.Linear(DIMENSIONS, CLASSES, bias=False).weight.detach(),
    "proxy_nca": lambda: torch.randn(CLASSES, DIMENSIONS) / math.sqrt(DIMENSIONS),  # torch.randn(C, 64) / 8
    "arcface": lambda: 0.01 * torch.randn(CLASSES, DIMENSIONS),  # mx.init.Normal(0.01)
    "soft_triple": lambda: nn.init.kaiming_uniform_(torch.empty(DIMENSIONS, CLASSES * 10), a=math.sqrt(5)),
    **dict.fromkeys(
        ("proxy_anchor", "mpa", "mpa_dw", "mpa_ap", "proxy_push"),
        lambda: nn.init.kaiming_normal_(torch.empty(CLASSES, DIMENSIONS), mode="fan_out"),
    ),
}


@pytest.mark.parametrize("name", [name for name, row in LOSSES.rows.items() if row.proxy_lr is not None])
def test_proxies_begin_as_the_authors_draw_them(name: str) -> None:
    torch.manual_seed(0)
    loss = LOSSES[name](num_classes=CLASSES, embedding_dim=DIMENSIONS)
    assert isinstance(loss, ProxyLoss)
    share = torch.linspace(0.05, 0.95, 19)
    ours, theirs = loss.proxies.detach().quantile(share), AUTHORS[name]().quantile(share)
    assert (ours - theirs).abs().max() < 0.03 * theirs.max()


def test_a_chain_of_proxies_is_one() -> None:
    angles = 0.09 * torch.arange(16)
    chain_1KD = torch.stack((angles.cos(), angles.sin()), -1)[None, torch.randperm(16)]
    assert distinct_proxies(chain_1KD) == 1
    assert distinct_proxies(chain_1KD[:, :1]) == 1
    apart_1KD = torch.stack(((1.2 * angles).cos(), (1.2 * angles).sin()), -1)[None]
    assert distinct_proxies(apart_1KD) == 16
