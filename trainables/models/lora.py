"""Low-rank adaptation of a pretrained backbone (LoRA; Hu et al., ICLR 2022), which trains few numbers.

Shapes: O outputs and I inputs of a layer (of a convolution: channels times positions of its kernel), R rank.
"""

import fnmatch
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from trainables.mistakes import Mistakes
from trainables.models.config import ModelConfig
from trainables.models.weights import SHOWN


class LowRank(nn.Module):
    """Map a frozen weight W to W + alpha / R · U D (section 4.1, eq. 3).

    D [R, I] begins with Kaiming's uniform numbers, as a linear layer of PyTorch does, and U [O, R] with zeros, so that
    the first step begins at W.
    """

    scale: Tensor

    def __init__(self, outputs: int, inputs: int, config: ModelConfig) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(config.lora_rank, inputs))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        self.up = nn.Parameter(torch.zeros(outputs, config.lora_rank))
        self.register_buffer("scale", torch.tensor(config.lora_alpha / config.lora_rank))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the adapted weight, of the shape of ``weight``."""
        with torch.autocast(weight.device.type, enabled=False):
            return _adapted(weight, self.up, self.down, self.scale)


def _adapted(weight: Tensor, up_OR: Tensor, down_RI: Tensor, scale: Tensor) -> Tensor:
    return weight + scale * (up_OR @ down_RI).view(weight.shape)


@dataclass(frozen=True, kw_only=True)
class _Weight:
    """A layer's weight, with the layer's ``attribute`` and the parameter's ``name`` in the backbone."""

    name: str
    layer: nn.Module
    attribute: str
    outputs: int
    inputs: int


def _weights(backbone: nn.Module) -> Iterator[_Weight]:
    """Yield the matrices of linear layers and attention, and the kernels of convolutions."""
    for path, layer in backbone.named_modules():
        for attribute, parameter in layer.named_parameters(recurse=False):
            if attribute.endswith("weight") and parameter.ndim > 1:
                name = f"{path}.{attribute}" if path else attribute
                outputs = len(parameter)
                yield _Weight(
                    name=name, layer=layer, attribute=attribute, outputs=outputs, inputs=parameter.numel() // outputs
                )


def adapt(backbone: nn.Module, config: ModelConfig) -> None:
    """Freeze ``backbone``, and add :class:`LowRank` to the weights that ``config.lora_targets`` match.

    Weights of which the smaller side is less than two ranks stay as they are.

    Raises:
        Mistakes: no weight is left to adapt.
    """
    backbone.requires_grad_(False)
    weights = list(_weights(backbone))
    matching = [weight for weight in weights if any(fnmatch.fnmatchcase(weight.name, p) for p in config.lora_targets)]
    chosen = [weight for weight in matching if 2 * config.lora_rank <= min(weight.outputs, weight.inputs)]
    if not matching:
        raise Mistakes(
            f"model.lora_targets is {list(config.lora_targets)}, which matches no weight of {config.backbone}; its "
            f"weights are named {', '.join(weight.name for weight in weights[:SHOWN])} …"
        )
    if not chosen:
        most = max(min(weight.outputs, weight.inputs) for weight in matching) // 2
        raise Mistakes(
            f"model.lora_rank is {config.lora_rank}, and the weights that lora_targets match allow {most}; give a "
            "smaller rank."
        )
    for weight in chosen:
        low_rank = LowRank(weight.outputs, weight.inputs, config)
        parametrize.register_parametrization(weight.layer, weight.attribute, low_rank)


ADAPTED = ".parametrizations."
"""Marks names of tensors of an adapted weight in a ``state_dict``: W is ``LAYER.parametrizations.weight.original``."""


def merged(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a network as those of the same network without LoRA, which computes the same."""
    found = {}
    for name, tensor in tensors.items():
        if name.endswith(".original"):
            prefix = name.removesuffix("original")
            parts = (tensors[f"{prefix}0.{part}"] for part in ("up", "down", "scale"))
            found[prefix.removesuffix(".").replace(ADAPTED, ".")] = _adapted(tensor, *parts)
        elif ADAPTED not in name:
            found[name] = tensor
    return found
