"""A training step with a frozen backbone, with LoRA and with fine-tuning: what learns, memory and seconds.

    python -m benchmarks lora FOLDER [BACKBONE]

FOLDER holds one sub-folder of photographs per class. The backbone, by default timm's ``vit_tiny_patch16_224``, has
random weights, which change nothing of these costs. Seconds are the processor's, on one thread, of the median step.
Memory is that of gradients and AdamW's state, and of the tensors that a step keeps for its backward pass. The frozen
backbone computes its features in every step here; ``freeze: backbone`` computes them once.
"""

import statistics
import sys
import tempfile
import time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import machine
from trainables.data.sets.folders import Folder
from trainables.data.store.store_spec import StoreSpec
from trainables.models.config import Lora, ModelConfig
from trainables.training.spec import TrialSpec
from trainables.training.train import Training
from trainables.training.training_config import TrainingConfig

CLASSES, BATCH, STEPS = 8, 16, 3
CPU = torch.device("cpu")
WAYS: dict[str, dict[str, Any]] = {
    "frozen": {"freeze": ("*",)},
    "LoRA, rank 8": {"lora": Lora(rank=8)},
    "LoRA, rank 32": {"lora": Lora(rank=32)},
    "fine-tuned": {},
}


def measured(training: Training) -> tuple[int, int, float]:
    """Return the learned parameters of the network, the bytes kept for the backward pass, and seconds a step."""
    learned = sum(parameter.numel() for parameter in training.model.parameters() if parameter.requires_grad)
    kept: dict[int, int] = {}
    weights = {parameter.untyped_storage().data_ptr() for parameter in training.model.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    generator, seconds = torch.Generator().manual_seed(0), []
    training.set_train_mode(1)
    batches = list(training.sampler.batches(1))
    for number in range(STEPS + 1):
        images, labels_B = training.load_batch(batches[number % len(batches)], generator)
        begin = time.process_time()
        if number:
            training.steps.take(images, labels_B)
            seconds.append(time.process_time() - begin)
        else:
            with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
                training.steps.take(images, labels_B)
    return learned, sum(kept.values()), statistics.median(seconds)


def main(folder: str, backbone: str = "timm:vit_tiny_patch16_224") -> None:
    """Print the table."""
    torch.set_num_threads(1)
    table = Table("backbone", "learned parameters", "gradients and AdamW", "kept for the backward pass", "a step")
    dataset = Folder(root=folder)
    names = tuple(dataset.classes())[:CLASSES]
    with tempfile.TemporaryDirectory() as path:
        for way, settings in WAYS.items():
            spec = TrialSpec(
                loss="proxy_anchor",
                hyperparameters={},
                model=ModelConfig(backbone=backbone, **settings),
                training=TrainingConfig(image_size=224, batch_size=BATCH, images_per_class=2, precision="float32"),
                images=StoreSpec(dataset=dataset, class_names=names, short_side=256, cache=f"{path}/cache"),
                train_classes=names,
                validation_classes=(),
                metrics=("map_at_r",),
                objective="map_at_r",
                seed=0,
                directory=f"{path}/{way}",
            )
            learned, kept, seconds = measured(Training(spec, CPU))
            table.add_row(
                way, f"{learned:,}", f"{12 * learned / 1e6:.1f} MB", f"{kept / 1e6:.0f} MB", f"{seconds:.2f} s"
            )
    console = Console()
    console.print(machine(CPU), f"{backbone}, batches of {BATCH}", sep="\n")
    console.print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
