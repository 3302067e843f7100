"""Names, numbers and rules are known without loading torch and the like, which take seconds and a gigabyte."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "torchvision", "faiss", "scipy", "sklearn")

LIGHT = (
    "spaces.declared",
    "spaces.losses",
    "spaces.override",
    "spaces.search_space",
    "spaces.space",
    "spaces.training",
    "trainables.training.checkpoints",
    "trainables.data",
    "trainables.data.augmentation.augment",
    "trainables.data.batch_samplers",
    "trainables.data.dataset",
    "trainables.data.merge",
    "trainables.data.split",
    "trainables.data.store.spec",
    "trainables.training.epoch_record",
    "trainables.files",
    "trainables.losses",
    "trainables.losses.loss_part",
    "trainables.metrics",
    "trainables.metrics.table",
    "trainables.mistakes",
    "trainables.models",
    "trainables.models.backbones",
    "trainables.models.config",
    "trainables.models.weights",
    "trainables.training.optimizers",
    "trainables.parts",
    "trainables.spec",
    "trainables.training.config",
)

USES = {
    "every data set": "from trainables.data import DATASETS; [table.summary for table in DATASETS.values()]",
    "what is known of losses": (
        "from trainables.losses import LOSSES, loss_row; [loss_row(name).paper for name in LOSSES]; 'mpa' in LOSSES"
    ),
    "settings and models": (
        "from trainables.models import ModelConfig; from trainables.training.config import TrainingConfig;"
        "ModelConfig(backbone='resnet50', weights='imagenet', pooling='gem'); ModelConfig(backbone='timm:x');"
        "TrainingConfig(sampler='up_to', augment='none', optimizer='adam').frame"
    ),
    "where weights lie": (
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
    "a space without wishes": (
        "from spaces.search_space import search_space; from trainables.training.config import TrainingConfig;"
        "search_space('mpa', TrainingConfig(), {}, {'proxy_lr': {'low': 1e-4}})"
    ),
    "a space that was accepted before": (
        "from spaces.search_space import search_space; from trainables.training.config import TrainingConfig;"
        "search_space('mpa', TrainingConfig(), {'margin': 0.3}, {}, checked=False)"
    ),
}


def heavy_after(program: str) -> list[str]:
    """What a process of its own has loaded of the heavy libraries when ``program`` is done."""
    report = f"{program}\nimport sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", report], cwd=root, check=True, capture_output=True, text=True
    ).stdout.split()


@pytest.mark.parametrize("module", LIGHT)
def test_an_import_loads_nothing_heavy(module: str) -> None:
    assert heavy_after(f"import {module}") == []


@pytest.mark.parametrize("program", USES.values(), ids=USES)
def test_a_use_loads_nothing_heavy(program: str) -> None:
    assert heavy_after(program) == []


def test_a_table_loads_what_is_used() -> None:
    assert heavy_after("from trainables.losses import LOSSES; LOSSES['contrastive']") == ["torch"]
