"""Losses of pytorch-metric-learning by import path: equal to the library called directly, and what is refused."""

import copy
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses, miners

from spaces.search_space import search_space
from trainables.common.errors import InvalidInput
from trainables.losses import LOSSES
from trainables.training.training_config import TrainingConfig

PATH = "pytorch_metric_learning.losses:{}"
MINER = "pytorch_metric_learning.miners:{}"

CASES: list[tuple[str, dict[str, Any], str | None]] = [
    ("CircleLoss", {"m": 0.3, "gamma": 64.0}, None),
    ("TripletMarginLoss", {"margin": 0.2, "smooth_loss": True}, "BatchHardMiner"),
    ("ProxyAnchorLoss", {"alpha": 16.0}, "MultiSimilarityMiner"),
    ("SoftTripleLoss", {"centers_per_class": 3}, None),
    ("SubCenterArcFaceLoss", {"sub_centers": 2}, "BatchHardMiner"),
]


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(20, 6, generator=generator), torch.arange(5).repeat(4)


@pytest.mark.parametrize(("name", "params", "miner"), CASES)
def test_value_and_gradients_are_the_librarys(
    name: str, params: dict[str, Any], miner: str | None, batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    embeddings_BD, labels_B = batch
    ours = LOSSES[PATH.format(name)](
        num_classes=5, embedding_dim=6, **params, **({"miner": MINER.format(miner)} if miner else {})
    )
    with_classes = {"num_classes": 5, "embedding_size": 6} if list(ours.parameters()) else {}
    theirs = getattr(losses, name)(**with_classes, **params)
    theirs.load_state_dict(copy.deepcopy(ours.loss.state_dict()))
    values, gradients = [], []
    for called in (ours, theirs):
        called.zero_grad()
        leaf_BD = embeddings_BD.clone().requires_grad_()
        if called is ours:
            value = ours(leaf_BD, labels_B)
        else:
            mined = getattr(miners, miner)()(leaf_BD, labels_B) if miner else None
            value = theirs(leaf_BD, labels_B, mined)
        value.backward()
        values.append(value.detach())
        gradients.append([leaf_BD.grad, *(weight.grad for weight in called.parameters())])
    assert torch.equal(values[0], values[1])
    for mine, other in zip(*gradients, strict=True):
        assert torch.equal(mine, other)


def test_weights_are_learned_at_the_rate_of_proxies() -> None:
    proxies = LOSSES[PATH.format("ProxyAnchorLoss")](num_classes=5, embedding_dim=6)
    (group,) = proxies.parameter_groups(0.5)
    assert group["lr"] == 0.5
    assert [tuple(weight.shape) for weight in group["params"]] == [(5, 6)]
    assert LOSSES[PATH.format("CircleLoss")](num_classes=5, embedding_dim=6).parameter_groups(None) == []


def test_ranges_and_defaults_come_from_the_file() -> None:
    wishes = {
        "m": {"low": 0.2, "high": 0.3},
        "gamma": {"low": 60, "high": 120, "log": True},
        "miner": ["none", MINER.format("MultiSimilarityMiner")],
    }
    space = search_space(PATH.format("CircleLoss"), TrainingConfig(), wishes)
    assert dict(space.default) == {"m": 0.3, "gamma": 80.0, "miner": "none"}
    assert list(space.searched) == ["m", "gamma", "miner"]
    counts = search_space(PATH.format("SoftTripleLoss"), TrainingConfig(), {"centers_per_class": {"low": 2, "high": 4}})
    assert counts.default["centers_per_class"] == 4
    assert list(counts.searched) == ["centers_per_class"], "everything else keeps the library's default"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (PATH.format("CrossBatchMemory"), "must be a class that derives from"),
        (PATH.format("RankedListLoss"), "cannot be computed from embeddings and labels alone .*margin.*Tn"),
        (PATH.format("CircelLoss"), r"has no CircelLoss \(did you mean CircleLoss\?\)"),
    ],
)
def test_a_loss_that_needs_more_is_one_sentence(path: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"^.*{said}.*$"):
        LOSSES[path]


@pytest.mark.parametrize("miner", ["hard", "mylab:Miner", MINER.format("NoSuch"), MINER.format("BaseTupleMiner")])
def test_a_miner_that_is_none_is_refused(miner: str) -> None:
    with pytest.raises(InvalidInput):
        search_space(PATH.format("CircleLoss"), TrainingConfig(), {"miner": ["none", miner]})


def test_trying_a_loss_draws_nothing_from_the_random_state() -> None:
    before = torch.get_rng_state()
    assert LOSSES[PATH.format("NormalizedSoftmaxLoss")]
    assert torch.equal(before, torch.get_rng_state())
