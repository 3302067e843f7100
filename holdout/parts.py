"""The base classes and functions of your own losses, data sets, batch samplers and engines.

>>> from holdout.parts import Float, Loss, cosines, same_and_different
"""

from search.engines.base import Engine
from spaces.space import Choice, Float, Int, Space
from trainables.common.errors import InvalidInput, raise_if_any
from trainables.data.batch_samplers import BatchSampler
from trainables.data.dataset import Dataset, ItemDataset
from trainables.losses.loss import (
    Loss,
    ProxyLoss,
    Used,
    choice,
    cosines,
    log1p_sum_exp,
    masked_logsumexp,
    real,
    reduced,
    same_and_different,
    sizes,
    unit,
    whole,
)
from trainables.training.trainable import Trainable

__all__ = [
    "BatchSampler", "Choice", "Dataset", "Engine", "Float", "Int", "InvalidInput", "ItemDataset", "Loss", "ProxyLoss",
    "Space", "Trainable", "Used", "choice", "cosines", "log1p_sum_exp", "masked_logsumexp", "raise_if_any", "real",
    "reduced", "same_and_different", "sizes", "unit", "whole",
]  # fmt: skip
