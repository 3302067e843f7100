"""Batches embedded in chunks have the gradients of whole batches, and need less memory."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.exact_training import CPU, assert_same, exact_spec, trained_apart
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from search.config.search_config import parse_config
from search.plan.make_plan import make_plan
from trainables.data.store.spec import StoreSpec
from trainables.mistakes import Mistakes
from trainables.models import ModelConfig
from trainables.spec import TrialSpec
from trainables.training.chunks import ChunkedNetwork
from trainables.training.train import Training

pytestmark = pytest.mark.usefixtures("exact")

CHUNK = 6  # of batches of 20: the last chunk is smaller


def spec_of(images: StoreSpec, path: Path, chunk: int | None, **changes: Any) -> TrialSpec:
    changes = {"model": ModelConfig(embedding_dim=8, freeze_bn="statistics"), **changes}
    return exact_spec(images, path / str(chunk), training={"gradient_chunk": chunk, "clip_grad": None}, **changes)


def gradients(spec: TrialSpec) -> dict[str, Tensor]:
    """Return the gradients of the first batch, of the network and the loss."""
    training = Training(spec, CPU)
    training.set_train_mode(1)
    (indices_B, *_) = training.sampler.batches(1)
    torch.manual_seed(0)
    training.step(*training.load_batch(indices_B, torch.Generator().manual_seed(0)))
    parameters = [*training.model.named_parameters(), *training.loss.named_parameters()]
    return {name: parameter.grad for name, parameter in parameters if parameter.grad is not None}


@pytest.mark.parametrize("loss", ["mpa", "multi_similarity", "pnp", "triplet"])
def test_gradients_are_those_of_the_whole_batch(images: StoreSpec, tmp_path: Path, loss: str) -> None:
    whole, chunked = (
        gradients(spec_of(images, tmp_path, chunk, loss=loss, hyperparameters={})) for chunk in (None, CHUNK)
    )
    assert whole.keys() == chunked.keys()
    assert any(gradient.any() for gradient in whole.values())
    for name, gradient in whole.items():
        torch.testing.assert_close(chunked[name], gradient, rtol=1e-9, atol=1e-9 * float(gradient.abs().max()))


def test_whole_trainings_are_the_same(images: StoreSpec, tmp_path: Path) -> None:
    whole, chunked = (trained_apart(spec_of(images, tmp_path, chunk), 2) for chunk in (None, CHUNK))
    assert_same(chunked, whole)


def test_both_passes_draw_the_same_dropout() -> None:
    """Compared with chunks that keep their graph; the state of the random numbers is the same afterwards."""
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(5, 30), nn.Dropout(0.5), nn.Linear(30, 3))
    inputs_BX = torch.randn(20, 5)

    def gradients_of(embed: Any) -> list[Tensor]:
        network.zero_grad()
        torch.manual_seed(2)
        (embed(inputs_BX).logsumexp(0).square().sum() + torch.rand(())).backward()
        return [*(parameter.grad.clone() for parameter in network.parameters()), torch.rand(3)]

    chunked = gradients_of(ChunkedNetwork(network, CHUNK))
    kept = gradients_of(lambda inputs: torch.cat([network(chunk) for chunk in inputs.split(CHUNK)]))
    for ours, theirs in zip(chunked, kept, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


class LiveBytes(TorchDispatchMode):
    """The most bytes that results of operations take at one time."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._live[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self._live = {key: entry for key, entry in self._live.items() if not entry[0].expired()}
        self.most = max(self.most, sum(size for _, size in self._live.values()))
        return result


def most_bytes(network: nn.Module, inputs_BX: Tensor) -> int:
    with LiveBytes() as live:
        network(inputs_BX).square().sum().backward()
    return live.most


def test_activations_need_the_memory_of_one_chunk() -> None:
    layers = [layer for _ in range(20) for layer in (nn.Linear(16, 16), nn.Tanh())]
    network, inputs_BX = nn.Sequential(*layers), torch.randn(1000, 16)
    weights = sum(parameter.nbytes for parameter in network.parameters())
    assert most_bytes(network, inputs_BX) > 20 * inputs_BX.nbytes, "activations are kept"
    chunked = most_bytes(ChunkedNetwork(network, 100), inputs_BX)
    assert chunked < 6 * inputs_BX.nbytes + 20 * inputs_BX[:100].nbytes + 2 * weights


def test_batch_statistics_are_refused_before_a_search_begins(images: StoreSpec, tmp_path: Path) -> None:
    sentence = "gradient_chunk is 6, and the network normalises by the statistics of a batch"
    with pytest.raises(Mistakes, match=sentence):
        Training(spec_of(images, tmp_path, CHUNK, model=ModelConfig(embedding_dim=8)), CPU)
    content = {"name": "birds", "dataset": {"name": "glyphs"}, "losses": ["mpa"], "training": {"gradient_chunk": CHUNK}}
    with pytest.raises(Mistakes, match=sentence):
        make_plan(parse_config(content), tmp_path)
    assert make_plan(parse_config({**content, "model": {"freeze_bn": True}}), tmp_path)
    with pytest.raises(Mistakes, match="gradient_chunk must be at least 1 image, or null for whole batches; it is 0"):
        parse_config({**content, "training": {"gradient_chunk": 0}})
