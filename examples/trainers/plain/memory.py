"""A pytorch-metric-learning trainer with a miner and a cross-batch memory."""

import torch
from pytorch_metric_learning.losses import CrossBatchMemory, NTXentLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from pytorch_metric_learning.trainers import MetricLossOnly
from torch.utils.data import TensorDataset

from examples.trainers import tiny


def memory(vectors, labels):
    network = tiny.network()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    miner = MultiSimilarityMiner(epsilon=0.1)
    loss = CrossBatchMemory(NTXentLoss(temperature=0.1), embedding_size=8, memory_size=64, miner=miner)

    trainer = MetricLossOnly(
        {"trunk": network},
        {"trunk_optimizer": optimizer},
        batch_size=16,
        loss_funcs={"metric_loss": loss},
        dataset=TensorDataset(torch.from_numpy(vectors), torch.from_numpy(labels)),
        dataloader_num_workers=0,
    )
    trainer.train(num_epochs=8)
    return network


if __name__ == "__main__":
    torch.save(memory(*tiny.vectors()).state_dict(), "network.pt")
