"""Stacks choose kernels as on a GPU: fake tensors run PyTorch's dispatch for CUDA without computing anything."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from trainables.models import EmbeddingModel, ModelConfig
from trainables.training.stack.networks import SideBySide, Tensors, embeddings, stacked

MEMBERS, BATCH, SIDE, DIMENSIONS = 2, 4, 64, 8


def on_gpu(tensor: Tensor) -> Tensor:
    """Return a fake tensor of the same type and layout; in a fake mode."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")


@pytest.fixture(params=["convnet", "resnet18", "bninception", "googlenet"])
def networks(request: pytest.FixtureRequest) -> list[EmbeddingModel]:
    """Return two networks with channels-last weights, as trainings on a GPU have them."""
    config = ModelConfig(backbone=request.param, embedding_dim=DIMENSIONS)
    return [EmbeddingModel(config).to(memory_format=torch.channels_last) for _ in range(MEMBERS)]


def fake(tensors: Tensors) -> Tensors:
    return {name: on_gpu(tensor) for name, tensor in tensors.items()}


def test_steps_of_a_stack(networks: list[EmbeddingModel]) -> None:
    images = torch.rand(MEMBERS, BATCH, 3, SIDE, SIDE)
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = embeddings(networks[0], fake(stacked(networks, {})), on_gpu(images), "float32")
    assert found.shape == (MEMBERS, BATCH, DIMENSIONS)


def test_validation_of_a_stack(networks: list[EmbeddingModel]) -> None:
    together = SideBySide([network.eval() for network in networks])
    images = torch.rand(BATCH, 3, SIDE, SIDE).to(memory_format=torch.channels_last)
    with FakeTensorMode(allow_non_fake_inputs=True):
        together._tensors = fake(together._tensors)
        found = together(on_gpu(images))
    assert found.shape == (BATCH, MEMBERS, DIMENSIONS)
