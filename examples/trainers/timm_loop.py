"""timm's loop: its network, optimizer, schedule and average of the weights, trained to classify."""

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3

import holdout
from examples.trainers import tiny


@holdout.trainable(
    lr=holdout.Float(1e-4, 1e-2, log=True, default=3e-3), smoothing=holdout.Choice((0.0, 0.1, 0.2), default=0.1)
)
def timm_loop(params, train, report):
    trunk = timm.create_model("test_vit", img_size=32, num_classes=0)
    network = torch.nn.Sequential(trunk, torch.nn.Linear(trunk.num_features, len(train.class_names)))
    average = ModelEmaV3(network, decay=0.9)
    optimizer = create_optimizer_v2(network, opt="adamw", lr=params["lr"], weight_decay=0.05)
    schedule, epochs = create_scheduler_v2(optimizer, sched="cosine", num_epochs=report.epochs, warmup_epochs=1)
    criterion = LabelSmoothingCrossEntropy(params["smoothing"])
    inputs, targets = tiny.images(train.items), torch.from_numpy(train.labels)

    for epoch in range(epochs):
        network.train()
        for rows in torch.randperm(len(inputs)).split(16):
            loss = criterion(network(inputs[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update(network)
        schedule.step(epoch + 1)
        report(lambda items: average.module.eval()[0](tiny.images(items)), loss=loss.item())
