"""A Lightning module with a schedule of its learning rate, trained to classify."""

import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import holdout
from examples.trainers import tiny


class Classifier(LightningModule):
    def __init__(self, classes, lr):
        super().__init__()
        self.lr, self.network, self.classify = lr, tiny.network(), nn.Linear(8, classes)

    def forward(self, items):
        return self.network(items)

    def training_step(self, batch, number):
        loss = nn.functional.cross_entropy(self.classify(self(batch[0])), batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.lr, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


@holdout.trainable(
    holdout.LightningTrainable,
    lr=holdout.Float(1e-3, 1e-1, log=True, default=1e-2),
    batch_size=holdout.Choice((8, 16, 32), default=16),
)
def lightning_module(params, train, report):
    tensors = TensorDataset(torch.from_numpy(train.items), torch.from_numpy(train.labels))
    loader = DataLoader(tensors, batch_size=params["batch_size"], shuffle=True)
    return Classifier(len(train.class_names), lr=params["lr"]), loader
