"""open-metric-learning's loop: batches of its balanced sampler, and its triplet loss with the hardest triplets."""

import torch
from oml.losses import TripletLossWithMiner
from oml.miners import HardTripletsMiner
from oml.samplers import BalanceSampler
from torch.utils.data import DataLoader, TensorDataset

import holdout
from examples.trainers import tiny


@holdout.trainable(
    lr=holdout.Float(1e-4, 1e-2, log=True, default=3e-3), margin=holdout.Float(0.05, 1.0, log=True, default=0.2)
)
def oml_loop(params, train, report):
    extractor = tiny.network()
    optimizer = torch.optim.Adam(extractor.parameters(), lr=params["lr"])
    criterion = TripletLossWithMiner(margin=params["margin"], miner=HardTripletsMiner())
    dataset = TensorDataset(torch.from_numpy(train.items), torch.from_numpy(train.labels))
    loader = DataLoader(dataset, batch_sampler=BalanceSampler(train.labels, n_labels=4, n_instances=4))

    for _ in range(report.epochs):
        for inputs, targets in loader:
            loss = criterion(extractor(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        report(lambda items: extractor(torch.from_numpy(items)), loss=loss.item())
