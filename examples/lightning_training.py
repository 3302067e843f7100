"""A user-defined training with PyTorch Lightning, on a file of embeddings.

holdout run examples/lightning_training.yaml --set dataset.file=mine.npz
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import holdout


class Classifier(LightningModule):
    """A linear map, trained to classify the training classes."""

    def __init__(self, features: int, classes: int, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.map, self.classify = nn.Linear(features, 16), nn.Linear(16, classes)

    def forward(self, items: Any) -> Tensor:
        return self.map(torch.as_tensor(items, device=self.device))

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        loss = nn.functional.cross_entropy(self.classify(self(batch[0])), batch[1])
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class LightningClassifier(holdout.LightningTrainable):
    """The module and its data."""

    space: ClassVar[Mapping[str, Any]] = {
        "lr": holdout.Float(1e-3, 1e-1, log=True, default=1e-2),
        "batch_size": holdout.Choice((16, 32, 64), default=32),
    }

    def module(self, params: Mapping[str, Any], train: holdout.Items) -> LightningModule:
        return Classifier(train.items.shape[1], len(train.class_names), params["lr"])

    def data(self, params: Mapping[str, Any], train: holdout.Items) -> Any:
        tensors = TensorDataset(torch.from_numpy(train.items), torch.from_numpy(train.labels))
        return DataLoader(tensors, batch_size=params["batch_size"], shuffle=True)
