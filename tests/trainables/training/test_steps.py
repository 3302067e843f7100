"""The choice of how steps are computed, and compiled steps: the values of plain ones, and one compilation a process."""

import copy
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.small_training import small_spec, with_training
from torch import nn
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LinearLR, LRScheduler, MultiStepLR

from trainables.data.store.store_spec import StoreSpec
from trainables.losses import LOSSES
from trainables.losses.mining import most_pairs
from trainables.models import ModelConfig
from trainables.training import steps
from trainables.training.steps import COMPILING_S, Mode, choose, compiled, numbers_as_tensors
from trainables.training.train import Training
from trainables.training.training_config import OPTIMIZERS, Schedule

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


# Learning rates and optimizers equal torch's step by step.


CPU = torch.device("cpu")
EPOCHS, STEPS = 6, 5
LR = 3e-3


def rates(schedule: Schedule, epochs: int = EPOCHS) -> list[float]:
    return [
        schedule.rate(LR, epoch=epoch, step=step, steps=STEPS, epochs=epochs)
        for epoch in range(1, EPOCHS + 1)
        for step in range(STEPS)
    ]


def theirs(make: Any) -> list[float]:
    """Return the rates of torch's scheduler ``make(optimizer)``, stepped after every step."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    scheduler: LRScheduler = make(optimizer)
    found = []
    for _ in range(EPOCHS * STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


ALL = EPOCHS * STEPS
PAIRS: dict[str, tuple[Schedule, Any]] = {
    "constant": (Schedule(), lambda o: ConstantLR(o, factor=1.0)),
    "steps": (Schedule(step=2, gamma=0.3), lambda o: MultiStepLR(o, [2 * STEPS, 4 * STEPS], 0.3)),
    "milestones": (Schedule(milestones=(1, 5), gamma=0.3), lambda o: MultiStepLR(o, [STEPS, 5 * STEPS], 0.3)),
    "cosine": (Schedule(decay="cosine"), lambda o: CosineAnnealingLR(o, ALL)),
    "linear": (Schedule(decay="linear"), lambda o: LinearLR(o, 1.0, 0.0, total_iters=ALL)),
}


@pytest.mark.parametrize(("schedule", "make"), PAIRS.values(), ids=PAIRS)
def test_rates_are_torch_s(schedule: Schedule, make: Any) -> None:
    expected = theirs(make)
    assert rates(schedule) == (pytest.approx(expected, rel=1e-9, abs=1e-15) if schedule.decay else expected)


# A training takes these rates.


@pytest.mark.parametrize("schedule_epochs", [None, 3])
def test_every_step_has_its_rate_after_a_resumption_too(
    schedule_epochs: int | None, images: StoreSpec, tmp_path: Path
) -> None:
    """Final trainings on all classes end after the best epoch, with the first rates of a longer one."""
    spec = small_spec(images, tmp_path, epochs=2, schedule_epochs=schedule_epochs)
    spec = with_training(spec, batch_size=10, schedule=Schedule(decay="cosine"))
    found: list[list[float]] = []
    for _ in range(2):
        training = Training(spec, CPU)
        groups = training.optimizer.param_groups
        training.loss.register_forward_pre_hook(lambda *_, of=groups: found.append([group["lr"] for group in of]))
        record = training.run_epoch()
        training.wait_for_checkpoints()
    assert len(found) == 2 * record["batches"] > 4
    for number, base in enumerate(training._base_rates):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base)
        scheduler = CosineAnnealingLR(optimizer, (schedule_epochs or 2) * record["batches"])
        for rates_of_step in found:
            assert rates_of_step[number] == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
            optimizer.step()
            scheduler.step()


# Optimizers, which omit torch's wrappers.

THEIRS: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def weights_by(optimizer: type[torch.optim.Optimizer]) -> list[torch.Tensor]:
    """Return the weights after every step; the optimizer's state is saved and loaded half-way."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": 0.01}]
    ours = optimizer(groups, weight_decay=0.2)  # type: ignore[call-arg]
    schedule = MultiStepLR(ours, [2, 5], 0.5)
    weights = []
    for step in range(8):
        if step == 4:
            state = copy.deepcopy(ours.state_dict())
            ours.load_state_dict(state)
        ours.zero_grad(set_to_none=True)
        model(torch.randn(6, 5)).square().mean().backward()
        ours.step()
        schedule.step()
        weights += [parameter.detach().clone() for parameter in model.parameters()]
    assert all(parameter.requires_grad for parameter in model.parameters())
    return weights


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_step_is_torch_s(name: str) -> None:
    assert issubclass(OPTIMIZERS[name], THEIRS[name])
    pairs = zip(weights_by(OPTIMIZERS[name]), weights_by(THEIRS[name]), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
