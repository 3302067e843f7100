"""Train a layer on given vectors with pytorch-metric-learning: its README's loop with a sampler, a miner and a test."""

import numpy as np
import torch
from pytorch_metric_learning import distances, losses, miners, reducers, samplers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(model, loss_func, miner, device, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, labels) in enumerate(loader):
        data, labels = data.to(device), labels.to(device)
        optimizer.zero_grad()
        embeddings = model(data)
        triplets = miner(embeddings, labels)
        loss = loss_func(embeddings, labels, triplets)
        loss.backward()
        optimizer.step()
        if batch_idx % 20 == 0:
            print(f"Epoch {epoch} Iteration {batch_idx}: Loss = {loss:.4f}, triplets = {miner.num_triplets}")


@torch.no_grad()
def test(model, vectors, labels, device):
    model.eval()
    embeddings = model(vectors.to(device))
    found = AccuracyCalculator(include=("precision_at_1",), k=1).get_accuracy(embeddings, labels.to(device))
    print("Test set accuracy (precision@1) =", found["precision_at_1"])


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    file = np.load("speakers.npz")
    vectors, labels = torch.from_numpy(file["embeddings"]), torch.from_numpy(file["labels"])

    sampler = samplers.MPerClassSampler(labels, m=4, batch_size=32, length_before_new_iter=len(labels))
    loader = DataLoader(TensorDataset(vectors, labels), batch_size=32, sampler=sampler)
    model = nn.Sequential(nn.Linear(vectors.shape[1], 64), nn.ReLU(), nn.Linear(64, 32)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)

    distance = distances.CosineSimilarity()
    reducer = reducers.ThresholdReducer(low=0)
    loss_func = losses.TripletMarginLoss(margin=0.2, distance=distance, reducer=reducer)
    miner = miners.TripletMarginMiner(margin=0.2, distance=distance, type_of_triplets="semihard")

    for epoch in range(1, 11):
        train(model, loss_func, miner, device, loader, optimizer, epoch)
        test(model, vectors, labels, device)
        scheduler.step()
    torch.save(model.state_dict(), "speakers.pt")


if __name__ == "__main__":
    main()
