"""The optimisers of the papers, and how a training's parameters are grouped for them."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,  # Multi Proxy Anchor, the thesis
    "adam": torch.optim.Adam,  # PNP, Sampling Wisely
}


def parameter_group(parameters: Iterable[nn.Parameter], lr: float) -> dict[str, Any]:
    """The parameters that learn (frozen batch-norm's do not), at the learning rate ``lr``."""
    return {"params": [parameter for parameter in parameters if parameter.requires_grad], "lr": lr}
