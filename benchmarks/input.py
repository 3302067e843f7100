"""Input rate at 224 pixels, in images per second: torchvision's PIL transforms against the image store.

    python -m benchmarks.input [FOLDER]

FOLDER holds one sub-folder of photographs per class; without it, photographs are drawn (multi-scale noise, saved as
JPEG). Both variants run on one core, like a DataLoader worker: files are decoded, transformed one by one and collated;
or batches are cropped from the store, whose creation is timed separately. If there is a GPU, ResNet-50 is trained on
batches from the store, and on random tensors that are already on the device.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from benchmarks.timing import best_device, machine, medians
from trainables.data import DATASETS, Frame
from trainables.data.loading import load
from trainables.data.store.store_spec import StoreSpec
from trainables.data.store.view import StoreView, on_device
from trainables.losses import LOSSES
from trainables.models import ModelConfig
from trainables.models.embedding import EmbeddingModel

SIDE = 224
BATCH = 64
IMAGES = 512
CPU = torch.device("cpu")
CROP = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
THEIRS: dict[str, v2.Transform] = {
    "none": v2.Compose([v2.Resize(256), v2.CenterCrop(SIDE), *CROP]),
    "crop_flip": v2.Compose([v2.Resize(256), v2.RandomCrop(SIDE), v2.RandomHorizontalFlip(), *CROP]),
    "resized_crop_flip": v2.Compose([v2.RandomResizedCrop(SIDE), v2.RandomHorizontalFlip(), *CROP]),
}
GOALS = {"none": "4.0×", "crop_flip": "", "resized_crop_flip": "1.5×"}


def draw_photographs(root: Path, count: int = IMAGES) -> None:
    """Write images of multi-scale noise, which JPEG compresses about as well as photographs."""
    random = np.random.default_rng(0)
    for number in range(count):
        height, width = random.choice([(348, 348), (375, 500), (500, 375), (480, 640)])
        coarse = [random.integers(0, 256, (2**k, 2**k, 3), dtype=np.uint8) for k in range(2, 8)]
        layers = [np.asarray(Image.fromarray(layer).resize((width, height))) for layer in coarse]
        image = np.mean(layers, axis=0).astype(np.uint8)
        path = root / f"class-{number % 8}" / f"{number:04}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(path, quality=90)


def through_pil(root: Path, transform: v2.Transform) -> Callable[[], Tensor]:
    """Return a function that loads the next batch of a DataLoader in this process."""
    images = ImageFolder(str(root), transform)
    subset = torch.utils.data.Subset(images, torch.randperm(len(images))[:IMAGES].tolist())
    loader = DataLoader(subset, batch_size=BATCH, shuffle=True, drop_last=True)
    batches = iter(())

    def step() -> Tensor:
        nonlocal batches
        for images, _ in batches:
            return images
        batches = iter(loader)
        return next(batches)[0]

    return step


def from_store(view: StoreView, augmentation: str, device: torch.device = CPU) -> Callable[[], Tensor]:
    """Return a function that loads the next batch from the store."""
    generator = torch.Generator().manual_seed(0)
    count = min(len(view), IMAGES)

    def step() -> Tensor:
        indices = torch.randint(count, (BATCH,), generator=generator)
        return load(view, indices, augmentation, Frame(side=SIDE, short_side=256), device=device, generator=generator)

    return step


def training_step(batch: Callable[[], Tensor], device: torch.device) -> Callable[[], None]:
    """Return a function that takes a step of ResNet-50 with Proxy Anchor, as train.py does."""
    model = EmbeddingModel(ModelConfig(backbone="resnet50", embedding_dim=512)).to(device)
    model = model.to(memory_format=torch.channels_last)
    loss = LOSSES["proxy_anchor"](num_classes=100, embedding_dim=512).to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *loss.parameters()])
    labels = torch.arange(BATCH, device=device) % 20

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            embeddings = model(batch())
        optimizer.zero_grad(set_to_none=True)
        loss(embeddings, labels).backward()
        optimizer.step()

    return step


def compare_on_gpu(console: Console, views: dict[str, StoreView], device: torch.device) -> None:
    """Compare training throughput to the same step on random tensors."""
    still = torch.rand(BATCH, 3, SIDE, SIDE, device=device)
    table = Table(title=f"ResNet-50 training at {SIDE} px, batch {BATCH}; {machine(device)}", title_justify="left")
    for column in ("images", "images/s", "of random tensors"):
        table.add_column(column, justify="right" if column != "images" else "left")
    sources = {"random tensors": lambda: still}
    for name, view in views.items():
        resident = on_device(view.store, device).subset(view.class_names)
        sources[f"{name}, on the GPU"] = from_store(resident, name, device)
        sources[f"{name}, in main memory"] = from_store(view, name, device)
    steps = [training_step(source, device) for source in sources.values()]
    seconds = medians(steps, device=device, seconds=60, repeats=20)
    for name, spent in zip(sources, seconds, strict=True):
        table.add_row(name, f"{BATCH / spent:.0f}", f"{seconds[0] / spent:.2f}")
    console.print(table)


def main() -> None:
    console = Console(width=110)
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # also for the threads that decode
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch, "images")
        if len(sys.argv) < 2:
            root.mkdir()
            draw_photographs(root)
        dataset = DATASETS["folder"](root=root)  # type: ignore[call-arg]
        classes = tuple(dataset.classes())
        stores = {}
        for short_side in (256, 512):
            start = time.perf_counter()
            cache = str(Path(scratch, "cache"))
            store = StoreSpec(dataset=dataset, class_names=classes, short_side=short_side, cache=cache).open()
            spent = time.perf_counter() - start
            console.print(f"making the store at {short_side} px, once: {len(store) / spent:.0f} images/s")
            stores[short_side] = store.subset(classes)
        views = {name: stores[512 if name == "resized_crop_flip" else 256] for name in THEIRS}
        table = Table(title=f"Images a second on one core at {SIDE} px, batch {BATCH}", title_justify="left")
        for column in ("augmentation", "PIL in a DataLoader", "store", "ratio", "goal"):
            table.add_column(column, justify="left" if column == "augmentation" else "right")
        for name, transform in THEIRS.items():
            steps = [through_pil(root, transform), from_store(views[name], name)]
            theirs, ours = medians(steps, device=CPU, seconds=15, repeats=8)
            table.add_row(name, f"{BATCH / theirs:.0f}", f"{BATCH / ours:.0f}", f"{theirs / ours:.2f}×", GOALS[name])
        console.print(table)
        device = best_device()
        if device.type == "cuda":
            compare_on_gpu(console, views, device)


if __name__ == "__main__":
    main()
