"""Images per second of a training step with resident tensors, with Holdout's store, and with a torchvision DataLoader.

The target is 0.95 of the rate on tensors that are already on the device.
"""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from benchmarks.gpu.busy import busy_share
from benchmarks.gpu.sizes import Sizes
from benchmarks.gpu.steps import Batch, still_batch, take_steps, training_of
from benchmarks.input import draw_photographs
from benchmarks.timing import machine, medians
from trainables.data import DATASETS
from trainables.data.loading import prefetched
from trainables.data.store.spec import StoreSpec
from trainables.training.train import Training


def _from_store(training: Training, sizes: Sizes, device: torch.device, *, ahead: bool) -> Iterator[Batch]:
    """Yield batches as in an epoch; without ``ahead`` each is loaded on demand."""
    generator = torch.Generator().manual_seed(0)
    indices = (torch.randint(len(training.labels_N), (sizes.batch,), generator=generator) for _ in itertools.count())

    def make(indices_B: torch.Tensor) -> Batch:
        return training.load_batch(indices_B, generator)

    yield from prefetched(indices, make, device) if ahead else map(make, indices)  # type: ignore[misc]


def _from_loader(root: Path, sizes: Sizes, device: torch.device) -> Iterator[Batch]:
    """Yield batches of JPEG files, decoded and cropped by worker processes, through pinned memory."""
    ways = [v2.Resize(sizes.short_side), v2.RandomCrop(sizes.side), v2.RandomHorizontalFlip()]
    images = ImageFolder(str(root), v2.Compose([*ways, v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]))
    loader = DataLoader(
        images, batch_size=sizes.batch, shuffle=True, drop_last=True, num_workers=sizes.workers,
        pin_memory=device.type == "cuda", persistent_workers=True,
    )  # fmt: skip
    for _ in itertools.count():
        for pixels, labels in loader:
            yield pixels.to(device, non_blocking=True), labels.to(device, non_blocking=True)


def feeding(console: Console, sizes: Sizes, device: torch.device) -> None:
    """Print one row per source: images per second, relative to resident tensors, and the busy fraction."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "images")
        root.mkdir()
        draw_photographs(root, sizes.photographs)
        dataset = DATASETS["folder"](root=root)  # type: ignore[call-arg]
        images = StoreSpec(
            dataset=dataset,
            class_names=tuple(dataset.classes()),
            short_side=sizes.short_side,
            cache=str(Path(scratch, "cache")),
        )
        training = partial(training_of, sizes.networks[0], images, sizes, device=device, precision="bfloat16")
        resident, main_memory = training(str(Path(scratch, "resident"))), training(str(Path(scratch, "memory")))
        main_memory.train_view = images.open().subset(images.class_names)
        sources: dict[str, tuple[Training, Iterator[Batch]]] = {
            "tensors on the device": (resident, itertools.repeat(still_batch(sizes, device))),
            "store on the device": (resident, _from_store(resident, sizes, device, ahead=True)),
            "store in main memory": (main_memory, _from_store(main_memory, sizes, device, ahead=True)),
            "store on the device, no thread": (resident, _from_store(resident, sizes, device, ahead=False)),
            "store in main memory, no thread": (main_memory, _from_store(main_memory, sizes, device, ahead=False)),
            f"DataLoader, {sizes.workers} workers": (resident, _from_loader(root, sizes, device)),
        }
        runs: list[Callable[[], None]] = [partial(take_steps, *source, sizes.steps) for source in sources.values()]
        seconds = medians(runs, device=device, seconds=len(runs) * sizes.seconds, repeats=3)
        table = Table(title=f"{sizes.networks[0]}, bfloat16, batch {sizes.batch} at {sizes.side} px; {machine(device)}")
        for column in ("images", "images/s", "of tensors on the device", "GPU busy"):
            table.add_column(column, justify="left" if column == "images" else "right")
        for name, run, took in zip(sources, runs, seconds, strict=True):
            share = busy_share(run, device)
            table.add_row(
                name,
                f"{sizes.steps * sizes.batch / took:.0f}",
                f"{seconds[0] / took:.3f}",
                "–" if share is None else f"{share:.0%}",
            )
        console.print(table)
