"""What holds of every loss in the table.

Shapes: B batch, D embedding.
"""

import inspect
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.losses import LOSSES, loss_row
from trainables.losses.base import Loss
from trainables.mistakes import Mistakes

C, D = 12, 16
RANDOM: dict[str, dict[str, Any]] = {"margin": {"mining": "all"}}
"""Hyperparameters that take the chance out of a loss."""

COLD = {"scale": 100.0, "pos_scale": 100.0, "neg_scale": 100.0, "temperature": 0.01, "gamma": 0.01}


def built(name: str, classes: int = C, dimensions: int = D, **hyperparameters: Any) -> Loss:
    torch.manual_seed(0)
    return LOSSES[name](num_classes=classes, embedding_dim=dimensions, **RANDOM.get(name, {}), **hyperparameters)


def extreme(name: str) -> dict[str, Any]:
    arguments = inspect.signature(LOSSES[name].__init__).parameters
    return {key: value for key, value in COLD.items() if key in arguments}


def assert_finite_forward_and_gradient(loss: Loss, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> None:
    embeddings_BD = embeddings_BD.clone().requires_grad_()
    value = loss(embeddings_BD, labels_B)
    assert value.shape == ()
    assert value.isfinite()
    value.backward()
    assert embeddings_BD.grad is not None
    assert embeddings_BD.grad.isfinite().all()
    for parameter in loss.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_says_where_it_is_from(name: str) -> None:
    loss, row = LOSSES[name], loss_row(name)
    assert row.paper
    assert row.equation
    assert "\n" not in row.equation
    assert loss.__doc__
    assert "Source" in loss.__doc__
    assert "Shapes:" in (inspect.getmodule(loss).__doc__ or "")


@pytest.mark.parametrize("name", LOSSES)
def test_parameter_groups_hold_every_parameter_once(name: str) -> None:
    loss = built(name)
    proxy_lr = loss_row(name).proxy_lr
    groups = loss.parameter_groups(proxy_lr)
    assert [id(p) for group in groups for p in group["params"]] == [id(p) for p in loss.parameters()]
    assert all(group["lr"] > 0 for group in groups)
    assert hasattr(loss, "proxies") == (proxy_lr is not None)
    if proxy_lr is not None:
        assert loss.proxies.shape == (C, getattr(loss.proxies, "shape", [0, 1])[1], D)
        assert groups[0]["lr"] == proxy_lr
        assert loss.parameter_groups(0.5)[0]["lr"] == 0.5


def test_the_boundary_keeps_its_own_learning_rate() -> None:
    (group,) = built("margin").parameter_groups(0.5)
    assert group["lr"] == 5e-5


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_finite_at_scale_100(name: str, dtype: torch.dtype) -> None:
    labels_B = torch.arange(384) % 96
    generator = torch.Generator().manual_seed(1)
    loss = built(name, 100, 64, **extreme(name))
    assert_finite_forward_and_gradient(loss, torch.randn(384, 64, generator=generator).to(dtype), labels_B)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("value", [1.0, 0.0, -3e-5])
def test_finite_for_collapsed_embeddings(name: str, dtype: torch.dtype, value: float) -> None:
    labels_B = torch.arange(384) % 96
    assert_finite_forward_and_gradient(
        built(name, 100, 64, **extreme(name)), torch.full((384, 64), value, dtype=dtype), labels_B
    )


@pytest.mark.parametrize("name", LOSSES)
def test_finite_for_proxies_that_are_embeddings(name: str) -> None:
    """Similarities of exactly ±1, where angles and roots have no gradient."""
    loss = built(name)
    embeddings_BD = torch.randn(C, D)
    for parameter in loss.parameters():
        if parameter.ndim == 3:
            parameter.data = embeddings_BD[:, None].repeat(1, parameter.shape[1], 1) * torch.tensor([[[-1.0]]])
            parameter.data[::2] *= -2
    assert_finite_forward_and_gradient(loss, embeddings_BD, torch.arange(C))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("labels", [[7] * 6, [0, 3, 5, 11], [4], [2, 2, 9]], ids=["one", "singletons", "1", "3"])
def test_finite_and_attached_for_every_make_of_batch(name: str, labels: list[int]) -> None:
    assert_finite_forward_and_gradient(built(name), torch.randn(len(labels), D), torch.tensor(labels))


@pytest.mark.parametrize("name", ["triplet", "lifted_structure", "pnp", "smooth_ap", "topk_precision", "angular"])
@pytest.mark.parametrize("labels", [[7] * 6, [0, 3, 5, 11]], ids=["one class", "singletons"])
def test_no_term_no_gradient(name: str, labels: list[int]) -> None:
    embeddings_BD = torch.randn(len(labels), D, requires_grad=True)
    value = built(name)(embeddings_BD, torch.tensor(labels))
    value.backward()
    assert value.item() == 0
    assert not embeddings_BD.grad.any()


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_permuting_the_batch_changes_nothing(name: str, data: st.DataObject) -> None:
    labels = data.draw(st.lists(st.integers(0, 5), min_size=2, max_size=14))
    order = torch.tensor(data.draw(st.permutations(range(len(labels)))))
    seed = data.draw(st.integers(0, 2**20))
    embeddings_BD = torch.randn(len(labels), D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    labels_B = torch.tensor(labels)
    loss = built(name).double()
    first = embeddings_BD.clone().requires_grad_()
    second = embeddings_BD[order].requires_grad_()
    value = loss(first, labels_B)
    permuted = loss(second, labels_B[order])
    assert permuted.item() == pytest.approx(value.item(), rel=1e-9, abs=1e-9)
    value.backward()
    permuted.backward()
    torch.testing.assert_close(second.grad, first.grad[order], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_only_directions_count(name: str) -> None:
    hyperparameters = {"l2": 0.0} if name == "npair" else {}
    loss = built(name, **hyperparameters).double()
    embeddings_BD, labels_B = torch.randn(10, D, dtype=torch.float64), torch.arange(10) % 3
    lengths_B1 = torch.rand(10, 1, dtype=torch.float64) + 0.1
    assert loss(lengths_B1 * embeddings_BD, labels_B).item() == pytest.approx(loss(embeddings_BD, labels_B).item())


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_is_computed_in_float32(name: str) -> None:
    loss = built(name)
    embeddings_BD, labels_B = torch.randn(20, D).bfloat16(), torch.arange(20) % 5
    plain = loss(embeddings_BD, labels_B)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(embeddings_BD, labels_B)
    assert plain.dtype == torch.float32
    torch.testing.assert_close(plain, loss(embeddings_BD.float(), labels_B))
    torch.testing.assert_close(inside, plain)
    assert loss.double()(embeddings_BD.double(), labels_B).dtype == torch.float64


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("wrong", [True, "two", None, math.nan, math.inf, -math.inf, -1e9, [1.0], {}, 1j])
def test_a_wrong_hyperparameter_is_a_sentence(name: str, wrong: Any) -> None:
    allowed = {("multi_similarity", "epsilon"): None}
    for argument in inspect.signature(LOSSES[name].__init__).parameters:
        if argument == "self" or (wrong is None and (name, argument) in allowed):
            continue
        with pytest.raises(Mistakes) as caught:
            LOSSES[name](**{"num_classes": C, "embedding_dim": D, argument: wrong})
        (sentence,) = caught.value.sentences
        assert sentence.startswith(f"{argument} must be ")
        assert repr(wrong) in sentence


def test_all_wrong_hyperparameters_are_told_at_once() -> None:
    with pytest.raises(Mistakes) as caught:
        LOSSES["mpa"](num_classes=0, embedding_dim=D, margin=-1, scale="32", gamma=0, tau=True, proxies_per_class=2.0)
    assert [sentence.split()[0] for sentence in caught.value.sentences] == [
        "num_classes",
        "proxies_per_class",
        "margin",
        "scale",
        "gamma",
        "tau",
    ]
    assert caught.value.sentences[2] == "margin must be a finite number of at least 0, not -1: give one that is."


def test_an_unknown_hyperparameter_is_refused() -> None:
    with pytest.raises(TypeError, match="temperatur"):
        LOSSES["pnp"](num_classes=C, embedding_dim=D, temperatur=0.1)


@pytest.mark.parametrize("name", LOSSES)
def test_labels_of_any_whole_type(name: str) -> None:
    embeddings_BD, labels_B = torch.randn(10, D), torch.arange(10) % 4
    loss = built(name)
    torch.testing.assert_close(loss(embeddings_BD, labels_B.to(torch.int32)), loss(embeddings_BD, labels_B))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_saved_and_loaded_whole(name: str) -> None:
    first, second = built(name), LOSSES[name](num_classes=C, embedding_dim=D)
    second.load_state_dict(first.state_dict())
    for before, after in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(before, after)
