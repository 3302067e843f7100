"""timm's loop: its network, optimizer, schedule and average of the weights, trained to classify."""

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3

from examples.trainers import tiny


def timm_loop(pictures, labels):
    trunk = timm.create_model("test_vit", img_size=32, num_classes=0)
    network = torch.nn.Sequential(trunk, torch.nn.Linear(trunk.num_features, int(labels.max()) + 1))
    average = ModelEmaV3(network, decay=0.9)
    optimizer = create_optimizer_v2(network, opt="adamw", lr=3e-3, weight_decay=0.05)
    schedule, epochs = create_scheduler_v2(optimizer, sched="cosine", num_epochs=4, warmup_epochs=1)
    criterion = LabelSmoothingCrossEntropy(0.1)
    inputs, targets = tiny.images(pictures), torch.from_numpy(labels)

    for epoch in range(epochs):
        network.train()
        for rows in torch.randperm(len(inputs)).split(16):
            loss = criterion(network(inputs[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update(network)
        schedule.step(epoch + 1)
    return average.module[0]


if __name__ == "__main__":
    torch.save(timm_loop(*tiny.pictures()).state_dict(), "network.pt")
