"""Images per second from photographs to embeddings at 224 pixels: PyTorch with torchvision's transforms, and ours.

    python -m benchmarks.embed [FOLDER]

FOLDER holds photographs, at any depth; without it, synthetic ones are drawn. They are saved as JPEG with long sides of
at least 500 pixels. All variants run the same network on the same batches and differ only in the input: the plain loop
decodes (Pillow), transforms and collates in the main process; the DataLoader does so in one worker per core, started
beforehand. "Decoded once" means whole images in memory; for ours also those of an image store, scaled down once.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from benchmarks.input import draw_photographs
from benchmarks.timing import machine, medians
from trainables.data import DATASETS, Frame
from trainables.data.images import read_image
from trainables.data.sets.folders import images_below
from trainables.data.store.store_spec import StoreSpec
from trainables.inference.embedder import Embedder
from trainables.inference.model_files import EmbedderSpec
from trainables.models import ModelConfig
from trainables.models.backbones import IMAGENET_MEAN, IMAGENET_SCALE
from trainables.models.embedding import EmbeddingModel

SIDE, SHORT_SIDE, LONG_SIDE = 224, 256, 500
BATCH = 32
IMAGES = 128
CPU = torch.device("cpu")
NETWORKS = {"none, pixels are averaged": "benchmarks.embed:Nothing", "convnet": "convnet", "resnet18": "resnet18"}
THEIRS = transforms.Compose(
    [
        transforms.Resize(SHORT_SIDE),
        transforms.CenterCrop(SIDE),
        transforms.ToTensor(),
        transforms.Normalize(IMAGENET_MEAN, IMAGENET_SCALE),
    ]
)
COLUMNS = ("network", "images", "plain loop", "DataLoader", "ours", "of the loop", "of the DataLoader", "goal")
Photograph = Path | np.ndarray


class Nothing(nn.Identity):
    """An identity instead of a network."""

    features = 3


class Photographs(Dataset[Tensor]):
    """A data set of photographs with torchvision's transforms."""

    def __init__(self, photographs: Sequence[Photograph]) -> None:
        self._photographs = photographs

    def __len__(self) -> int:
        return len(self._photographs)

    def __getitem__(self, index: int) -> Tensor:
        photograph = self._photographs[index]
        if isinstance(photograph, np.ndarray):
            return THEIRS(Image.fromarray(photograph))
        with Image.open(photograph) as image:
            return THEIRS(image.convert("RGB"))


def saved_photographs(folder: Path | None, scratch: Path) -> list[Path]:
    """Write JPEG files of the size of photographs, and return their paths."""
    if folder is None:
        draw_photographs(scratch)
        paths = sorted(scratch.rglob("*.jpg"))
        for path in paths[IMAGES:]:
            path.unlink()
        return paths[:IMAGES]
    paths = []
    (scratch / "photographs").mkdir()
    for number, key in enumerate(islice(images_below(folder, folder), IMAGES)):
        image = Image.fromarray(read_image(folder / key))
        scale = max(1.0, LONG_SIDE / max(image.size))
        paths.append(scratch / "photographs" / f"{number:04}.jpg")
        image.resize((round(image.width * scale), round(image.height * scale))).save(paths[-1], quality=90)
    return paths


def embedder_of(backbone: str) -> Embedder:
    model = ModelConfig(backbone=backbone, embedding_dim=128)
    frame = Frame(side=SIDE, short_side=SHORT_SIDE)
    spec = EmbedderSpec(model=model, decoded_side=SHORT_SIDE, frame=frame, batch_size=BATCH, origin={})
    return Embedder(EmbeddingModel(model), spec, "", CPU)


def plain_loop(network: nn.Module, photographs: Sequence[Photograph]) -> Callable[[], Tensor]:
    images = Photographs(photographs)

    @torch.inference_mode()
    def step() -> Tensor:
        batches = torch.arange(len(images)).split(BATCH)
        return torch.cat([normalize(network(torch.stack([images[at] for at in batch]))) for batch in batches])

    return step


def with_workers(network: nn.Module, photographs: Sequence[Photograph]) -> Callable[[], Tensor]:
    workers = os.cpu_count() or 1
    loader = DataLoader(Photographs(photographs), batch_size=BATCH, num_workers=workers, persistent_workers=True)

    @torch.inference_mode()
    def step() -> Tensor:
        return torch.cat([normalize(network(batch)) for batch in loader])

    return step


def theirs(network: nn.Module, photographs: Sequence[Photograph]) -> list[Callable[[], object]]:
    return [plain_loop(network, photographs), with_workers(network, photographs)]


def main() -> None:
    console = Console(width=120)
    with tempfile.TemporaryDirectory() as scratch:
        paths = saved_photographs(Path(sys.argv[1]) if len(sys.argv) > 1 else None, Path(scratch))
        arrays = [read_image(path) for path in paths]
        dataset = DATASETS["folder"](root=Path(scratch))  # type: ignore[call-arg]
        classes = tuple(dataset.classes())
        cache = str(Path(scratch, ".cache"))
        store = StoreSpec(dataset=dataset, class_names=classes, short_side=SHORT_SIDE, cache=cache).open()
        table = Table(title=f"Images a second at {SIDE} px, batch {BATCH}; {machine(CPU)}", title_justify="left")
        for column in COLUMNS:
            table.add_column(column, justify="left" if column in COLUMNS[:2] else "right")
        for name, backbone in NETWORKS.items():
            embedder = embedder_of(backbone)
            network = nn.Sequential(embedder.network.backbone, embedder.network.pooling, embedder.network.head)
            for images, sides in {
                "JPEG files": [*theirs(network, paths), partial(embedder.embed, paths)],
                "decoded once": [*theirs(network, arrays), partial(embedder.embed, arrays)],
                "decoded once, store": [
                    *theirs(network, arrays),
                    partial(embedder.embed_decoded, store.subset(classes)),
                ],
            }.items():
                loop, loader, ours = medians(sides, device=CPU, seconds=20, repeats=7)
                ratios = [f"{theirs / ours:.2f}×" for theirs in (loop, loader)]
                speeds = [f"{len(paths) / seconds:.0f}" for seconds in (loop, loader, ours)]
                table.add_row(name, images, *speeds, *ratios, "1×" if images == "JPEG files" else "2×")
        console.print(table)


if __name__ == "__main__":
    main()
