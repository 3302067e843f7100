"""A stack on a GPU equals separate trainings, and is split into halves if memory is short."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.stacks import alone, member, records_of

from trainables.data import DATASETS
from trainables.data.store.spec import StoreSpec
from trainables.losses import LOSSES
from trainables.training.stack import run_epochs
from trainables.training.train import Training

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that torch can use")
CUDA = torch.device("cuda")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    glyphs = DATASETS["glyphs"](num_classes=6, images_per_class=10, size=18)
    cache = tmp_path_factory.mktemp("cache")
    return StoreSpec(dataset=glyphs, class_names=tuple(glyphs.classes()), short_side=18, cache=str(cache))


@pytest.fixture
def no_tf32() -> Iterator[None]:
    before = torch.backends.cudnn.conv.fp32_precision
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    yield
    torch.backends.cudnn.conv.fp32_precision = before


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_every_loss_comes_to_what_it_comes_to_alone(
    images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture, no_tf32: None, loss: str, precision: str
) -> None:
    """After two epochs; a GPU sums in another order in a stack, and Adam amplifies the rounding.

    TF32, which PyTorch allows for convolutions, has ten bits and bfloat16 has seven: only float32 is compared closely.
    """
    specs = [
        member(images, tmp_path, number, loss=loss, hyperparameters={}, training={"precision": precision})
        for number in range(3)
    ]
    trainings = [Training(spec, CUDA) for spec in specs]
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            records = records_of(run_epochs(trainings))
    assert not caplog.records, "they were not one stack"
    for spec, record in zip(specs, records):
        reference = alone(spec, 2, CUDA).records[-1]
        assert record["loss"] == pytest.approx(reference["loss"], rel=0.01 if precision == "float32" else 0.3, abs=1e-2)
        assert record["batches"] == reference["batches"]


def test_a_stack_for_which_there_is_not_enough_memory_goes_on_in_halves(
    images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There is memory for one member but not for all four."""
    specs = [member(images, tmp_path, number, training={"image_size": 256, "batch_size": 20}) for number in range(4)]
    trainings = [Training(spec, CUDA) for spec in specs]
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    alone(specs[0], 1, CUDA)
    room = 1.5 * torch.cuda.max_memory_reserved() / torch.cuda.get_device_properties(CUDA).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(room)
    try:
        with caplog.at_level(logging.WARNING):
            records = records_of(run_epochs(trainings))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "OutOfMemoryError" in caplog.messages[0]
    assert len(records) == 4
