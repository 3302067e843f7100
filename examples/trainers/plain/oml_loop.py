"""open-metric-learning's loop: batches of its balanced sampler, and its triplet loss with the hardest triplets."""

import torch
from oml.losses import TripletLossWithMiner
from oml.miners import HardTripletsMiner
from oml.samplers import BalanceSampler
from torch.utils.data import DataLoader, TensorDataset

from examples.trainers import tiny


def oml_loop(vectors, labels):
    extractor = tiny.network()
    optimizer = torch.optim.Adam(extractor.parameters(), lr=3e-3)
    criterion = TripletLossWithMiner(margin=0.2, miner=HardTripletsMiner())
    dataset = TensorDataset(torch.from_numpy(vectors), torch.from_numpy(labels))
    loader = DataLoader(dataset, batch_sampler=BalanceSampler(labels, n_labels=4, n_instances=4))

    for _ in range(8):
        for inputs, targets in loader:
            loss = criterion(extractor(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return extractor


if __name__ == "__main__":
    torch.save(oml_loop(*tiny.vectors()).state_dict(), "extractor.pt")
