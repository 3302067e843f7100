"""The choice of how steps are computed, and compiled steps: the values of plain ones, and one compilation a process."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.small_training import small_spec, with_training

from trainables.data.store.store_spec import StoreSpec
from trainables.losses import LOSSES
from trainables.losses.mining import most_pairs
from trainables.models import ModelConfig
from trainables.training import steps
from trainables.training.steps import COMPILING_S, Mode, choose, compiled, numbers_as_tensors
from trainables.training.train import Training

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo looks at it

HEAD_MS, LITE0_MS, RESNET50_MS = 2.0, 19.5, 37.2
"""A head on features, EfficientNet-Lite0 with 60 images and ResNet-50 with 128, as measured on an H200."""


@pytest.mark.parametrize(
    ("device", "ms", "left", "changes", "mode"),
    [
        ("cpu", RESNET50_MS, 10**6, {}, "plain"),
        ("cuda", None, 10**6, {}, "plain"),
        ("cuda", HEAD_MS, 10, {}, "plain"),
        ("cuda", LITE0_MS, 270, {}, "graph"),
        ("cuda", LITE0_MS, 270, {"excluded": {"graph"}}, "plain"),
        ("cuda", LITE0_MS, 10**4, {"excluded": {"graph"}}, "compile"),
        ("cuda", RESNET50_MS, 1000, {}, "plain"),
        ("cuda", RESNET50_MS, 2000, {}, "compile"),
        ("cuda", RESNET50_MS, 100, {"compiling_s": 0.0}, "compile"),
        ("cuda", RESNET50_MS, 10**6, {"excluded": {"graph", "compile"}}, "plain"),
    ],
)
def test_a_way_is_chosen_where_it_repays(
    device: str, ms: float | None, left: int, changes: dict[str, Any], mode: str
) -> None:
    arguments = {"compiling_s": COMPILING_S} | changes
    assert choose(device=device, step_s=None if ms is None else ms / 1000, left=left, **arguments)[0] == mode


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Compile with a backend that needs no compiler, and return the sizes of the programs so far."""
    from torch._dynamo.backends.common import aot_autograd

    made: list[int] = []

    def keep(program: Any, inputs: Any) -> Any:
        from functorch.compile import make_boxed_func

        made.append(len(program.graph.nodes))
        return make_boxed_func(program.forward)

    monkeypatch.setattr(steps, "BACKEND", aot_autograd(fw_compiler=keep))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    torch.compiler.reset()
    yield made
    torch.compiler.reset()


def trained(images: StoreSpec, path: Path, epochs: int, mode: Mode = "compile", **params: float) -> Training:
    """Train four of six classes; the last batch of an epoch is smaller, and a warm-up freezes the backbone."""
    spec = with_training(
        small_spec(images, path / mode, epochs=3),
        head_lr=2e-3, weight_decay=0.0, clip_grad=0.05, batch_size=24, sampler="random", warmup_epochs=1,
    )  # fmt: skip
    spec = replace(
        spec, model=ModelConfig(backbone="examples.tiny_network:TinyNetwork", embedding_dim=8),
        loss="multi_similarity", hyperparameters=params,
        train_classes=images.class_names[:4], validation_classes=images.class_names[4:],
    )  # fmt: skip
    training = Training(spec, torch.device("cpu"))
    training.steps.use(mode)
    for _ in range(epochs):
        training.run_epoch()
    training.wait_for_checkpoints()
    return training


@pytest.fixture
def float64() -> Iterator[None]:
    """Differences are errors and not rounding, along whose gradients Adam takes full steps."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64")
def test_a_process_compiles_once_for_all_its_trials(images: StoreSpec, tmp_path: Path, programs: list[int]) -> None:
    """A resumed training has the same bits, although its process meets the batches of epoch 2 first."""
    whole, plain = (trained(images, tmp_path, 2, mode) for mode in ("compile", "plain"))
    for part in ("model", "loss", "optimizer"):
        states = (getattr(training, part).state_dict() for training in (whole, plain))
        torch.testing.assert_close(*states, rtol=1e-9, atol=1e-9)
    for record, other in zip(whole.records, plain.records, strict=True):
        assert record["used"] == other["used"]
        assert record["loss"] == pytest.approx(other["loss"], rel=1e-9)
    count = len(programs)
    assert count > 0
    assert whole.steps.mode == "compile"
    trained(images, tmp_path / "other", 2, margin=0.6, pos_scale=1.5, neg_scale=30.0, epsilon=0.2)
    assert len(programs) == count
    trained(images, tmp_path / "resumed", 1)
    torch.compiler.reset()
    resumed = trained(images, tmp_path / "resumed", 1)
    torch.testing.assert_close(resumed.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
    assert [record["metrics"] for record in resumed.records] == [record["metrics"] for record in whole.records]


@pytest.mark.slow  # the training above has a loss with numbers and pairs
@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_is_compiled_again_for_other_numbers(name: str, programs: list[int], tmp_path: Path) -> None:
    labels_B = torch.arange(12) // 3
    numbers = {param: value for param, value in LOSSES.rows[name].defaults.items() if isinstance(value, float)}
    for factor in (1.0, 1.01, 1.02):
        torch.manual_seed(0)
        params = {param: value * factor for param, value in numbers.items()}
        plain = LOSSES[name](num_classes=4, embedding_dim=6, **params)
        torch.manual_seed(0)
        made = LOSSES[name](num_classes=4, embedding_dim=6, **params)
        numbers_as_tensors(made, torch.device("cpu"))
        embeddings_BD = torch.randn(12, 6)
        found = []
        for loss in (plain, compiled(made, str(tmp_path))):
            plain.most_pairs = made.most_pairs = most_pairs([labels_B])
            given_BD = embeddings_BD.clone().requires_grad_()
            torch.manual_seed(1)
            value = loss(given_BD, labels_B)
            (gradient_BD,) = torch.autograd.grad(value, given_BD)
            assert gradient_BD.dtype == torch.float32
            found.append((value.detach().float(), gradient_BD))  # a sum of two numbers stays in double
        torch.testing.assert_close(found[1], found[0])
    assert len(programs) == 2, "a forward and a backward program"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "inductor"), "the workers of a node share files"
