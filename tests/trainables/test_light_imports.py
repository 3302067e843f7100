"""Names, numbers and rules are read without importing torch or other heavy libraries (seconds, a gigabyte)."""

import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "torchvision", "faiss", "scipy", "sklearn", "ray", "mlflow", "pandas")

LIGHT = (
    "search.driver.campaigns", "search.results.campaign", "search.show.campaigns",
    "search.driver.synchronise",
    "search.results.comparison", "search.show.sections.models", "search.results.summarise", "search.text_table",
    "spaces.losses", "spaces.search_space", "spaces.space", "trainables.data",
    "trainables.data.batch_samplers", "trainables.data.dataset", "trainables.data.split",
    "trainables.data.store.store_spec",
    "trainables.common.files", "trainables.inference.index", "trainables.inference.model_files", "trainables.losses",
    "trainables.metrics", "trainables.common.errors", "trainables.models",
    "trainables.models.backbones", "trainables.models.config", "trainables.models.weights",
    "trainables.common.part_tables",
    "trainables.training.spec", "trainables.training.checkpoints", "trainables.training.training_config",
)  # fmt: skip

USES = {
    "every data set": "from trainables.data import DATASETS; [table.summary for table in DATASETS.values()]",
    "facts about losses": (
        "from trainables.losses import LOSSES, loss_row; [loss_row(name).paper for name in LOSSES]; 'mpa' in LOSSES"
    ),
    "settings and models": (
        "from trainables.models import ModelConfig; from trainables.training.training_config import TrainingConfig;"
        "ModelConfig(backbone='resnet50', weights='imagenet', pooling='gem'); ModelConfig(backbone='timm:x');"
        "TrainingConfig(sampler='up_to', augment='none', optimizer='adam').frame"
    ),
    "paths of weights": (
        "from trainables.models.backbones import BACKBONES; from trainables.models.weights import weights_path;"
        "[weights_path(row.imagenet) for row in BACKBONES.values() if row.imagenet]"
    ),
    "names of metrics": (
        "from trainables.metrics import METRICS, all_metrics, largest_k, unknown_metrics;"
        "largest_k(all_metrics()); unknown_metrics(['x']); list(METRICS)"
    ),
    "which batches can be filled": (
        "from trainables.data.batch_samplers import batch_problems; batch_problems('balanced', [5] * 9, 20, 5)"
    ),
    "a default space": (
        "from spaces.search_space import search_space; from trainables.training.training_config import TrainingConfig;"
        "search_space('mpa', TrainingConfig(), {}, {'training': {'proxy_lr': {'low': 1e-4}}})"
    ),
}


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


def test_imports_and_uses_load_nothing_heavy_and_a_training_what_it_uses() -> None:
    """A training needs neither torch's compiler nor the driver's libraries, and faiss for a neighbour search only."""
    report = "print(*(name for name in {} if name in sys.modules))"
    imports = ["import sys", *(f"import {module}" for module in LIGHT)]
    use = "from trainables.losses import LOSSES; LOSSES['contrastive']"
    parts = (*imports, *USES.values(), report.format(HEAVY), use, report.format(HEAVY), TRAINING, report.format(UNUSED))
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(parts)],
        cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["", "torch", "True", ""]
