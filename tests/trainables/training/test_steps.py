"""The choice of how steps are computed, and compiled steps: the values of plain ones, and one compilation a process."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exact_training import assert_same, exact_spec, float64, trained_apart

from search.config.search_config import parse_config
from search.driver.make_plan import make_plan
from trainables.common.errors import InvalidInput
from trainables.data.store.store_spec import StoreSpec
from trainables.losses import LOSSES
from trainables.losses.mining import most_pairs
from trainables.models import ModelConfig
from trainables.training import steps
from trainables.training.spec import TrialSpec
from trainables.training.steps import COMPILING_S, choose, compiled, numbers_as_tensors

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo looks at it

HEAD_MS, LITE0_MS, RESNET50_MS = 2.0, 19.5, 37.2
"""A head on features, EfficientNet-Lite0 with 60 images and ResNet-50 with 128, as measured on an H200."""


@pytest.mark.parametrize(
    ("device", "ms", "left", "changes", "mode"),
    [
        ("cpu", RESNET50_MS, 10**6, {}, "plain"),
        ("cuda", None, 10**6, {}, "plain"),
        ("cuda", HEAD_MS, 900, {}, "graph"),
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


def spec_of(images: StoreSpec, path: Path, compile: str | None = "default", **changes: Any) -> TrialSpec:
    """Return a training whose last batch of an epoch is smaller than the others."""
    training = {"compile": compile, "batch_size": 24, "sampler": "random", "warmup_epochs": 1}
    model = ModelConfig(backbone="examples.tiny_network:TinyNetwork", embedding_dim=8)
    changes = {"loss": "multi_similarity", "hyperparameters": {}} | changes
    return exact_spec(images, path / str(compile), training=training, model=model, **changes)


@float64()
def test_a_process_compiles_once_for_all_its_trials(images: StoreSpec, tmp_path: Path, programs: list[int]) -> None:
    """With batches of two sizes, and a warm-up that freezes the backbone.

    A resumed training has the same bits, although its process meets the batches of epoch 2 first.
    """
    whole = trained_apart(spec_of(images, tmp_path), 2)
    assert_same(whole, trained_apart(spec_of(images, tmp_path, None), 2))
    count = len(programs)
    assert count > 0
    params = {"margin": 0.6, "pos_scale": 1.5, "neg_scale": 30.0, "epsilon": 0.2}
    trained_apart(spec_of(images, tmp_path / "other", hyperparameters=params), 2)
    assert len(programs) == count
    spec = spec_of(images, tmp_path / "resumed")
    trained_apart(spec, 1)
    torch.compiler.reset()
    resumed = trained_apart(spec, 1)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
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
        for loss in (plain, compiled(made, "default", str(tmp_path))):
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


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"name": "birds", "dataset": {"name": "glyphs"}, "losses": ["mpa"], "training": {"compile": "default"}}
    assert make_plan(parse_config(content), tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(InvalidInput, match=r"training\.compile is default, which needs a C\+\+ compiler"):
        make_plan(parse_config(content), tmp_path)
    assert make_plan(parse_config({**content, "training": {"compile": "auto"}}), tmp_path)
