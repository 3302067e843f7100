"""The optimisers of the papers, and how a training's parameters are grouped for them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trainables.parts import PartRow, PartTable

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

_ROWS = {
    "adamw": PartRow(path="trainables.training.optimizers.adam:AdamW"),  # Multi Proxy Anchor, the thesis
    "adam": PartRow(path="trainables.training.optimizers.adam:Adam"),  # PNP, Sampling Wisely
}

OPTIMIZERS: "PartTable[type[Optimizer], PartRow]" = PartTable("optimizer", _ROWS)


def parameter_group(parameters: "Iterable[nn.Parameter]", lr: float) -> dict[str, Any]:
    """The parameters that learn (frozen batch-norm's do not), at the learning rate ``lr``."""
    return {"params": [parameter for parameter in parameters if parameter.requires_grad], "lr": lr}
