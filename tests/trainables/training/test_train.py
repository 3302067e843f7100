"""The training loop learns, resumes exactly, and reports failures."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from support.small_training import drawn_images, run, small_spec, with_training as trained
from torch import nn

from spaces.space import Space
from trainables.common.errors import InvalidInput
from trainables.data.split import noisy_labels
from trainables.data.store.store_spec import StoreSpec
from trainables.inference.model_files import read_tensors
from trainables.losses import LOSSES
from trainables.losses.loss import Loss
from trainables.metrics.evaluation import evaluate
from trainables.training.checkpoints import parsed_state
from trainables.training.epoch_training import Diverged
from trainables.training.spec import Failed, TrialSpec, derived_seed
from trainables.training.train import ImageCounts, Training, failure_of, measured_costs, train
from trainables.training.training_config import Schedule

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    return drawn_images(tmp_path_factory.mktemp("train"), classes=8)


@pytest.fixture
def spec(images: StoreSpec, tmp_path: Path) -> TrialSpec:
    names, metrics = images.class_names, ("recall_at_1", "map_at_r")
    spec = small_spec(images, tmp_path, epochs=4)
    return replace(spec, train_classes=names[:6], validation_classes=names[6:], metrics=metrics)


def best_epoch(spec: TrialSpec) -> Any:
    return read_tensors(Path(spec.directory) / "attempt-1" / "best.safetensors")[1]["origin"]["epoch"]


def test_it_learns_and_keeps_its_first_best_epoch(spec: TrialSpec) -> None:
    records = list(train(spec))
    assert [record["epoch"] for record in records] == [1, 2, 3, 4]
    assert records[-1]["loss"] < records[0]["loss"]
    assert all(set(record["metrics"]) == {"recall_at_1", "map_at_r"} for record in records)
    assert all(record["start"] <= record["end"] for record in records)
    values = [record["metrics"]["map_at_r"] for record in records]
    assert best_epoch(spec) == values.index(max(values)) + 1


def test_a_resumed_training_is_the_same_training(spec: TrialSpec, tmp_path: Path) -> None:
    """Weights, values and learning rates are the same after an interruption, and others with another seed."""
    spec = trained(spec, epochs=2, schedule=Schedule(step=1, gamma=0.5))
    spec = replace(spec, loss="margin", hyperparameters={})
    whole, first = run(replace(spec, directory=str(tmp_path / "whole"))), run(spec, 1)
    second = run(spec)
    assert second.records[:1] == first.records
    timed = dict.fromkeys(("start", "end", "checkpoint"))
    assert [{**record, **timed} for record in second.records] == [{**record, **timed} for record in whole.records]
    states = [
        parsed_state((tmp_path / path / "last.pt").read_bytes()) for path in ("whole/attempt-1", "trial/attempt-2")
    ]
    for part in ("model", "loss"):
        for name, value in states[0][part].items():
            assert torch.equal(value, states[1][part][name]), name
    rates = [[group["lr"] for group in state["optimizer"]["param_groups"]] for state in states]
    assert rates[0] == rates[1]
    other = run(replace(spec, seed=8, directory=str(tmp_path / "other")), 1)
    assert other.records[0]["loss"] != whole.records[0]["loss"]


@pytest.mark.parametrize(
    ("loss", "hyperparameters", "unit"),
    [
        ("triplet", {"mining": "uniform"}, "triplets"),
        ("topk_precision", {"k": 3}, "triplets"),
        ("mpa", {}, None),
    ],
)
def test_an_epoch_holds_what_its_batches_used(
    spec: TrialSpec, loss: str, hyperparameters: dict[str, Any], unit: str | None
) -> None:
    """The record holds the sums over the epoch's batches, also after resuming."""
    spec = replace(spec, loss=loss, hyperparameters=hyperparameters)
    told: list[list[int]] = []
    for _ in range(2):
        training = Training(spec, CPU)
        counts: list[int] = []
        training.loss.register_forward_hook(
            lambda module, batch, value, counts=counts: counts.append(int(module.used.count) if module.used else 0)
        )
        training.run_epoch()
        training.wait_for_checkpoints()
        told.append(counts)
    for record, counts in zip(training.records, told, strict=True):
        assert record["batches"] == len(counts) == 3  # 60 images, 20 per batch
        assert record.get("used") == (None if unit is None else {unit: sum(counts)})
        if loss == "triplet":  # 4 classes of 5 images: each has 4 positives
            assert sum(counts) == 3 * 20 * 4


def test_a_damaged_checkpoint_is_passed_over(spec: TrialSpec) -> None:
    for _ in range(2):
        run(spec, 1)
    (Path(spec.directory) / "attempt-2" / "last.pt").write_bytes(b"half")
    assert len(Training(spec, CPU).records) == 1


@pytest.mark.parametrize("validates", [True, False])
def test_merged_classes_are_learned_as_one(spec: TrialSpec, validates: bool) -> None:
    """7 classes are merged to groups of 3, 3 and 1, each with proxies; without validation the last epoch is kept."""
    train_classes = spec.images.class_names[: 6 if validates else 7]
    spec = replace(
        trained(spec, epochs=2, batch_size=10),
        merge=3,
        train_classes=train_classes,
        validation_classes=spec.images.class_names[6:] if validates else (),
    )
    training = run(spec)
    groups = 2 if validates else 3
    assert training.loss.proxies.shape == (groups, 2, 8)
    assert training.labels_N.bincount().tolist() == [30, 30, 10][:groups]
    assert [bool(record["metrics"]) for record in training.records] == [validates] * 2
    assert validates or best_epoch(spec) == 2
    assert replace(spec, merge=2).digest != spec.digest


def test_wrong_labels_are_learned_and_not_scored(spec: TrialSpec) -> None:
    """A third of the labels is wrong: the training of the same images is another one, its validation is not."""
    noisy = replace(trained(spec, epochs=1, batch_size=10), label_noise=1 / 3, noise_seed=2)
    training, clean = Training(noisy, CPU), Training(trained(spec, epochs=1, batch_size=10), CPU)
    expected = noisy_labels(clean.labels_N.tolist(), clean.train_view.image_keys, rate=1 / 3, seed=2)
    assert training.labels_N.tolist() == expected
    assert 0 < (training.labels_N != clean.labels_N).float().mean() < 2 / 3
    assert torch.equal(training._validation.views[0].labels_N, clean._validation.views[0].labels_N)
    assert noisy.digest != replace(noisy, noise_seed=3).digest != spec.digest


def test_a_loss_that_is_not_finite_ends_the_training(spec: TrialSpec) -> None:
    with pytest.raises(Diverged, match=r"not finite|became"):
        list(train(trained(spec, lr=1e30, clip_grad=None)))


@pytest.mark.parametrize(
    ("loss", "batch_size", "images_per_class"),
    [("triplet", 5, 5), ("pnp", 6, 1), ("pytorch_metric_learning.losses:TripletMarginLoss", 6, 1)],
)
def test_batches_without_pairs_have_a_loss_of_zero(
    spec: TrialSpec, loss: str, batch_size: int, images_per_class: int
) -> None:
    """By this a trial's outcome says that nothing was learned."""
    spec = replace(spec, loss=loss, hyperparameters={})
    records = list(train(trained(spec, epochs=1, batch_size=batch_size, images_per_class=images_per_class)))
    assert {record["loss"] for record in records} == {0.0}


def test_warm_up_trains_head_and_proxies_alone(spec: TrialSpec) -> None:
    training = Training(trained(spec, warmup_epochs=1), CPU)
    first = {name: value.clone() for name, value in training.model.named_parameters()}
    proxies = training.loss.proxies.clone()
    for expected in ({"head"}, {"backbone", "head"}):
        training.run_epoch()
        moved = {name for name, value in training.model.named_parameters() if not torch.equal(value, first[name])}
        assert {name.partition(".")[0] for name in moved} == expected
        assert not torch.equal(proxies, training.loss.proxies)


def test_each_part_has_its_learning_rate(spec: TrialSpec) -> None:
    training = Training(trained(spec, lr=1e-3, head_lr=2e-3, proxy_lr=3e-3), CPU)
    assert [group["lr"] for group in training.optimizer.param_groups] == [1e-3, 2e-3, 3e-3]
    default = Training(replace(spec, directory=f"{spec.directory}-default"), CPU)
    assert [group["lr"] for group in default.optimizer.param_groups] == [1e-3, 1e-3, LOSSES.rows["mpa"].proxy_lr]


CUDA = (
    "CUDA error: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (Diverged("x"), "DIVERGED"),
        (MemoryError(), "OUT_OF_MEMORY"),
        (torch.OutOfMemoryError("x"), "OUT_OF_MEMORY"),
        *((kind(said), "OUT_OF_MEMORY") for kind in (RuntimeError, torch.AcceleratorError) for said in CUDA),
        (torch.AcceleratorError("CUDA error: an illegal access"), "CODE_ERROR"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "my_weights.pt"), "CODE_ERROR"),
        (ConnectionError("my server"), "CODE_ERROR"),
        (OSError(errno.ENOSPC, "No space left on device"), "CODE_ERROR"),
    ],
    ids=repr,
)
def test_failures_have_names(error: Exception, cause: str) -> None:
    """Also the errors of files and servers are those of the user's code, where storage did not raise them."""
    assert failure_of(error).cause == cause


def test_a_failure_has_its_reason_and_place() -> None:
    assert failure_of(KeyError("x")) == Failed(cause="CODE_ERROR", reason="KeyError: 'x'")
    with pytest.raises(ValueError, match="invalid literal") as raised:
        exec(compile("\nint('x')", "mine.py", "exec"))
    assert failure_of(raised.value).place == "mine.py, line 2"


def test_derived_seeds_differ_and_fit_every_library() -> None:
    seeds = {derived_seed(0, loss, number) for loss in ("mpa", "pnp") for number in range(1000)}
    assert len(seeds) == 2000
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert derived_seed(1, 23) != derived_seed(12, 3)


# Costs measured on a few steps.


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_an_epoch_is_foreseen(spec: TrialSpec, tmp_path: Path) -> None:
    spec = replace(trained(spec, epochs=1, augment="none"), metrics=("map_at_r", "nmi"))
    (record,) = train(spec)
    part = replace(spec, train_classes=spec.train_classes[:4], validation_classes=(), directory=str(tmp_path / "part"))
    images = ImageCounts(train=(10,) * 6, validation=(10,) * 2)
    (found,) = measured_costs([part], images, threads=1, gpu=False, seconds=0)
    assert found.steps == record["batches"]
    assert found.epoch == found.step * found.steps + found.validation
    assert min(found.step, found.validation) > 0
    assert found.memory > 50_000_000, "PyTorch alone takes more"
    assert found.device_memory is None
    (unvalidated,) = measured_costs([part], replace(images, validation=()), threads=1, gpu=False, seconds=0)
    assert unvalidated.validation == 0


# A loss of the user that teaches nothing, and a metric.


WAYS: dict[str, str] = {
    "number": "must return a scalar tensor",
    "detached": "gives the network no gradient; do not detach embeddings.",
    "forgotten": r"has parameters that would not be learned \(layer.weight, layer.bias\); ",
}


class Odd(Loss):
    space: ClassVar[Space] = {}

    def __init__(self, *, num_classes: int, embedding_dim: int, way: str) -> None:
        super().__init__()
        self.layer, self.way = nn.Linear(embedding_dim, num_classes), way

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        return [] if self.way == "forgotten" else [{"params": self.layer.parameters(), "lr": 0.01}]

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> Any:
        given_BD = embeddings_BD.detach() if self.way == "detached" else embeddings_BD
        return 0.5 if self.way == "number" else nn.functional.cross_entropy(self.layer(given_BD), labels_B)


@pytest.mark.parametrize("way", WAYS)
def test_a_loss_that_teaches_nothing_is_a_sentence(way: str, images: StoreSpec, tmp_path: Path) -> None:
    spec = small_spec(images, tmp_path, epochs=1)
    spec = replace(spec, loss=f"{__name__}:Odd", hyperparameters={"way": way})
    with pytest.raises(InvalidInput, match=f"^The loss {__name__}:Odd {WAYS[way]}"):
        list(train(spec))


def empties(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> float:
    embeddings_ND.zero_()
    return 0.5


def test_a_metric_changes_no_embeddings() -> None:
    embeddings = torch.eye(4)
    assert evaluate(embeddings, torch.arange(4) // 2, [f"{__name__}:empties"]) == {"empties": 0.5}
    assert torch.equal(embeddings, torch.eye(4))
