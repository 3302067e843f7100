"""A ``LightningModule`` is trained as Lightning trains it in one call: schedules, hooks and resume."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from trainables.training.library_trainables import LightningTrainable
from trainables.training.trainable import Items, Report, seed_epoch

EPOCHS, SAVED = 3, 2
RATE = 0.01
ITEMS = Items(
    items=np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32),
    labels=np.arange(40) % 4,
    class_names=("a", "b", "c", "d"),
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Found 1 module.s. in eval mode"),
]

SCHEDULES: Mapping[str, Callable[[torch.optim.Optimizer, Any], dict[str, Any]]] = {
    "one_cycle": lambda optimizer, trainer: {
        "scheduler": lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=trainer.estimated_stepping_batches),
        "interval": "step",
    },
    "cosine": lambda optimizer, trainer: {
        "scheduler": lr_scheduler.CosineAnnealingLR(optimizer, trainer.max_epochs), "interval": "epoch",
    },
    "plateau": lambda optimizer, trainer: {
        "scheduler": lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5), "monitor": "train_loss",
    },
}  # fmt: skip


class Net(LightningModule):
    """A linear layer that notes the learning rate of every step and the hooks that are called."""

    def __init__(self, schedule: str, weights: np.ndarray[Any, Any]) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.map, self.classify = nn.Linear(6, 3), nn.Linear(3, 4)
        self.dropout = nn.Dropout(0.2).eval()  # as of a frozen part
        self.rates: list[float] = []
        self.hooks: list[str] = []

    def forward(self, items: Any) -> Any:
        return self.map(torch.as_tensor(items, device=self.device))

    def training_step(self, batch: Any, number: int) -> Any:
        weight = torch.as_tensor(self.hparams["weights"], dtype=torch.float32)
        loss = nn.functional.cross_entropy(self.classify(self(batch[0])), batch[1], weight=weight)
        # rises, so that a plateau is met in every epoch
        self.log("train_loss", loss.detach() * 0 + float(self.current_epoch), on_step=False, on_epoch=True)
        self.rates.append(self.optimizers().param_groups[0]["lr"])  # type: ignore[union-attr]
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=RATE)
        schedule = SCHEDULES[self.hparams["schedule"]](optimizer, self.trainer)
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def on_fit_start(self) -> None:
        self.hooks.append("fit")

    def on_train_epoch_end(self) -> None:
        self.hooks.append("epoch")

    def on_fit_end(self) -> None:
        self.hooks.append("end")


def made(schedule: str, **options: Any) -> Any:
    """Return a training of :class:`Net`, set up, that keeps its network in reach."""

    class Training(LightningTrainable):
        def function(self, params: Mapping[str, Any], train: Items, report: Report) -> Any:
            self.net = Net(schedule, np.ones(4))
            return Trainer(accelerator="cpu", **options), self.net, loader()

    training = Training()
    training.epochs = EPOCHS
    seed_epoch(0, 0)
    training.setup({}, ITEMS, seed=0, device=torch.device("cpu"))
    return training


def loader() -> Any:
    return DataLoader(TensorDataset(torch.from_numpy(ITEMS.items), torch.from_numpy(ITEMS.labels)), 16, shuffle=True)


def epoch(training: Any, number: int) -> Mapping[str, float]:
    seed_epoch(0, number)
    return training.train_epoch()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_learning_rates_are_those_of_lightning_after_a_resumption_too(schedule: str, tmp_path: Path) -> None:
    training = made(schedule)
    for number in range(1, EPOCHS + 1):
        assert epoch(training, number)["loss"] == number - 1
        training.embed(ITEMS.items)
        if number == SAVED:
            training.save(tmp_path)
    plain = Net(schedule, np.ones(4))
    Trainer(
        max_epochs=EPOCHS, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
        default_root_dir=tmp_path,
    ).fit(plain, loader())  # fmt: skip
    assert training.net.rates == plain.rates
    assert len(set(plain.rates)) > 1
    assert training.net.hooks == plain.hooks == ["fit", *["epoch"] * EPOCHS, "end"]

    again = made(schedule)
    again.load(tmp_path)
    for number in range(SAVED + 1, EPOCHS + 1):
        epoch(again, number)
    assert again.net.rates == plain.rates[len(plain.rates) * SAVED // EPOCHS :]
    assert torch.equal(again.embed(ITEMS.items), training.embed(ITEMS.items))
    training.finish()
    again.finish()


def test_a_pruned_training_ends_its_fit() -> None:
    training = made("cosine")
    epoch(training, 1)
    training.embed(ITEMS.items)
    assert [part.training for part in training.net.children()] == [True, True, False], "the modes are kept"
    running = threading.active_count()
    training.finish()
    assert threading.active_count() == running - 1
    assert training.net.hooks == ["fit", "epoch"]
