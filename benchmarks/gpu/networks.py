"""Each paper's network in a training step: precisions, memory formats, kernels, ``torch.compile`` and CUDA graphs."""

import itertools
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.gpu.sizes import Sizes
from benchmarks.gpu.steps import still_batch, take_steps, training_of
from benchmarks.timing import machine, medians, peak_bytes
from trainables.data import DATASETS
from trainables.data.store.spec import StoreSpec
from trainables.models import EmbeddingModel
from trainables.training.train import Training


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Settings of a training, and changes that no setting makes: of its network, its optimizer steps and its kernels.

    With ``tried`` cuDNN times its kernels for each shape and takes the fastest (``cudnn.benchmark``).
    """

    precision: str = "bfloat16"
    compile: str | None = None
    change: Callable[[EmbeddingModel, Tensor], torch.nn.Module] | None = None
    fused: bool = False
    tried: bool = False


def _graphed(model: EmbeddingModel, images: Tensor) -> torch.nn.Module:
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
        graphed: torch.nn.Module = torch.cuda.make_graphed_callables(model, (images,))
    return graphed


ANYWHERE = {
    "as it is: bfloat16, channels last": Variant(),
    "float32": Variant(precision="float32"),
    "fused optimizer steps": Variant(fused=True),
    "channels first": Variant(change=lambda model, images: model.to(memory_format=torch.contiguous_format)),
}
ON_GPU = {
    "cudnn.benchmark": Variant(tried=True),
    "training.compile: default": Variant(compile="default"),
    "training.compile: reduce-overhead": Variant(compile="reduce-overhead"),
    "CUDA graphs without compiling": Variant(change=_graphed),
}
"""Variants that take minutes on a CPU or are not available there."""


def networks(console: Console, sizes: Sizes, device: torch.device) -> None:
    """Print one table per network, one row per variant: images per second, speed-up, and memory of a step."""
    ways = ANYWHERE | (ON_GPU if device.type == "cuda" else {})
    with tempfile.TemporaryDirectory() as scratch:
        dataset = DATASETS["glyphs"](num_classes=8, images_per_class=sizes.batch)  # type: ignore[call-arg]
        images = StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=32, cache=scratch)
        for network in sizes.networks:
            table = Table(title=f"{network}, batch {sizes.batch} at {sizes.side} px; {machine(device)}")
            for column in ("step", "images/s", "of the first row", "GB at the peak"):
                table.add_column(column, justify="left" if column == "step" else "right")
            first: float | None = None
            for number, (name, variant) in enumerate(ways.items()):
                directory = str(Path(scratch, network.replace(":", "-"), str(number)))
                training = training_of(
                    network, images, sizes, directory, device, precision=variant.precision, compile=variant.compile
                )
                try:
                    took, peak = _measured(training, variant, sizes, device)
                except Exception as error:  # an error of a compiler or a capture is the result of its row
                    table.add_row(name, f"{type(error).__name__}: {str(error).splitlines()[0]:.60}", "", "")
                    continue
                first = first or took
                speed = f"{sizes.batch * sizes.steps / took:.0f}"
                table.add_row(name, speed, f"{first / took:.2f}", f"{peak / 1e9:.2f}")
            console.print(table)


def _measured(training: Training, variant: Variant, sizes: Sizes, device: torch.device) -> tuple[float, int]:
    """Return the seconds of some steps, and the bytes that they allocate beyond the weights."""
    batch = still_batch(sizes, device)
    if variant.change is not None:
        training.learning_network = variant.change(training.model, batch[0])
    for group in training.optimizer.param_groups if variant.fused else ():
        group["fused"] = True
    run = partial(take_steps, training, itertools.repeat(batch), sizes.steps)
    with torch.backends.cudnn.flags(enabled=True, benchmark=True) if variant.tried else nullcontext():
        (took,) = medians([run], device=device, seconds=sizes.seconds, repeats=3)
        return took, peak_bytes(run, device=device)
