"""A Lightning module with a schedule of its learning rate, trained to classify."""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

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


def lightning_module(vectors, labels):
    tensors = TensorDataset(torch.from_numpy(vectors), torch.from_numpy(labels))
    return Classifier(int(labels.max()) + 1, lr=1e-2), DataLoader(tensors, batch_size=16, shuffle=True)


if __name__ == "__main__":
    trainer = Trainer(max_epochs=8, accelerator="cpu")
    trainer.fit(*lightning_module(*tiny.vectors()))
    trainer.save_checkpoint("classifier.ckpt")
