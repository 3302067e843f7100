"""A pytorch-metric-learning trainer with a miner and a cross-batch memory."""

import torch
from pytorch_metric_learning.losses import CrossBatchMemory, NTXentLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from pytorch_metric_learning.trainers import MetricLossOnly
from torch.utils.data import TensorDataset

import holdout
from examples.trainers import tiny


@holdout.trainable(
    lr=holdout.Float(1e-4, 1e-2, log=True, default=3e-3), temperature=holdout.Float(0.02, 0.5, log=True, default=0.1)
)
def memory(params, train, report):
    network = tiny.network()
    optimizer = torch.optim.Adam(network.parameters(), lr=params["lr"])
    miner = MultiSimilarityMiner(epsilon=0.1)
    loss = CrossBatchMemory(NTXentLoss(params["temperature"]), embedding_size=8, memory_size=64, miner=miner)

    trainer = MetricLossOnly(
        {"trunk": network},
        {"trunk_optimizer": optimizer},
        batch_size=16,
        loss_funcs={"metric_loss": loss},
        dataset=TensorDataset(torch.from_numpy(train.items), torch.from_numpy(train.labels)),
        dataloader_num_workers=0,
        end_of_epoch_hook=lambda trainer: report(lambda items: network(torch.from_numpy(items))),
    )
    trainer.train(num_epochs=report.epochs)
