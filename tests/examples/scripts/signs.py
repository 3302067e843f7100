"""Train an embedding of small pictures with Lightning: validation, a schedule on `val_loss` and early stopping."""

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from pytorch_metric_learning import losses, miners
from torch import nn
from torch.utils.data import DataLoader, random_split
from torchvision.transforms import v2

import holdout


class Encoder(L.LightningModule):
    """A small convolutional network with a triplet loss."""

    def __init__(self, embedding_dim=64, margin=0.2, lr=1e-3, weight_decay=1e-4):
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(128, embedding_dim),
        )
        self.miner = miners.MultiSimilarityMiner()
        self.loss = losses.TripletMarginLoss(margin)

    def forward(self, images):
        return nn.functional.normalize(self.network(images))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        embeddings = self(images)
        loss = self.loss(embeddings, labels, self.miner(embeddings, labels))
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        self.log("val_loss", self.loss(self(images), labels), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.weight_decay)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"}}


@holdout.trainable(holdout.LightningTrainable, lr=holdout.Float(1e-4, 1e-2, log=True, default=1e-3))
def signs(params, train, report):
    transform = v2.Compose([v2.ToImage(), v2.Resize((32, 32)), v2.ToDtype(torch.float32, scale=True)])
    dataset = train.dataset(transform)
    train_set, val_set = random_split(dataset, [0.8, 0.2])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True, num_workers=2)
    val_loader = DataLoader(val_set, batch_size=64)

    model = Encoder(margin=0.2, lr=params["lr"])
    trainer = L.Trainer(
        max_epochs=20,
        accelerator="auto",
        devices=1,
        gradient_clip_val=1.0,
        check_val_every_n_epoch=1,
        log_every_n_steps=5,
        logger=CSVLogger("logs"),
        callbacks=[
            EarlyStopping("val_loss", patience=5),
            ModelCheckpoint(monitor="val_loss", save_top_k=1),
            LearningRateMonitor("epoch"),
        ],
    )
    return trainer, model, train_loader, val_loader
