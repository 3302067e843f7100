"""A training loads no library that it does not use; what commands load is in ``cli.test_start``."""

import subprocess
import sys
from pathlib import Path

COMPILER = ("torch._dynamo", "torch._inductor", "sympy")
UNUSED = (*COMPILER, "torchvision", "scipy", "sklearn", "sqlalchemy", "mlflow")
"""Libraries that a training of the built-in network on drawn images, its worker, and its model do not need."""

TRAINING = """
import sys, tempfile
from dataclasses import replace
from pathlib import Path
import numpy as np
import holdout
from support.small_training import drawn_images, small_spec, with_training
from trainables.training.training_config import OPTIMIZERS
from trainables.training.train import train

for optimizer in OPTIMIZERS:
    with tempfile.TemporaryDirectory() as folder:
        images = drawn_images(Path(folder))
        spec = with_training(small_spec(images, Path(folder), epochs=1), optimizer=optimizer)
        halves = {"train_classes": images.class_names[:4], "validation_classes": images.class_names[4:]}
        assert len(list(train(replace(spec, **halves, metrics=("dists_intra",), objective="dists_intra")))) == 1
        model = holdout.load(Path(spec.directory, "attempt-1/best.safetensors"), device="cpu")
        model.embed([np.zeros((20, 20, 3), np.uint8)])
early = [name for name in ("faiss", "pandas", "ray") if name in sys.modules]
import search.engines.ray_tune
from trainables.metrics.evaluation import evaluate
import torch
evaluate(torch.randn(300, 4), torch.arange(300) % 30, ["map_at_r"])
print(*early, "faiss" in sys.modules)
"""


def test_a_training_loads_what_it_uses() -> None:
    """Neither torch's compiler nor the driver's libraries, and faiss for a neighbour search only."""
    program = f"{TRAINING}print(*(name for name in {UNUSED} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["True", ""]
