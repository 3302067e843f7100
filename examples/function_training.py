"""A user-defined training as a function, on a file of embeddings.

holdout run examples/function_training.yaml --set dataset.file=mine.npz
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

import holdout


@holdout.trainable(lr=holdout.Float(1e-3, 1e-1, log=True, default=1e-2), margin=holdout.Float(0.0, 1.0, default=0.3))
def contrast(params: Mapping[str, Any], train: holdout.Items, report: holdout.Report) -> None:
    """Move embeddings of one class together and others apart."""
    inputs, labels = torch.from_numpy(train.items).to(report.device), torch.from_numpy(train.labels).to(report.device)
    network = nn.Linear(inputs.shape[1], 16).to(report.device)
    optimizer = torch.optim.Adam(network.parameters(), lr=params["lr"])
    same = labels[:, None] == labels
    for _ in range(report.epochs):
        embeddings = nn.functional.normalize(network(inputs))
        similarity = embeddings @ embeddings.T
        loss = torch.where(same, 1 - similarity, (similarity - params["margin"]).clamp(min=0)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(lambda items: network(torch.from_numpy(items).to(report.device)), loss=loss.item())
