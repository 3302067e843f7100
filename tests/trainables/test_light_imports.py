"""A training loads no library that it does not use; what commands load is in ``cli.test_start``."""

import subprocess
import sys
from pathlib import Path

COMPILER = ("torch._dynamo", "torch._inductor", "sympy")
UNUSED = (*COMPILER, "torchvision", "scipy", "sklearn", "sqlalchemy", "mlflow")
"""Libraries that a training of the built-in network on drawn images, its worker, and its model do not need."""

TRAINING = """
import os, sys, tempfile
import numpy as np
import holdout
from trainables.data import DATASETS
from trainables.data.store.store_spec import StoreSpec
from trainables.models import ModelConfig
from trainables.training.spec import TrialSpec
from trainables.training.training_config import OPTIMIZERS, TrainingConfig
from trainables.training.train import train

glyphs = DATASETS["glyphs"](num_classes=8, images_per_class=5)
names = tuple(glyphs.classes())
for optimizer in OPTIMIZERS:
    with tempfile.TemporaryDirectory() as folder:
        spec = TrialSpec(
            loss="proxy_anchor", hyperparameters={}, model=ModelConfig(embedding_dim=8),
            training=TrainingConfig(epochs=1, batch_size=20, images_per_class=5, image_size=16, optimizer=optimizer),
            images=StoreSpec(dataset=glyphs, class_names=names, short_side=18, cache=folder),
            train_classes=names[:6], validation_classes=names[6:], metrics=("dists_intra",), objective="dists_intra",
            seed=7, directory=os.path.join(folder, "trial"),
        )
        assert len(list(train(spec))) == 1
        model = holdout.load(os.path.join(folder, "trial/attempt-1/best.safetensors"), device="cpu")
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
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["True", ""]
