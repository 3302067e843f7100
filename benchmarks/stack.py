"""Trainings per hour of one process: in a stack, and one at a time.

    python -m benchmarks.stack [--members 1 2 4 8 16] [--seconds 20]

The built-in network is trained on drawn images of 32 pixels with Multi Proxy Anchor; each member has its own seed,
learning rate and margin. An epoch is as in a search: 21 steps of 120 images, a validation on 640 images and the
checkpoints. Epochs of the two ways alternate, since the machine may be shared; medians are reported. Only torch, numpy,
Pillow and filelock are needed; a GPU is used if there is one.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.timing import best_device, machine, medians
from trainables.data import DATASETS
from trainables.data.store.spec import StoreSpec
from trainables.models import ModelConfig
from trainables.spec import TrialSpec
from trainables.training.config import TrainingConfig
from trainables.training.stack import run_epochs
from trainables.training.train import Training

MANY = 100_000  # epochs, so that none is the last
VALIDATION = 16  # classes
SIDE = 32


def drawn(folder: Path) -> StoreSpec:
    """Return 80 classes of 40 drawn signs, a little larger than their crops."""
    glyphs = DATASETS["glyphs"](num_classes=80, images_per_class=40, size=37)
    return StoreSpec(dataset=glyphs, class_names=tuple(glyphs.classes()), short_side=37, cache=str(folder / "cache"))


def member(images: StoreSpec, folder: Path, number: int) -> TrialSpec:
    """Return the spec of one of the trainings that a search may run at the same time."""
    return TrialSpec(
        loss="mpa",
        hyperparameters={"margin": 0.1 + 0.01 * number},
        model=ModelConfig(),
        training=TrainingConfig(epochs=MANY, batch_size=120, image_size=SIDE, lr=1e-3 / (1 + number)),
        images=images,
        train_classes=images.class_names[VALIDATION:],
        validation_classes=images.class_names[:VALIDATION],
        metrics=("map_at_r",),
        objective="map_at_r",
        seed=number,
        directory=str(folder / f"member-{number}"),
    )


def one_at_a_time(trainings: Sequence[Training]) -> Callable[[], None]:
    def epoch() -> None:
        for training in trainings:
            training.run_epoch()

    return epoch


def together(trainings: Sequence[Training]) -> Callable[[], None]:
    def epoch() -> None:
        for result in run_epochs(trainings):
            if isinstance(result, Exception):
                raise result

    return epoch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each number of members")
    wanted = parser.parse_args()
    device = best_device()
    print(
        f"convnet at {SIDE} px, an epoch with validation and checkpoints; {machine(device)}, torch {torch.__version__}"
    )
    print(f"{'members':>8}{'one at a time':>16}{'in a stack':>14}{'trainings an hour':>20}")
    with tempfile.TemporaryDirectory() as temporary:
        images = drawn(Path(temporary))
        for count in wanted.members:
            ways = [
                [
                    Training(member(images, Path(temporary) / f"{way}-{count}", number), device)
                    for number in range(count)
                ]
                for way in ("alone", "stack")
            ]
            steps = [one_at_a_time(ways[0]), together(ways[1])]
            alone_s, stack_s = medians(steps, device=device, seconds=wanted.seconds)
            for training in (*ways[0], *ways[1]):
                training.wait_for_checkpoints()
            print(f"{count:>8}{alone_s:>14.3f} s{stack_s:>12.3f} s{alone_s / stack_s:>18.2f} ×", flush=True)


if __name__ == "__main__":
    main()
